"""What the ledger knows of a workload's speed, for the commands that predict; and the record of their answers.

An estimate does not fail for a ledger that cannot be used; a note says so.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from costgpu.errors import CostGpuError
from costgpu.providers import registry

if TYPE_CHECKING:
    from costgpu.ledger import Ledger
    from costgpu.models.offer import Offer
    from costgpu.models.prediction import MeasuredSpeed
    from costgpu.workflows.reporter import Reporter


class SpeedHistory:
    """Measured speeds of one workload by place. The ledger is opened with the first question; a context manager.

    Args:
        workload: Key of the workload; empty for one of which nothing is known.
        ledger: The ledger to ask; None for the one that is configured.
    """

    def __init__(self, workload: str, reporter: Reporter, *, ledger: Ledger | None = None) -> None:
        self._workload, self._reporter, self._ledger = workload, reporter, ledger
        self._opened: Ledger | None = None
        self._known: dict[int, Mapping[tuple[str, str], MeasuredSpeed]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._opened is not None:
            self._opened.close()

    def speed(self, offer: Offer | None, nodes: int = 1) -> MeasuredSpeed | None:
        """Return how long this workload took on so many such machines (None: on this one).

        None if that was never measured.
        """
        if nodes not in self._known:
            self._known[nodes] = self._measured(nodes)
        if offer is None:
            return next((speed for place, speed in self._known[nodes].items() if registry.is_here(place[0])), None)
        return self._known[nodes].get((offer.provider, offer.instance_type))

    def _measured(self, nodes: int) -> Mapping[tuple[str, str], MeasuredSpeed]:
        from costgpu.config import ledger_url
        from costgpu.ledger import Ledger
        from costgpu.ledger.records.measured_speeds import measured_speeds
        from costgpu.models.workload import key_on

        if not self._workload:
            return {}
        try:
            if self._ledger is None:
                self._ledger = self._opened = Ledger.open(ledger_url())
            here = registry.this_computer().name, socket.gethostname()
            return measured_speeds(self._ledger, key_on(self._workload, nodes), here=here)
        except CostGpuError as error:
            self._reporter.note(f"Earlier runs are not known: {error.message}")
            return {}

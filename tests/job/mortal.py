"""Clients that die: everything they call is counted, and at one of the calls they are gone, as by SIGKILL.

A dead client runs no clean-up: whatever its `finally` blocks call raises, and changes nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from costgpu.clock import Clock
from costgpu.errors import LedgerConflict
from costgpu.job.drive.context import Services
from costgpu.job.files.selection import Selection
from costgpu.models.instance import Identity
from costgpu.models.job import FileEntry
from costgpu.models.offer import Accelerator
from costgpu.models.run import Plan, RunEvent, RunView
from tests.fake_cloud import FakeCloud
from tests.job.examples import START, option, spec


class Killed(BaseException):
    """SIGKILL."""


@dataclass
class Life:
    """Of one client.

    Attributes:
        dies_at: The number of the call, from 1; None for never.
        after: Whether that call is still carried out.
        calls: What was called so far.
    """

    dies_at: int | None = None
    after: bool = False
    calls: list[str] = field(default_factory=list)
    dead: bool = False

    def call(self, what: str, carry_out: Callable[[], Any]) -> Any:
        if self.dead:
            raise Killed
        self.calls.append(what)
        if len(self.calls) == self.dies_at:
            self.dead = True
            if self.after:
                carry_out()
            raise Killed(what)
        return carry_out()


class Mortal:
    """Passes calls on as long as its client lives."""

    def __init__(self, target: Any, life: Life, name: str, *, free: tuple[str, ...] = ()) -> None:
        self._target, self._life, self._name, self._free = target, life, name, free

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(self._target, attribute)
        if not callable(found) or attribute in self._free:
            return found

        def called(*args: Any, **kwargs: Any) -> Any:
            return self._life.call(f"{self._name}.{attribute}", lambda: found(*args, **kwargs))

        return called


class MemoryBook:
    """A ledger that outlives its clients."""

    def __init__(self) -> None:
        self.rows: dict[str, list[RunEvent]] = {}

    def append(self, event: RunEvent, admit: Callable[[], None] | None = None, /) -> None:
        if admit is not None:
            admit()
        rows = self.rows.setdefault(event.run_id, [])
        if event.sequence != len(rows):
            raise LedgerConflict(f"{event.run_id} {event.sequence}")
        rows.append(event)

    def events(self, run_id: str) -> tuple[RunEvent, ...]:
        return tuple(self.rows.get(run_id, ()))

    def open_runs(self) -> tuple[str, ...]:
        return tuple(run_id for run_id, rows in self.rows.items() if rows[-1].kind.value != "closed")

    def recent_runs(self, limit: int = 50) -> tuple[str, ...]:
        return tuple(reversed(self.rows))[:limit]

    def resolve(self, text: str) -> tuple[str, ...]:
        return tuple(run_id for run_id in self.rows if run_id.startswith(text))


def tools(cloud: FakeCloud, folder: Path, life: Life | None = None, clock: Clock | None = None) -> Services:
    """Everything of a client's that talks to the outside, mortal."""
    life = life or Life()
    provider = Mortal(cloud.provider(), life, "provider", free=("layers",))

    def connect(instance: Any, keys: Any) -> Any:
        host = life.call("host.connect", lambda: cloud.connect(instance, keys))
        return Mortal(host, life, "host")

    return Services(
        provider=lambda name: provider,
        connect=connect,
        clock=clock or cloud.clock,
        folder=folder / "runs",
        select=selection,
        allow_from=lambda name: "192.0.2.1/32",
    )


def selection(view: RunView) -> Selection:
    return Selection(root=Path(view.spec.workdir), files=(FileEntry(path="train.py", size=5, sha256="0" * 64),))


def plan(
    workdir: Path,
    *,
    max_cost: str = "2.00",
    regions: tuple[str, ...] = ("us-east-1", "us-west-2"),
    spot: bool = False,
    gpu: Accelerator | None = None,
    **changes: Any,
) -> Plan:
    options = [option(region, max_cost=max_cost, spot=spot) for region in regions]
    return Plan(
        spec=spec(str(workdir), **changes),
        options=tuple(replace(each, offer=replace(each.offer, accelerator=gpu)) for each in options),
        prediction=None,
        verdict="",
        identity=Identity(provider="fake", account="000000000000", principal="me"),
        layers=(),
        files=1,
        bytes=5,
        left_out={},
        price_as_of=START.date(),
    )

"""Many runs of the ledger at once, some of which may be damaged."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Protocol

from costgpu.errors import LedgerDamaged, LedgerError, LedgerTooNew
from costgpu.job.state.attempts import attempt_id
from costgpu.job.state.journal import EventStore
from costgpu.job.state.states import replay
from costgpu.models.run import RunEvent, RunView


class ManyRuns(EventStore, Protocol):
    """A ledger that reads many runs at once."""

    def events_of(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[RunEvent]]:
        """Return the events of many runs, in the order asked for; unknown runs are left out."""


def load_runs(ledger: ManyRuns, run_ids: Sequence[str]) -> tuple[list[RunView], dict[str, LedgerError]]:
    """Return the runs as the ledger tells them, and why others cannot be read: one that is damaged does not hide the rest.

    Raises:
        LedgerError: It is not one run that cannot be read, but the ledger.
    """
    views: list[RunView] = []
    damaged: dict[str, LedgerError] = {}
    events: Mapping[str, Sequence[RunEvent]] = {}
    with contextlib.suppress(LedgerDamaged, LedgerTooNew):
        events = ledger.events_of(run_ids)
    for run_id in run_ids:
        try:
            views.append(replay(events.get(run_id) or ledger.events(run_id)))
        except (LedgerDamaged, LedgerTooNew) as error:
            damaged[run_id] = error
    return views, damaged


def load_runs_of_job(ledger: EventStore, view: RunView) -> tuple[list[RunView], dict[str, LedgerError]]:
    """Return the same for the runs of a run's job: of all machines of all its attempts, as far as they are recorded."""
    views: list[RunView] = []
    damaged: dict[str, LedgerError] = {}
    for index in count():
        before = len(views) + len(damaged)
        for run_id in (attempt_id(view.job_id, index, number) for number in range(len(view.machine_ids))):
            try:
                if events := ledger.events(run_id):
                    views.append(replay(events))
            except (LedgerDamaged, LedgerTooNew) as error:
                damaged[run_id] = error
        if len(views) + len(damaged) == before:
            break
    return views, damaged

"""The runs of a job that goes on after interruptions, in order. Their ids follow from that of the first."""

from __future__ import annotations

import hashlib

from costgpu.job.state.journal import EventStore
from costgpu.job.state.states import replay
from costgpu.models.run import RunView

_DIGITS = 11


def attempt_id(job_id: str, index: int) -> str:
    """Return the run id of an attempt: the same for every process, so that no two can begin it.

    Args:
        index: Number among the runs of the job, from 0.
    """
    if index == 0:
        return job_id
    return job_id[0] + hashlib.sha256(f"{job_id}/{index}".encode()).hexdigest()[:_DIGITS]


def attempts_of_job(ledger: EventStore, view: RunView) -> tuple[RunView, ...]:
    """Return the runs of a run's job that follow on each other, the run itself as it is given.

    Only that without recovery.
    """
    attempt = view.spec.attempt
    if attempt is None:
        return (view,)
    found: list[RunView] = []
    while events := ledger.events(attempt_id(attempt.job_id, len(found))):
        found.append(view if events[0].run_id == view.run_id else replay(events))
    return tuple(found)

"""The runs of a job: one for each machine of each attempt. Their ids follow from that of the first."""

from __future__ import annotations

import hashlib

from costgpu.job.state.journal import EventStore
from costgpu.job.state.states import replay
from costgpu.models.run import RunView

_DIGITS = 11


def attempt_id(job_id: str, index: int, node: int = 0) -> str:
    """Return the run id of a machine of an attempt: the same for every process, so that no two can begin it.

    Args:
        index: Number of the attempt, from 0.
        node: Number of the machine, from 0.
    """
    if index == 0 and node == 0:
        return job_id
    name = f"{job_id}/{index}/{node}" if node else f"{job_id}/{index}"
    return job_id[0] + hashlib.sha256(name.encode()).hexdigest()[:_DIGITS]


def attempts_of_job(ledger: EventStore, view: RunView) -> tuple[tuple[RunView, ...], ...]:
    """Return the runs of a run's job: the machines of each attempt, by number, as far as they are recorded.

    Args:
        view: A run of the job; it is returned as it is given.
    """
    found: list[tuple[RunView, ...]] = []
    first = view.job_id if view.spec.attempt is not None else view.machine_ids[0]
    while events := ledger.events(first):
        lead = view if first == view.run_id else replay(events)
        found.append(_machines(ledger, lead, view))
        if lead.spec.attempt is None:
            break
        first = attempt_id(lead.job_id, len(found))
    return tuple(found)


def machines_of_attempt(ledger: EventStore, view: RunView) -> tuple[RunView, ...]:
    """Return the runs that work together with a run, itself among them, by number."""
    first = view.machine_ids[0]
    if first == view.run_id:
        return _machines(ledger, view, view)
    events = ledger.events(first)
    return _machines(ledger, replay(events), view) if events else (view,)


def _machines(ledger: EventStore, lead: RunView, given: RunView) -> tuple[RunView, ...]:
    ids = lead.machine_ids[1:]
    others = (
        given if run_id == given.run_id else events and replay(events)
        for run_id in ids
        if (events := ledger.events(run_id))
    )
    return (lead, *(one for one in others if one))

"""Records the attempt that follows on one that is about to be closed.

That is done before the last open run of the one is closed: at no moment is a job that goes on without an open run, and
whoever comes next can take it further.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from dataclasses import replace

from costgpu.errors import LedgerConflict, LedgerDamaged, LedgerError
from costgpu.job.drive.context import RunContext
from costgpu.job.place_policy import NextAttempt, NoNextAttempt, next_attempt
from costgpu.job.state.attempts import attempt_id, attempts_of_job
from costgpu.job.state.journal import EventStore, RunJournal
from costgpu.job.state.states import read_event
from costgpu.models.events import Intended
from costgpu.models.job import JobNode
from costgpu.models.run import EventKind, RunState, RunView


def record_next_attempt(context: RunContext, closing: RunView) -> bool | None:
    """Write the intent of the next attempt; of a job that was interrupted without one, tell why.

    A ledger that cannot be written does not keep a run from being closed: its job has then come to its end.

    Args:
        closing: The run as it is about to be closed.

    Returns:
        Whether there is one; None as long as other machines of the attempt have not ended.
    """
    attempt = closing.spec.attempt
    if attempt is None:
        return False
    book = context.journal.book
    try:
        until_now = attempts_of_job(book, closing)
        if len(until_now) <= attempt.index:
            raise LedgerError("the ledger does not have its attempts any more.")
        following_id = attempt_id(attempt.job_id, attempt.index + 1)
        if book.events(following_id):
            return True  # recorded with another machine, or by a process that was killed
        machines = until_now[attempt.index]
        if any(view is not closing and not _has_ended(view) for view in machines):
            return None
        if context.cancelling or any(event.kind is EventKind.GIVEN_UP for event in book.events(closing.run_id)):
            return False  # the latter by another process, while the ledger could not be read here
        following = next_attempt(until_now, context.clock.now())
        if isinstance(following, NoNextAttempt):
            context.observer.note(f"{following.why} The job does not go on.")
        if not isinstance(following, NextAttempt):
            return False
        begun = any(view.started_at is not None for each in until_now for view in each)
        _record(book, context, machines[0], following, begun=begun)
    except LedgerError as error:
        context.observer.note(f"The job does not go on: {error.message}")
        return False
    return True


def record_machines(book: EventStore, context: RunContext, lead: RunView) -> None:
    """Write the intents of the other machines of an attempt, as far as they are missing.

    Raises:
        LedgerError: One could not be written.
    """
    if lead.spec.node is None or lead.spec.attempt is None or lead.state is RunState.CLOSED:
        return
    intent = _intent(book, lead.run_id)
    for number, run_id in enumerate(lead.spec.node.run_ids):
        if number == 0 or book.events(run_id):
            continue
        spec = replace(lead.spec, node=replace(lead.spec.node, node=number))
        with contextlib.suppress(LedgerConflict):
            RunJournal(book, context.clock, run_id).begin(
                replace(intent, spec=spec, estimate=None, workload=_UNMEASURED)
            )


_UNMEASURED: Mapping[str, object] = {"key": "", "steps": None}
"""Workload of a run that does not do the whole work of its job on its own: that is no measured speed."""


def _intent(book: EventStore, run_id: str) -> Intended:
    events = book.events(run_id)
    intent = read_event(events[0]) if events else None
    if not isinstance(intent, Intended):
        raise LedgerDamaged(f"The record of run {run_id} does not begin with an intent.")
    return intent


def _has_ended(view: RunView) -> bool:
    """Return whether nothing of a machine goes on: it is confirmed, or nothing was asked of its provider."""
    return view.state in (RunState.CLOSED, RunState.INTENT) or view.confirmed_at is not None


def _record(book: EventStore, context: RunContext, lead: RunView, following: NextAttempt, *, begun: bool) -> None:
    attempt, node = following.attempt, lead.spec.node
    run_id = attempt_id(attempt.job_id, attempt.index)
    if node is not None:
        others = [attempt_id(attempt.job_id, attempt.index, number) for number in range(1, len(node.run_ids))]
        node = JobNode(node=0, run_ids=(run_id, *others))
    spec = replace(lead.spec, max_duration_seconds=following.max_duration_seconds, attempt=attempt, node=node)
    intent = replace(_intent(book, lead.run_id), client=socket.gethostname(), spec=spec, options=following.options)
    if begun:
        intent = replace(intent, estimate=None, workload=_UNMEASURED)
    with contextlib.suppress(LedgerConflict):  # a process that was killed has written it already
        RunJournal(book, context.clock, run_id).begin(intent)

"""Records the run that follows on an interrupted one.

That is done before the interrupted one is closed: at no moment is a job that goes on without an open run, and whoever
comes next can take it further.
"""

from __future__ import annotations

import contextlib
import socket

from costgpu.errors import LedgerConflict, LedgerError
from costgpu.job.drive.context import RunContext
from costgpu.job.next_attempt import NextAttempt, NoNextAttempt, may_go_on, next_attempt
from costgpu.job.state.attempts import attempts_of_job
from costgpu.job.state.journal import RunJournal
from costgpu.ledger.codec import to_json
from costgpu.models.job import EndReason


def record_next_attempt(context: RunContext, reason: EndReason, seconds: float) -> bool:
    """Write the intent of the next attempt; return whether there is one. Of an interrupted job without, tell why.

    A ledger that cannot be written does not keep a run from being closed: its job has then come to its end.
    """
    attempt = context.view.spec.attempt
    if attempt is None or context.cancelling or not may_go_on(context.view, reason):
        return False
    book = context.journal.book
    try:
        until_now = attempts_of_job(book, context.view)[: attempt.index + 1]  # the next may be recorded already
        following = next_attempt(until_now, reason, seconds)
        if isinstance(following, NoNextAttempt):
            context.observer.note(f"{following.why} The job does not go on.")
        if not isinstance(following, NextAttempt):
            return False
        first = book.events(context.view.run_id)[0].data
        with contextlib.suppress(LedgerConflict):  # a process that was killed has written it already
            RunJournal(book, context.clock, following.run_id).begin(
                {
                    **first,
                    "client": socket.gethostname(),
                    "spec": to_json(following.spec),
                    "options": [to_json(option) for option in following.options],
                    "estimate": None,
                    "workload": {"key": "", "steps": None},  # it does a part of the work: that is no measured speed
                }
            )
    except LedgerError as error:
        context.observer.note(f"The job does not go on: {error.message}")
        return False
    return True

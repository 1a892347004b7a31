"""Ends a run from this process, through the process that drives it, or by the tag on its machine."""

from __future__ import annotations

from datetime import datetime

from costgpu.models.instance import InstanceRef
from costgpu.models.job import EndReason
from costgpu.models.run import EndedBy, EventKind, RunState, RunView
from costgpu.runner.adopt import adopt, catch_up, job_status, log_tail
from costgpu.runner.drive.context import Detached, insist
from costgpu.runner.drive.loop import Driver
from costgpu.runner.end_instance import clean_up, end_instance
from costgpu.runner.state.journal import RunJournal
from costgpu.runner.state.lock import lock_run
from costgpu.runner.state.observer import Observer
from costgpu.workflows.context import AppContext
from costgpu.workflows.runs.find_run import connection, run_and_machine


def cancel_run(context: AppContext, view: RunView, observer: Observer, *, now: bool = False) -> Driver | None:
    """Takes a run to its end: the job is asked to end, its outputs are downloaded, the machine is terminated.

    Args:
        observer: Shows what the job writes from now on.
        now: Terminate at once; what is on the machine is lost.

    Returns:
        The driver with the closed run; None if the observer has left it.

    Raises:
        RunBusy: Another process drives it; see `cancel_driven`.
    """
    try:
        with lock_run(context.tools.folder / view.run_id):
            driver = adopt(view, context.ledger, context.tools, observer, None)
            if not now:
                insist(lambda: catch_up(driver.context))
            driver.context.cancelling = now
            if status := job_status(view, context.tools):
                driver.context.log_position = log_tail(status, 0)  # what it wrote before is for costgpu logs
            driver.cancel()
            return driver
    except Detached:
        return None


def cancel_driven(context: AppContext, view: RunView, *, now: bool) -> None:
    """Ends a run that another process drives: its job is asked to end, or the ledger tells the driver."""
    if view.state is RunState.RUNNING and view.instance is not None and not now:
        _, instance = run_and_machine(context, view.run_id)
        if instance is not None:
            with connection(context, instance) as host:
                host.cancel()
    elif view.state is not RunState.TERMINATING and (now or view.state not in (RunState.INTENT, RunState.COLLECTING)):
        journal = RunJournal(context.ledger, context.tools.clock, view.run_id)
        journal.add(EventKind.ENDING, reason=EndReason.CANCELLED.value, by=EndedBy.CLIENT.value)
    context.reporter.note(f"Run {view.run_id} is being ended by the terminal that drives it.")


def cancel_by_tag(context: AppContext, ref: InstanceRef, run_id: str, launched_at: datetime) -> tuple[str, ...]:
    """Terminates a machine that the ledger does not know; returns the names of what could not be removed with it."""
    provider = context.provider(ref.provider)
    end_instance(provider, ref, context.clock, known_since=launched_at)
    return clean_up(provider, run_id, ref.region, context.clock)

"""Ends a run from this process, through the process that drives it, or by the tag on its machine."""

from __future__ import annotations

from costgpu.models.instance import Instance
from costgpu.models.job import EndReason
from costgpu.models.run import EndedBy, EventKind, RunState, RunView
from costgpu.runner.drive import termination
from costgpu.runner.drive.loop import Detached, Driver
from costgpu.runner.launch import driver_for, status_of, tail_position
from costgpu.runner.state.journal import RunJournal
from costgpu.runner.state.lock import driving
from costgpu.runner.state.observer import Observer
from costgpu.workflows.context import AppContext
from costgpu.workflows.runs.find_run import connection, run_and_machine


def cancel_run(context: AppContext, view: RunView, observer: Observer, *, now: bool = False) -> Driver | None:
    """Takes a run to its end: the job is asked to end, its outputs are downloaded, the machine is terminated.

    Args:
        context: Ledger and providers.
        view: An open run.
        observer: Shows what the job writes from now on.
        now: Terminate at once; what is on the machine is lost.

    Returns:
        The driver with the closed run; None if the observer has left it.

    Raises:
        RunBusy: Another process drives it; see `cancel_driven`.
    """
    try:
        with driving(context.tools.folder / view.run_id):
            driver = driver_for(view, context.ledger, context.tools, observer, None)
            driver.cancelling = now
            if status := status_of(view, context.tools):
                driver.position = tail_position(status, 0)  # what it wrote before is for costgpu logs
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


def cancel_by_tag(context: AppContext, instance: Instance) -> tuple[str, ...]:
    """Terminates a machine that the ledger does not know; returns the names of what could not be removed with it."""
    provider, ref, clock = context.provider(instance.ref.provider), instance.ref, context.clock
    termination.terminate(provider, ref, clock)
    termination.confirm(provider, ref, clock, known_since=instance.launched_at)
    return termination.clean_up(provider, instance.run_id, ref.region, clock)

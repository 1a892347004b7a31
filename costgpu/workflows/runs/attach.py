"""Takes over a run, or watches one that another process drives."""

from __future__ import annotations

from functools import partial

from costgpu.errors import HostUnreachable, RunError
from costgpu.job.adopt import adopt_job, catch_up, job_status, log_tail
from costgpu.job.drive.context import retry_on_conflict
from costgpu.job.drive.job import JobDriver
from costgpu.job.find_run import current_run, load_run
from costgpu.job.state.lock import lock_run
from costgpu.job.state.observer import Observer
from costgpu.models.run import RunState, RunView
from costgpu.workflows.context import AppContext
from costgpu.workflows.environment import environment_again
from costgpu.workflows.runs.find_run import connection, recorded_run, run_and_machine
from costgpu.workflows.runs.queue import what_keeps_back


def open_run(context: AppContext, text: str) -> RunView:
    """Return the run that a person means, or the one that goes on with its job.

    Raises:
        RunError: It is closed.
    """
    view = current_run(context.ledger, recorded_run(context, text))
    if view.state is RunState.CLOSED:
        raise RunError(f"Run {view.run_id} is closed.", hint=f"costgpu logs {view.run_id} shows what it wrote.")
    return view


def attach_run(context: AppContext, view: RunView, observer: Observer) -> JobDriver:
    """Take an open run to its end, together with those of the other machines of its job.

    Raises:
        RunBusy: Another process drives it; see `watch_run`.
        Detached: The observer has left it.
    """
    with lock_run(context.tools.folder / view.job_id):
        view = load_run(context.ledger, view.run_id)
        if why := what_keeps_back(context, view):
            raise RunError(
                f"Run {view.run_id} waits for {why}.",
                hint=f"costgpu cancel {view.run_id} gives it up; nothing is billed.",
            )
        driver = adopt_job(view, context.ledger, context.tools, observer, environment_again(view.spec))
        if status := job_status(driver.view, context.tools):
            driver.context.log_position = log_tail(status)
        observer.changed(driver.view)
        for one in driver.machines:
            retry_on_conflict(partial(catch_up, one.context))
        driver.drive()
    return driver


def watch_run(context: AppContext, view: RunView, observer: Observer) -> int:
    """Show the job's output to its end and return the job's exit code; changes nothing."""
    _, instance = run_and_machine(context, view.run_id)
    if instance is None:
        raise RunError(f"Run {view.run_id} has no machine yet.", hint="costgpu jobs shows how far it is.")
    with connection(context, instance) as host:
        try:
            status = host.follow(log_tail(host.status()), observer.output)
        except HostUnreachable:
            # Whoever drives the run has seen the job's end before us, and may have ended the machine.
            known = load_run(context.ledger, view.run_id).status
            if known is None:
                raise
            status = known
            observer.note(f"The job is over; all of its output: costgpu logs {view.run_id}")
    return status.exit_code or 0

"""Ends a run from this process, through the process that drives it, or by the tag on its machine."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial

from costgpu.clock import monotonic_of
from costgpu.errors import CostGpuError, LedgerDamaged, LedgerError, LedgerTooNew, RunBusy
from costgpu.job.adopt import adopt_job, catch_up, job_status, log_tail
from costgpu.job.drive.context import Detached, retry_on_conflict
from costgpu.job.drive.job import JobDriver
from costgpu.job.end_instance import clean_up, end_instance, request_termination
from costgpu.job.find_run import current_run, load_run, runs_of_job
from costgpu.job.load_runs import load_runs_of_job
from costgpu.job.state.journal import RunJournal
from costgpu.job.state.lock import lock_run
from costgpu.job.state.observer import Observer
from costgpu.models.events import Ending, GivenUp
from costgpu.models.instance import Instance, InstanceRef
from costgpu.models.job import EndReason
from costgpu.models.run import EndedBy, RunState, RunView
from costgpu.workflows.context import AppContext
from costgpu.workflows.runs.find_run import connection, run_and_machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """What has come of a cancellation."""

    view: RunView | None = None  # the run as it is now; None for machines of which only the tags are known
    # that has ended it here; None if nothing was to be done, or another process ends it
    driver: JobDriver | None = None
    by_tag: tuple[InstanceRef, ...] = ()  # machines that were terminated by their tags
    was_closed: bool = False  # whether it had ended before


def cancel(context: AppContext, found: RunView | Instance, observer: Observer, *, now: bool = False) -> Cancelled:
    """End a job by any of its runs: here, by the process that drives it, or by the tags on its machines.

    Args:
        observer: Shows what the job writes from now on, if it is ended here.
        now: Terminate at once; what is on the machine is lost.

    Raises:
        LedgerDamaged, LedgerTooNew: A record of another machine of the job cannot be read. The others are ended.
    """
    if isinstance(found, Instance):
        return Cancelled(by_tag=_cancel_by_tags(context, found))
    try:
        view = current_run(context.ledger, load_run(context.ledger, found.run_id))
    except (LedgerDamaged, LedgerTooNew) as error:
        _cancel_each(context, found, observer, error, now=now)
        raise
    if view.state is RunState.CLOSED:
        return Cancelled(view=view, was_closed=True)
    try:
        driver = cancel_run(context, view, observer, now=now)
    except RunBusy:
        cancel_driven(context, view, now=now)
        driver = None
    after = driver.decisive if driver is not None else load_run(context.ledger, view.run_id)
    return Cancelled(view=after, driver=driver)


def cancel_run(context: AppContext, view: RunView, observer: Observer, *, now: bool = False) -> JobDriver | None:
    """Take a run to its end: the job is asked to end, its outputs are downloaded, its machines are terminated.

    Args:
        observer: Shows what the job writes from now on.
        now: Terminate at once; what is on the machine is lost.

    Returns:
        The driver with the closed run; None if the observer has left it.

    Raises:
        RunBusy: Another process drives it; see `cancel_driven`.
    """
    try:
        with lock_run(context.tools.folder / view.job_id):
            driver = adopt_job(view, context.ledger, context.tools, observer, None)
            _end(context, driver, now=now)
            return driver
    except Detached:
        return None


def _end(context: AppContext, driver: JobDriver, *, now: bool) -> None:
    for one in driver.machines:
        if not now:
            retry_on_conflict(partial(catch_up, one.context))
        one.context.cancelling = now
    if status := job_status(driver.view, context.tools):
        driver.context.log_position = log_tail(status, 0)  # what it wrote before is for costgpu logs
    driver.cancel()


def _cancel_each(context: AppContext, found: RunView, observer: Observer, error: LedgerError, *, now: bool) -> None:
    """End each machine of a job by itself, since the record of one cannot be read; the error gets a hint at that one.

    Raises:
        CostGpuError: Another machine could not be ended. Those after it are, all the same.
    """
    views, damaged = load_runs_of_job(context.ledger, found)
    failed: CostGpuError | None = None
    try:
        with lock_run(context.tools.folder / found.job_id):
            for view in views:
                if view.state is RunState.CLOSED:
                    continue
                try:
                    _end(context, JobDriver.of_machine(view.run_id, context.ledger, context.tools, observer), now=now)
                except CostGpuError as problem:
                    failed = failed or problem
    except Detached:
        return
    if failed is not None:
        raise failed from error
    by_tag = "; ".join(f"costgpu cancel {run_id}" for run_id in damaged)
    error.hint = (
        f"{error.hint} The rest of the job is ended. A machine of this record is found by its tag: {by_tag}".strip()
    )


def cancel_driven(context: AppContext, view: RunView, *, now: bool) -> None:
    """End a run that another process drives: its job is asked to end, or the ledger tells the driver.

    Raises:
        LedgerError: It could not be written, so that the driver does not hear of it.
    """
    told: dict[str, RunJournal] = {}
    while left := [one.run_id for one in runs_of_job(context.ledger, view) if one.run_id not in told]:
        journals = [RunJournal(context.ledger, context.tools.clock, run_id) for run_id in left]
        for journal in journals:  # first: a run that is about to end is not to be followed by another one
            told[journal.run_id] = journal
            retry_on_conflict(partial(_give_up, journal))
        for journal in journals:
            retry_on_conflict(partial(_end_driven, context, journal, now=now))
    if error := next((journal.ledger_error for journal in told.values() if journal.ledger_error is not None), None):
        error.hint = f"{error.hint} The terminal that drives run {view.run_id} has not heard of it: try again.".strip()
        raise error
    context.reporter.note(f"Run {view.run_id} is being ended by the terminal that drives it.")


def _give_up(journal: RunJournal) -> None:
    if not journal.view.given_up and journal.view.state is not RunState.CLOSED:
        journal.add(GivenUp())


def _end_driven(context: AppContext, journal: RunJournal, *, now: bool) -> None:
    """Ask the job of one run to end, or tell its driver by the ledger, which accepts that only for the state seen here."""
    one = journal.view
    if one.state is RunState.RUNNING and one.instance is not None and not now:
        _, instance = run_and_machine(context, one.run_id)
        if instance is not None:
            with connection(context, instance) as host:
                host.cancel()
        return
    # the ledger tells the driver; of several machines also while they end: it may be about to try elsewhere
    over = one.state is RunState.CLOSED or (one.state is RunState.TERMINATING and not one.has_peers)
    unasked = one.state is RunState.INTENT  # its driver sees that the job is given up, before it asks for a machine
    if not (over or unasked) and (now or one.state is not RunState.COLLECTING):
        journal.add(Ending(reason=EndReason.CANCELLED, by=EndedBy.CLIENT))


def cancel_by_tag(context: AppContext, ref: InstanceRef, run_id: str, launched_at: datetime) -> tuple[str, ...]:
    """Terminate a machine that the ledger does not know; return the names of what could not be removed with it."""
    provider = context.provider(ref.provider)
    end_instance(provider, ref, context.clock, known_since=monotonic_of(context.clock, launched_at))
    return clean_up(provider, run_id, ref.region, context.clock)


def _cancel_by_tags(context: AppContext, instance: Instance) -> tuple[InstanceRef, ...]:
    """Terminate a machine that the ledger does not know, and those that work with it; return which ones."""
    provider, machines = context.provider(instance.ref.provider), [instance]
    if instance.group_id:
        owned = provider.list_owned([instance.ref.region]).instances
        machines = [one for one in owned if one.group_id == instance.group_id and one.state.alive]
        # what they share belongs to the first machine, and can be removed when all others are gone
        machines.sort(key=lambda one: one.run_id == instance.group_id)
    for one in machines:
        request_termination(provider, one.ref, context.clock)
    left = [name for one in machines for name in cancel_by_tag(context, one.ref, one.run_id, one.launched_at)]
    if left:
        context.reporter.note(f"Left behind: {', '.join(left)}; costgpu reap --yes removes it.")
    return tuple(one.ref for one in machines)

"""Goes on with runs that another process has begun."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping

from costgpu.errors import CostGpuError, MachineUnusable, RunBusy
from costgpu.job.drive.checkpoints import STORE
from costgpu.job.drive.collect import bring_unrecorded_home
from costgpu.job.drive.context import CAN_DETACH, Detached, RunContext, Services
from costgpu.job.drive.job import JobDriver
from costgpu.job.drive.machine import MachineDriver
from costgpu.job.drive.provision import create_request, record_instance
from costgpu.job.find_run import RunStore, load_run, runs_of_job
from costgpu.job.machine.host import LogPosition
from costgpu.job.machine.keys import load_keys
from costgpu.job.state.journal import EventStore, RunJournal
from costgpu.job.state.lock import is_driven, lock_run
from costgpu.job.state.observer import NullObserver, Observer
from costgpu.job.timeouts import VISIBLE_SECONDS
from costgpu.models.events import Adopted, Reached, Started
from costgpu.models.instance import InstanceState
from costgpu.models.job import EndReason, JobPhase, JobStatus
from costgpu.models.run import RunState, RunView
from costgpu.providers.base import Provider


def adopt_job(
    view: RunView,
    ledger: EventStore,
    services: Services,
    observer: Observer,
    secrets: Mapping[str, str] | None,
    *,
    detach: bool = False,
) -> JobDriver:
    """Return a driver that goes on with a run's job. To be used while the job is locked."""
    driver = JobDriver.of(view, ledger, services, observer, secrets, detach=detach)
    for machine in driver.machines:
        _note_adoption(machine)
    return driver


def _note_adoption(machine: MachineDriver) -> None:
    if machine.view.detached and machine.view.state is not RunState.CLOSED:
        machine.context.journal.add(Adopted(client=socket.gethostname()))


def provider_of(view: RunView, ledger: EventStore, services: Services) -> Provider:
    """Return the adapter of a run's machine, with the credentials that the run was launched with.

    Raises:
        AuthError: They are another account's: what it does not know would look as if it were gone.
    """
    journal = RunJournal(ledger, services.clock, view.run_id)
    return RunContext(journal=journal, services=services, observer=NullObserver()).provider()


def job_status(view: RunView, services: Services) -> JobStatus | None:
    """Return what the agent says about an open run; None if it does not answer or there is none yet."""
    if view.instance is None or view.state not in (RunState.SYNCING, RunState.RUNNING, RunState.COLLECTING):
        return None
    try:
        instance = services.provider(view.instance.provider).describe(view.instance)
        if instance is None or not instance.state.alive:
            return None
        host = services.connect(instance, load_keys(services.folder / view.run_id))
    except CostGpuError:
        return None
    try:
        return host.status()
    except CostGpuError:
        return None
    finally:
        host.close()


def log_tail(status: JobStatus, last_bytes: int = 4096) -> LogPosition:
    """Return where to start showing the output of a job that has been running for a while."""
    return LogPosition(stdout=max(0, status.stdout_bytes - last_bytes), stderr=max(0, status.stderr_bytes - last_bytes))


def collect_finished(ledger: RunStore, services: Services, observer: Observer) -> list[str]:
    """Take over the runs of this computer whose client is gone: what is finished comes home and is ended.

    A run whose job had not started is ended too: nobody is left to start it, but of a job that goes on the next attempt
    waits. A job that runs is left alone. Each machine is taken by itself: another one may still work, or its record may
    be damaged.

    Returns:
        Ids of the runs that are closed now.
    """
    done: list[str] = []
    settled: set[str] = set()  # runs with which nothing more is to be done
    for to_end in (False, True):  # a machine's end may take its time, and what others have made may not have that
        for run_id in ledger.open_runs():
            try:
                if run_id in settled:
                    continue
                if not _collect(run_id, ledger, services, observer, to_end=to_end):
                    settled.add(run_id)
                elif to_end:
                    done.append(run_id)
            except (RunBusy, Detached):
                settled.add(run_id)
            except CostGpuError as error:
                settled.add(run_id)
                observer.note(f"Run {run_id}: {error.message}")
    _finish_jobs(ledger, services, observer)
    return done


def _collect(run_id: str, ledger: RunStore, services: Services, observer: Observer, *, to_end: bool) -> bool:
    """Take over one run, if its client is gone and there is something to be done for it; return whether there was.

    Args:
        to_end: Whether to go on to the end; else only as far as the outputs of a job that is over are home.
    """
    view = load_run(ledger, run_id)
    folder = services.folder / view.job_id
    if not folder.exists() or is_driven(folder):
        return False
    if not to_end and view.state not in (RunState.BOOTING, RunState.SYNCING, *CAN_DETACH):
        return True
    with lock_run(folder):
        driver = JobDriver.of_machine(run_id, ledger, services, observer)
        machine = driver.machines[0]
        if _is_begun_later(machine.view, ledger) or not _take_over(machine):
            return machine.view.state is RunState.CLOSED
        _note_adoption(machine)
        driver.drive(only_home=not to_end)
        if machine.view.collected and machine.view.state is RunState.TERMINATING:
            with contextlib.suppress(CostGpuError):  # once; that it has come is confirmed when all are home
                machine.context.provider().terminate(machine.context.instance)
    return True


def _finish_jobs(ledger: RunStore, services: Services, observer: Observer) -> None:
    """Jobs that are over, and of which something is kept here for going on: that comes home, and is removed."""
    for folder in services.folder.glob(f"*/{STORE}"):
        with contextlib.suppress(RunBusy):
            try:
                runs = runs_of_job(ledger, load_run(ledger, folder.parent.name))
                if all(view.state is RunState.CLOSED for view in runs):
                    with lock_run(folder.parent):
                        finish_job(runs[-1], ledger, services, observer)
            except CostGpuError as error:
                observer.note(f"Job {folder.parent.name}: {error.message}")


def finish_job(view: RunView, ledger: RunStore, services: Services, observer: Observer) -> None:
    """Bring home what is kept of a job that is over, if it went on after interruptions. To be used within its locks."""
    adopt_job(view, ledger, services, observer, None).finish()


def _is_begun_later(view: RunView, ledger: RunStore) -> bool:
    """Return whether whoever comes next begins a run: if the first machine of its attempt waits, too."""
    if view.state is not RunState.INTENT:
        return False
    try:
        return load_run(ledger, view.machine_ids[0]).waits
    except CostGpuError:
        return False  # its record is damaged or lost


def _take_over(driver: MachineDriver) -> bool:
    """Return whether there is something to be done for a run whose client is gone; a job that runs is left alone."""
    context, view = driver.context, driver.view
    if view.state is RunState.CLOSED:
        return False  # another process was quicker
    if catch_up(context) is None:
        if driver.view.state is RunState.SYNCING:
            return _is_gone(context)
        if _is_not_shown_yet(context):
            return False
    if driver.view.state in (RunState.INTENT, RunState.PROVISIONING, RunState.BOOTING, RunState.SYNCING):
        driver.give_up(EndReason.UNCLAIMED)
        return True
    if view.state is RunState.COLLECTING and view.collected and not view.spec.auto_shutdown:
        return _is_gone(context)  # kept on purpose, until its lease ends
    return driver.view.state in (RunState.TERMINATING, RunState.COLLECTING) or _job_over(context)


def catch_up(context: RunContext) -> bool | None:
    """Learn from the machine how far a client had come that was killed, or could not write: to its machine, or its job.

    The job's start is recorded. If the run is recorded as ending, that is too late, and what it has made comes home.

    Returns:
        Whether the job has started; None if the machine does not say.
    """
    unheard = context.view.state is RunState.TERMINATING and context.view.create_call is not None
    if context.view.state is RunState.PROVISIONING or (unheard and context.view.instance is None):
        with contextlib.suppress(CostGpuError):
            if found := context.provider().find(create_request(context.view, context.keys())):
                record_instance(context, found)
    before = context.view.state
    if before is RunState.TERMINATING and context.view.confirmed_at is None and _may_have_unknown_outputs(context.view):
        bring_unrecorded_home(context)
    if before not in (RunState.BOOTING, RunState.SYNCING):
        return context.view.started_at is not None
    try:
        started = context.connection().status().phase is not JobPhase.WAITING
    except MachineUnusable:
        return False  # not even the agent is there
    except CostGpuError:
        return None
    if started:
        if before is RunState.BOOTING:
            context.journal.add(Reached())
        context.journal.add(Started())
    return started


def _may_have_unknown_outputs(view: RunView) -> bool:
    """Return whether the job of a run that is to end may be over without the record knowing, and that is all of the job."""
    return view.started_at is None or (view.status is None and (view.given_up or not view.spec.goes_on))


def _job_over(context: RunContext) -> bool:
    """Return whether the machine says so, or is gone."""
    try:
        return context.connection().status().phase is JobPhase.FINISHED
    except CostGpuError:
        return _is_gone(context)
    finally:
        context.disconnect()


def _is_gone(context: RunContext) -> bool:
    if context.view.instance is None:
        return False
    instance = context.provider().describe(context.instance)
    if instance is None:
        return not _is_new(context)
    return not instance.state.alive or instance.state is InstanceState.STOPPED


def _is_not_shown_yet(context: RunContext) -> bool:
    """Return whether its provider knows nothing of a machine that may be there, and at work: the next look tells."""
    return _is_new(context) and context.provider().describe(context.instance) is None


def _is_new(context: RunContext) -> bool:
    since = context.view.known_since
    age = (context.clock.now() - since).total_seconds() if since is not None else -1.0
    return 0.0 <= age < VISIBLE_SECONDS

"""A machine from its id to its job's end: boot, sync, follow, and noticing that it is gone."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn

from costgpu.errors import (
    BootFailed,
    CostGpuError,
    HostKeyMismatch,
    HostUnreachable,
    InstanceLost,
    MachineUnusable,
    Preempted,
    ProviderError,
    RunCancelled,
    RunError,
)
from costgpu.ledger.codec import to_json
from costgpu.models.instance import Instance, InstanceState
from costgpu.models.job import EndReason, JobOrder, JobPhase
from costgpu.models.offer import PurchaseOption
from costgpu.models.run import EndedBy, EventKind, RunState
from costgpu.providers import registry
from costgpu.retry import retry_provider_call
from costgpu.runner.drive import collect, termination
from costgpu.runner.state.outcome import LIMITS, error_for

if TYPE_CHECKING:
    from costgpu.runner.drive.loop import Driver

BOOT_SECONDS = 600.0  # from the id to an answer on port 22
MISMATCH_SECONDS = 45.0  # until its boot script has run, a machine can show the key of its image
SYNC_SECONDS = 600.0  # without a connection
QUICK_SECONDS, QUICK_WAIT, WAIT = 15.0, 0.25, 1.0  # looked at often at first
RECONNECT_WAIT = 2.0


def boot(driver: Driver) -> None:
    """Waits until the machine answers as itself."""
    provider, ref, clock = driver.provider(), driver.view.instance, driver.tools.clock
    assert ref is not None  # noqa: S101 - booting has one
    mismatch_since: float | None = None
    last = "no answer"
    while driver.view.state is RunState.BOOTING:
        waited = (clock.now() - driver.view.changed_at).total_seconds()
        instance = retry_provider_call(
            clock, lambda: provider.describe(ref), limit_seconds=termination.DESCRIBE_SECONDS
        )
        if gone(driver, instance):
            return
        if instance is not None and instance.state is InstanceState.RUNNING and instance.endpoint is not None:
            try:
                driver.keep(driver.tools.connect(instance, driver.keys()))
            except HostUnreachable as error:
                last = error.message
            except HostKeyMismatch as error:
                mismatch_since = clock.monotonic() if mismatch_since is None else mismatch_since
                if clock.monotonic() - mismatch_since > MISMATCH_SECONDS:
                    driver.end(EndReason.HOST_KEY_MISMATCH, EndedBy.CLIENT, error)
                    return
            else:
                driver.record.add(EventKind.REACHED, host=instance.endpoint.host, zone=instance.zone)
                return
        if waited > BOOT_SECONDS:
            driver.end(EndReason.BOOT_FAILED, EndedBy.CLIENT, _boot_failed(driver, last))
            return
        state = instance.state.value if instance else "not listed yet"
        driver.observer.waiting(driver.view, f"{ref.instance_id} is {state}")
        clock.sleep(WAIT if waited > QUICK_SECONDS else QUICK_WAIT)
        driver.record.refresh()


def sync(driver: Driver) -> None:
    """Agent first, then the files, then the job; or on with the job that a client started before it was killed."""
    try:
        host = driver.talk()
        driver.observer.waiting(driver.view, "starting the agent")
        host.install()
        if host.status().phase is not JobPhase.WAITING:
            driver.record.add(EventKind.STARTED)
            return
    except HostUnreachable as error:
        _not_yet(driver, error)
        return
    except HostKeyMismatch as error:
        driver.end(EndReason.HOST_KEY_MISMATCH, EndedBy.CLIENT, error)
        return
    except MachineUnusable as error:
        driver.end(EndReason.MACHINE_UNUSABLE, EndedBy.CLIENT, error)
        return
    if driver.secrets is None and driver.view.spec.env_names:
        names = ", ".join(driver.view.spec.env_names)
        lost = RunCancelled(
            f"The job had not started, and its environment ({names}) is known only to the client that is gone.",
            hint="Run it again.",
        )
        driver.end(EndReason.UNCLAIMED, EndedBy.CLIENT, lost)
        return
    try:
        selection = driver.tools.select(driver.view)
        driver.observer.waiting(driver.view, f"sending {len(selection.files)} files")
        sent = host.send(selection)
        collect.write_sent(driver.folder, selection)
        if not driver.view.synced:
            driver.record.add(EventKind.SYNCED, files=len(selection.files), bytes=sent)
        urls = driver.tools.depot.upload_urls(driver.view) if driver.tools.depot else {}
        host.start(_order(driver), driver.secrets or {}, urls)
        driver.record.add(EventKind.STARTED)
    except HostUnreachable as error:
        _not_yet(driver, error)
    except MachineUnusable as error:
        driver.end(EndReason.MACHINE_UNUSABLE, EndedBy.CLIENT, error)
    except RunError as error:
        driver.end(EndReason.SYNC_FAILED, EndedBy.CLIENT, error)
    except OSError as error:
        failed = RunError(f"The files could not be sent: {error}", hint="Nothing was run; the machine is ended.")
        driver.end(EndReason.SYNC_FAILED, EndedBy.CLIENT, failed)


def _not_yet(driver: Driver, error: HostUnreachable) -> None:
    """The connection was lost before the job had started."""
    clock = driver.tools.clock
    driver.lost_since = clock.monotonic() if driver.lost_since is None else driver.lost_since
    if clock.monotonic() - driver.lost_since > SYNC_SECONDS:
        driver.end(EndReason.SYNC_FAILED, EndedBy.CLIENT, error)
    else:
        lost_for_now(driver, error)


def follow(driver: Driver) -> None:
    """Passes the job's output on until it is over."""
    if driver.detach_when_running and not driver.cancelling:
        driver.leave()
    try:
        status = driver.talk().follow(driver.position, driver.heard)
    except HostUnreachable as error:
        lost_for_now(driver, error)
        return
    if status.phase is JobPhase.FINISHED:
        driver.record.add(EventKind.FINISHED, **to_json(status))


def lost_for_now(driver: Driver, error: CostGpuError) -> None:
    """The machine does not answer. Looks whether it is gone; otherwise waits a little, and the loop tries again."""
    driver.let_go()
    provider, ref, clock = driver.provider(), driver.view.instance, driver.tools.clock
    assert ref is not None  # noqa: S101 - only asked with a machine
    instance = retry_provider_call(clock, lambda: provider.describe(ref), limit_seconds=termination.DESCRIBE_SECONDS)
    if gone(driver, instance):
        return
    until = driver.view.lease_until
    if until is not None and clock.now() > until + timedelta(seconds=termination.CLEAN_SECONDS):
        driver.end(EndReason.DEADLINE, EndedBy.CLIENT, error)  # its own watchdog should have ended it
        return
    driver.observer.waiting(driver.view, f"no connection ({error.message}); the job goes on without it")
    clock.sleep(RECONNECT_WAIT)
    driver.record.refresh()


def gone(driver: Driver, instance: Instance | None) -> bool:
    """Records the end of a machine that is no more; False as long as it is there, or may be."""
    view, ref, clock = driver.view, driver.view.instance, driver.tools.clock
    assert ref is not None and view.known_since is not None  # noqa: S101, PT018 - only asked with a machine
    if instance is None:
        if (clock.now() - view.known_since).total_seconds() < termination.UNKNOWN_SECONDS:
            return False
        termination.terminate(driver.provider(), ref, clock)  # one answer that does not know it is no proof
        instance = termination.confirm(driver.provider(), ref, clock, known_since=view.known_since)
    marker = ""
    if instance is not None and instance.state in (InstanceState.STOPPING, InstanceState.STOPPED):
        marker = _last_words(driver)
        if not (marker or instance.by_guest or instance.preempted):
            stopped = InstanceLost(f"{ref.instance_id} was stopped by somebody; its disk would be billed on.")
            collect.rescue(driver)
            finished, collected = driver.view.status is not None, driver.view.collected
            if finished and not collected and not termination.past_lease(view, instance, clock.now()):
                _keep_stopped(driver)
            driver.end(EndReason.INSTANCE_LOST, EndedBy.CLIENT, None if finished and collected else stopped)
            return True
        # It has ended by itself, and here that only stops it: what is left is its disk, which is billed.
        termination.terminate(driver.provider(), ref, clock)
        termination.confirm(driver.provider(), ref, clock, known_since=view.known_since)
        instance = replace(instance, state=InstanceState.TERMINATED, endpoint=None)
    if instance is not None and instance.state in (InstanceState.PENDING, InstanceState.RUNNING):
        return False
    if instance is not None and instance.state is InstanceState.TERMINATING:
        instance = termination.confirm(driver.provider(), ref, clock, known_since=view.known_since)
    collect.rescue(driver)
    why = (instance.reason if instance is not None else "").rstrip(".") or "the provider gives no reason"
    marker = marker or _last_words(driver)
    past = termination.past_lease(view, instance, clock.now())
    error: CostGpuError | None = InstanceLost(
        f"{ref.instance_id} is gone: {why}.{' Its last word: ' + marker if marker else ''}"
    )
    unclaimed = instance is not None and instance.by_guest and view.started_at is None
    reason = termination.reason_of(marker) or (
        EndReason.DEADLINE if past else EndReason.UNCLAIMED if unclaimed else EndReason.INSTANCE_LOST
    )
    if reason in LIMITS:
        error = error_for(replace(driver.view, reason=reason))
    if instance is not None and instance.preempted:
        reason = EndReason.PREEMPTED
        error = Preempted(
            f"The provider took {ref.instance_id} back: {why}.",
            hint="Run it again on demand, or let the script continue from its last checkpoint.",
        )
    if driver.view.status is None:
        driver.error = driver.error or error
    termination.confirmed(driver, instance, reason, marker)
    return True


def _keep_stopped(driver: Driver) -> NoReturn:
    """Leaves a machine that is off as it is: the outputs of its finished job are nowhere else."""
    ref, until, run_id = driver.view.instance, driver.view.lease_until, driver.view.run_id
    assert ref is not None and until is not None  # noqa: S101, PT018 - a job has finished on it
    kept = InstanceLost(
        f"{ref.instance_id} was stopped by somebody, and the outputs of its finished job are on its disk, which is"
        " billed on.",
        hint=f"Start the machine at {ref.provider} before {until:%Y-%m-%d %H:%M} UTC, then: costgpu fetch {run_id}; to"
        f" give the outputs up: costgpu cancel --now {run_id}. After that time costgpu reap ends it.",
    )
    driver.record.add(EventKind.DETACHED, because=kept.message)
    raise kept


def _last_words(driver: Driver) -> str:
    """Of a machine that has switched itself off, as long as its provider keeps its console."""
    ref = driver.view.instance
    assert ref is not None  # noqa: S101 - only asked with a machine
    with contextlib.suppress(ProviderError):
        return termination.last_words(driver.provider().console(ref))
    return ""


def _boot_failed(driver: Driver, last: str) -> BootFailed:
    ref = driver.view.instance
    assert ref is not None  # noqa: S101 - booting has one
    said = ""
    with contextlib.suppress(ProviderError):
        said = "\n".join(driver.provider().console(ref).strip().splitlines()[-15:])
    heard = f"Its console said last:\n{said}" if said else "Its console said nothing."
    return BootFailed(
        f"{ref.instance_id} did not answer within {BOOT_SECONDS / 60:.0f} min ({last}). {heard}",
        hint="Another zone or type may do; a subnet without a route to the internet looks like this, too.",
    )


def _order(driver: Driver) -> JobOrder:
    spec, option, until = driver.view.spec, driver.view.option, driver.view.lease_until
    assert option is not None and until is not None  # noqa: S101, PT018 - a machine has them
    return JobOrder(
        argv=spec.argv,
        setup=spec.setup,
        outputs=spec.outputs,
        processes=spec.processes,
        python=spec.python,
        deadline_epoch=until.timestamp(),
        max_duration_seconds=spec.max_duration_seconds,
        idle_seconds=spec.idle_seconds,
        grace_seconds=spec.grace_seconds,
        spot=option.offer.purchase_option is PurchaseOption.SPOT,
        provider=option.offer.provider,
        spot_notice=registry.spec(option.offer.provider).spot_notice,
        power_off=spec.auto_shutdown,
    )

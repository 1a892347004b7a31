"""From an instance with an id to a job that runs: boot, agent, files, start."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence

from costgpu.errors import (
    BootFailed,
    DriverFailed,
    HostKeyMismatch,
    HostUnreachable,
    MachineUnusable,
    ProviderError,
    RunError,
)
from costgpu.job.drive.checkpoints import record_restored, resumed_command, with_checkpoint
from costgpu.job.drive.context import RunContext
from costgpu.job.drive.provision import environment_lost
from costgpu.job.machine.host import Host
from costgpu.job.timeouts import (
    BOOT_SECONDS,
    DRIVER_ANSWER_SECONDS,
    DRIVER_SECONDS,
    POLL_SECONDS,
    QUICK_POLL_SECONDS,
    QUICK_SECONDS,
    RECONNECT_SECONDS,
)
from costgpu.models.events import Reached, Started, Synced
from costgpu.models.instance import InstanceState
from costgpu.models.job import EndReason, JobOrder, JobPhase, Rendezvous
from costgpu.models.offer import PurchaseOption
from costgpu.models.run import RunState, RunView
from costgpu.providers import registry


def boot(context: RunContext) -> None:
    """Wait until the machine answers as itself."""
    clock = context.clock
    # how long others have waited before, by the clock; from then on it may be set without ending or prolonging this
    before = max(0.0, (clock.now() - context.view.changed_at).total_seconds()) - clock.monotonic()
    mismatch_since: float | None = None
    patience = registry.spec(context.instance.provider).host_key_seconds
    last = "no answer"
    while context.view.state is RunState.BOOTING:
        waited = before + clock.monotonic()
        instance = context.describe()
        context.check_alive(instance)
        if instance is not None and instance.state is InstanceState.RUNNING and instance.endpoint is not None:
            try:
                context.use_connection(context.services.connect(instance, context.keys()))
            except HostUnreachable as error:
                last = error.message
            except HostKeyMismatch as error:
                mismatch_since = clock.monotonic() if mismatch_since is None else mismatch_since
                if clock.monotonic() - mismatch_since > patience or waited > BOOT_SECONDS:
                    context.end(EndReason.HOST_KEY_MISMATCH, error=error)
                    return
            else:
                context.journal.add(Reached(host=instance.endpoint.host, zone=instance.zone))
                return
        if waited > BOOT_SECONDS:
            context.end(EndReason.BOOT_FAILED, error=_boot_failed(context, last))
            return
        state = instance.state.value if instance else "not listed yet"
        context.observer.waiting(context.view, f"{context.instance.instance_id} is {state}")
        clock.sleep(POLL_SECONDS if waited > QUICK_SECONDS else QUICK_POLL_SECONDS)
        context.journal.refresh()


def install_agent(context: RunContext) -> bool:
    """Put the agent on the machine; whether it needs the files. A job that runs already is recorded.

    A machine whose GPUs do not answer needs none, and is ended after a while.
    """

    def install(host: Host) -> bool:
        context.observer.waiting(context.view, "starting the agent")
        host.install()
        context.answered()
        if host.status().phase is not JobPhase.WAITING:
            context.journal.add(Started())
        elif context.secrets is None and context.view.spec.env_names:
            _environment_lost(context)
        else:
            return _gpus_answer(context, host)
        return False

    return _with_machine(context, install)


def send_files(context: RunContext) -> bool:
    """Send the files to a machine with an agent; whether the job can be started now."""

    def send(host: Host) -> bool:
        selection = with_checkpoint(context, context.services.select(context.view))
        context.observer.waiting(context.view, f"sending {len(selection.files)} files")
        sent = host.send(selection)
        if not context.view.synced:
            context.journal.add(Synced(files=len(selection.files), bytes=sent))
        record_restored(context)
        return True

    return _with_machine(context, send)


def start_job(context: RunContext, rendezvous: Rendezvous | None) -> None:
    """Start the job on a machine that has its files.

    Args:
        rendezvous: How it finds the other machines of its job; None if it needs none.
    """

    def start(host: Host) -> bool:
        bucket = context.services.bucket
        urls = bucket.upload_urls(context.view) if bucket else {}
        arguments, variables = resumed_command(context)
        order = _job_order(context.view, rendezvous, arguments)
        host.start(order, {**variables, **(context.secrets or {})}, urls)
        context.journal.add(Started())
        return True

    _with_machine(context, start)


def _with_machine(context: RunContext, act: Callable[[Host], bool]) -> bool:
    """Return what a step before the job's start says; False after any failure, which is dealt with here."""
    try:
        return act(context.connection())
    except HostUnreachable as error:
        if context.seconds_disconnected() > RECONNECT_SECONDS:
            context.end(EndReason.SYNC_FAILED, error=error)
        else:
            context.await_connection(error)
    except HostKeyMismatch as error:
        context.end(EndReason.HOST_KEY_MISMATCH, error=error)
    except MachineUnusable as error:
        context.end(EndReason.MACHINE_UNUSABLE, error=error)
    except DriverFailed as error:
        context.end(EndReason.DRIVER_FAILED, error=error)
    except ProviderError:
        raise
    except RunError as error:
        context.end(EndReason.SYNC_FAILED, error=error)
    except OSError as error:
        failed = RunError(f"The files could not be sent: {error}", hint="Nothing was run; the machine is ended.")
        context.end(EndReason.SYNC_FAILED, error=failed)
    return False


def _gpus_answer(context: RunContext, host: Host) -> bool:
    """Return whether the driver names the GPUs that are paid for; if not yet, it is asked again by the next step.

    Raises:
        DriverFailed: It has had its time.
    """
    gpus, now = _nvidia_gpus(context.view), context.clock.monotonic()
    if not gpus:
        return True
    context.gpus_until = now + DRIVER_SECONDS if context.gpus_until is None else context.gpus_until
    if now >= context.gpus_until + DRIVER_ANSWER_SECONDS:  # the question itself may break the connection, each time
        said = "No answer to that question came back."
    else:
        said = host.driver_trouble(gpus, max(context.gpus_until - now, DRIVER_ANSWER_SECONDS))
    if not said:
        return True
    if context.clock.monotonic() >= context.gpus_until:
        raise DriverFailed(
            f"The GPUs of {context.instance.instance_id} did not answer within {DRIVER_SECONDS:g} s. {said}",
            hint="Nothing of yours was sent or run. Another type or zone may do, or an image with a driver for this GPU.",
        )
    context.observer.waiting(context.view, "waiting for the GPU driver")
    context.clock.sleep(POLL_SECONDS)
    context.journal.refresh()
    return False


def _nvidia_gpus(view: RunView) -> int:
    """Return how many of NVIDIA's GPUs the machine must have, a part of one counted as one; 0 for other machines."""
    accelerator = view.option.offer.accelerator if view.option is not None else None
    if accelerator is None:
        return 0
    from costgpu.pricing.hardware import accelerators  # noqa: PLC0415 - a table that runs without GPUs need not read

    known = accelerators().get(accelerator.name)
    return math.ceil(accelerator.count) if known is not None and known.vendor == "NVIDIA" else 0


def _environment_lost(context: RunContext) -> None:
    context.end(EndReason.UNCLAIMED, error=environment_lost(context.view))


def _boot_failed(context: RunContext, last: str) -> BootFailed:
    ref = context.instance
    said = ""
    with contextlib.suppress(ProviderError):
        said = "\n".join(context.provider().console(ref).strip().splitlines()[-15:])
    console = f"Its console said last:\n{said}" if said else "Its console said nothing."
    return BootFailed(
        f"{ref.instance_id} did not answer within {BOOT_SECONDS / 60:.0f} min ({last}). {console}",
        hint="Another zone or type may do; a subnet without a route to the internet looks like this, too.",
    )


def _job_order(view: RunView, rendezvous: Rendezvous | None, arguments: Sequence[str]) -> JobOrder:
    spec, option, until = view.spec, view.option, view.lease_until
    keeps = view.outputs_folder is not None
    assert option is not None and until is not None  # noqa: S101, PT018 - a machine has them
    return JobOrder(
        argv=(*spec.argv, *arguments),
        program=spec.program,
        setup=spec.setup,
        outputs=spec.outputs,
        processes=spec.processes,
        python=spec.python,
        deadline_epoch=until.timestamp(),
        max_duration_seconds=spec.max_duration_seconds,
        idle_seconds=spec.idle_seconds,
        grace_seconds=spec.grace_seconds,
        spot=option.offer.purchase_option is PurchaseOption.SPOT,
        spot_notice=registry.spec(option.offer.provider).spot_notice,
        power_off=spec.auto_shutdown,
        rendezvous=rendezvous,
        keep_outputs=keeps,
        checkpoints=spec.recovery.checkpoints if spec.recovery is not None and keeps else None,
    )

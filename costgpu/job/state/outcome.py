"""What a closed run means for the person who started it. Pure."""

from __future__ import annotations

from costgpu.errors import (
    CostGpuError,
    DiskFull,
    InstanceLost,
    LimitReached,
    NodesApart,
    Preempted,
    RunCancelled,
    RunError,
    SetupFailed,
)
from costgpu.models.job import EndReason
from costgpu.models.offer import PurchaseOption
from costgpu.models.run import RunView

_ALLOW = {EndReason.IDLE: "--idle-duration", EndReason.MAX_DURATION: "--max-duration"}


def error_for(view: RunView) -> CostGpuError | None:
    """Return the error that the end of a job amounts to; None if it ended by itself, well or not."""
    status, reason = view.status, view.reason
    detail = f" {status.detail}" if status and status.detail else ""
    if status is not None and status.obeyed_signal:
        return RunError(
            f"The job was ended before it was done.{detail}", hint=f"See what it said: costgpu logs {view.run_id}."
        )
    if reason in (None, EndReason.SUCCEEDED, EndReason.JOB_FAILED):
        return None
    if reason is EndReason.SETUP_FAILED:
        code = f" with {status.exit_code}" if status and status.exit_code is not None else ""
        return SetupFailed(
            f"The set-up command failed{code}; the job was not started.{detail}",
            hint=f"See what it said: costgpu logs {view.run_id}. Change it with --setup.",
        )
    if reason.limit:
        return LimitReached(
            f"The job was ended by {reason.limit}.{detail}",
            hint=f"Its outputs so far are home; allow more with {_ALLOW.get(reason, '--max-cost or --max-duration')}."
            if view.collected
            else "Save checkpoints while training, and give --bucket: then a later deadline loses nothing.",
        )
    if reason is EndReason.DISK_FULL:
        return DiskFull(
            f"The disk of the machine was nearly full; the job was ended.{detail}", hint="Give more: --disk 200."
        )
    if reason in (EndReason.PREEMPTED, EndReason.INTERRUPTED):
        return Preempted(f"The provider took the machine back.{detail}", hint=after_interruption(view))
    if reason in (EndReason.NODES_APART, EndReason.NODE_LOST):
        return NodesApart(
            f"The machines of the job did not work together.{detail}",
            hint=f"See what each said: costgpu logs --all {view.spec.node.group_id if view.spec.node else view.run_id}.",
        )
    if reason is EndReason.CANCELLED:
        return RunCancelled(f"Run {view.run_id} ({view.name}) was cancelled.")
    if reason is EndReason.INSTANCE_LOST:
        return InstanceLost(
            f"The machine of run {view.run_id} was ended by somebody else. {view.provider_reason}".strip()
        )
    return RunError(f"Run {view.run_id} ended: {reason.value.replace('_', ' ')}.{detail}")


def after_interruption(view: RunView) -> str:
    """Return what a person can do after the provider has taken the machine back."""
    if view.option is not None and view.option.offer.purchase_option is PurchaseOption.SPOT:
        return "Run it again on demand, or with --recover: then it goes on from its last checkpoint."
    return "The machine's host failed or was maintained, which is rare: run it again."


def exit_code(view: RunView) -> int:
    """Return the exit code of a run that needs no error: the job's own; 1 if it is not known."""
    if view.status is None or view.status.exit_code is None:
        return 1
    return view.status.exit_code

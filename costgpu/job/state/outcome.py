"""What a closed run means for the person who started it. Pure."""

from __future__ import annotations

from costgpu import errors
from costgpu.errors import CostGpuError, RunError
from costgpu.models.job import EndReason
from costgpu.models.offer import PurchaseOption
from costgpu.models.run import RunView

_ALLOW = {EndReason.IDLE: "--idle-duration", EndReason.MAX_DURATION: "--max-duration"}
_TEXTS: dict[type[CostGpuError], tuple[str, str]] = {
    errors.SetupFailed: (
        "The set-up command failed{code}; the job was not started.{detail}",
        "See what it said: costgpu logs {run_id}. Change it with --setup.",
    ),
    errors.LimitReached: ("The job was ended by {limit}.{detail}", "{outputs}"),
    errors.DiskFull: ("The disk of the machine was nearly full; the job was ended.{detail}", "Give more: --disk 200."),
    errors.Preempted: ("The provider took the machine back.{detail}", "{after_interruption}"),
    errors.NodesApart: (
        "The machines of the job did not work together.{detail}",
        "See what each said: costgpu logs --all {group_id}.",
    ),
    errors.RunCancelled: ("Run {run_id} ({name}) was cancelled.", ""),
    errors.InstanceLost: ("The machine of run {run_id} was ended by somebody else. {provider_reason}", ""),
    RunError: ("Run {run_id} ended: {words}.{detail}", ""),
}


def error_for(view: RunView) -> CostGpuError | None:
    """Return the error that the end of a job amounts to; None if it ended by itself, well or not."""
    status, reason = view.status, view.reason
    detail = f" {status.detail}" if status and status.detail else ""
    if status is not None and status.obeyed_signal:
        return RunError(
            f"The job was ended before it was done.{detail}", hint=f"See what it said: costgpu logs {view.run_id}."
        )
    if reason is None or reason.error is None:
        return None
    facts = {
        "run_id": view.run_id,
        "group_id": view.machine_ids[0],
        "name": view.name,
        "words": reason.words,
        "limit": reason.limit,
        "detail": detail,
        "code": f" with {status.exit_code}" if status and status.exit_code is not None else "",
        "provider_reason": view.provider_reason,
        "after_interruption": after_interruption(view),
        "outputs": f"Its outputs so far are home; allow more with {_ALLOW.get(reason, '--max-cost or --max-duration')}."
        if view.collected
        else "Save checkpoints while training, and give --bucket: then a later deadline loses nothing.",
    }
    message, hint = _TEXTS[reason.error]
    return reason.error(message.format(**facts).strip(), hint=hint.format(**facts))


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

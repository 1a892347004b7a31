"""What became of a run: its receipt, and how to come back to one that goes on; as text and as JSON documents."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from costgpu.models.job import EndReason
from costgpu.models.run import EndedBy, Receipt
from costgpu.render.document import document
from costgpu.render.text.jobs import run_value
from costgpu.render.text.layout import labelled, wrap
from costgpu.render.text.plan import safeguards_text
from costgpu.units import format_duration, format_usd

if TYPE_CHECKING:
    from costgpu.errors import CostGpuError
    from costgpu.models.run import Plan, RunView

END_PHRASES = {
    EndReason.JOB_FAILED: "failed",
    EndReason.SETUP_FAILED: "not started, its set-up failed",
    EndReason.MAX_DURATION: "ended by --max-duration",
    EndReason.DEADLINE: "ended by the deadline",
    EndReason.LEASE_EXPIRED: "ended by the deadline",
    EndReason.IDLE: "ended by --idle-duration",
    EndReason.DISK_FULL: "ended, the disk was nearly full",
    EndReason.UNCLAIMED: "not started, no client was there",
    EndReason.BOOT_FAILED: "not started, the machine did not come up",
    EndReason.HOST_KEY_MISMATCH: "not started, another machine answered",
    EndReason.MACHINE_UNUSABLE: "not started, the machine cannot be used",
    EndReason.SYNC_FAILED: "not started, its files could not be sent",
    EndReason.INSTANCE_LOST: "lost with its machine",
}
ENDED_BY_PHRASES = {
    EndedBy.CLIENT: "this client",
    EndedBy.AGENT: "the agent on the machine",
    EndedBy.WATCHDOG: "the deadline watchdog on the machine",
    EndedBy.PROVIDER: "the provider",
    EndedBy.REAPER: "costgpu reap",
    EndedBy.SOMEBODY_ELSE: "somebody else",
}


def receipt_text(receipt: Receipt, view: RunView) -> str:
    """The proof that nothing is billed any more."""
    if receipt.instance is None:
        return f"Receipt {receipt.run_id}: nothing was created, nothing is billed."
    place = "here" if receipt.instance.provider == "local" else f"{receipt.instance_type}, {receipt.instance.region}"
    job = END_PHRASES.get(receipt.reason) or receipt.reason.value.replace("_", " ")
    if view.status is not None and view.status.exit_code is not None:
        job += f", exit code {view.status.exit_code}"
    ended_by = ENDED_BY_PHRASES.get(receipt.ended_by, receipt.ended_by.value)
    requested = f", requested at {receipt.requested_at:%H:%M:%S} UTC" if receipt.requested_at else ""
    confirmed = f"{receipt.confirmed_at:%Y-%m-%d %H:%M:%S} UTC" if receipt.confirmed_at else "never"
    reason = f" ({receipt.provider_reason})" if receipt.provider_reason else ""
    bound = "at most " if receipt.metered_at_most else ""
    rows = [
        ("machine", f"{receipt.instance.instance_id}, {place}"),
        ("job", job),
        ("ended by", f"{ended_by}{requested}"),
        ("confirmed", f"{receipt.confirmed_state} at {confirmed}{reason}"),
        ("metered", f"{bound}{format_duration(receipt.metered_seconds)}, {format_usd(receipt.metered_cost_usd)}"),
    ]
    if receipt.left_behind:
        rows.append(("LEFT", f"{', '.join(receipt.left_behind)}; costgpu reap --yes removes it"))
    lines = [f"Receipt {receipt.run_id} ({view.name})", *(labelled(*row) for row in rows)]
    lines += ["Safeguards:", safeguards_text(receipt.layers)] if receipt.layers else []
    return "\n".join(lines)


def run_json(view: RunView) -> str:
    """Run and receipt as a versioned document; the receipt is null while the run goes on."""
    return document("costgpu.run", run=run_value(view), receipt=view.receipt, error=None)


def launched_json(plan: Plan, view: RunView, error: CostGpuError | None, now: datetime) -> str:
    """A run that was carried out, as a versioned document."""
    failure = error and {
        "type": type(error).__name__,
        "message": error.message,
        "hint": error.hint,
        "exit_code": error.exit_code,
    }
    return document("costgpu.run", at=now, plan=plan, run=run_value(view), receipt=view.receipt, error=failure)


def detached_text(view: RunView) -> str:
    """How to come back to a run that goes on."""
    until = f"{view.lease_until:%Y-%m-%d %H:%M} UTC" if view.lease_until else "its lease ends"
    cap = view.option.lease.worst_cost_usd if view.option else Decimal(0)
    if not view.spec.auto_shutdown:
        end = f"The machine stays until {until}, unless you end it."
    elif view.spec.bucket:
        end = f"When the job is over, its outputs go to {view.spec.bucket} and the machine ends itself."
    else:
        end = f"When the job is over, its outputs stay on the machine, which ends itself at {until}: fetch them first."
    most = f" It costs at most {format_usd(cap)} in all." if cap else ""
    return "\n".join(
        [
            wrap(f"Detached. Run {view.run_id} ({view.name}) goes on without this terminal.{most} {end}", rest="  "),
            f"  costgpu attach {view.run_id}    watch it again, fetch the outputs, end it",
            f"  costgpu logs -f {view.run_id}   only watch",
            f"  costgpu cancel {view.run_id}    end it now",
        ]
    )

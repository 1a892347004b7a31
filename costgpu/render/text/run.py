"""Plans, receipts and lists of runs as text for 80 columns and as JSON documents. Result -> str; no I/O."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any

from costgpu.models.instance import Safeguard
from costgpu.models.job import EndReason
from costgpu.models.run import EndedBy, Receipt
from costgpu.units import format_duration, format_size, format_usd

if TYPE_CHECKING:
    from costgpu.errors import CostGpuError
    from costgpu.models.reap import TaggedInstance
    from costgpu.models.run import Plan, RunView

WIDTH = 80
VERSION = 1
REASONS = {
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


def plan_text(plan: Plan, now: datetime) -> str:
    """What will happen and what it can cost at most."""
    spec, lease = plan.spec, plan.options[0].lease
    left = f"; left out: {', '.join(f'{why} ({n})' for why, n in plan.left_out.items())}" if plan.left_out else ""
    count = "1 file" if plan.files == 1 else f"{plan.files} files"
    rows = [("verdict", plan.verdict)] if plan.verdict else []
    rows += [
        ("job", f"{' '.join(('python', *spec.argv))}, sent from {spec.workdir}"),
        ("files", f"{count}, {format_size(plan.bytes)}{left}"),
    ]
    if spec.setup:
        rows.append(("set-up", spec.setup))
    if spec.env_names:
        rows.append(("variables", f"{', '.join(spec.env_names)} (values are neither shown nor stored)"))
    rows += _machine_rows(plan, now)
    outputs = ", ".join(spec.outputs) or "all files that are new or changed"
    rows.append(("outputs", outputs + (f"; also to {spec.bucket}" if spec.bucket else "")))
    if not spec.auto_shutdown:
        most = format_usd(lease.worst_cost_usd)
        rows.append(("shutdown", f"NOT when the job is over: at the end of its lease, {most} in all"))
    for who in (plan.identity, *plan.others):
        source = f" ({who.source})" if who.source else ""
        rows.append(("identity", f"{who.principal} in {who.provider} {who.account}{source}"))
    blocks = ["\n".join(_row(*row) for row in rows), "What ends the machine:\n" + _layers(plan.layers)]
    if plan.notes:
        blocks.append("\n".join(_wrap(note, "- ") for note in plan.notes))
    return "\n\n".join(blocks)


def _machine_rows(plan: Plan, now: datetime) -> list[tuple[str, str]]:
    """Where, for how much, for how long."""
    offer, lease = plan.options[0].offer, plan.options[0].lease
    free = offer.price_usd_per_hour == 0
    rows: list[tuple[str, str]] = []
    if offer.provider == "local":
        rows.append(("machine", f"this machine ({offer.vcpus} CPUs, {offer.memory_gib:g} GiB)"))
        if not free:
            rows.append(("price", f"{format_usd(offer.price_usd_per_hour)} an hour, as you say"))
    else:
        gpu = ""
        if offer.accelerator is not None:
            times = "" if offer.accelerator.count == 1 else f"{offer.accelerator.count:g}x "
            gpu = f" ({times}{offer.accelerator.name})"
        way = offer.purchase_option.value.replace("_", "-")
        rows.append(("machine", f"{offer.provider} {offer.instance_type}{gpu}, {offer.region}, {way}"))
        price, most = format_usd(offer.price_usd_per_hour), format_usd(lease.usd_per_hour)
        days = (now.date() - plan.price_as_of).days
        age = "of today" if days < 1 else "1 day old" if days == 1 else f"{days} days old"
        rows.append(("price", f"{price} an hour, {age}; with disk and address at most {most} an hour"))
        if len(plan.options) > 1:
            most = format_usd(max(option.lease.worst_cost_usd for option in plan.options))
            others = len(plan.options) - 1
            rows.append(
                ("else", f"{others} other place{'s' if others > 1 else ''} if that has none free; at most {most}")
            )
    if plan.prediction is None:
        rows.append(("estimate", "none for the whole job"))
    else:
        wall, cost = plan.prediction.wall_seconds, plan.prediction.cost_usd
        money = f", {format_usd(cost.value)} [{format_usd(cost.low)[1:]}-{format_usd(cost.high)[1:]}]"
        span = f"{format_duration(wall.value)} [{format_duration(wall.low)}-{format_duration(wall.high)}]"
        rows.append(("estimate", f"{span}{'' if free else money}, 80 % interval"))
    cap = "" if free else f"{format_usd(lease.worst_cost_usd)}; "
    end = now + timedelta(seconds=lease.lifetime_seconds)
    length = format_duration(lease.lifetime_seconds)
    rows.append(("at most", f"{cap}ended after {length}, by {end:%Y-%m-%d %H:%M} UTC ({lease.limited_by})"))
    return rows


def plan_json(plan: Plan, now: datetime) -> str:
    """The plan as a versioned document."""
    return _document("costgpu.plan", at=now, plan=plan)


def launched_json(plan: Plan, view: RunView, error: CostGpuError | None, now: datetime) -> str:
    """A run that was carried out, as a versioned document."""
    return _document(
        "costgpu.run",
        at=now,
        plan=plan,
        run=_run(view),
        receipt=view.receipt,
        error=None if error is None else _error(error),
    )


def _error(error: CostGpuError) -> dict[str, Any]:
    return {
        "type": type(error).__name__,
        "message": error.message,
        "hint": error.hint,
        "exit_code": error.exit_code,
    }


def detached_text(view: RunView) -> str:
    """How to come back to a run that goes on."""
    until = f"{view.lease_until:%Y-%m-%d %H:%M} UTC" if view.lease_until else "its lease ends"
    cost = view.option.lease.worst_cost_usd if view.option else Decimal(0)
    kept = (
        f"When the job is over its outputs go to {view.spec.bucket} and the machine ends itself."
        if view.spec.bucket
        else f"When the job is over its outputs wait on the machine, which ends itself at {until}: fetch them before."
    )
    if not view.spec.auto_shutdown:
        kept = f"The machine stays until {until}, unless you end it."
    most = f" At most {format_usd(cost)} in all." if cost else ""
    return "\n".join(
        [
            _wrap(f"Detached. Run {view.run_id} ({view.name}) goes on without this terminal.{most} {kept}"),
            f"  costgpu attach {view.run_id}    watch it again, bring the outputs home, end it",
            f"  costgpu logs -f {view.run_id}   only watch",
            f"  costgpu cancel {view.run_id}    end it now",
        ]
    )


def detached_json(view: RunView) -> str:
    """The same as a versioned document."""
    return _document("costgpu.run", run=_run(view), receipt=None, error=None)


def receipt_text(receipt: Receipt, view: RunView) -> str:
    """The proof that nothing is billed any more."""
    if receipt.instance is None:
        return f"Receipt {receipt.run_id}: nothing was created, nothing is billed."
    by = {
        EndedBy.CLIENT: "this client",
        EndedBy.AGENT: "the agent on the machine",
        EndedBy.WATCHDOG: "the deadline watchdog on the machine",
        EndedBy.PROVIDER: "the provider",
        EndedBy.REAPER: "costgpu reap",
        EndedBy.SOMEBODY_ELSE: "somebody else",
    }.get(receipt.ended_by, receipt.ended_by.value)
    confirmed = f"{receipt.confirmed_at:%Y-%m-%d %H:%M:%S} UTC" if receipt.confirmed_at else "never"
    words = f" ({receipt.provider_reason})" if receipt.provider_reason else ""
    place = f"{receipt.instance_type}, {receipt.instance.region}"
    bound = "at most " if receipt.metered_at_most else ""
    rows = [
        ("machine", f"{receipt.instance.instance_id}, {place if receipt.instance.provider != 'local' else 'here'}"),
        ("job", f"{REASONS.get(receipt.reason) or receipt.reason.value.replace('_', ' ')}{_code(view)}"),
        ("ended by", f"{by}{f', asked {receipt.requested_at:%H:%M:%S} UTC' if receipt.requested_at else ''}"),
        ("confirmed", f"{receipt.confirmed_state} at {confirmed}{words}"),
        ("metered", f"{bound}{format_duration(receipt.metered_seconds)}, {format_usd(receipt.metered_cost_usd)}"),
    ]
    if receipt.left_behind:
        rows.append(("LEFT", f"{', '.join(receipt.left_behind)}; costgpu reap --yes removes it"))
    head = f"Receipt {receipt.run_id} ({view.name})"
    layers = ["Layers:", _layers(receipt.layers)] if receipt.layers else []
    return "\n".join([head, *(_row(*row) for row in rows), *layers])


def receipt_json(view: RunView) -> str:
    """Run and receipt as a versioned document."""
    return _document("costgpu.run", run=_run(view), receipt=view.receipt, error=None)


def jobs_text(views: Sequence[RunView], tagged: Sequence[TaggedInstance], now: datetime) -> str:
    """One line for each run, at most 80 wide."""
    if not views and not tagged:
        return "No runs. costgpu run train.py starts one."
    lines = [f"{'RUN':<13}{'JOB':<15}{'STATE':<14}{'WHERE':<19}{'SINCE':>7}{'COST':>9}"]
    for view in views:
        state = view.state.value
        if view.state.value == "closed" and view.reason is not None:
            state = view.reason.value.replace("_", " ")
        cost = view.receipt.metered_cost_usd if view.receipt else view.metered_at_most(now)[1]
        since = format_duration(max(1.0, (now - view.created_at).total_seconds()))
        lines.append(
            f"{view.run_id:<13}{_cut(view.name, 14):<15}{_cut(state, 13):<14}{_cut(_where(view), 18):<19}"
            f"{_cut(since, 7):>7}{format_usd(cost):>9}"
        )
    for item in tagged:
        machine = item.instance
        until = _left(machine.lease_until, now)
        lines.append(
            f"{machine.run_id:<13}{_cut(machine.name, 14):<15}{_cut(machine.state.value, 13):<14}"
            f"{_cut(machine.instance_type, 18):<19}{until:>16}"
        )
    open_ones = [view for view in views if view.state.value not in ("closed", "intent") and view.lease_until]
    for view in open_ones:
        ref = view.instance.instance_id if view.instance else "being created"
        lines.append(f"{view.run_id}: {ref}, {_left(view.lease_until, now)}")
    return "\n".join(lines)


def jobs_json(views: Sequence[RunView], tagged: Sequence[TaggedInstance], now: datetime) -> str:
    """The list as a versioned document."""
    return _document(
        "costgpu.jobs", at=now, runs=[_run(view, now) for view in views], tagged=[item.instance for item in tagged]
    )


def _code(view: RunView) -> str:
    if view.status is None or view.status.exit_code is None:
        return ""
    return f", exit code {view.status.exit_code}"


def _run(view: RunView, now: datetime | None = None) -> dict[str, Any]:
    seconds, cost = view.metered_at_most(now) if now is not None and view.receipt is None else (None, None)
    return {
        "run_id": view.run_id,
        "name": view.name,
        "state": view.state,
        "reason": view.reason,
        "owner": view.owner,
        "created_at": view.created_at,
        "instance": view.instance,
        "offer": view.option.offer if view.option else None,
        "lease_until": view.lease_until,
        "status": view.status,
        "outputs_home": view.collected,
        "metered_seconds": seconds,
        "metered_cost_usd": cost,
    }


def _where(view: RunView) -> str:
    if view.option is None:
        return "-"
    return "this machine" if view.option.offer.provider == "local" else view.option.offer.instance_type


def _left(until: datetime | None, now: datetime) -> str:
    if until is None:
        return "no lease"
    seconds = (until - now).total_seconds()
    return f"{format_duration(seconds)} left" if seconds > 0 else f"{format_duration(-seconds)} over"


def _layers(layers: Sequence[Safeguard]) -> str:
    lines = []
    for layer in layers:
        head = f"  {'+' if layer.armed else '-'} {layer.name}: "
        when = f", by {layer.deadline:%Y-%m-%d %H:%M} UTC" if layer.deadline and layer.armed else ""
        what = f"{'' if layer.armed else 'NOT armed: '}{layer.detail}{when}"
        lines.append(textwrap.fill(what, WIDTH, initial_indent=head, subsequent_indent=" " * 6, break_on_hyphens=False))
    return "\n".join(lines)


def _row(name: str, text: str, indent: int = 13) -> str:
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=f"  {name:<{indent - 2}}",
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _wrap(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=" " * (len(indent) or 2),
        break_on_hyphens=False,
        break_long_words=False,
    )


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _document(kind: str, **parts: Any) -> str:
    return json.dumps({"schema": kind, "version": VERSION, **{k: _plain(v) for k, v in parts.items()}}, indent=2)


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return {key: _plain(item) for key, item in asdict(value).items()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key.value if isinstance(key, Enum) else key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value

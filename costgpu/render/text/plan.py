"""The plan of a run: what will happen, where, and what it can cost at most; as text and as a JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from costgpu.models.instance import Safeguard
from costgpu.render.document import document
from costgpu.render.phrases import accelerator_name, counted
from costgpu.render.text.layout import labelled, wrap
from costgpu.units import format_duration, format_size, format_usd

if TYPE_CHECKING:
    from costgpu.models.offer import Offer
    from costgpu.models.run import Plan


def plan_text(plan: Plan, now: datetime) -> str:
    """A row for each fact, then what ends the machine, then notes."""
    spec, lease = plan.spec, plan.options[0].lease
    left_out = ", ".join(f"{why} ({number})" for why, number in plan.left_out.items())
    files = f"{counted(plan.files, 'file')}, {format_size(plan.bytes)}"
    rows = [("verdict", plan.verdict)] if plan.verdict else []
    rows += [
        ("job", f"{' '.join(('python', *spec.argv))}, sent from {spec.workdir}"),
        ("files", f"{files}; left out: {left_out}" if left_out else files),
    ]
    if spec.setup:
        rows.append(("set-up", spec.setup))
    if spec.env_names:
        rows.append(("variables", f"{', '.join(spec.env_names)} (values are neither shown nor stored)"))
    rows += _machine_rows(plan, now)
    outputs = ", ".join(spec.outputs) or "all new and changed files"
    rows.append(("outputs", outputs + (f"; also to {spec.bucket}" if spec.bucket else "")))
    if not spec.auto_shutdown:
        cap = format_usd(lease.worst_cost_usd)
        rows.append(("shutdown", f"NOT when the job is over, but at the end of the lease: {cap} in all"))
    for who in (plan.identity, *plan.others):
        source = f" ({who.source})" if who.source else ""
        rows.append(("identity", f"{who.principal} in {who.provider} {who.account}{source}"))
    blocks = ["\n".join(labelled(*row) for row in rows), f"What ends the machine:\n{safeguards_text(plan.layers)}"]
    if plan.notes:
        blocks.append("\n".join(wrap(note, "- ") for note in plan.notes))
    return "\n\n".join(blocks)


def plan_json(plan: Plan, now: datetime) -> str:
    """The plan as a versioned document."""
    return document("costgpu.plan", at=now, plan=plan)


def safeguards_text(safeguards: Sequence[Safeguard]) -> str:
    """A line for each: whether it is armed, what it does, and by when."""
    lines = []
    for safeguard in safeguards:
        sign, state = ("+", "") if safeguard.armed else ("-", "NOT armed: ")
        when = f", by {safeguard.deadline:%Y-%m-%d %H:%M} UTC" if safeguard.deadline and safeguard.armed else ""
        lines.append(wrap(f"{state}{safeguard.detail}{when}", f"  {sign} {safeguard.name}: ", " " * 6))
    return "\n".join(lines)


def _machine_rows(plan: Plan, now: datetime) -> list[tuple[str, str]]:
    """Where, at what price, for how long."""
    offer, lease = plan.options[0].offer, plan.options[0].lease
    free = offer.price_usd_per_hour == 0
    if offer.provider == "local":
        rows = [("machine", f"this machine ({offer.vcpus} CPUs, {offer.memory_gib:g} GiB)")]
        rows += [] if free else [("price", f"{format_usd(offer.price_usd_per_hour)} an hour, as given")]
    else:
        rows = _cloud_rows(plan, offer, now)
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


def _cloud_rows(plan: Plan, offer: Offer, now: datetime) -> list[tuple[str, str]]:
    """The rented machine, its price, and the places to turn to where there is none."""
    gpu = f" ({accelerator_name(offer.accelerator)})" if offer.accelerator else ""
    purchase = offer.purchase_option.value.replace("_", "-")
    days = (now.date() - plan.price_as_of).days
    age = "of today" if days < 1 else f"{counted(days, 'day')} old"
    price, most = format_usd(offer.price_usd_per_hour), format_usd(plan.options[0].lease.usd_per_hour)
    rows = [
        ("machine", f"{offer.provider} {offer.instance_type}{gpu}, {offer.region}, {purchase}"),
        ("price", f"{price} an hour, {age}; with disk and address at most {most} an hour"),
    ]
    if len(plan.options) > 1:
        most = format_usd(max(option.lease.worst_cost_usd for option in plan.options))
        others = counted(len(plan.options) - 1, "other place")
        rows.append(("else", f"{others} if there is no capacity; at most {most}"))
    return rows

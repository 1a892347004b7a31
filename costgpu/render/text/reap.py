"""What `costgpu reap` found and did, as text for 80 columns and as a JSON document. Result -> str; no I/O."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from costgpu.models.provider_costs import HOURS_PER_MONTH
from costgpu.models.reap import ReapFindings
from costgpu.render.document import document, picked
from costgpu.render.phrases import counted
from costgpu.render.text.layout import wrap
from costgpu.render.text.run import lease_left
from costgpu.units import format_usd


def reap_text(found: ReapFindings, now: datetime, *, done: bool) -> str:
    """Return a line for each machine and resource that was found, or ended where `done`; empty if all is well."""
    lines = []
    for orphan in found.orphans:
        ref, machine = orphan.instance.ref, orphan.instance
        what = "ended" if ref in found.ended else "NOT ENDED" if done else "orphan"
        price = "price not known" if orphan.usd_per_hour is None else _price(orphan.usd_per_hour)
        lines.append(
            f"{what}: {ref.provider} {ref.instance_id} in {ref.region}, {machine.instance_type}, {machine.state.value},"
            f" {price}, {orphan.why.value} ({lease_left(machine.lease_until, now)}), run {machine.run_id or 'unknown'} of"
            f" {machine.owner or 'unknown'}"
        )
    for left in found.leftovers:
        what = "removed" if left in found.removed else "NOT REMOVED" if done else "left behind"
        lines.append(
            f"{what}: {left.provider} {left.kind} {left.resource_id} in {left.region}, {_price(left.usd_per_hour)},"
            f" run {left.run_id or 'unknown'} of {left.owner or 'unknown'}"
        )
    lines += [f"failed: {what}: {error}" for what, error in found.failed.items()]
    lines += [f"not asked: {where}: {why}" for where, why in found.unreachable.items()]
    if found.leaking:
        lines.append(f"Together {rate_text(found)}.")
    if found.leaking and not done:
        lines.append("Nothing was changed. End them with: costgpu reap --yes")
    return "\n".join(wrap(line, rest="  ") for line in lines)


def rate_text(found: ReapFindings) -> str:
    """``$1.23 an hour, $898 a month``; at least that, where a price is not known."""
    rate = found.usd_per_hour
    if not rate and found.prices_known:
        return "free"
    least = "" if found.prices_known else "at least "
    return f"{least}{format_usd(rate)} an hour, {format_usd(rate * HOURS_PER_MONTH)} a month"


def count_text(found: ReapFindings) -> str:
    """``2 machines and 1 other resource``."""
    machines, things = len(found.orphans), len(found.leftovers)
    words = [counted(machines, "machine")] if machines else []
    if things:
        words.append(counted(things, "other resource" if machines else "resource"))
    return " and ".join(words)


def _price(usd_per_hour: Decimal | float) -> str:
    return f"{format_usd(usd_per_hour)} an hour" if usd_per_hour else "free"


def reap_json(found: ReapFindings, now: datetime) -> str:
    """Return the same as a versioned document."""
    rate = found.usd_per_hour
    return document(
        "costgpu.reap",
        at=now,
        **picked(found, "orphans", "leftovers", "kept", "ended", "removed", "unreachable"),
        failed={key: str(error) for key, error in found.failed.items()},
        usd_per_hour=rate,
        usd_per_month=rate * HOURS_PER_MONTH,
        prices_known=found.prices_known,
    )

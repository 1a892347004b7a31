"""The receipts of a job: the proof that nothing of it is billed any more, and what it has cost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from costgpu.models.attempts import summarize
from costgpu.models.instance import Safeguard
from costgpu.models.job import EndReason
from costgpu.models.run import EndedBy, Receipt, RunView
from costgpu.providers import registry
from costgpu.render.document import document
from costgpu.render.phrases import counted, price_mark
from costgpu.render.text.layout import labelled, wrap
from costgpu.units import format_duration, format_usd

ENDED_BY_PHRASES = {
    EndedBy.CLIENT: "this client",
    EndedBy.AGENT: "the agent on the machine",
    EndedBy.WATCHDOG: "the deadline watchdog on the machine",
    EndedBy.PROVIDER: "the provider",
    EndedBy.REAPER: "costgpu reap",
    EndedBy.SOMEBODY_ELSE: "somebody else",
}


def receipts_text(views: Sequence[RunView]) -> str:
    """Return the receipts of all machines of a job, and what they have cost together."""
    if views[0].spec.goes_on:  # those that looked for machines and found none are not shown, but for the last
        views = [view for view in views if view.receipt is not None and view.receipt.instance is not None] or views[-1:]
    texts = [
        receipt_text(view.receipt, view, safeguards=view is views[0]) for view in views if view.receipt is not None
    ]
    total = summarize(views)
    if total is not None:
        times, took = counted(total.interruptions, "interruption"), format_duration(total.metered_seconds)
        lost, restart = format_duration(total.lost_seconds), format_duration(total.restart_seconds)
        worked = f"{lost} of work" if total.lost_seconds >= 1 else "no work"
        both = format_duration(total.lost_seconds + total.restart_seconds)
        whole = (
            f"{counted(total.machines, 'machine')} after {times}, {took} of them, {format_usd(total.metered_cost_usd)}"
        )
        texts.append(labelled("together", whole))
        texts.append(labelled("lost", f"{both}: {worked} since the checkpoints, {restart} to start again"))
        if total.on_demand_usd is not None:
            again = f"the same work would have cost about {format_usd(total.on_demand_usd)}"
            texts.append(labelled("on demand", again))
    elif len(views) > 1:
        made = [view.receipt for view in views if view.receipt is not None and view.receipt.instance is not None]
        seconds = sum(receipt.metered_seconds for receipt in made)
        cost = sum((receipt.metered_cost_usd for receipt in made), Decimal(0))
        together = f"{counted(len(made), 'machine')}, {format_duration(seconds)} of them, {format_usd(cost)}"
        texts.append(labelled("together", together if made else "nothing was created, nothing is billed"))
    return "\n".join(texts)


def receipts_json(views: Sequence[RunView], now: datetime) -> str:
    """Return the same as a versioned document."""
    receipts = [view.receipt for view in views if view.receipt is not None]
    return document("costgpu.job", at=now, receipts=receipts, attempts=summarize(views))


def receipt_text(receipt: Receipt, view: RunView, *, safeguards: bool = True) -> str:
    """Return the proof that nothing is billed any more.

    Args:
        safeguards: Whether to list what stood behind it; the machines of a job have the same.
    """
    if receipt.instance is None:
        return f"Receipt {receipt.run_id}: nothing was created, nothing is billed."
    place = (
        "here" if registry.is_here(receipt.instance.provider) else f"{receipt.instance_type}, {receipt.instance.region}"
    )
    job = receipt.reason.phrase
    if view.status is not None and view.status.exit_code is not None:
        job += f", exit code {view.status.exit_code}"
    if view.spec.launcher.runs_once and view.first_rank and receipt.reason is EndReason.SUCCEEDED:
        # the end of the script itself was perhaps no success
        job = f"a {view.spec.launcher.title()} node; it ended with the script on machine 0"
    ended_by = ENDED_BY_PHRASES.get(receipt.ended_by, receipt.ended_by.value)
    requested = f", requested at {receipt.requested_at:%H:%M:%S} UTC" if receipt.requested_at else ""
    confirmed = f"{receipt.confirmed_at:%Y-%m-%d %H:%M:%S} UTC" if receipt.confirmed_at else "never"
    reason = f" ({receipt.provider_reason})" if receipt.provider_reason else ""
    bound = "at most " if receipt.metered_at_most else ""
    own = receipt.reason.error is None
    rows = [
        ("machine", f"{receipt.instance.instance_id}, {place}"),
        ("job", job),
        *([("note", view.status.detail)] if own and view.status is not None and view.status.detail else []),
        ("ended by", f"{ended_by}{requested}"),
        ("confirmed", f"{receipt.confirmed_state} at {confirmed}{reason}"),
        ("metered", f"{bound}{format_duration(receipt.metered_seconds)}, {format_usd(receipt.metered_cost_usd)}"),
    ]
    if view.option is not None and (mark := price_mark(view.option.offer)):
        rows.append(("own price", mark.removeprefix("own price ")))
    if receipt.left_behind:
        rows.append(("LEFT", f"{', '.join(receipt.left_behind)}; costgpu reap --yes removes it"))
    attempt = view.spec.attempt
    which = f", attempt {attempt.number}" if attempt is not None and view.is_later_attempt else ""
    lines = [f"Receipt {receipt.run_id} ({view.name}{which})", *(labelled(*row) for row in rows)]
    lines += ["Safeguards:", safeguards_text(receipt.layers)] if receipt.layers and safeguards else []
    return "\n".join(lines)


def safeguards_text(safeguards: Sequence[Safeguard]) -> str:
    """Return a line for each: whether it is armed, what it does, and by when."""
    lines = []
    for safeguard in safeguards:
        sign, state = ("+", "") if safeguard.armed else ("-", "NOT armed: ")
        when = f", by {safeguard.deadline:%Y-%m-%d %H:%M} UTC" if safeguard.deadline and safeguard.armed else ""
        lines.append(wrap(f"{state}{safeguard.detail}{when}", f"  {sign} {safeguard.name}: ", " " * 6))
    return "\n".join(lines)

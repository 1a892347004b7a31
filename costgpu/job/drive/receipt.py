"""The receipt that closes a run: the proof of its end, and the safeguards that stood behind it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from decimal import Decimal

from costgpu.job.drive.context import RunContext
from costgpu.job.drive.next_attempt import record_next_attempt
from costgpu.job.files.sent_folder import forget_sent
from costgpu.models.events import Closed
from costgpu.models.instance import Safeguard
from costgpu.models.job import EndReason
from costgpu.models.run import EndedBy, Receipt, RunView

_TAKEN = (EndReason.PREEMPTED, EndReason.INSTANCE_LOST)


def close_run(context: RunContext, reason: EndReason, by: EndedBy, left: tuple[str, ...] | None = None) -> None:
    """Write the receipt of a run whose end is confirmed, or that never had a machine.

    Args:
        left: What is there in the region of its last create call, in words; None if nobody has looked.
    """
    view = context.view
    here = view.option.offer.region if left is not None and view.option is not None else None
    earlier = [words for region, words in view.left_behind if region != here]
    seconds, cost = view.metered(context.clock.now())
    made = view.instance is not None
    metered, billed = (round(seconds, 1), cost) if made else (0.0, Decimal(0))
    receipt = Receipt(
        run_id=view.run_id,
        instance=view.instance,
        instance_type=view.option.offer.instance_type if made and view.option else "",
        layers=_safeguards(view),
        reason=reason,
        ended_by=by,
        requested_at=view.ending_at,
        confirmed_state=view.confirmed_state,
        confirmed_at=view.confirmed_at,
        provider_reason=view.provider_reason,
        left_behind=tuple(dict.fromkeys((*earlier, *(left or ())))),
        metered_seconds=metered,
        metered_cost_usd=billed,
        metered_at_most=view.ended_before,
    )
    closing = replace(view, reason=reason, receipt=receipt)
    goes_on = record_next_attempt(context, closing)
    if goes_on is False:
        forget_sent(context.services.folder, view)
    elif goes_on and made and (context.for_next or view.kept or reason in _TAKEN):
        reason = EndReason.INTERRUPTED
        receipt = replace(receipt, reason=reason)
    context.journal.add(
        Closed(
            reason=reason,
            ended_by=by,
            metered_seconds=receipt.metered_seconds,
            metered_cost_usd=receipt.metered_cost_usd,
            receipt=receipt,
        )
    )


def _safeguards(view: RunView) -> tuple[Safeguard, ...]:
    """Return those that the provider armed, and those that are the same everywhere."""
    if view.instance is None:
        return ()
    agent, client, reaper = common_safeguards(view.lease_until)
    return (*view.layers, replace(agent, armed=view.synced), replace(client, armed=not view.detached), reaper)


def common_safeguards(until: datetime | None) -> tuple[Safeguard, Safeguard, Safeguard]:
    """Agent, client and reaper."""
    return (
        Safeguard(
            name="agent",
            armed=True,
            deadline=until,
            detail="on the machine: job over and nobody there, idle, out of time, disk full, preempted",
        ),
        Safeguard(name="client", armed=True, detail="terminates when the job is over, and waits for proof"),
        Safeguard(name="reap", armed=True, deadline=until, detail="costgpu reap ends it by its tag, from any computer"),
    )

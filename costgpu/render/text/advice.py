"""Advice as lines for a terminal of 80 columns, and as JSON-ready values. Result -> str; no I/O."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from costgpu.models.prediction import Advice, Prediction
from costgpu.units import format_duration, format_usd

WIDTH = 80
TITLE = "What would make it cheaper"
WHOLE = "the whole job"
OVERLAP = "These savings overlap: they do not add up."


def advice_lines(advice: Sequence[Advice], *, title: bool = True, unit: str = WHOLE) -> list[str]:
    """Lines of at most 80 columns, in the order given; empty if there is no advice.

    Args:
        advice: From `costgpu.estimate.advice.advise`.
        title: With a first line that says what they are.
        unit: What the amounts are for, as the verdict has it.
    """
    if not advice:
        return []
    lines = [TITLE + (f" (amounts for {unit})" if unit != WHOLE else "")] if title else []
    for one in advice:
        lines += textwrap.wrap(
            " ".join(sentences(one)), WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False
        )
    if sum(one.saving_usd > 0 or one.saving_seconds > 0 for one in advice) > 1:
        lines.append(OVERLAP)
    return lines


def sentences(one: Advice) -> list[str]:
    """The change with its saving, what that was computed from, and what else to know."""
    found = [f"{one.action}{saving(one)}{_then(one)}."]
    found += one.notes
    if one.basis:
        found.append(f"Computed from {one.basis}.")
    return found


def saving(one: Advice) -> str:
    """``: saves $1.20 of $3.10 (39 %), 2.1 h less``; empty where no saving is known."""
    if one.before is None or (one.saving_usd <= 0 and one.saving_seconds <= 0):
        return ""
    most = "at most " if one.at_most else ""
    share = f"({100 * one.share:.0f} %)"
    if one.before.cost_usd.value <= 0:
        whole = format_duration(one.before.wall_seconds.value)
        return f": saves {most}{format_duration(one.saving_seconds)} of {whole} {share}"
    amounts = f"{format_usd(one.saving_usd)} of {format_usd(one.before.cost_usd.value)}"
    return f": saves {most}{amounts} {share}{_time(one)}"


def _time(one: Advice) -> str:
    """``, 2.1 h less``; empty if the time hardly changes."""
    assert one.before is not None  # noqa: S101 - the caller's condition
    if abs(one.saving_seconds) < max(1.0, 0.01 * one.before.wall_seconds.value):
        return ""
    return f", {format_duration(abs(one.saving_seconds))} {'less' if one.saving_seconds > 0 else 'longer'}"


def _then(one: Advice) -> str:
    """Where it then runs, if that is another machine."""
    if one.before is None or one.after is None or one.after.candidate.offer is None:
        return ""
    if one.before.candidate.offer == one.after.candidate.offer:
        return ""
    return f", on {where(one.after)}"


def where(prediction: Prediction) -> str:
    """``aws g6.xlarge (L4), us-east-1, spot``."""
    offer = prediction.candidate.offer
    if offer is None:
        return "this machine"
    chips = offer.accelerator
    gpu = "" if chips is None else f" ({'' if chips.count == 1 else f'{chips.count:g}x '}{chips.name})"
    spot = ", spot" if offer.purchase_option.value == "spot" else ""
    return f"{offer.provider} {offer.instance_type}{gpu}, {offer.region}{spot}"


def advice_documents(advice: Sequence[Advice]) -> list[dict[str, Any]]:
    """Each as JSON-ready values, in the order given; amounts in US dollars and seconds."""
    return [
        {
            "kind": one.kind.value,
            "action": one.action,
            "saving_usd": one.saving_usd,
            "saving_seconds": one.saving_seconds,
            "saving_share": one.share,
            "at_most": one.at_most,
            "probability": one.probability,
            "before": _place(one.before),
            "after": _place(one.after),
            "other_usd": one.other_usd,
            "other_seconds": one.other_seconds,
            "basis": one.basis,
            "notes": list(one.notes),
        }
        for one in advice
    ]


def _place(prediction: Prediction | None) -> dict[str, Any] | None:
    if prediction is None:
        return None
    offer = prediction.candidate.offer
    document: dict[str, Any] = {
        "where": "offer" if offer else "here",
        "cost_usd": prediction.cost_usd.value,
        "wall_seconds": prediction.wall_seconds.value,
        "step_seconds": prediction.step_seconds,
        "terms_seconds": prediction.terms,
    }
    if offer is not None:
        document |= {
            "provider": offer.provider,
            "region": offer.region,
            "instance_type": offer.instance_type,
            "purchase_option": offer.purchase_option.value,
            "accelerator": offer.accelerator.name if offer.accelerator else None,
            "accelerators": offer.accelerator.count if offer.accelerator else 0,
        }
    return document

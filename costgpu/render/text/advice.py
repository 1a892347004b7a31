"""Advice as text and as parts of a JSON document."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from costgpu.models.prediction import Advice, AdviceKind, Prediction
from costgpu.render.document import json_object, picked
from costgpu.render.phrases import offer_name
from costgpu.render.text.blocks import Block
from costgpu.render.text.layout import fold, fold_before, wrap
from costgpu.units import format_duration, format_usd

TITLE, FASTER_TITLE = "What would make it cheaper", "What would make it cheaper or faster"
WHOLE = "the whole job"
OVERLAP = "These savings overlap: they do not add up."
ITEMS, ROWS_EACH = 3, 2  # of a short form


def advice_lines(advice: Sequence[Advice], *, title: bool = True, unit: str = WHOLE) -> list[str]:
    """One paragraph each, in the order given; `unit` is what the amounts are for, as in the verdict."""
    if not advice:
        return []
    words = FASTER_TITLE if any(one.kind is AdviceKind.DDP for one in advice) else TITLE
    lines = [words + (f" (amounts for {unit})" if unit != WHOLE else "")] if title else []
    for one in advice:
        lines += wrap(" ".join(sentences(one)), "- ").splitlines()
    if sum(one.saving_usd > 0 or one.saving_seconds > 0 for one in advice) > 1:
        lines.append(OVERLAP)
    return lines


def advice_block(advice: Sequence[Advice], *, unit: str = WHOLE) -> Block:
    """Return the advice: in short, the three changes that are worth the most, two rows each."""

    def short(rows: int) -> list[str]:
        shown = advice[: min(ITEMS, (rows - 2) // ROWS_EACH)] if rows > ROWS_EACH else ()
        if not shown:
            return []
        head, *others = advice_lines(advice, unit=unit)
        rest = f" {len(advice) - len(shown)} more: --explain." if len(advice) > len(shown) else ""
        last = (OVERLAP if others[-1] == OVERLAP else "") + rest
        return [head, *(row for one in shown for row in _short(one)), *([last.strip()] if last else [])]

    most = 2 + ROWS_EACH * ITEMS
    return Block(full="\n".join(advice_lines(advice, unit=unit)), short=short, most=most, least=2 + ROWS_EACH)


def _short(one: Advice) -> list[str]:
    """Return the change and its saving in two rows; what does not fit is left out of the change, and not of the saving."""
    rest, brief = f"{saving(one)}{_then(one)}.", re.sub(r" \([^()]*\)", "", one.action)
    whole = fold(f"{one.action}{rest}", ROWS_EACH + 1, "- ")
    return whole if len(whole) <= ROWS_EACH else fold_before(brief, rest, ROWS_EACH, "- ")


def sentences(one: Advice) -> list[str]:
    """Return the change with its saving, what that was computed from, and what else to know."""
    found = [f"{one.action}{saving(one)}{_then(one)}."]
    found += one.notes
    if one.basis:
        found.append(f"Computed from {one.basis}.")
    return found


def saving(one: Advice) -> str:
    """``: saves $1.20 of $3.10 (39 %), 2.1 h less``; what it takes, if only time is saved; empty where nothing is known."""
    if one.before is None or (one.saving_usd <= 0 and one.saving_seconds <= 0):
        return ""
    most = "at most " if one.at_most else ""
    share = f"({100 * one.share:.0f} %)"
    if one.before.cost_usd.value <= 0:
        whole = format_duration(one.before.wall_seconds.value)
        return f": saves {most}{format_duration(one.saving_seconds)} of {whole} {share}"
    if one.saving_usd <= 0 and one.after is not None:
        before, after = one.before, one.after
        time = f"{format_duration(after.wall_seconds.value)} instead of {format_duration(before.wall_seconds.value)}"
        return f": {time}, {format_usd(after.cost_usd.value)} instead of {format_usd(before.cost_usd.value)}"
    amounts = f"{format_usd(one.saving_usd)} of {format_usd(one.before.cost_usd.value)}"
    return f": saves {most}{amounts} {share}{_time(one)}"


def _time(one: Advice) -> str:
    """``, 2.1 h less``; empty if the time hardly changes."""
    assert one.before is not None  # noqa: S101 - the caller's condition
    if abs(one.saving_seconds) < max(1.0, 0.01 * one.before.wall_seconds.value):
        return ""
    return f", {format_duration(abs(one.saving_seconds))} {'less' if one.saving_seconds > 0 else 'longer'}"


def _then(one: Advice) -> str:
    """Return where it then runs, if that is another machine."""
    if one.before is None or one.after is None or one.after.candidate.offer is None:
        return ""
    if one.before.candidate.offer == one.after.candidate.offer:
        return ""
    return f", on {offer_name(one.after)}"


def advice_values(advice: Sequence[Advice]) -> list[dict[str, Any]]:
    """Each as a part of a document, in the order given; amounts in US dollars and seconds."""
    values = (
        {
            **picked(one, "kind", "action", "saving_usd", "saving_seconds"),
            "saving_share": one.share,
            **picked(one, "at_most", "probability"),
            "before": _place_value(one.before),
            "after": _place_value(one.after),
            **picked(one, "other_usd", "other_seconds", "basis", "notes"),
        }
        for one in advice
    )
    return [json_object(value) for value in values]


def _place_value(prediction: Prediction | None) -> dict[str, Any] | None:
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
            **picked(offer, "provider", "region", "instance_type", "purchase_option"),
            "accelerator": offer.accelerator.name if offer.accelerator else None,
            "accelerators": offer.accelerator.count if offer.accelerator else 0,
        }
    return document

"""What would make a job cheaper, in words."""

from __future__ import annotations

from collections.abc import Sequence

from costgpu.estimator.scope import WHOLE_JOB
from costgpu.models.prediction import Advice, AdviceKind
from costgpu.render.phrases import offer_name
from costgpu.render.report import ItemList, ReportSection
from costgpu.units import format_duration, format_usd

TITLE, FASTER_TITLE = "What would make it cheaper", "What would make it cheaper or faster"
NOTHING_FOUND = "Nothing was found whose saving can be computed here."
OVERLAP = "These savings overlap: they do not add up."


def advice_title(advice: Sequence[Advice], unit: str = WHOLE_JOB) -> str:
    """Return what the advice is for; `unit` is what its amounts are for, as in the verdict."""
    words = FASTER_TITLE if any(one.kind is AdviceKind.DDP for one in advice) else TITLE
    return words + (f" (amounts for {unit})" if unit != WHOLE_JOB and advice else "")


def overlap(advice: Sequence[Advice]) -> str:
    """Return that savings do not add up, where there are several; else empty."""
    return OVERLAP if sum(one.saving_usd > 0 or one.saving_seconds > 0 for one in advice) > 1 else ""


def advice_section(advice: Sequence[Advice], unit: str = WHOLE_JOB) -> ReportSection:
    """Return the advice in the order given, one item each."""
    last = [overlap(advice)] if overlap(advice) else []
    items = ItemList([" ".join(sentences(one)) for one in advice], "ranked")
    return ReportSection(title=advice_title(advice, unit), parts=[items, *last] if advice else [NOTHING_FOUND])


def saving_words(one: Advice) -> str:
    """Return what the change saves, and where it then runs, if that is another machine."""
    before, after = one.before, one.after
    moved = before is not None and after is not None and before.candidate.offer != after.candidate.offer
    there = f", on {offer_name(after)}" if moved and after is not None and after.candidate.offer is not None else ""
    return f"{saving(one)}{there}."


def sentences(one: Advice) -> list[str]:
    """Return the change with its saving, what that was computed from, and what else to know."""
    found = [f"{one.action}{saving_words(one)}"]
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
    time = ""
    if abs(one.saving_seconds) >= max(1.0, 0.01 * one.before.wall_seconds.value):
        time = f", {format_duration(abs(one.saving_seconds))} {'less' if one.saving_seconds > 0 else 'longer'}"
    return f": saves {most}{amounts} {share}{time}"

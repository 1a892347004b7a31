"""How many steps a progress series makes in all, by its own settings and by what is around it. Pure."""

from __future__ import annotations

import math
from dataclasses import replace

from costgpu.measure.probe.record import (
    Again,
    Intervals,
    ProbeRecord,
    SeriesRecord,
    TimeBudget,
)
from costgpu.measure.profile.loop_bounds import number
from costgpu.measure.profile.search_times import mean_length, search_in_words
from costgpu.measure.profile.total_steps import FOREVER_STEPS, called_again, place_of, total_steps
from costgpu.models.workload import Total, TotalKind
from costgpu.units import format_duration

SEARCH_FIT = "search fit"
ONCE = ("fit", "call")  # units that the loops around them repeat, and nothing else


def total_of(series: SeriesRecord, raw: Intervals, record: ProbeRecord, *, ended: bool) -> Total:
    """Return the total of a series; if it `ended`, its steps are simply known."""
    facts, seen = series["facts"], float(series["steps"])
    per_epoch = facts.get("per_epoch")
    if ended:
        return Total(kind=TotalKind.EXACT, steps=seen, steps_per_epoch=per_epoch, how="it ran to its end")
    if series["source"] == "tqdm":
        return _bars_total(series, record)
    search = facts.get("search")
    inner = mean_length(search) if series["unit"] != SEARCH_FIT else None
    each = inner or series["total"]
    if each is None and series["snapshots"]:
        return total_steps(raw, ended=False)
    if each is None and series["unit"] in ONCE:
        each = 1.0
    if each is not None and each >= FOREVER_STEPS:
        how = f"{each:.3g} by its own settings: it has no end of its own"
        return Total(kind=TotalKind.UNBOUNDED, steps=None, steps_per_epoch=per_epoch, how=how)
    around = [loop for loop in series["around"] if loop["trips"] not in (None, 1)]
    unread = any(loop["trips"] is None or loop["trips"] == "inf" for loop in series["around"])
    times = 1.0 if unread else math.prod(number(loop["trips"]) or 1.0 for loop in around)
    unknown = ""
    if each is None:
        unknown = facts.get("how") or "the data do not say how long they are"
    elif unread:
        unknown = "the loop around it has no length that can be read"
    elif series["openings"] > times and not unread:
        begun = f"begun {series['openings']} times so far"
        unknown = f"{each:,.0f} by its own settings, {begun}; what repeats it cannot be read"
    if each is None or unknown:
        return Total(kind=TotalKind.UNKNOWN, steps=None, steps_per_epoch=per_epoch or each, how=unknown)
    where = "" if unread else " × ".join(f"{loop['trips']:,} ({place_of(loop)})" for loop in around)
    if series["unit"] in ONCE and where:  # nothing inside of a whole fit counts
        how, epoch = where, None
    else:
        own = f"epochs={facts['epochs']} × {per_epoch:,} steps" if facts.get("epochs") and per_epoch else ""
        if search is not None:
            own = (
                f"{inner:,.0f} in a fit on average"
                if inner
                else search_in_words(search)
                if each == search["fits"]
                else ""
            )
        how = (own or facts.get("how") or f"{each:,.0f} by its own settings") + (f" × {where}" if where else "")
        epoch = each if times > 1 else None
    kind = TotalKind.EXACT
    stop = facts.get("may_stop_at")
    if facts.get("may_stop") or stop or any((loop.get("position") or (None, None, False))[2] for loop in around):
        kind, how = TotalKind.UPPER_BOUND, how + "; it may stop early" + (f" ({stop})" if stop else "")
    elif facts.get("told"):
        kind = TotalKind.APPROXIMATE
    elif any(loop.get("trials") for loop in around):
        kind, how = TotalKind.APPROXIMATE, how + "; a trial may choose another length"
    elif inner and search is not None and search["refit"]:
        kind, how = TotalKind.APPROXIMATE, how + "; the refit is as long as the best one's"
    return Total(kind=kind, steps=max(float(round(each * times)), seen), steps_per_epoch=per_epoch or epoch, how=how)


def within_budget(total: Total, budget: TimeBudget | None) -> Total:
    """Return the total of what a library's call repeats that ends by the clock."""
    if budget is None or (total.steps is not None and (total.seconds or math.inf) <= budget["seconds"]):
        return total
    seconds = min(budget["seconds"], total.seconds or math.inf)
    each = format_duration(budget["seconds"] / budget["times"])
    spell = (f"{budget['times']:,.0f} × " if budget["times"] > 1 else "") + f"{each} by {budget['words']}"
    if total.steps is None:
        return replace(total, kind=TotalKind.TIMED, how=f"it runs for {spell}", seconds=seconds)
    how = f"{total.how}; it ends after {spell} at the latest"
    return replace(total, kind=TotalKind.UPPER_BOUND, how=how, seconds=seconds)


def total_of_calls(each: str, count: float, again: Again) -> Total:
    """Return the total of loops of `count` iterations (`each`, in words) that are called again and again."""
    around = [loop for loop in again["around"] if loop.get("trips") != 1]
    times = math.prod(number(loop["trips"]) or math.inf for loop in around)
    if not around or math.isinf(times):
        return called_again(each, again["times"], again["by"], count)
    how = " × ".join(f"{loop['trips']:,} ({place_of(loop)})" for loop in around) + f" × {each}"
    how += "; a trial may choose another length" if any(loop.get("trials") for loop in around) else "; each may differ"
    if any((loop.get("position") or (None, None, False))[2] for loop in around):
        how += "; it may stop early"
    steps = max(times, again["times"]) * count
    return Total(kind=TotalKind.APPROXIMATE, steps=steps, steps_per_epoch=count, how=how)


def _bars_total(series: SeriesRecord, record: ProbeRecord) -> Total:
    """Return the bar's own total, as often as the loops around it come round."""
    each = series["facts"].get("total")
    if each is None:
        return Total(kind=TotalKind.UNKNOWN, steps=None, steps_per_epoch=None, how="the progress bar has no total")
    how, inner = f"the progress bar's total of {each:,}", float(each)
    if series["steps"] > each * series["openings"]:
        how += f", and {series['steps']:,} were counted"
        return Total(kind=TotalKind.UNKNOWN, steps=None, steps_per_epoch=None, how=how)
    outer = next((s for s in record["series"] if s["label"] == series["facts"].get("outer")), None)
    times, around = _rounds(series, outer)
    if around:
        how = f"{around} × {each:,} ({series['label']}), by its progress bars"
    if times is None:
        return Total(kind=TotalKind.UNKNOWN, steps=None, steps_per_epoch=inner, how=how)
    stop = series["facts"].get("may_stop_at")
    if stop or any((loop.get("position") or (None, None, False))[2] for loop in series["around"]):
        how += f"; it may stop early ({stop})" if stop else "; it may stop early"
        kind = TotalKind.UPPER_BOUND
    elif series["facts"].get("told"):
        kind, how = TotalKind.APPROXIMATE, how + "; only the bar says so"
    else:
        kind = TotalKind.EXACT
    return Total(kind=kind, steps=inner * times, steps_per_epoch=inner if around else None, how=how)


def _rounds(series: SeriesRecord, outer: SeriesRecord | None) -> tuple[float | None, str]:
    """Return how often a bar is opened, by the loops (or the bar) around it, and these in words.

    None if that is not known.
    """
    known = [loop for loop in series["around"] if number(loop["trips"]) not in (None, 1.0)]
    if any(loop["trips"] is None for loop in series["around"]) or (outer is not None and not known):
        if outer is None or len(series["around"]) > 1:
            return (None, "?") if series["around"] else (1.0, "")
        total = outer["facts"].get("total")
        if total is None or abs(outer["steps"] - (series["openings"] - 1)) > 1:  # it counts something else
            return None, f"{total or '?'} ({outer['label']})"
        return float(total), f"{total:,} ({outer['label']})"
    times = math.prod(number(loop["trips"]) or 1.0 for loop in known)
    words = " × ".join(f"{loop['trips']:,} ({place_of(loop)})" if loop["trips"] != "inf" else "?" for loop in known)
    if math.isinf(times) or series["openings"] > times:
        return None, words or "?"
    return times, words

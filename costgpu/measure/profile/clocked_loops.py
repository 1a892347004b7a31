"""The length of a phase whose loops watch a clock. Pure."""

from __future__ import annotations

import math
from dataclasses import replace

from costgpu.measure.probe.record import Loop
from costgpu.measure.profile.loop_bounds import number
from costgpu.models.workload import Total, TotalKind
from costgpu.units import format_duration


def with_clock(total: Total, loops: list[Loop]) -> Total:
    """Return the total of these loops (outermost first) with the seconds after which a clock ends them, if one does.

    A clock of an inner loop counts as often as that loop is entered; where this is not known, nothing is said of it.
    """
    level = next((n for n, loop in enumerate(loops) if "seconds" in loop), None)
    if level is None:
        return total
    clock, each = loops[level]["clock"], loops[level]["seconds"]
    around = [number(loop["trips"]) for loop in loops[:level] if not (loop["library"] and loop["trips"] is None)]
    times = math.prod(math.inf if trips is None else trips for trips in around)
    if math.isinf(times):
        return total
    place = f"(line {clock['line']}: {clock['test']})"
    spell = f"{times:,.0f} × {format_duration(each)}" if times > 1 else format_duration(each)
    if total.steps is not None:
        how = f"{total.how}; it may stop earlier: after {spell} by its clock {place}"
        return replace(total, kind=TotalKind.UPPER_BOUND, how=how, seconds=times * each)
    tests = [one for loop in loops if not loop["library"] for one in (*loop["early_exit"], *loop["bounds"])]
    others = [one for one in tests if one["test"] != clock["test"]]
    unread = any(loop["trips"] is None and loop["kind"] == "for" for loop in loops[: level + 1])
    how = f"it runs for {'at most ' if others or unread else ''}{spell} by its clock {place}"
    if others:
        how += f"; it may stop earlier (line {others[0]['line']}: {others[0]['test']})"
    return replace(total, kind=TotalKind.TIMED, how=how, seconds=times * each)

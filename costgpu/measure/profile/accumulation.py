"""How many iterations of the innermost loop make a step (gradient accumulation), by its source and as measured. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

from costgpu.measure.probe.record import Loop, Snapshot
from costgpu.measure.profile.loop_bounds import number

NEARLY = 1e-6


class IterationRate(NamedTuple):
    """Iterations of the innermost loop per step, between two snapshots."""

    steps: int
    each: float
    within: bool  # one execution of the loop; else it began anew between them
    sure: bool  # whether it is sure which of both


@dataclass(frozen=True, slots=True)
class Accumulation:
    """Iterations of the innermost loop for a step."""

    per_step: float
    goes_on: bool = False  # what is left over at the end of a loop counts towards the first step of the next one
    unsure: str = ""  # why it may be another number later on


def accumulation(snapshots: list[Snapshot], micro_batches: float = 1.0) -> Accumulation:
    """Return what makes a step: what the source says where the measurement agrees with it, else what was measured.

    Args:
        micro_batches: Backward passes of a step, for a phase of which only one was seen.
    """
    if not snapshots:
        return Accumulation(1.0)
    inner = loops_of(snapshots)[-1]
    innermost = [loops_of([shot])[-1] for shot in snapshots]
    seen = [loop["gate"] for loop in innermost if "gate" in loop]
    gate = seen[-1] if seen else None
    if gate is not None and len(seen) == len(snapshots):
        changes = not gate["fixed"] or len({one["every"] for one in seen}) > 1
        if _agree(snapshots, gate["every"]):
            why = f"{gate['text']} changes, this is as of now" if changes else ""
            return Accumulation(gate["every"], bool(gate["goes_on"]), why)
    rates, measured, trips = rates_of(snapshots), _measured(snapshots, micro_batches), number(inner["trips"])
    same = [rate for rate in rates if rate.within and rate.sure]
    uneven = len(same) > 1 and max(rate.each for rate in same) - min(rate.each for rate in same) > NEARLY
    if uneven:
        measured = sum(rate.steps * rate.each for rate in same) / sum(rate.steps for rate in same)
    passed = passed_by(inner)
    at_its_end = passed is None or trips is None or passed >= trips - 1
    why = ""
    if uneven or abs(measured - round(measured)) > NEARLY or (gate is not None and gate["every"] != measured):
        why = "on average"
    elif inner["ragged"] and measured > 1 and len(same) == 1 and at_its_end:
        why = "one step was timed, and it ended the loop"
    return Accumulation(measured, trips is not None and measured > max(1.0, trips), why)


def _agree(snapshots: list[Snapshot], every: float) -> bool:
    """Return True if all snapshots fit a step at every so many iterations, and at the end of the loop."""
    same = [rate.each for rate in rates_of(snapshots) if rate.within and rate.sure]
    if loops_of(snapshots)[-1]["ragged"]:
        return all(each <= every + NEARLY for each in same)
    return all(abs(each - every) <= NEARLY for each in same)


def loops_of(snapshots: list[Snapshot]) -> list[Loop]:
    """Return the loops that count, from the last snapshot: not those over a list of optimizers."""
    return [loop for loop in snapshots[-1]["loops"] if not loop["optimizers"]] if snapshots else []


def _measured(snapshots: list[Snapshot], micro_batches: float) -> float:
    if len({shot["anchor"] for shot in snapshots}) == 1 and first_step(snapshots[0]) == micro_batches:
        return micro_batches
    rates = rates_of(snapshots)
    found = [rate for rate in rates if rate.within] or rates  # one step per epoch is only seen across epochs
    if not found:
        return 1.0
    shortest = min(rate.steps for rate in found)
    each = sorted(rate.each for rate in found if rate.steps == shortest)
    return each[len(each) // 2] or 1.0


def rates_of(snapshots: list[Snapshot]) -> list[IterationRate]:
    """Return iterations of the innermost loop per step between neighbouring snapshots."""
    found: list[IterationRate] = []
    for before, after in pairwise(snapshots):
        inner, later = loops_of([before]), loops_of([after])
        steps = after["anchor"] - before["anchor"]
        if not inner or not later or steps <= 0 or inner[-1]["line"] != later[-1]["line"]:
            continue
        first, second = inner[-1]["index"], later[-1]["index"]
        batches = (after["batches"] - before["batches"]) / steps
        by_batches = first is None and inner[-1]["kind"] == "for" and batches >= 1
        sure = all(loop["index"] is not None for loop in inner[:-1])
        if any(a["index"] != b["index"] for a, b in zip(inner[:-1], later[:-1], strict=False)):
            passed = position(later) - position(inner)
            if first is not None and passed > 0:
                found.append(IterationRate(steps, passed / steps, within=False, sure=sure))
            elif by_batches:
                found.append(IterationRate(steps, batches, within=False, sure=sure))
            continue
        raised = raised_between(inner, later, -1)
        if first is not None and second is not None and (second - first) / inner[-1]["stride"] > 0:
            found.append(IterationRate(steps, (second - first) / inner[-1]["stride"] / steps, within=True, sure=sure))
        elif first is None and (raised or by_batches):
            each = raised / steps if raised else batches
            trips = number(later[-1]["trips"])
            # its loader ran out between the two: what it had left over came on top of a step
            new_lap = trips is not None and trips > 0 and before["batches"] // trips < (after["batches"] - 1) // trips
            found.append(IterationRate(steps, each, within=not new_lap, sure=sure))
    return found


def position(loops: list[Loop]) -> float:
    """Return iterations of the innermost loop so far, from the variables of all loops; nan if one is not known."""
    passed = 0.0
    for loop in loops:
        trips = number(loop["trips"])
        if loop["index"] is None or trips is None:
            return math.nan
        passed = (passed * trips if passed else 0.0) + (loop["index"] - loop["start"]) / loop["stride"]
    return passed


def raised_between(before: list[Loop], after: list[Loop], level: int) -> float:
    """Return iterations of one of the loops between two snapshots, by a counter that it raises; 0 if it has none."""
    home = before[level]
    for loop, later in zip(before, after, strict=False):
        for bound, same in zip(loop["bounds"], later["bounds"], strict=False):
            sides = ((bound["left"], same["left"]), (bound["right"], same["right"]))
            for values, counter in zip(sides, bound["counters"], strict=True):
                if not counter["increment"] or counter["with_step"]:
                    continue
                if counter["loop_line"] == home["line"] and counter.get("loop_depth", loop["depth"]) == home["depth"]:
                    first, second = map(number, values)
                    if first is not None and second is not None and bound["test"] == same["test"]:
                        return max(0.0, (second - first) / counter["increment"])
    return 0.0


def passed_by(loop: Loop) -> float | None:
    """Return iterations of a loop before the one that it is in, by its variable; None if that does not tell."""
    return None if loop["index"] is None else (loop["index"] - loop["start"]) / loop["stride"]


def first_step(shot: Snapshot) -> float | None:
    """Return iterations of the innermost loop up to the first step; None if the first snapshot does not tell."""
    inner = loops_of([shot])
    if not inner or shot["anchor"] != 1:
        return None
    if inner[-1]["index"] is not None:
        return float((inner[-1]["index"] - inner[-1]["start"]) / inner[-1]["stride"] + 1)
    return float(shot["batches"]) if inner[-1]["kind"] == "for" and shot["batches"] else None


def batches_per_step(snapshots: list[Snapshot], what: Literal["batches", "all_batches"] = "all_batches") -> float:
    """Return the batches drawn for one step, from the first pair of neighbouring snapshots; 0 if there is none.

    Args:
        what: ``batches`` for those of the loader that the steps follow, else of all loaders.
    """
    for before, after in pairwise(snapshots):
        steps = after["anchor"] - before["anchor"]
        if steps > 0:
            return float(after[what] - before[what]) / float(steps)
    return 0.0

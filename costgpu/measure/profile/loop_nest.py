"""Steps of loops in each other: their lengths multiplied, as far as tests, remainders and a late begin let them. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from costgpu.measure.probe.record import EarlyExit, Loop, Snapshot
from costgpu.measure.profile.accumulation import (
    Accumulation,
    accumulation,
    first_step,
    loops_of,
    passed_by,
    position,
    raised_between,
)
from costgpu.measure.profile.loop_bounds import Cap, find_caps, number

LEAST_ROUNDS = 3  # of an outer loop, for a mean of what they hold
LEAST_OFF = 2  # steps by which the measurement may differ from what the loops say
OFF = 0.02  # share of the steps by which the measurement may differ from what the loops say


@dataclass(frozen=True, slots=True)
class Nest:
    """The loops around a step, outermost first, and what is known of their lengths."""

    loops: list[Loop]
    steps: Accumulation
    levels: list[float | None]  # steps of one execution of each loop; None where that is not known
    cap: Cap | None  # what decides the whole
    sure: bool  # whether all that was used of the tests is
    caps: list[Cap]
    early: list[EarlyExit]
    first: list[Loop]  # as they were at the first step; empty if that was not seen
    until_first: float | None  # iterations of the innermost loop up to the first step, its own or by the batches drawn


def read_nest(snapshots: list[Snapshot], observed: float | None, micro_batches: float) -> Nest:
    """Return what the snapshots (at least one, of loops) say; `observed` are the steps of an epoch as it was seen."""
    loops, steps = loops_of(snapshots), accumulation(snapshots, micro_batches)
    caps, early = find_caps(snapshots, loops, steps.per_step)
    first = loops_of(snapshots[:1]) if snapshots[0]["anchor"] == 1 else []
    if [(loop["path"], loop["line"]) for loop in first] != [(loop["path"], loop["line"]) for loop in loops]:
        first = []
    until = first_step(snapshots[0])
    levels, cap, sure = _walk(loops, steps, caps, observed, until, first)
    return Nest(
        loops=loops,
        steps=steps,
        levels=levels,
        cap=cap,
        sure=sure,
        caps=caps,
        early=early,
        first=first,
        until_first=until,
    )


def _walk(
    loops: list[Loop],
    steps: Accumulation,
    caps: list[Cap],
    observed: float | None,
    first: float | None,
    begin: list[Loop],
) -> tuple[list[float | None], Cap | None, bool]:
    """Return steps in one execution of each loop (same order as `loops`).

    Also the cap that decides the whole, if one does, and whether all caps that were applied are sure.
    """
    last, per_iteration = len(loops) - 1, steps.per_step
    count: float | None = 1.0 / per_iteration
    bodies: dict[int, float | None] = {}
    levels: list[float | None] = []
    decides: Cap | None = None
    sure = True
    for level in range(last, -1, -1):
        bodies[level] = count
        decides = None
        trips = number(loops[level]["trips"])
        for cap in caps:
            if cap.steps is None and cap.level == cap.place == level and (trips is None or cap.iterations < trips):
                trips, decides, sure = cap.iterations, cap, sure and cap.sure
        if trips in (None, math.inf) and carries(loops, level):
            trips = 1.0
        if trips is None and level == last and level > 0 and observed and loops[level]["kind"] == "for":
            count = observed
        elif trips is None or count is None:
            count = None
        else:
            rounds = _rounds(trips, loops[level], begin[level] if begin else None) if level < last else trips
            count = _innermost(trips, loops, steps, first) if level == last else count * rounds
        for cap in caps:
            if cap.level == level and (cap.steps is not None or cap.place != level):
                limit = _steps_of(cap, bodies, loops, steps, first)
                unread = limit is not None and cap.whole_bodies_of is not None and bodies[cap.whole_bodies_of] is None
                if limit is not None and unread and observed and cap.whole_bodies_of == last - 1:
                    limit = math.ceil(limit / observed - 1e-9) * observed  # it only ends between two of them
                if limit is not None and (count is None or limit < count):
                    count, decides, sure = limit, cap, sure and cap.sure and not unread
        levels.append(count)
    return levels[::-1], decides, sure


def carries(loops: list[Loop], level: int) -> bool:
    """Return whether a loop is a library's around a loop of the script's own: a command line's or a trainer's, made once."""
    return loops[level]["library"] and any(not loop["library"] for loop in loops[level + 1 :])


def _rounds(trips: float, loop: Loop, begin: Loop | None) -> float:
    """Return iterations of an outer loop that come to the step, where it does so every so many of them only."""
    gate = loop.get("gate")
    if gate is None or gate["every"] <= 1 or math.isinf(trips):
        return trips
    if loop["ragged"]:
        return float(math.ceil(trips / gate["every"] - 1e-9))
    before = passed_by(begin) if begin is not None else None
    until = gate["every"] if before is None else before + 1
    return float(max(1.0, math.floor((trips - until) / gate["every"] + 1e-9) + 1))


def _innermost(trips: float, loops: list[Loop], accumulated: Accumulation, first: float | None) -> float:
    """Return the steps in `trips` iterations of the innermost loop, of which `first` had passed before the first step.

    Where it is the only loop, a late first step means that it starts to train late (a replay buffer that fills up).
    """
    per_iteration = accumulated.per_step
    if math.isinf(trips) or (per_iteration <= 1 and (len(loops) > 1 or first is None)):
        return trips / per_iteration
    if loops[-1].get("ragged"):
        return max(1.0, float(math.ceil(trips / per_iteration - 1e-9)))
    if accumulated.goes_on and len(loops) > 1:
        return trips / per_iteration
    until = per_iteration if first is None or (first > per_iteration and len(loops) > 1) else first
    return max(1.0, float(math.floor((trips - until) / per_iteration + 1e-9) + 1))


def _steps_of(
    cap: Cap, bodies: dict[int, float | None], loops: list[Loop], accumulated: Accumulation, first: float | None
) -> float | None:
    last, per_iteration = len(loops) - 1, accumulated.per_step
    body = bodies.get(cap.place)
    whole = bodies.get(cap.whole_bodies_of) if cap.whole_bodies_of is not None else None

    def rounded(steps: float) -> float:
        return math.ceil(steps / whole - 1e-9) * whole if whole else steps

    if cap.steps is not None:
        return rounded(cap.steps)
    if body is None:
        return None
    if cap.place != last:
        return max(1.0, rounded(cap.iterations * body))
    trips = number(loops[last]["trips"])
    if per_iteration <= 1 or trips is None or math.isinf(trips) or not trips or cap.level == last:
        steps = float(math.floor(cap.iterations / per_iteration + 1e-9))
        if cap.one_more is not None and per_iteration <= 1 and trips:
            steps += max(0.0, _known_trips(loops[cap.level : last]) - math.ceil(cap.iterations / trips - 1e-9))
        return max(1.0, rounded(steps))
    # accumulation starts anew with every execution of the innermost loop
    each = _innermost(trips, loops, accumulated, first)
    if whole and cap.whole_bodies_of is not None:
        between = _known_trips(loops[cap.whole_bodies_of + 1 :])
        return max(1.0, math.ceil(cap.iterations / between - 1e-9) * whole)
    full, rest = divmod(cap.iterations, trips)
    until = per_iteration if first is None or first > per_iteration else first
    partial = math.floor((rest - until) / per_iteration + 1e-9) + 1 if rest >= until else 0
    return max(1.0, full * each + partial)


def _known_trips(loops: list[Loop]) -> float:
    """Return the product of the trip counts; one that is not known is left out."""
    return math.prod(number(loop["trips"]) or 1.0 for loop in loops)


def expected_between(snapshots: list[Snapshot], nest: Nest) -> float | None:
    """Return steps that the loops say to have been made from the first snapshot to the last; None if they do not tell."""
    first, last, count = loops_of(snapshots[:1]), loops_of(snapshots), 0.0
    if len(first) != len(last):
        return None
    for level, loop in enumerate(last):
        begin, now = passed_by(first[level]), passed_by(loop)
        trips = number(loop["trips"])
        inner = nest.levels[level + 1] if level + 1 < len(last) else 1.0 / nest.steps.per_step
        if begin is not None and now is not None:
            moved = now - begin
        elif level == 0 and any(cap.steps is None and cap.place == level for cap in nest.caps):
            moved = raised_between(first, last, level)
        elif trips == 1 or carries(last, level):
            continue
        else:
            return None
        if inner is None or math.isinf(inner):
            return None
        gate = loop.get("gate") if level + 1 < len(last) else None
        count += moved / (gate["every"] if gate is not None else 1.0) * inner
    return count


@dataclass(frozen=True, slots=True)
class Otherwise:
    """Steps that were made between two snapshots, and the number that the loops say."""

    made: int
    expected: float
    called_again: bool  # by a library: its loop is the reason

    @property
    def ratio(self) -> float:
        """Return the steps for each one that the loops say; 1 where none was to be expected."""
        return self.made / self.expected if self.expected >= 1 else 1.0


def seen_otherwise(snapshots: list[Snapshot], nest: Nest) -> Otherwise | None:
    """Return what was measured where that is not what the loops say; None where it is, or where they do not tell."""
    loops = nest.loops
    if nest.steps.unsure or any(loop["varies"] for loop in loops) or (nest.steps.goes_on and loops[-1]["ragged"]):
        return None
    made, expected = snapshots[-1]["anchor"] - snapshots[0]["anchor"], expected_between(snapshots, nest)
    if expected is None or abs(made - expected) <= max(LEAST_OFF, OFF * made):
        return None
    again = made > expected and any(carries(loops, n) and number(loops[n]["trips"]) != 1 for n in range(len(loops)))
    return Otherwise(made=made, expected=expected, called_again=again)


def whole_steps(count: float, nest: Nest) -> float:
    """Return the steps of all loops where what one execution of the innermost loop leaves over goes into the next."""
    every, trips = nest.steps.per_step, number(nest.loops[-1]["trips"])
    if not nest.steps.goes_on or len(nest.loops) == 1 or not trips or math.isinf(trips):
        return count
    if not nest.loops[-1]["ragged"]:
        return float(math.floor(count + 1e-9))
    laps = count / math.ceil(trips / every - 1e-9)
    both = laps * trips // math.lcm(round(trips), round(every))  # the last of a lap that is due anyway
    return float(laps * trips // every + laps - both)


@dataclass(frozen=True, slots=True)
class Late:
    """Iterations before the first step."""

    steps: float = 0.0  # that were not made in them
    loop: Loop | None = None  # the outermost one that shows them
    rounds: float = 0.0  # of that loop
    for_good: bool = True  # what let none through before will let all through from now on


def lost_before(nest: Nest) -> Late:
    """Return what a late first step says: a buffer that fills up first, epochs that only warm up."""
    lost, shown, rounds = 0.0, None, 0.0
    every = nest.steps.per_step
    for level, loop in enumerate(nest.first):
        passed = passed_by(loop)
        if passed is None and shown is not None and level + 1 == len(nest.first) and nest.until_first is not None:
            before, trips = position(nest.first[:-1]), number(loop["trips"]) or 0.0
            passed = nest.until_first - 1 - before * trips  # by the batches drawn
            passed = passed if 0 <= passed < trips else None
        if not passed:
            continue
        inner, due = (nest.levels[level + 1], 1.0) if level + 1 < len(nest.first) else (1.0 / every, every)
        if "gate" in loop:
            due = loop["gate"]["every"]
        late = math.floor(passed / due + 1e-9)
        if inner is None or math.isinf(inner) or not late:
            continue
        if level + 1 == len(nest.first):
            lost += late if level else 0.0  # of a single loop they are left out already
        elif "gate" not in loop:
            lost += late * inner
        if shown is None:
            shown, rounds = loop, passed
    if nest.steps.goes_on and len(nest.first) > 1:
        passed = position(nest.first)
        late = math.floor(passed / every + 1e-9) if not math.isnan(passed) else 0
        lost, shown = float(late), shown if late else None
    around = nest.loops
    for_good = any(loop.get("opens") for loop in around) and not any(
        "guard" in loop or "skips" in loop for loop in around
    )
    return Late(steps=lost, loop=shown, rounds=rounds, for_good=for_good)


def is_as_seen(nest: Nest) -> bool:
    """Return whether the innermost loop is taken to be as long as it was seen to be."""
    inner = nest.loops[-1]
    return len(nest.loops) > 1 and inner["kind"] == "for" and inner["trips"] is None and nest.levels[-1] is not None


@dataclass(frozen=True, slots=True)
class Mean:
    """Steps of a loop whose length is not known, as they were measured inside of loops that are known."""

    level: int  # of the innermost loop of known length
    steps: float  # in all
    each: float  # of one iteration of it
    rounds: float  # iterations over which that was measured


def measured_mean(snapshots: list[Snapshot], nest: Nest) -> Mean | None:
    """Return the steps of all rounds of the outer loops of known length, by those that were seen; None for too few."""
    first, last = loops_of(snapshots[:1]), loops_of(snapshots)
    level, total, moved, before = -1, 1.0, 0.0, 0.0
    for n, loop in enumerate(nest.loops[:-1]):
        trips = number(loop["trips"])
        if carries(nest.loops, n) and trips in (None, math.inf):
            continue
        begin, now = (passed_by(first[n]), passed_by(last[n])) if n < len(first) else (None, None)
        if begin is None or now is None:
            if level >= 0 or len(first) != len(last):
                break  # a counter in an inner loop may go on from one to the next
            begin, now = 0.0, raised_between(first, last, n)
        if trips is None and nest.levels[n] is None:
            trips = next((c.iterations for c in nest.caps if c.steps is None and c.level == c.place == n), None)
        if loop["library"] or trips is None or math.isinf(trips) or "gate" in loop:
            break
        level, total, moved, before = n, total * trips, moved * trips + now - begin, before * trips + begin
    made = snapshots[-1]["anchor"] - snapshots[0]["anchor"]
    if level < 0 or moved < LEAST_ROUNDS or made <= 0:
        return None
    each = (made + 0.5) / (moved + 0.5)  # the last round was seen in part, up to any of its steps
    return Mean(level=level, steps=each * (total - before), each=each, rounds=moved)

"""How many steps a phase takes, from what the probe saw of the loops around it. Pure.

The probe's snapshots hold, for each loop on the live stack (outermost first), its trip count if that can be
evaluated, its loop variable, and the comparisons that could end it. Trip counts multiply; a comparison with a
counter caps the count at the level where the counter starts anew.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal

from costgpu.measure.probe.record import Intervals, Loop, Snapshot
from costgpu.measure.profile.clocked_loops import with_clock
from costgpu.measure.profile.loop_bounds import Cap, find_caps, number
from costgpu.models.workload import Total, TotalKind

FOREVER_STEPS = 1e9  # more steps than any machine takes: the loop means "until stopped"
FOREVER_EPOCH = 1e8  # nor is so long an epoch one: the length of the data is a stand-in for "without end"
LEAST_EPOCH_STEPS = 10  # an inner loop of fewer steps is not an epoch (a critic's five steps)


def total_steps(phase: Intervals, *, ended: bool, micro_batches: float = 1.0) -> Total:
    """The total of one phase; if it ended, its steps are simply known.

    Args:
        micro_batches: Backward passes of a step, for a phase of which only one was seen.
    """
    total = _counted(phase, ended=ended, micro_batches=micro_batches)
    return total if ended else with_clock(total, _loops([shot for shot in phase["snapshots"] if shot["loops"]]))


def _counted(phase: Intervals, *, ended: bool, micro_batches: float) -> Total:
    """The total by the loops' lengths and counters alone."""
    snapshots = [shot for shot in phase["snapshots"] if shot["loops"]]
    loops = _loops(snapshots)
    texts = [_describe(loop) for loop in loops]
    by_loader = _steps_per_loader(phase, _per_step(phase["snapshots"], "batches"))
    observed = observed_epoch(phase)
    if ended:
        steps = float(phase["steps"])
        epoch = by_loader if by_loader and by_loader < steps else observed
        return Total(kind=TotalKind.EXACT, steps=steps, steps_per_epoch=epoch, how="it ran to its end", loops=texts)
    if not loops:
        how, epoch = "no loop around the step could be found", by_loader or observed
        return Total(kind=TotalKind.UNKNOWN, steps=None, steps_per_epoch=epoch, how=how)
    per_iteration = iterations_per_step(snapshots, micro_batches)
    caps, early = find_caps(snapshots, loops, per_iteration)
    levels, cap, sure = _walk(loops, per_iteration, caps, observed, _first_step(snapshots[0]))
    count = levels[0]
    epoch = by_loader or _inner_epoch(levels) or observed
    if count is None:
        unread = [loop for n, loop in enumerate(loops) if number(loop["trips"]) is None and not _carries(loops, n)]
        open_ended = [loop for loop in unread if not loop["library"]] or unread
        reason = next((loop for loop in open_ended if loop["kind"] == "for"), (open_ended or loops)[0])
        whose = "a library's loop" if reason["library"] else "the loop"
        how = f"{whose} at {_place(reason)} ({reason['source']}) has no length that can be read"
        return Total(kind=TotalKind.UNKNOWN, steps=None, steps_per_epoch=epoch, how=how, loops=texts)
    if count >= FOREVER_STEPS:
        endless = next((loop for loop in loops if number(loop["trips"]) == math.inf), loops[0])
        how = f"the loop at {_place(endless)} ({endless['source']}) has no end of its own"
        how += f"; it stops when {early[0]['test']} (line {early[0]['line']})" if early else ""
        kind = TotalKind.UNKNOWN if early else TotalKind.UNBOUNDED
        return Total(kind=kind, steps=None, steps_per_epoch=epoch, how=how, loops=texts)
    count = max(1.0, float(round(count)), float(phase["steps"]))
    how = f"it stops at {cap.text}" if cap else _product(loops, per_iteration)
    if early:
        first = early[0]
        how += f"; it may stop earlier (line {first['line']}: {first['test']})"
    kind = TotalKind.UPPER_BOUND if early else TotalKind.EXACT
    changing = next((loop for loop in loops if loop.get("varies")), None)
    if changing is not None and cap is None:
        kind = TotalKind.APPROXIMATE
        how += f"; the length of the loop at {_place(changing)} changes, this is as of now"
    elif not sure:
        kind = TotalKind.APPROXIMATE
        how += (
            ", as fast as it grew so far"
            if cap is not None and cap.measured
            else "; by how many steps it may go on could not be read"
        )
    elif kind is TotalKind.EXACT and cap is None and abs(per_iteration - round(per_iteration)) > 1e-6:
        kind = TotalKind.APPROXIMATE
        how += "; on average"
    skips = _skips(loops, snapshots, micro_batches) if cap is None else None
    if skips is not None and kind is TotalKind.EXACT:
        kind = TotalKind.APPROXIMATE if per_iteration > 1 else TotalKind.UPPER_BOUND
        how += f"; it may be fewer: line {skips} passes some by"
    if epoch is not None and epoch > count:
        epoch = None
    return Total(kind=kind, steps=count, steps_per_epoch=epoch, how=how, loops=texts)


def _loops(snapshots: list[Snapshot]) -> list[Loop]:
    """The loops that count, from the last snapshot: not those over a list of optimizers."""
    return [loop for loop in snapshots[-1]["loops"] if not loop["optimizers"]] if snapshots else []


def _place(loop: Loop) -> str:
    return f"{loop['file']}:{loop['line']}"


def _describe(loop: Loop) -> str:
    trips = number(loop["trips"])
    count = "?" if trips is None else "endless" if math.isinf(trips) else f"{trips:,.0f}"
    word = "while" if loop["kind"] == "while" else "for … in"
    bounds = "; ".join(f"{b['how']} {b['test']}" for b in loop["bounds"] if b["how"] != "while")
    return f"{_place(loop)} {word} {loop['source']}: {count}" + (f" ({bounds})" if bounds else "")


def _product(loops: list[Loop], per_iteration: float) -> str:
    parts = [
        f"{number(loop['trips']):,.0f} ({_place(loop)})"
        for loop in loops
        if number(loop["trips"]) not in (None, 1.0) and not math.isinf(number(loop["trips"]) or 0)
    ]
    text = " × ".join(parts) or "the loops around the step"
    return text + (f" / {per_iteration:g} per step" if per_iteration > 1 else "")


def batches_per_step(phase: Intervals) -> float:
    """DataLoader batches drawn for one step, of all loaders, from the first pair of neighbouring snapshots."""
    return _per_step(phase["snapshots"], "all_batches")


def _per_step(snapshots: list[Snapshot], what: Literal["batches", "all_batches"]) -> float:
    for before, after in pairwise(snapshots):
        steps = after["anchor"] - before["anchor"]
        if steps > 0:
            return float(after[what] - before[what]) / float(steps)
    return 0.0


def _steps_per_loader(phase: Intervals, per_step: float) -> float | None:
    length = (phase.get("loader") or {}).get("length")
    if not length or not per_step or length >= FOREVER_EPOCH:
        return None
    return max(1.0, float(math.floor(length / per_step + 1e-9)))


def observed_epoch(phase: Intervals) -> float | None:
    """Steps between two moments at which a loader was opened or an outer loop moved on."""
    at = sorted(int(k) for k, v in phase["special"].items() if v.get("opened"))
    if len(at) >= 2:
        gaps = sorted(b - a for a, b in pairwise(at))
        return float(gaps[len(gaps) // 2])
    return float(at[0] + 1) if at else None


def _inner_epoch(levels: list[float | None]) -> float | None:
    inner = levels[-1] if levels else None
    if inner is None or math.isinf(inner) or len(levels) < 2 or inner < LEAST_EPOCH_STEPS:
        return None
    return inner


def _skips(loops: list[Loop], snapshots: list[Snapshot], micro_batches: float) -> int | None:
    """The line of a test that passes iterations by; None without one, or where every iteration was seen to step."""
    around = [loop["skips"] for loop in loops[:-1] if "skips" in loop and not loop["library"]]
    if around or "skips" not in loops[-1]:
        return around[0] if around else None
    rates = _rates(snapshots)
    return None if rates and all(rate <= max(1.0, micro_batches) for _, rate in rates) else loops[-1]["skips"]


def iterations_per_step(snapshots: list[Snapshot], micro_batches: float = 1.0) -> float:
    """Iterations of the innermost loop per counted step (gradient accumulation: above 1)."""
    if len({shot["anchor"] for shot in snapshots}) == 1 and _first_step(snapshots[0]) == micro_batches:
        return micro_batches
    found = _rates(snapshots)
    if not found:
        return 1.0
    shortest = min(steps for steps, _ in found)
    rates = sorted(rate for steps, rate in found if steps == shortest)
    return rates[len(rates) // 2] or 1.0


def _rates(snapshots: list[Snapshot]) -> list[tuple[int, float]]:
    """Iterations of the innermost loop per step between two snapshots, with the steps between them."""
    within: list[tuple[int, float]] = []
    across: list[tuple[int, float]] = []
    for before, after in pairwise(snapshots):
        inner, later = _loops([before]), _loops([after])
        steps = after["anchor"] - before["anchor"]
        if not inner or not later or steps <= 0 or inner[-1]["line"] != later[-1]["line"]:
            continue
        first, second = inner[-1]["index"], later[-1]["index"]
        batches = (after["batches"] - before["batches"]) / steps
        if any(a["index"] != b["index"] for a, b in zip(inner[:-1], later[:-1], strict=False)):
            passed = _position(later) - _position(inner)
            if first is not None and passed > 0:
                across.append((steps, passed / steps))
            elif first is None and inner[-1]["kind"] == "for" and batches >= 1:
                across.append((steps, batches))
            continue
        raised = _raised(inner, later)
        if first is not None and second is not None and (second - first) / inner[-1]["stride"] > 0:
            within.append((steps, (second - first) / inner[-1]["stride"] / steps))
        elif first is None and (raised or (inner[-1]["kind"] == "for" and batches >= 1)):
            (across if _new_lap(before, after) else within).append((steps, raised / steps if raised else batches))
    return within or across  # one step per epoch is only seen from one epoch to the next


def _new_lap(before: Snapshot, after: Snapshot) -> bool:
    """Whether the innermost loop's loader ran out between the two: what it had left over came on top of a step."""
    trips = number(_loops([after])[-1]["trips"])
    return trips is not None and trips > 0 and before["batches"] // trips < (after["batches"] - 1) // trips


def _position(loops: list[Loop]) -> float:
    """Iterations of the innermost loop so far, from the variables of all loops; nan if one is not known."""
    passed = 0.0
    for loop in loops:
        trips = number(loop["trips"])
        if loop["index"] is None or trips is None:
            return math.nan
        passed = (passed * trips if passed else 0.0) + (loop["index"] - loop["start"]) / loop["stride"]
    return passed


def _raised(before: list[Loop], after: list[Loop]) -> float:
    """Iterations of the innermost loop between two snapshots, by a counter that it raises; 0 if it has none."""
    home = before[-1]
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


def _walk(
    loops: list[Loop], per_iteration: float, caps: list[Cap], observed: float | None, first: float | None
) -> tuple[list[float | None], Cap | None, bool]:
    """Steps in one execution of each loop (same order as `loops`).

    Also the cap that decides the whole, if one does, and whether all caps that were applied are sure.
    """
    last = len(loops) - 1
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
        if trips in (None, math.inf) and _carries(loops, level):
            trips = 1.0
        if trips is None and level == last and level > 0 and observed and loops[level]["kind"] == "for":
            count = observed
        elif trips is None or count is None:
            count = None
        else:
            count = _innermost(trips, loops, per_iteration, first) if level == last else count * trips
        for cap in caps:
            if cap.level == level and (cap.steps is not None or cap.place != level):
                steps = _steps_of(cap, bodies, loops, per_iteration, first)
                if steps is not None and (count is None or steps < count):
                    count, decides, sure = steps, cap, sure and cap.sure
        levels.append(count)
    return levels[::-1], decides, sure


def _carries(loops: list[Loop], level: int) -> bool:
    """Whether a loop is a library's around a loop of the script's own: a command line's or a trainer's, made once."""
    return loops[level]["library"] and any(not loop["library"] for loop in loops[level + 1 :])


def _innermost(trips: float, loops: list[Loop], per_iteration: float, first: float | None) -> float:
    """Steps of `trips` iterations of the innermost loop, of which `first` had passed when it stepped for the first time.

    Where it is the only loop, a late first step means that it starts to train late (a replay buffer that fills up).
    """
    if math.isinf(trips) or (per_iteration <= 1 and (len(loops) > 1 or first is None)):
        return trips / per_iteration
    if loops[-1].get("ragged"):
        return max(1.0, float(math.ceil(trips / per_iteration - 1e-9)))
    until = per_iteration if first is None or (first > per_iteration and len(loops) > 1) else first
    return max(1.0, float(math.floor((trips - until) / per_iteration + 1e-9) + 1))


def _first_step(shot: Snapshot) -> float | None:
    """Iterations of the innermost loop up to the first step; None if the first snapshot does not tell."""
    inner = _loops([shot])
    if not inner or shot["anchor"] != 1:
        return None
    if inner[-1]["index"] is not None:
        return float((inner[-1]["index"] - inner[-1]["start"]) / inner[-1]["stride"] + 1)
    return float(shot["batches"]) if inner[-1]["kind"] == "for" and shot["batches"] else None


def _steps_of(
    cap: Cap, bodies: dict[int, float | None], loops: list[Loop], per_iteration: float, first: float | None
) -> float | None:
    last = len(loops) - 1
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
    each = _innermost(trips, loops, per_iteration, first)
    if whole and cap.whole_bodies_of is not None:
        between = _known_trips(loops[cap.whole_bodies_of + 1 :])
        return max(1.0, math.ceil(cap.iterations / between - 1e-9) * whole)
    full, rest = divmod(cap.iterations, trips)
    until = per_iteration if first is None or first > per_iteration else first
    partial = math.floor((rest - until) / per_iteration + 1e-9) + 1 if rest >= until else 0
    return max(1.0, full * each + partial)


def _known_trips(loops: list[Loop]) -> float:
    """The product of the trip counts; one that is not known is left out."""
    return math.prod(number(loop["trips"]) or 1.0 for loop in loops)

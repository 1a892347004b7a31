"""How many steps a phase takes, from what the probe saw of the loops around it. Pure.

The probe's snapshots hold, for each loop on the live stack (outermost first), its trip count if that can be
evaluated, its loop variable, and the comparisons that could end it. Trip counts multiply; a comparison with a
counter caps the count at the level where the counter starts anew.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import pairwise

from costgpu.measure.probe.record import Intervals, Loop, PlainLoop, Snapshot, SurroundingLoop
from costgpu.measure.profile.accumulation import batches_per_step, loops_of, rates_of
from costgpu.measure.profile.clocked_loops import with_clock
from costgpu.measure.profile.loop_bounds import number
from costgpu.measure.profile.loop_nest import (
    Mean,
    Nest,
    carries,
    is_as_seen,
    lost_before,
    measured_mean,
    read_nest,
    seen_otherwise,
    whole_steps,
)
from costgpu.models.workload import Total, TotalKind

FOREVER_STEPS = 1e9  # more steps than any machine takes: the loop means "until stopped"
FOREVER_EPOCH = 1e8  # nor is so long an epoch one: the length of the data is a stand-in for "without end"
SAME_EPOCH = 0.1  # by which an epoch that was seen may differ from what its loop makes (a tail, a stride of looks)
LEAST_EPOCH_STEPS = 10  # an inner loop of fewer steps is not an epoch (a critic's five steps)


def total_steps(phase: Intervals, *, ended: bool, micro_batches: float = 1.0) -> Total:
    """Return the total of one phase; if it ended, its steps are simply known.

    Args:
        micro_batches: Backward passes of a step, for a phase of which only one was seen.
    """
    total = _counted(phase, ended=ended, micro_batches=micro_batches)
    return total if ended else with_clock(total, loops_of([shot for shot in phase["snapshots"] if shot["loops"]]))


def _counted(phase: Intervals, *, ended: bool, micro_batches: float) -> Total:
    """Return the total by the loops' lengths and counters alone."""
    snapshots = [shot for shot in phase["snapshots"] if shot["loops"]]
    nest = _nest_of(phase, micro_batches)
    epoch = steps_per_epoch(phase, nest)
    texts = [_describe(loop) for loop in nest.loops] if nest is not None else []
    if ended:
        steps = float(phase["steps"])
        if epoch is not None and epoch >= steps:
            epoch = observed_epoch(phase)
        return Total(kind=TotalKind.EXACT, steps=steps, steps_per_epoch=epoch, how="it ran to its end", loops=texts)
    if nest is None:
        how = "no loop around the step could be found"
        return Total(kind=TotalKind.UNKNOWN, steps=None, steps_per_epoch=epoch, how=how)
    count = nest.levels[0]
    steady = len(set(_epochs_seen(phase))) <= 1 or not is_as_seen(nest)
    if count is None or count >= FOREVER_STEPS or not steady:
        mean = measured_mean(snapshots, nest)
        if mean is not None and mean.steps < FOREVER_STEPS:
            return replace(_of_mean(mean, phase, nest), steps_per_epoch=epoch, loops=texts)
    if count is None:
        return Total(kind=TotalKind.UNKNOWN, steps=None, steps_per_epoch=epoch, how=_unread(nest), loops=texts)
    if count >= FOREVER_STEPS:
        endless = next((loop for loop in nest.loops if number(loop["trips"]) == math.inf), nest.loops[0])
        how = f"the loop at {place_of(endless)} ({endless['source']}) has no end of its own"
        first = nest.early[0] if nest.early else None
        how += f"; it stops when {first['test']} (line {first['line']})" if first is not None else ""
        kind = TotalKind.UNKNOWN if first is not None else TotalKind.UNBOUNDED
        return Total(kind=kind, steps=None, steps_per_epoch=epoch, how=how, loops=texts)
    total = _of_loops(count, phase, snapshots, nest, micro_batches, steady=steady)
    if epoch is not None and total.steps is not None and epoch > total.steps:
        epoch = None
    return replace(total, steps_per_epoch=epoch, loops=texts)


def _nest_of(phase: Intervals, micro_batches: float = 1.0) -> Nest | None:
    snapshots = [shot for shot in phase["snapshots"] if shot["loops"]]
    if not loops_of(snapshots):
        return None
    return read_nest(snapshots, observed_epoch(phase), micro_batches)


def _of_loops(
    count: float, phase: Intervals, snapshots: list[Snapshot], nest: Nest, micro_batches: float, *, steady: bool
) -> Total:
    """Return the total of loops that are known, with all that may make it another number."""
    loops, cap = nest.loops, nest.cap
    how = f"it stops at {cap.text}" if cap else _product(loops, nest.steps.per_step)
    kind, doubts = TotalKind.EXACT, _doubts(phase, nest, steady=steady)
    if cap is None:
        seen = seen_otherwise(snapshots, nest)
        around = [loop for n, loop in enumerate(loops) if carries(loops, n) and number(loop["trips"]) != 1]
        more = phase["steps"] > count + 1 or (seen is not None and seen.called_again)
        if (around and more) or any(loop.get("driven") for loop in loops):
            return _of_calls(phase, nest)
        lost = lost_before(nest)
        count = whole_steps(count, nest) - lost.steps
        if lost.loop is not None:
            how += f"; the first {lost.rounds:,.0f} iterations at {place_of(lost.loop)} made none"
            kind = kind if lost.for_good else TotalKind.APPROXIMATE
        if seen is not None:
            count *= seen.ratio
            doubts.append(f"{seen.made:,} were seen where these would make {seen.expected:,.0f}")
    if nest.early:
        first = nest.early[0]
        kind, how = TotalKind.UPPER_BOUND, f"{how}; it may stop earlier (line {first['line']}: {first['test']})"
    if doubts:
        kind, how = TotalKind.APPROXIMATE, "; ".join([how, *doubts])
    skips = _skips(loops, snapshots, micro_batches) if cap is None else None
    if skips is not None and kind is TotalKind.EXACT:
        kind = TotalKind.APPROXIMATE if nest.steps.per_step > 1 else TotalKind.UPPER_BOUND
        how += f"; it may be fewer: line {skips} passes some by"
    late = _begins_late(loops) if cap is None else None
    if late is not None and kind is TotalKind.EXACT:
        kind, how = (
            TotalKind.UPPER_BOUND,
            f"{how}; how many iterations at {place_of(late)} come before its first is not known",
        )
    if phase["steps"] > count + 1:
        kind, how = TotalKind.APPROXIMATE, f"{how}; {phase['steps']:,} were seen"
    return Total(kind=kind, steps=max(1.0, float(round(count)), float(phase["steps"])), steps_per_epoch=None, how=how)


def _begins_late(loops: list[Loop]) -> Loop | None:
    """Return an outer loop that counts nothing, in which a test lets no step through at first; None if there is none."""
    around = (loop for loop in loops[:-1] if loop["index"] is None and number(loop["trips"]) not in (None, 1.0))
    return next((loop for loop in around if "opens" in loop or "guard" in loop), None)


def _doubts(phase: Intervals, nest: Nest, *, steady: bool) -> list[str]:
    """Return why the product of the loops may not be the number, in words."""
    doubts = []
    changing = next((loop for loop in nest.loops if loop.get("varies")), None)
    if changing is not None and nest.cap is None:
        doubts.append(f"the length of the loop at {place_of(changing)} changes, this is as of now")
    if nest.cap is not None and any(loop.get("driven") for loop in nest.loops):
        doubts.append("each call may be of another length")
    if not nest.sure:
        measured = nest.cap is not None and nest.cap.measured
        doubts.append("as fast as it grew so far" if measured else "by how many steps it may go on could not be read")
    if nest.steps.unsure:
        doubts.append(nest.steps.unsure)
    if not steady:
        doubts.append("by the epochs that were seen, which differ")
    elif is_as_seen(nest):
        seen = "the one epoch that was" if len(_boundaries(phase)) == 1 else "the epochs that were"
        doubts.append(f"as long as {seen} seen")
    return doubts


def _of_mean(mean: Mean, phase: Intervals, nest: Nest) -> Total:
    """Return the total of loops of known length around others that are as long as they were seen to be, on average."""
    known, each = nest.loops[: mean.level + 1], f"{mean.each:,.3g}" if mean.each < 100 else f"{mean.each:,.0f}"
    how = f"{_product(known, 1.0)} × {each} on average, measured over {mean.rounds:,.0f} of them; "
    how += "later ones may be longer"
    early = next((one for loop in known if not loop["library"] for one in loop["early_exit"]), None)
    if early is not None:
        how += f"; it may stop earlier (line {early['line']}: {early['test']})"
    steps = max(float(round(mean.steps)), float(phase["steps"]))
    return Total(kind=TotalKind.APPROXIMATE, steps=steps, steps_per_epoch=None, how=how)


def _of_calls(phase: Intervals, nest: Nest) -> Total:
    """Return what is known of loops in a function that a library calls again and again."""
    loops = nest.loops
    inside = max((n + 1 for n, loop in enumerate(loops) if loop["library"]), default=0)
    first = next((n for n, loop in enumerate(loops) if loop.get("driven")), min(inside, len(loops) - 1))
    own, each = loops[first:], nest.levels[first]
    by = own[0].get("caller") or package_of(next((loop["path"] for loop in loops if loop["library"]), ""))
    times = phase["steps"] / max(1.0, each or 1.0)
    return called_again(_product(own, nest.steps.per_step), times, by, each or 1.0)


def called_again(each: str, times: float, by: str, count: float) -> Total:
    """Return the total of what is called again and again: nobody knows how often.

    Args:
        each: What one call makes, in words; `count` of them.
        times: Calls so far.
        by: Who calls it; empty if that is not known.
    """
    how = f"{each} a call{f' by {by}' if by else ''}"
    how += f", begun about {times:,.0f} times so far" if times >= 1.5 else ""
    how += ": how often it will be is not known" if times >= 1.5 else ", and how many calls there will be is not known"
    return Total(kind=TotalKind.UNKNOWN, steps=None, steps_per_epoch=count, how=how)


def _unread(nest: Nest) -> str:
    """Return which loop has no length, and what is known beside it."""
    loops = nest.loops
    unread = [n for n, loop in enumerate(loops) if number(loop["trips"]) is None and not carries(loops, n)]
    open_ended = [n for n in unread if not loops[n]["library"]] or unread or [0]
    place = next((n for n in open_ended if loops[n]["kind"] == "for"), open_ended[0])
    reason = loops[place]
    whose = "a library's loop" if reason["library"] else "the loop"
    words = f"{whose} at {place_of(reason)} ({reason['source']})"
    inner = nest.levels[place + 1] if place + 1 < len(loops) else None
    if inner is not None and not math.isinf(inner):
        words = f"{_product(loops[place + 1 :], nest.steps.per_step)} for each item of {words}, which"
    around = [loop for loop in loops[:place] if number(loop["trips"]) not in (None, 1.0, math.inf)]
    words += " has no length that can be read"
    return f"{words}; it is made {_product(around, 1.0)} times" if around else words


def place_of(loop: Loop | SurroundingLoop | PlainLoop) -> str:
    """Return ``train.py:31``, or the name of what repeats in a library."""
    return f"{loop['file']}:{loop['line']}" if loop["line"] else loop["file"]


def _describe(loop: Loop) -> str:
    trips = number(loop["trips"])
    count = "?" if trips is None else "endless" if math.isinf(trips) else f"{trips:,.0f}"
    word = "while" if loop["kind"] == "while" else "for … in"
    bounds = "; ".join(f"{b['how']} {b['test']}" for b in loop["bounds"] if b["how"] != "while")
    return f"{place_of(loop)} {word} {loop['source']}: {count}" + (f" ({bounds})" if bounds else "")


def _product(loops: list[Loop], per_iteration: float) -> str:
    parts = [
        f"{number(loop['trips']):,.0f} ({place_of(loop)})"
        for loop in loops
        if number(loop["trips"]) not in (None, 1.0) and not math.isinf(number(loop["trips"]) or 0)
    ]
    text = " × ".join(parts) or "the loops around the step"
    return text + (f" / {per_iteration:g} per step" if per_iteration > 1 else "")


def _steps_per_loader(phase: Intervals, per_step: float) -> float | None:
    length = (phase.get("loader") or {}).get("length")
    if not length or not per_step or length >= FOREVER_EPOCH:
        return None
    return max(1.0, float(math.floor(length / per_step + 1e-9)))


def observed_epoch(phase: Intervals) -> float | None:
    """Return steps between two moments at which a loader was opened or an outer loop moved on."""
    lengths = sorted(_epochs_seen(phase))
    return lengths[len(lengths) // 2] if lengths else None


def _epochs_seen(phase: Intervals) -> list[float]:
    """Return steps of each epoch that was seen to its end; of the first one only where it is all there is."""
    at = _boundaries(phase)
    return [float(b - a) for a, b in pairwise(at)] or [float(i + 1) for i in at]


def _boundaries(phase: Intervals) -> list[int]:
    return sorted(int(k) for k, v in phase["special"].items() if v.get("opened"))


def steps_per_epoch(phase: Intervals, nest: Nest | None) -> float | None:
    """Return steps of an epoch: of one iteration of the loop over epochs, else of the data; None if there is none.

    The loop over epochs is the one that says so, or the one around the innermost loop that is long enough, or that
    walks a DataLoader.
    """
    if nest is not None:
        named = next((n for n, loop in enumerate(nest.loops[:-1]) if _counts_epochs(loop)), None)
        levels = [nest.levels[named + 1]] if named is not None else []
        for level in range(len(nest.loops) - 1, 0, -1):
            steps = nest.levels[level]
            if steps is None or math.isinf(steps):
                break
            if steps >= LEAST_EPOCH_STEPS or nest.loops[level].get("loader"):
                levels.append(steps)
        for steps in levels:
            if steps is not None and steps < FOREVER_EPOCH:
                return steps
    return _steps_per_loader(phase, batches_per_step(phase["snapshots"], "batches")) or observed_epoch(phase)


def steps_of_rounds(phase: Intervals) -> dict[tuple[str, int], float]:
    """Return steps of one iteration of each loop around the step, by its file and line; without those that are not known."""
    nest = _nest_of(phase)
    levels = nest.levels[1:] if nest is not None else []
    known = zip(nest.loops if nest is not None else [], levels, strict=False)
    return {(loop["path"], loop["line"]): steps for loop, steps in known if steps is not None and math.isfinite(steps)}


def epochs_between_starts(phase: Intervals, total: Total) -> float:
    """Epochs of a total from one start of an epoch that was seen to the next: 5 where a loader is read 5 times in each."""
    seen, each = observed_epoch(phase), total.steps_per_epoch
    if seen is None or each is None or abs(seen - each) <= SAME_EPOCH * each:
        return 1.0
    return seen / each


def _counts_epochs(loop: Loop) -> bool:
    """Return whether a loop is named so: `for epoch in ...`, `while self.epoch < ...`, but not `range(steps_per_epoch)`."""
    if "target" in loop:
        return "epoch" in loop["target"].lower()
    words = re.findall(r"[a-z_]*epochs?[a-z_]*", loop["source"].lower())
    return bool(words) and not any("per" in word or "step" in word or "batch" in word for word in words)


def _skips(loops: list[Loop], snapshots: list[Snapshot], micro_batches: float) -> int | None:
    """Return the line of a test that passes iterations by; None without one, or where every iteration was seen to step."""
    around = [loop["skips"] for loop in loops[:-1] if "skips" in loop and not loop["library"]]
    if around or "skips" not in loops[-1]:
        return around[0] if around else None
    rates = rates_of(snapshots)
    rates = [rate for rate in rates if rate.within] or rates
    return None if rates and all(rate.each <= max(1.0, micro_batches) for rate in rates) else loops[-1]["skips"]


def package_of(path: str) -> str:
    """Return the package that an installed file belongs to; else its name."""
    parts = re.split(r"[\\/]", path)
    for folder in ("site-packages", "dist-packages"):
        if folder in parts[:-1]:
            return parts[parts.index(folder) + 1].removesuffix(".py")
    return parts[-1]

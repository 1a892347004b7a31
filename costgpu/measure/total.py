"""How many steps a phase takes, from what the probe saw of the loops around it. Pure.

The probe's snapshots hold, for each loop on the live stack (outermost first), its trip count if that can be
evaluated, its loop variable, and the comparisons that could end it. Trip counts multiply; a comparison with a
counter caps the count at the level where the counter starts anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from costgpu.workload import Total, TotalKind

FOREVER_STEPS = 1e10  # more steps than any machine takes: the loop means "until stopped"
LEAST_EPOCH_STEPS = 10  # an inner loop of fewer steps is not an epoch (a critic's five steps)
_HOLDS: dict[str, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b, "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
}  # fmt: skip


def number(value: Any) -> float | None:
    """A trip count of the probe: None is unknown, ``inf`` endless."""
    return None if value is None else math.inf if value == "inf" else float(value)


@dataclass(frozen=True, slots=True)
class Cap:
    """At most `steps` steps in one execution of the loops from `level` inwards; level 0 is the whole nest."""

    level: int
    steps: float
    text: str


def total_steps(phase: dict[str, Any], *, ended: bool) -> Total:
    """The total of one phase as the probe recorded it.

    Args:
        phase: A phase record of the probe.
        ended: The phase ran to its end, so that its steps are simply known.
    """
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
        return Total(
            kind=TotalKind.UNKNOWN, steps=None, steps_per_epoch=by_loader or observed,
            how="no loop around the step could be found", loops=[],
        )  # fmt: skip
    per_iteration = iterations_per_step(snapshots)
    caps = _caps(snapshots, loops, per_iteration)
    levels, count = _walk(loops, per_iteration, caps, observed, snapshots[0])
    early = [exit_ for loop in loops if not loop["library"] for exit_ in loop["early_exit"]]
    epoch = by_loader or _inner_epoch(levels) or observed
    if count is None:
        open_ended = [loop for loop in loops if number(loop["trips"]) is None and not loop["library"]]
        reason = next((loop for loop in open_ended if loop["kind"] == "for"), (open_ended or loops)[0])
        how = f"the loop at {_place(reason)} ({reason['source']}) has no length that can be read"
        return Total(kind=TotalKind.UNKNOWN, steps=None, steps_per_epoch=epoch, how=how, loops=texts)
    if count >= FOREVER_STEPS:
        endless = next((loop for loop in loops if number(loop["trips"]) == math.inf), loops[0])
        how = f"the loop at {_place(endless)} ({endless['source']}) has no end of its own"
        how += f"; it stops when {early[0]['test']} (line {early[0]['line']})" if early else ""
        return Total(kind=TotalKind.UNBOUNDED, steps=None, steps_per_epoch=epoch, how=how, loops=texts)
    count = max(1.0, float(round(count)), float(phase["steps"]))
    cap = next((cap for cap in caps if cap.steps <= count + 0.5 and cap.level == 0), None)
    how = f"it stops at {cap.text}" if cap else _product(loops, per_iteration)
    if early:
        first = early[0]
        how += f"; it may stop earlier (line {first['line']}: {first['test']})"
    kind = TotalKind.UPPER_BOUND if early else TotalKind.EXACT
    changing = next((loop for loop in loops if loop.get("varies")), None)
    if changing is not None and cap is None:
        kind = TotalKind.APPROXIMATE
        how += f"; the length of the loop at {_place(changing)} changes, this is as of now"
    if epoch is not None and epoch > count:
        epoch = None
    return Total(kind=kind, steps=count, steps_per_epoch=epoch, how=how, loops=texts)


def _loops(snapshots: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The loops that count, from the last snapshot: not those over a list of optimizers."""
    return [loop for loop in snapshots[-1]["loops"] if not loop["optimizers"]] if snapshots else []


def _place(loop: dict[str, Any]) -> str:
    return f"{loop['file']}:{loop['line']}"


def _describe(loop: dict[str, Any]) -> str:
    trips = number(loop["trips"])
    count = "?" if trips is None else "endless" if math.isinf(trips) else f"{trips:,.0f}"
    word = "while" if loop["kind"] == "while" else "for … in"
    bounds = "; ".join(f"{b['how']} {b['test']}" for b in loop["bounds"] if b["how"] != "while")
    return f"{_place(loop)} {word} {loop['source']}: {count}" + (f" ({bounds})" if bounds else "")


def _product(loops: list[dict[str, Any]], per_iteration: float) -> str:
    parts = [
        f"{number(loop['trips']):,.0f} ({_place(loop)})"
        for loop in loops
        if number(loop["trips"]) not in (None, 1.0) and not math.isinf(number(loop["trips"]) or 0)
    ]
    text = " × ".join(parts) or "the loops around the step"
    return text + (f" / {per_iteration:g} per step" if per_iteration > 1 else "")


def batches_per_step(phase: dict[str, Any]) -> float:
    """DataLoader batches drawn for one step, of all loaders, from the first pair of neighbouring snapshots."""
    return _per_step(phase["snapshots"], "all_batches")


def _per_step(snapshots: list[dict[str, Any]], what: str) -> float:
    for before, after in zip(snapshots, snapshots[1:], strict=False):
        steps = after["anchor"] - before["anchor"]
        if steps > 0:
            return float(after[what] - before[what]) / float(steps)
    return 0.0


def _steps_per_loader(phase: dict[str, Any], per_step: float) -> float | None:
    length = (phase.get("loader") or {}).get("length")
    if not length or not per_step:
        return None
    return max(1.0, float(math.floor(length / per_step + 1e-9)))


def observed_epoch(phase: dict[str, Any]) -> float | None:
    """Steps between two moments at which a loader was opened or an outer loop moved on."""
    at = sorted(int(k) for k, v in phase["special"].items() if v.get("opened"))
    if len(at) >= 2:
        gaps = sorted(b - a for a, b in zip(at, at[1:], strict=False))
        return float(gaps[len(gaps) // 2])
    return float(at[0] + 1) if at else None


def _inner_epoch(levels: list[float | None]) -> float | None:
    inner = levels[-1] if levels else None
    if inner is None or math.isinf(inner) or len(levels) < 2 or inner < LEAST_EPOCH_STEPS:
        return None
    return inner


def iterations_per_step(snapshots: list[dict[str, Any]]) -> float:
    """Iterations of the innermost loop per counted step (gradient accumulation: above 1)."""
    found: list[tuple[int, float]] = []
    for before, after in zip(snapshots, snapshots[1:], strict=False):
        inner, later = _loops([before]), _loops([after])
        steps = after["anchor"] - before["anchor"]
        if not inner or not later or steps <= 0 or inner[-1]["line"] != later[-1]["line"]:
            continue
        if any(a["index"] != b["index"] for a, b in zip(inner[:-1], later[:-1], strict=False)):
            continue
        first, second = inner[-1]["index"], later[-1]["index"]
        if first is not None and second is not None and second > first:
            found.append((steps, (second - first) / inner[-1]["stride"] / steps))
        elif first is None and inner[-1]["kind"] == "for":
            batches = (after["batches"] - before["batches"]) / steps
            if batches >= 1:
                found.append((steps, batches))
    if not found:
        return 1.0
    shortest = min(steps for steps, _ in found)
    rates = sorted(rate for steps, rate in found if steps == shortest)
    return rates[len(rates) // 2] or 1.0


def _walk(
    loops: list[dict[str, Any]],
    per_iteration: float,
    caps: list[Cap],
    observed: float | None,
    first: dict[str, Any],
) -> tuple[list[float | None], float | None]:
    """Steps in one execution of each loop (same order as `loops`), and of the whole nest."""
    count: float | None = 1.0 / per_iteration
    levels: list[float | None] = []
    late = _late_start(loops, first, per_iteration)
    for level in range(len(loops) - 1, -1, -1):
        trips = number(loops[level]["trips"])
        innermost = level == len(loops) - 1
        if trips is None and loops[level]["library"]:
            trips = 1.0
        if trips is None and innermost and observed and loops[level]["kind"] == "for" and level > 0:
            count = observed
        elif trips is None or count is None:
            count = None
        else:
            count = count * max(0.0, trips - late) if trips else 0.0
            if innermost and math.isfinite(count) and per_iteration > 1:
                ragged = loops[level].get("ragged")
                count = max(1.0, math.ceil(count - 1e-9) if ragged else math.floor(count + 1e-9))
        for cap in caps:
            if cap.level == level:
                count = cap.steps if count is None else min(count, cap.steps)
        levels.append(count)
    return levels[::-1], count


def _late_start(loops: list[dict[str, Any]], first: dict[str, Any], per_iteration: float) -> float:
    """Iterations of a single loop that pass before it starts to step (a replay buffer that fills up first)."""
    inner = _loops([first])
    if len(loops) != 1 or not inner or first["anchor"] != 1 or inner[-1]["index"] is None:
        return 0.0
    passed = (inner[-1]["index"] - inner[-1]["start"]) / inner[-1]["stride"] + 1
    return max(0.0, float(passed) - per_iteration)


def _caps(snapshots: list[dict[str, Any]], loops: list[dict[str, Any]], per_iteration: float) -> list[Cap]:
    caps: list[Cap] = []
    bodies = _bodies(loops, per_iteration)
    for level, loop in enumerate(loops):
        leftovers: list[dict[str, Any]] = []
        for place, bound in enumerate(loop["bounds"]):
            cap = _static_cap(bound, level, snapshots, loops, per_iteration, bodies)
            if cap is None:
                cap = _moving_cap(bound, place, level, snapshots, loops)
            if cap is not None:
                caps.append(cap)
            elif bound["how"] != "while":
                leftovers.append({"line": bound["line"], "test": bound["test"], "clock": False})
        loop["early_exit"].extend(leftovers)
    return caps


def _bodies(loops: list[dict[str, Any]], per_iteration: float) -> list[float | None]:
    """Steps in one iteration of each loop's body, from trip counts alone."""
    body: float | None = 1.0 / per_iteration
    found: list[float | None] = []
    for loop in reversed(loops):
        found.append(body)
        trips = number(loop["trips"])
        body = None if trips is None or body is None or math.isinf(trips) else body * trips
    return found[::-1]


def _static_cap(
    bound: dict[str, Any],
    level: int,
    snapshots: list[dict[str, Any]],
    loops: list[dict[str, Any]],
    per_iteration: float,
    bodies: list[float | None],
) -> Cap | None:
    """A counter raised by a constant once per iteration of a known loop."""
    first = _same_bound(snapshots[0], loops[level], bound)
    if first is None:
        return None
    for side, other in ((0, 1), (1, 0)):
        counter = bound["counters"][side]
        limit, value = (
            number(first["right" if side == 0 else "left"]),
            number(first["left" if side == 0 else "right"]),
        )
        if limit is None or value is None or bound["counters"][other]["increment"] is not None:
            continue
        depth = loops[level]["depth"]
        if counter["increment"]:
            home, step, at = counter["loop_line"], float(counter["increment"]), counter["increment_line"]
        elif counter["targets"]:
            home, at = counter["targets"][-1], None
            target = next((x for x in loops if x["line"] == home and x["depth"] == depth), None)
            if target is None or target["index"] is None or not step_is_index(target, counter["text"]):
                continue
            step = float(target["stride"])
        else:
            continue
        place = next((n for n, x in enumerate(loops) if x["line"] == home and x["depth"] == depth), None)
        if place is None:
            continue
        iterations = _iterations_until(bound, side, value, limit, step, at, place == len(loops) - 1, per_iteration)
        if iterations is None:
            continue
        steps = iterations / per_iteration if place == len(loops) - 1 else None
        if steps is not None and per_iteration > 1:
            steps = float(math.floor(steps + 1e-9))
        if steps is None:
            body = bodies[place]
            if body is None:
                continue
            steps = iterations * body
        scope = _scope(counter, loops, level, depth, place)
        if level < place and bound["how"] == "while":  # the test is only made between whole inner loops
            inner = bodies[level]
            if inner is not None and inner > 0:
                steps = math.ceil(steps / inner - 1e-9) * inner
        return Cap(scope, max(steps, 1.0), f"{bound['test']} ({loops[level]['file']}:{bound['line']})")
    return None


def step_is_index(target: dict[str, Any], text: str) -> bool:
    """Whether the compared text is the loop variable itself (perhaps plus a constant)."""
    name = target.get("target", "")
    return bool(name) and text.replace("(", "").replace(")", "").split("+")[0].strip() == name


def _scope(counter: dict[str, Any], loops: list[dict[str, Any]], level: int, depth: int, place: int) -> int:
    """The outermost loop that is inside one life of the counter."""
    if counter["targets"] and not counter["increment"]:
        return place
    same = [n for n, loop in enumerate(loops) if loop["depth"] == depth]
    reset = next((n for n in same if loops[n]["line"] == counter["reset_line"]), None)
    if reset is not None and reset < place:
        return min(reset + 1, len(loops) - 1)
    if "." in counter["text"] or "[" in counter["text"]:
        return 0
    return min(same) if same else level


def _same_bound(shot: dict[str, Any], loop: dict[str, Any], bound: dict[str, Any]) -> dict[str, Any] | None:
    for other in shot["loops"]:
        if other["line"] == loop["line"] and other["path"] == loop["path"]:
            for candidate in other["bounds"]:
                if candidate["line"] == bound["line"] and candidate["test"] == bound["test"]:
                    return dict(candidate)
    return None


def _iterations_until(
    bound: dict[str, Any],
    side: int,
    value: float,
    limit: float,
    step: float,
    increment_line: int | None,
    innermost: bool,
    per_iteration: float,
) -> float | None:
    """Iterations of the counter's loop until the test ends the loop; None if it never does."""
    check, here = bound["line"], bound["step_line"]
    before = bound["how"] == "while" or check < here
    seen = value - (per_iteration - 1) * step if innermost else value
    if increment_line is not None:
        if before:
            first = -1 if bound["how"] == "while" else check
            seen -= step if first < increment_line < here else 0
        else:
            seen += step if here < increment_line < check else 0
    holds = _HOLDS[bound["operator"]]

    def ends(counter: float) -> bool:
        result = holds(counter, limit) if side == 0 else holds(limit, counter)
        return result is not (bound["how"] == "while")

    if step == 0 or math.isinf(limit):
        return None
    guess = max(1, math.floor((limit - seen) / step) - 2)
    for iteration in range(guess, guess + 8):
        if ends(seen + (iteration - 1) * step):
            return float(iteration - 1 if before else iteration)
    return None


def _moving_cap(
    bound: dict[str, Any],
    place: int,
    level: int,
    snapshots: list[dict[str, Any]],
    loops: list[dict[str, Any]],
) -> Cap | None:
    """A counter that is raised somewhere out of sight, seen to move evenly with the steps."""
    seen: list[tuple[int, float, float]] = []
    for shot in snapshots:
        same = _same_bound(shot, loops[level], bound)
        left, right = (number(same["left"]), number(same["right"])) if same else (None, None)
        if left is not None and right is not None:
            seen.append((shot["anchor"], left, right))
    if len(seen) < 3:
        return None
    holds = _HOLDS[bound["operator"]]
    for side in (1, 2):
        other = 3 - side
        first, last = seen[0], seen[-1]
        rate = (last[side] - first[side]) / (last[0] - first[0])
        even = all(abs(s[side] - first[side] - rate * (s[0] - first[0])) <= abs(rate) + 1e-9 for s in seen)
        if rate == 0 or not even or any(s[other] != first[other] for s in seen):
            continue
        distance = (first[other] - first[side]) / rate
        if distance <= 0 or math.isinf(distance):
            return None
        guess = max(0, math.floor(distance) - 2)
        for extra in range(guess, guess + 8):
            value = first[side] + rate * extra
            result = holds(value, first[other]) if side == 1 else holds(first[other], value)
            if result != (bound["how"] == "while"):
                text = f"{bound['test']} ({loops[level]['file']}:{bound['line']})"
                return Cap(0, float(first[0] + extra), text)
    return None

"""Comparisons that end a loop: after how many iterations or steps. Pure.

A counter that is raised by a constant once per iteration gives a number of iterations exactly, by the order in which
the step, the increment and the test stand in the loop. One that is raised out of sight is followed from snapshot to
snapshot.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass

from costgpu.measure.probe.record import Bound, Counter, EarlyExit, Loop, Snapshot, Trips

SEARCHED = 8  # counter values around the one where the limit should be reached
_HOLDS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def number(value: Trips) -> float | None:
    """A number of the probe: None is unknown, ``inf`` endless."""
    return None if value is None else math.inf if value == "inf" else float(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """A limit on what the loops from `level` inwards do in one execution of them; level 0 is the whole nest."""

    level: int  # the outermost loop that is inside one life of the counter
    text: str  # for people
    steps: float | None = None  # the limit in steps; None if it is in iterations
    iterations: float = 0.0  # the limit in iterations of the loop `place`
    place: int = 0  # the loop whose iterations are counted
    # The test is only made between whole bodies of this loop; None if it is made inside.
    whole_bodies_of: int | None = None
    # Below the step, and only the inner loop ends: each later execution of that makes one more iteration.
    one_more: bool = False


def find_caps(snapshots: list[Snapshot], loops: list[Loop], per_iteration: float) -> tuple[list[Cap], list[EarlyExit]]:
    """The caps of the loops (outermost first), and the tests that may end them early but follow no counter."""
    caps: list[Cap] = []
    early: list[EarlyExit] = []
    for level, loop in enumerate(loops):
        if not loop["library"]:
            early += loop["early_exit"]
        for bound in loop["bounds"]:
            cap = _static_cap(bound, level, snapshots, loops, per_iteration) or _moving_cap(
                bound, level, snapshots, loops
            )
            if cap is not None:
                caps.append(cap)
            elif bound["how"] != "while" and not loop["library"]:
                early.append({"line": bound["line"], "test": bound["test"], "clock": False})
    return caps, early


def _static_cap(
    bound: Bound, level: int, snapshots: list[Snapshot], loops: list[Loop], per_iteration: float
) -> Cap | None:
    """A counter raised by a constant once per iteration of a known loop."""
    first = _same_bound(snapshots[0], loops[level], bound)
    if first is None:
        return None
    depth = loops[level]["depth"]
    for side, other in ((0, 1), (1, 0)):
        counter = bound["counters"][side]
        value, limit = number(first["left"]), number(first["right"])
        if side == 1:
            value, limit = limit, value
        if limit is None or value is None or bound["counters"][other]["increment"] is not None:
            continue
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
        scope = _scope(counter, loops, level, depth, place)
        return Cap(
            level=scope,
            text=_text(bound, loops[level]),
            iterations=iterations,
            place=place,
            whole_bodies_of=level if level < place and bound["how"] == "while" else None,
            one_more=bound["how"] == "break" and scope < level == place and bound["line"] > bound["step_line"],
        )
    return None


def step_is_index(target: Loop, text: str) -> bool:
    """Whether the compared text is the loop variable itself (perhaps plus a constant)."""
    name = target.get("target", "")
    return bool(name) and text.replace("(", "").replace(")", "").split("+")[0].strip() == name


def _scope(counter: Counter, loops: list[Loop], level: int, depth: int, place: int) -> int:
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


def _same_bound(shot: Snapshot, loop: Loop, bound: Bound) -> Bound | None:
    same = (other for other in shot["loops"] if other["line"] == loop["line"] and other["path"] == loop["path"])
    found = (each for other in same for each in other["bounds"])
    return next((each for each in found if each["line"] == bound["line"] and each["test"] == bound["test"]), None)


def _first_ending(bound: Bound, side: int, value: float, step: float, limit: float) -> int | None:
    """The least number of steps of the counter after which the test ends the loop; None if it never does."""
    holds = _HOLDS[bound["operator"]]
    if step == 0 or math.isinf(limit):
        return None
    guess = max(0, math.floor((limit - value) / step) - 2)
    for number_of_steps in range(guess, guess + SEARCHED):
        counter = value + number_of_steps * step
        result = holds(counter, limit) if side == 0 else holds(limit, counter)
        if result is not (bound["how"] == "while"):
            return number_of_steps
    return None


def _iterations_until(
    bound: Bound,
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
    raised = _first_ending(bound, side, seen, step, limit)
    return None if raised is None else float(raised if before else raised + 1)


def _moving_cap(bound: Bound, level: int, snapshots: list[Snapshot], loops: list[Loop]) -> Cap | None:
    """A counter that is raised somewhere out of sight, seen to move evenly with the steps."""
    seen: list[tuple[int, tuple[float, float]]] = []
    for shot in snapshots:
        same = _same_bound(shot, loops[level], bound)
        left, right = (number(same["left"]), number(same["right"])) if same else (None, None)
        if left is not None and right is not None:
            seen.append((shot["anchor"], (left, right)))
    if len(seen) < 3:
        return None
    (begin, first), (end, last) = seen[0], seen[-1]
    for side, other in ((0, 1), (1, 0)):
        rate = (last[side] - first[side]) / (end - begin)
        even = all(abs(now[side] - first[side] - rate * (at - begin)) <= abs(rate) + 1e-9 for at, now in seen)
        if rate == 0 or not even or any(now[other] != first[other] for _, now in seen):
            continue
        if (first[other] - first[side]) / rate <= 0:
            return None
        steps = _first_ending(bound, side, first[side], rate, first[other])
        if steps is None:
            return None
        return Cap(
            level=_scope(bound["counters"][side], loops, level, loops[level]["depth"], len(loops) - 1),
            text=_text(bound, loops[level]),
            steps=float(begin + steps),
            whole_bodies_of=level if level < len(loops) - 1 and bound["how"] == "while" else None,
        )
    return None


def _text(bound: Bound, loop: Loop) -> str:
    return f"{bound['test']} ({loop['file']}:{bound['line']})"

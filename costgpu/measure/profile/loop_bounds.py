"""Comparisons that end a loop: after how many iterations or steps. Pure.

A counter that is raised by a constant once per iteration gives a number of iterations exactly, by the order in which
the step, the increment and the test stand in the loop. One that is raised out of sight is followed from snapshot to
snapshot.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

from costgpu.measure.probe.record import Bound, Counter, EarlyExit, Loop, Snapshot, Trips

UNEVEN = 1.6  # how much faster a counter may have grown in one half of what was seen than in the other
SEARCHED = 8  # counter values around the one where the limit should be reached
_HOLDS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def number(value: Trips) -> float | None:
    """Return a number of the probe: None is unknown, ``inf`` endless."""
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
    # Below the step, and only this loop and those inside it end: each later execution of it makes one more iteration.
    one_more: int | None = None
    sure: bool = True  # that nothing goes on after it that was not counted
    measured: bool = False  # how fast its counter grows is not read, but was seen


def find_caps(snapshots: list[Snapshot], loops: list[Loop], per_iteration: float) -> tuple[list[Cap], list[EarlyExit]]:
    """Return the caps of the loops (outermost first), and the tests that may end them early but follow no counter."""
    found: list[tuple[Bound, int, Cap]] = []
    early: list[EarlyExit] = []
    clocks = {loop["clock"]["test"] for loop in loops if "clock" in loop}  # which are told of apart
    for level, loop in enumerate(loops):
        if not loop["library"]:
            early += [one for one in loop["early_exit"] if one["test"] not in clocks]
        for bound in loop["bounds"]:
            cap = _static_cap(bound, level, snapshots, loops, per_iteration)
            if cap is None and not any(side["unsteady"] for side in bound["counters"]):
                cap = _moving_cap(bound, level, snapshots, loops, per_iteration)
            if cap is not None:
                found.append((bound, level, cap))
            elif bound["how"] != "while" and not loop["library"]:
                early.append({"line": bound["line"], "test": bound["test"], "clock": False})
    united = [_with_inner_break(bound, level, cap, found, snapshots, loops) for bound, level, cap in found]
    return united, early


def _with_inner_break(
    bound: Bound,
    level: int,
    cap: Cap,
    found: list[tuple[Bound, int, Cap]],
    snapshots: list[Snapshot],
    loops: list[Loop],
) -> Cap:
    """Return the cap of an outer loop where the same test also leaves the inner one: then no whole body is made of it."""
    values = _values(bound, loops[level], snapshots)
    for other, inner, first in found:
        if (
            other["how"] != "while"
            and inner > level
            and cap.level <= level
            and _values(other, loops[inner], snapshots) == values
        ):
            united = replace(first, level=cap.level, text=cap.text, one_more=None, whole_bodies_of=None)
            sure = first.sure or first.one_more is not None or first.steps is None
            return replace(united, sure=sure and not bound["loose"] and not other["loose"])
    return cap


def _values(bound: Bound, loop: Loop, snapshots: list[Snapshot]) -> list[tuple[str, Trips, Trips] | None]:
    """Both sides of a test, snapshot by snapshot."""
    same = [_same_bound(shot, loop, bound) for shot in snapshots]
    ends = _HOLDS[bound["operator"]] if bound["how"] != "while" else _HOLDS[_NEGATED[bound["operator"]]]
    return [(ends.__name__, one["left"], one["right"]) if one is not None else None for one in same]


def _static_cap(
    bound: Bound, level: int, snapshots: list[Snapshot], loops: list[Loop], per_iteration: float
) -> Cap | None:
    """Return a counter raised by a constant once per iteration of a known loop."""
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
        at_depth = counter.get("loop_depth", depth)
        place = next((n for n, x in enumerate(loops) if x["line"] == home and x["depth"] == at_depth), None)
        if place is None:
            continue
        innermost = place == len(loops) - 1
        with_step = innermost and counter["with_step"]
        rate = 1.0 if with_step else per_iteration
        iterations = _iterations_until(bound, side, value, limit, step, at, innermost, rate)
        if iterations is None:
            continue
        scope = _scope(counter, loops, level, depth, place)
        home_level = _home(bound, level, loops)
        leaves = _leaves(bound, level, loops)
        rounds = home_level if home_level < place else None
        if rounds is not None and bound["operator"] in ("==", "!=") and not bound["latched"]:
            return None  # it may be jumped over between two tests
        goes_on = scope < leaves and bound["how"] != "while" and bound["line"] > bound["step_line"]
        return Cap(
            level=scope,
            text=_text(bound, loops[level]),
            steps=iterations + snapshots[0]["anchor"] - 1 if with_step else None,
            iterations=iterations,
            place=place,
            whole_bodies_of=rounds,
            one_more=leaves if goes_on and innermost and leaves == place else None,
            # a limit that an outer loop's variable sets is another one each time
            sure=not bound["loose"]
            and not bound["counters"][other]["targets"]
            and (not goes_on or (innermost and leaves == place and not with_step)),
        )
    return None


def _home(bound: Bound, level: int, loops: list[Loop]) -> int:
    """Return the innermost loop that makes the test."""
    depth = loops[level]["depth"]
    return next((n for n, x in enumerate(loops) if x["line"] == bound["home"] and x["depth"] == depth), level)


def _leaves(bound: Bound, level: int, loops: list[Loop]) -> int:
    """Return the outermost loop that the test ends: `return` leaves all of its function, an exit everything."""
    if bound["everywhere"]:
        return 0
    if bound["how"] == "return":
        return next(n for n, loop in enumerate(loops) if loop["depth"] == loops[level]["depth"])
    return level


def step_is_index(target: Loop, text: str) -> bool:
    """Return whether the compared text is the loop variable itself (perhaps plus a constant)."""
    name = target.get("target", "")
    return bool(name) and text.replace("(", "").replace(")", "").split("+")[0].strip() == name


def _scope(counter: Counter, loops: list[Loop], level: int, depth: int, place: int) -> int:
    """Return the outermost loop that is inside one life of the counter."""
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
    """Return the least number of steps of the counter after which the test ends the loop; None if it never does."""
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
    increment_line: float | None,
    innermost: bool,
    per_iteration: float,
) -> float | None:
    """Return iterations of the counter's loop until the test ends the loop; None if it never does."""
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


def _moving_cap(
    bound: Bound, level: int, snapshots: list[Snapshot], loops: list[Loop], per_iteration: float
) -> Cap | None:
    """Return a counter that is raised out of sight, or by amounts that vary, seen to move with the steps or the laps."""
    seen: list[tuple[int, tuple[float, float]]] = []
    for shot in snapshots:
        same = _same_bound(shot, loops[level], bound)
        left, right = (number(same["left"]), number(same["right"])) if same else (None, None)
        if left is not None and right is not None:
            seen.append((shot["anchor"], (left, right)))
    if len(seen) < 3:
        return None
    for side, other in ((0, 1), (1, 0)):
        limit = seen[0][1][other]
        values = [(at, now[side]) for at, now in seen]
        grown = values[-1][1] - values[0][1]
        if not grown or any(now[other] != limit for _, now in seen):
            continue
        if (limit - values[0][1]) / grown <= 0:
            return None
        scope = _scope(bound["counters"][side], loops, level, loops[level]["depth"], len(loops) - 1)
        # It moved so until now: nothing in sight says that it goes on so.
        cap = Cap(level=scope, text=_text(bound, loops[level]), sure=False, measured=True)
        with_steps = _moved_with_steps(values, bound, side, limit)
        if with_steps is not None:
            home = _home(bound, level, loops)
            return replace(cap, steps=with_steps, whole_bodies_of=home if home < len(loops) - 1 else None)
        lap = _steps_of_lap(loops[level + 1 :], per_iteration)
        with_laps = _moved_with_laps(values, bound, side, limit, lap) if lap and level < len(loops) - 1 else None
        if with_laps is not None:
            counter = bound["counters"][side]
            if counter["reset_line"] == loops[level]["line"]:  # it is assigned there, and not set back
                scope = _scope({**counter, "reset_line": None}, loops, level, loops[level]["depth"], len(loops) - 1)
            return replace(cap, level=scope, iterations=with_laps, place=level)
        about = _moved_on_average(values, limit)
        return replace(cap, steps=about) if about is not None else None
    return None


def _moved_with_steps(values: list[tuple[int, float]], bound: Bound, side: int, limit: float) -> float | None:
    """Return the steps after which a counter ends the loop that grows evenly with them; None if it does not."""
    (begin, first), (end, last) = values[0], values[-1]
    rate = (last - first) / (end - begin)
    if any(abs(now - first - rate * (at - begin)) > abs(rate) + 1e-9 for at, now in values):
        return None
    steps = _first_ending(bound, side, first, rate, limit)
    raised_after = begin == 1 and first == 0  # it begins at 0, and is raised between the step and the test
    return None if steps is None else float(begin + steps - raised_after)


def _moved_with_laps(
    values: list[tuple[int, float]], bound: Bound, side: int, limit: float, lap: float
) -> float | None:
    """Return the iterations of an outer loop after which a counter ends it that grows evenly with them.

    None if it does not.
    """
    laps = [math.floor((at - 1) / lap + 1e-9) for at, _ in values]
    passed, first = laps[-1] - laps[0], values[0][1]
    if passed < 1:
        return None
    rate = (values[-1][1] - first) / passed
    if any(abs(now - first - rate * (at - laps[0])) > abs(rate) for at, (_, now) in zip(laps, values, strict=True)):
        return None
    raised_before = rate > 0 and first >= rate / 2  # by what comes before the first step of a lap
    raised = _first_ending(bound, side, first - rate * raised_before, rate, limit)
    return None if raised is None else float(laps[0] + raised)


def _moved_on_average(values: list[tuple[int, float]], limit: float) -> float | None:
    """Return the steps after which a counter comes to its limit that grew as fast in the first half as in the second."""
    (begin, first), (end, last) = values[0], values[-1]
    middle, then = min(values[1:-1], key=lambda value: abs(value[0] - (begin + end) / 2))
    jump = min((abs(b - a) for (_, a), (_, b) in pairwise(values) if a != b), default=0.0)
    halves = [(then - first) / (middle - begin), (last - then) / (end - middle)]
    if min(abs(then - first), abs(last - then)) < 2 * jump or halves[0] * halves[1] <= 0:
        return None
    if max(halves[0] / halves[1], halves[1] / halves[0]) > UNEVEN:
        return None
    return float(math.ceil(begin + (limit - first) * (end - begin) / (last - first)))


def _steps_of_lap(inner: list[Loop], per_iteration: float) -> float | None:
    """Return steps of one iteration of the loop around these; None if that is not known, or changes."""
    trips = [number(loop["trips"]) for loop in inner]
    if any(one is None or math.isinf(one) for one in trips) or any(loop["varies"] for loop in inner):
        return None
    return math.prod(one for one in trips if one is not None) / per_iteration or None


def _text(bound: Bound, loop: Loop) -> str:
    return f"{bound['test']} ({loop['file']}:{bound['line']})"

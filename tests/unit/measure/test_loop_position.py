"""How far the loops of a plain script have come: read from live loops, at an iteration that is known."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from costgpu.measure.probe.loops import script_loops

probe: Any = script_loops  # for Python 3.8, without types


def seen() -> list[tuple[float | None, float | None, bool]]:
    """Iterations in all, iterations so far, whether it may end earlier: of the caller's loops, outermost first."""
    stack = probe.plain_loop_stack(())
    stack.frames = lambda frame: [frame]
    loops = [probe.brief(loop) for loop in stack.snapshot(sys._getframe(1))]
    return [(loop["trips"], loop["index"], loop["early"]) for loop in loops]


def up(n: int) -> Any:
    t = 0
    while t < n:
        if t == 7:
            return seen()
        t += 1
    return None


def up_to(n: int) -> Any:
    k, other = 1, 5
    while k <= n:
        if k + other == 12:
            return seen()
        k += 1
    return None


def down() -> Any:
    left = 21
    while left > 0:
        if left == 9:
            return seen()
        left -= 2
    return None


def from_the_other_side(n: int) -> Any:
    t = 0
    while n > t:
        if t == 7:
            return seen()
        t = t + 1
    return None


def until_broken() -> Any:
    found = None
    k = 1
    while True:
        if k == 9:
            found = seen()
        k += 1
        if k > 50:
            break
    return found


def unless_it_converges(n: int) -> Any:
    error, t = 1.0, 0
    while error > 1e-6 and t < n:
        if t == 3:
            return seen()
        error = error / 2
        t += 1
    return None


def for_that_converges(n: int) -> Any:
    found, error = None, 1.0
    for step in range(n):
        if step == 3:
            found = seen()
        error /= 2
        if error < 1e-6:
            break
    return found


def set_back(n: int) -> Any:
    t, passes = 0, 0
    while t < n:
        if passes == 0 and t == 7:
            return seen()
        t += 1
        if t == 19 and passes < 3:
            t = 0
            passes = passes + 1
    return None


def waits() -> Any:
    error = 1.0
    while error > 1e-6:
        if error < 0.3:
            return seen()
        error = error / 2
    return None


def of_unknown_beginning(t: int, n: int) -> Any:
    while t < n:
        if t == 7:
            return seen()
        t += 1
    return None


def over(items: Any, wanted: Any) -> Any:
    for item in items:
        if item == wanted:
            return seen()
    return None


def over_wrapped(items: Any) -> Any:
    for item in list(items):
        if item == "c":
            return seen()
    return None


def nested(seeds: list[int]) -> Any:
    for seed in seeds:
        for trial in range(30):
            if (seed, trial) == (33, 4):
                return seen()
    return None


def one_name(n: int) -> Any:
    found = None
    for _ in range(n):
        for _ in range(5):
            found = seen()
    return found


@pytest.mark.parametrize(
    ("loop", "trips", "index", "early"),
    [
        (lambda: up(20), 20, 7, False),
        (lambda: up_to(20), 20, 6, False),
        (down, 11, 6, False),
        (lambda: from_the_other_side(20), 20, 7, False),
        (until_broken, 50, 8, False),
        (lambda: unless_it_converges(5000), 5000, 3, True),
        (lambda: for_that_converges(5000), 5000, 3, True),
        (lambda: set_back(20), None, None, True),
        (waits, None, None, True),
        (lambda: of_unknown_beginning(5, 20), 20, 7, False),
        (lambda: over(["a", "b", "c", "d"], "c"), 4, 2, False),
        (lambda: over(("a", "b", "c"), "a"), 3, 0, False),
        (lambda: over({"x": 1, "y": 2}, "y"), 2, 1, False),
        (lambda: over([3, 1, 3], 3), 3, None, False),  # there twice: nobody knows at which
        (lambda: over((n for n in range(4)), 2), None, None, False),
        (lambda: over_wrapped("abcd"), 4, None, False),
    ],
)
def test_one_loop(loop: Callable[[], Any], trips: float | None, index: float | None, early: bool) -> None:
    assert loop() == [(trips, index, early)]


def test_an_array() -> None:
    np = pytest.importorskip("numpy")
    assert over(np.linspace(0, 1, 5), 0.5) == [(5, 2, False)]
    assert over(np.zeros(4), 0.0) == [(4, None, False)]


def test_loops_in_loops() -> None:
    assert nested([11, 22, 33, 44]) == [(4, 2, False), (30, 4, False)]


def test_of_two_loops_with_one_name_only_the_inner_one_is_known() -> None:
    assert one_name(9) == [(9, None, False), (5, 4, False)]

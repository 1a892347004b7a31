"""The number of steps, from hand-made snapshots."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from costgpu.measure.profile.accumulation import accumulation, batches_per_step
from costgpu.measure.profile.total_steps import observed_epoch, total_steps
from costgpu.models.workload import TotalKind
from tests.unit.measure.records import bound, counter, loop, phase, shot

EXACT, UNKNOWN, UPPER, UNBOUNDED = TotalKind.EXACT, TotalKind.UNKNOWN, TotalKind.UPPER_BOUND, TotalKind.UNBOUNDED
LIBRARY: dict[str, Any] = {"library": True, "depth": 2, "path": "/lib/trainer.py", "file": "trainer.py"}
TEST, EARLIER = "bad > patience", "; it may stop earlier"
PATIENCE = {"line": 30, "test": TEST, "clock": False}
DEADLINE = PATIENCE | {"clock": True}
STOPS: dict[str, Any] = {"early_exit": [PATIENCE]}


def seen(make: Callable[[int], list[Any]], *, batches: float = 0, anchors: Any = (1, 2, 3), **other: Any) -> Any:
    """A phase with the loops that `make` gives at each of these steps, which draw so many batches each."""
    return phase(*(shot(n, *make(n), batches=batches * n) for n in anchors), **other)


def nested(*trips: Any, outer: Any = None, **inner: Any) -> Any:
    """Loops in each other, on lines 10, 11, ..., of which the innermost counts iterations."""

    def make(n: int) -> list[Any]:
        loops = [loop(10 + place, count, index=0, target=f"i{place}") for place, count in enumerate(trips)]
        loops[0].update(outer or {})
        loops[-1].update({"index": n - 1} | inner)
        return loops

    return seen(make)


def loss_falls(n: int) -> list[Any]:
    """`if loss < 0.5: break` in a loop of 500."""
    ends = bound("break", 15, counter("loss"), "<", {1: 2.0, 2: 1.9, 3: 1.2, 5: 1.1}[n], 0.5, 12)
    return [loop(10, 500, index=n - 1, target="i", bounds=[ends])]


def raised_elsewhere(n: int) -> list[Any]:
    """state.step, raised in another function, by two with every step."""
    ends = bound("while", 10, counter("state.step"), "<", 2 * n, 100, 12)
    return [loop(10, None, "while", bounds=[ends], source="state.step < 100")]


def downwards(n: int) -> list[Any]:
    return [loop(10, 20, index=105 - 10 * n, start=100, stride=-5, target="i")]


def begins_late(n: int) -> list[Any]:
    return [loop(10, 1000, index=99 + n, target="i")]


def over_optimizers(n: int) -> list[Any]:
    return [loop(10, 500, index=n - 1, target="i"), loop(12, 3, optimizers=True)]


def library_loops(n: int) -> list[Any]:
    exits = [PATIENCE | {"test": "self.should_stop"}]
    outer = loop(200, None, "while", early_exit=exits, source="not done", **LIBRARY)
    return [outer, loop(210, 40, index=n - 1, target="i", **LIBRARY)]


def within_a_library(n: int) -> list[Any]:
    """The main loop of a command line around the script's own."""
    return [loop(200, "inf", "while", source="True", **LIBRARY), loop(11, 40, index=n - 1, target="i")]


def library_limit(n: int) -> list[Any]:
    """Three trials of a search, by a counter of its own."""
    trials = bound("break", 201, counter("trial", increment=1, loop_line=200, increment_line=202), ">=", 1, 3, 203)
    outer = loop(200, "inf", "while", source="True", bounds=[trials], **LIBRARY)
    return [outer, loop(11, 40, index=n - 1, target="i")]


def called(steps: int, trips: Any = None) -> Any:
    """A loop of 60 in a function that scipy calls, in a loop of its own, seen for so many steps."""
    place = {"path": "/lib/site-packages/scipy/optimize/_optimize.py", "file": "_optimize.py", "library": True}

    def make(n: int) -> list[Any]:
        own = loop(12, 60, index=(n - 1) % 60, target="t", depth=2, caller="scipy", driven=True)
        return [loop(200, trips, "for" if trips else "while", depth=1, **place), own]

    return seen(make, anchors=(1, 2, 3, steps))


def accumulated(per_step: int, trips: int, **inner: Any) -> Any:
    """Seven epochs of so many micro-batches."""
    return seen(
        lambda n: [loop(10, 7, index=0, target="epoch"), loop(11, trips, index=n * per_step - 1, target="i", **inner)]
    )


SKIPS = [loop(10, 7, index=0), loop(11, 40, skips=12)]
UNREAD = [loop(10, 7, index=0), loop(11, source="stream()")]
UNREAD_EPOCHS = [loop(10, source="forever_maybe()"), loop(11, 40)]
LOADER = [loop(10, 7, index=0), loop(11, 43)]
WAITS = [loop(10, None, "while", source="loss > 0.1", early_exit=[PATIENCE | {"test": "loss > 0.1"}])]
OWN_IN_LIBRARY = [loop(200, None, "while", source="not done", **LIBRARY), loop(11, source="stream()")]
OPENED = {24: {"opened": 1}, 49: {"opened": 1}}

Case = tuple[Any, TotalKind, float | None, float | None, str]  # record, kind, steps, of an epoch, words
CASES: dict[str, Case] = {
    "trip counts multiply": (nested(3, 40), EXACT, 120, 40, "3 (train.py:10) × 40 (train.py:11)"),
    "a critic's five steps are no epoch": (nested(1000, 5), EXACT, 5000, None, ""),
    "accumulation": (accumulated(4, 40), EXACT, 70, 10, " / 4 per step"),
    "three of ten, of a loop that is named an epoch": (accumulated(3, 10), EXACT, 21, 3, " / 3 per step"),
    "no accumulation": (accumulated(1, 10), EXACT, 70, 10, "7 (train.py:10) × 10 (train.py:11)"),
    "range(100, 0, -5), a step at every second": (seen(downwards), EXACT, 10, None, ""),
    "accumulation by the batches drawn": (seen(lambda n: LOADER, batches=4, loader={"length": 43}), EXACT, 70, 10, ""),
    "an epoch as long as the one seen": (
        seen(lambda n: UNREAD, special=OPENED),
        TotalKind.APPROXIMATE,
        175,
        25,
        "as long as",
    ),
    "a replay buffer that fills for 100 iterations": (
        seen(begins_late),
        TotalKind.APPROXIMATE,
        900,
        None,
        "1,000 (train.py:10); the first 100 iterations at train.py:10 made none",
    ),
    "a curriculum": (nested(5, 40, varies=True), TotalKind.APPROXIMATE, 200, 40, "train.py:11"),
    "a test that passes some by": (seen(lambda n: SKIPS), UPPER, 280, 40, "line 12 passes some by"),
    "one that was seen to pass none": (accumulated(1, 40, skips=12), EXACT, 280, 40, ""),
    "some of each": (accumulated(3, 30, skips=12), TotalKind.APPROXIMATE, 70, 10, "line 12 passes some by"),
    "an average of batches drawn": (
        seen(lambda n: LOADER, batches=2.5, loader={"length": 43}),
        TotalKind.APPROXIMATE,
        119,
        17,
        "on average",
    ),
    "no loop": (seen(lambda n: []), UNKNOWN, None, None, "no loop"),
    "a length that cannot be read": (seen(lambda n: UNREAD_EPOCHS), UNKNOWN, None, 40, "train.py:10 (forever_maybe())"),
    "the script's, not the library's": (seen(lambda n: OWN_IN_LIBRARY), UNKNOWN, None, None, "train.py:11 (stream())"),
    "a while that waits for the loss": (seen(lambda n: WAITS), UNKNOWN, None, None, "loss > 0.1"),
    "for ever": (nested("inf", 40), UNBOUNDED, None, 40, "train.py:10"),
    "as good as for ever": (nested(10**10, 40), UNBOUNDED, None, 40, "train.py:10"),
    "for ever until something stops it": (nested("inf", 40, outer=STOPS), UNKNOWN, None, 40, f"{TEST} (line 30)"),
    "an early exit of the inner loop": (nested(5, 40, **STOPS), UPPER, 200, 40, f"{EARLIER} (line 30: {TEST})"),
    "an early exit by the clock": (
        nested(5, 40, early_exit=[DEADLINE]),
        UPPER,
        200,
        40,
        f"{EARLIER} (line 30: {TEST})",
    ),
    "an early exit of the outer loop": (nested(5, 40, outer=STOPS), UPPER, 200, 40, f"{EARLIER} (line 30: {TEST})"),
    "a test on what moves unevenly": (seen(loss_falls, anchors=(1, 2, 3, 5)), UPPER, 500, None, "line 15: loss < 0.5"),
    "loops of a library": (seen(library_loops), UNKNOWN, None, 40, "a library's loop at trainer.py:200 (not done)"),
    "a loop of the script's in a library's": (seen(within_a_library), EXACT, 40, 40, ""),
    "a library's limit around the script's": (seen(library_limit), EXACT, 3 * 40, 40, ""),
    "a function that a library calls": (
        called(30),
        UNKNOWN,
        None,
        60,
        "60 (train.py:12) a call by scipy, and how many",
    ),
    "in a loop that can be read": (called(30, 13), UNKNOWN, None, 60, "60 (train.py:12) a call by scipy, and how many"),
    "again and again": (called(600), UNKNOWN, None, 60, "by scipy, begun about 10 times so far"),
    "a loop over optimizers": (seen(over_optimizers), EXACT, 500, None, ""),
    "what was seen is the least": (nested(2, 10) | {"steps": 25}, TotalKind.APPROXIMATE, 25, 10, "25 were seen"),
    "no epoch is longer than the whole": (nested(7) | {"special": {"24": {"opened": 1}}}, EXACT, 7, None, ""),
}


@pytest.mark.parametrize("name", CASES)
def test_the_total(name: str) -> None:
    record, kind, steps, each, words = CASES[name]
    before = copy.deepcopy(record)
    total = total_steps(record, ended=False)
    assert (total.kind, total.steps, total.steps_per_epoch) == (kind, steps, each)
    assert words in total.how
    assert record == before, "the record is left as it was"


def test_the_loops_are_described() -> None:
    described = ["train.py:10 for … in range(3): 3", "train.py:11 for … in range(40): 40"]
    assert total_steps(nested(3, 40), ended=False).loops == described
    assert len(total_steps(CASES["a loop over optimizers"][0], ended=False).loops) == 1


def test_a_counter_that_is_raised_out_of_sight_is_followed() -> None:
    total = total_steps(seen(raised_elsewhere, anchors=(1, 2, 3, 5)), ended=False)
    assert total.kind is TotalKind.APPROXIMATE
    assert total.steps in (50.0, 51.0), "whether the test comes before or after the rise is out of sight too"
    assert "state.step < 100" in total.how


def test_a_run_that_ended_is_known_and_knows_its_epochs() -> None:
    total = total_steps(nested(3, 40) | {"steps": 77}, ended=True)
    assert (total.kind, total.steps, total.how) == (EXACT, 77.0, "it ran to its end")
    loops = [loop(10, None, "while"), loop(11, 20)]
    loaded = seen(lambda n: loops, batches=1, steps=60, loader={"length": 20})
    assert total_steps(loaded, ended=True).steps_per_epoch == 20.0


@pytest.mark.parametrize(
    ("opened", "expected"), [([], None), ([24], 25.0), ([24, 49, 74], 25.0), ([24, 49, 80], 31.0), ([4, 104], 100.0)]
)
def test_the_epoch_that_was_seen(opened: list[int], expected: float | None) -> None:
    special = {i: {"opened": 1} for i in opened} | {7: {"save": 0.5}}
    assert observed_epoch(phase(shot(1), special=special)) == expected


def test_iterations_and_batches_of_a_step() -> None:
    shots = [shot(n, loop(10, trips=43), batches=10 + 4 * n) for n in (1, 2, 3)]
    assert accumulation(shots).per_step == 4.0
    assert batches_per_step(shots) == 4.0
    assert accumulation(shots[:1]).per_step == 1.0, "one snapshot tells nothing"
    assert batches_per_step(shots[:1]) == 0.0


def test_a_new_epoch_between_two_snapshots_does_not_confuse() -> None:
    shots = [
        shot(n, loop(10, trips=9, index=epoch, target="epoch"), loop(11, trips=8, index=i, target="i"))
        for n, epoch, i in ((1, 0, 3), (2, 0, 7), (3, 1, 3), (5, 2, 3))
    ]
    assert accumulation(shots).per_step == 4.0


def test_an_outer_loop_that_counts_nothing_may_begin_to_train_late() -> None:
    """A library's `for batch in collector: ...; if collected >= warm_up: steps(batch)`, of which 100 make a round."""
    outer = loop(3, 40, library=True, opens=True)
    found = total_steps(
        phase(shot(1, outer, loop(9, 100, index=0)), shot(5, outer, loop(9, 100, index=4))), ended=False
    )
    assert (found.kind, found.steps) == (TotalKind.UPPER_BOUND, 4000)
    assert "come before its first is not known" in found.how

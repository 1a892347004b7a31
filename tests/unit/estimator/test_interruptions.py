"""What interruptions do to a job: Young's and Daly's intervals, the expected time, and a simulation that agrees."""

import math
import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.estimator.interruptions import (
    daly_interval,
    enough_recoveries,
    expected_seconds,
    sustained_factor,
    young_interval,
)
from tests.properties import examples

HOUR = 3600.0
WORK = st.floats(60, 200 * HOUR)
MEANS = st.floats(900, 1000 * HOUR)
RESTARTS = st.floats(0, 1800)
CHECKPOINTS = st.floats(0.1, 600)
INTERVALS = st.floats(60, 10 * HOUR)


@pytest.mark.parametrize(("mean_hours", "minutes"), [(24, 117), (6, 57), (0.25, 9.1)])
def test_daly_s_own_examples(mean_hours: float, minutes: float) -> None:
    """Figures 3 to 5 of the paper: checkpoints of 5 minutes."""
    assert daly_interval(300, mean_hours * HOUR) / 60 == pytest.approx(minutes, rel=0.006)


def test_young_and_daly_where_they_are_known() -> None:
    assert young_interval(50, 10_000) == 1000
    assert daly_interval(1, 1e9) == pytest.approx(young_interval(1, 1e9), rel=1e-4), "interruptions are rare"
    assert daly_interval(100, 50) == 50
    assert daly_interval(10, math.inf) == math.inf


@examples(100)
@given(mean=MEANS, restart=RESTARTS, checkpoint=CHECKPOINTS)
def test_the_interval_is_the_best_one(mean: float, restart: float, checkpoint: float) -> None:
    """Nothing half, twice or slightly as long is better by more than a few per mille."""
    if checkpoint > mean / 2:
        return  # where the higher orders no longer hold

    def factor(interval: float) -> float:
        return sustained_factor(
            1 / mean, restart_seconds=restart, checkpoint_seconds=checkpoint, interval_seconds=interval
        )

    best = daly_interval(checkpoint, mean)
    assert all(factor(best) <= 1.002 * factor(best * share) for share in (0.5, 0.8, 0.9, 1.1, 1.25, 2.0))


@examples(100)
@given(work=WORK, mean=MEANS, restart=RESTARTS, checkpoint=CHECKPOINTS, interval=INTERVALS)
def test_more_of_anything_bad_takes_longer(
    work: float, mean: float, restart: float, checkpoint: float, interval: float
) -> None:
    def seconds(times: float = 1.0, *, more_restart: float = 0.0, more_checkpoint: float = 0.0) -> float:
        return expected_seconds(
            work,
            times / mean,
            restart_seconds=restart + more_restart,
            checkpoint_seconds=checkpoint + more_checkpoint,
            interval_seconds=interval,
        )

    undisturbed = seconds(0.0)
    saves = math.ceil(work / interval) - 1
    assert undisturbed == pytest.approx(restart + work + saves * checkpoint)
    grown = [undisturbed, seconds(1e-9), seconds(0.5), seconds(), seconds(2.0)]
    assert grown[1] == pytest.approx(grown[0], rel=1e-5), "nothing jumps where interruptions begin"
    assert all(one <= other * (1 + 1e-9) for one, other in pairwise(grown))
    assert seconds(more_restart=10) >= seconds()
    assert seconds(more_checkpoint=10) >= seconds()


@examples(50)
@given(work=WORK, mean=MEANS, restart=RESTARTS)
def test_a_job_without_checkpoints_is_one_piece(work: float, mean: float, restart: float) -> None:
    alone = expected_seconds(work, 1 / mean, restart_seconds=restart)
    assert alone == expected_seconds(work, 1 / mean, restart_seconds=restart, interval_seconds=work + 1)
    if work + restart < 500 * mean:
        assert alone == pytest.approx(mean * math.expm1((work + restart) / mean))


def test_what_never_gets_done() -> None:
    assert expected_seconds(1e9, 1.0) == math.inf
    assert expected_seconds(10, 0.1, interval_seconds=0) == math.inf
    assert sustained_factor(1.0, restart_seconds=1e4, checkpoint_seconds=0, interval_seconds=1) == math.inf
    assert expected_seconds(0, 0.1, restart_seconds=5) == pytest.approx(10 * math.expm1(0.5))


def test_the_factor_is_that_of_a_long_job() -> None:
    facts = {"restart_seconds": 150.0, "checkpoint_seconds": 5.0, "interval_seconds": 900.0}
    long = 1e7
    assert expected_seconds(long, 1e-4, **facts) / long == pytest.approx(sustained_factor(1e-4, **facts), rel=1e-3)
    assert expected_seconds(long, 0.0, **facts) / long == pytest.approx(sustained_factor(0.0, **facts), rel=1e-3)


def simulated(draw: Callable[[], float], pieces: list[float], restart: float) -> tuple[float, int]:
    """Seconds and interruptions of one job, machine by machine, without any formula."""
    clock, taken = 0.0, draw()
    left, interrupted, goes_on_at = list(pieces), 0, restart
    while left:
        if goes_on_at + left[0] <= taken:
            goes_on_at += left.pop(0)
            clock = goes_on_at
        else:
            interrupted += 1
            goes_on_at = taken + restart
            taken += draw()
    return clock, interrupted


@pytest.mark.parametrize(
    ("work", "mean", "restart", "checkpoint", "interval"),
    [
        (10 * HOUR, 5 * HOUR, 150, 10, 1000),
        (3 * HOUR, 2 * HOUR, 600, 0, math.inf),
        (4 * HOUR, HOUR, 300, 60, 1700),
    ],
)
def test_a_simulation_agrees(work: float, mean: float, restart: float, checkpoint: float, interval: float) -> None:
    chance = random.Random(4711)
    count = max(0, math.ceil(work / interval) - 1)
    last = work - count * interval if count else work
    pieces = [interval + checkpoint] * count + [last]
    runs = [simulated(lambda: chance.expovariate(1 / mean), pieces, restart) for _ in range(4000)]
    seconds = [one for one, _ in runs]
    average = sum(seconds) / len(seconds)
    error = math.sqrt(sum((one - average) ** 2 for one in seconds)) / len(seconds)
    expected = expected_seconds(
        work, 1 / mean, restart_seconds=restart, checkpoint_seconds=checkpoint, interval_seconds=interval
    )
    assert abs(average - expected) < 4 * error
    assert sum(n for _, n in runs) / len(runs) == pytest.approx(expected / mean, rel=0.08)


@pytest.mark.parametrize(("expected", "enough"), [(0.0, 3), (0.5, 3), (2.0, 5), (10.0, 15), (500.0, 100)])
def test_enough_recoveries(expected: float, enough: int) -> None:
    assert enough_recoveries(expected) == enough

"""Spot machines: what interruptions add, in formulas, in a simulation that agrees, in predictions, and in words."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.estimator.cost import cost_range, expected_usd_per_hour, hourly_usd
from costgpu.estimator.predict import as_measured, predict
from costgpu.estimator.prepared import prepare
from costgpu.estimator.scope import scope_of
from costgpu.estimator.spot import (
    LEAST_INTERVAL_SECONDS,
    MOST_FACTOR,
    at_best_interval,
    checkpoints_of,
    daly_interval,
    enough_recoveries,
    expected_seconds,
    interrupted,
    interruption_sentences,
    sustained_factor,
    with_run,
)
from costgpu.estimator.verdict import Preferences, decide
from costgpu.models.offer import InterruptionRate
from costgpu.models.prediction import Candidate, Checkpoints, Interruptions, MeasuredSpeed, Prediction, Range
from costgpu.models.workload import Extra, ExtraKind, Rhythm, TotalKind
from tests.properties import examples
from tests.unit.estimator import builders
from tests.unit.estimator.advisable import YEAR, checkpoint, gpu, phase, product, profile, workload_of

HOUR = 3600.0
WORK = product(4096, 20)
SPOT, ON_DEMAND = gpu("A10G", 0.35, spot=True), gpu("A10G", 1.0)
OVERHEAD = 90.0
SECONDS = st.floats(60, 200 * HOUR)
MEANS = st.floats(900, 1000 * HOUR)
RESTARTS = st.floats(0, 1800)
CHECKPOINTS = st.floats(0.1, 600)
INTERVALS = st.floats(60, 10 * HOUR)


def predicted(*extras: Extra, steps: float = 1_000_000, place: Candidate = SPOT) -> Prediction:
    """30 hours of training."""
    return predict(workload_of(profile(phase(WORK, steps=steps, extras=list(extras)))), place)


def often(times: float) -> Candidate:
    return replace(SPOT, interruptions=builders.interruption_rate(0.05 * times))


def taken_back(
    rate: InterruptionRate, saves: Checkpoints, run: Range, *, machines: int = 1, overhead: float = OVERHEAD
) -> Interruptions | None:
    place = replace(SPOT, interruptions=rate, nodes=machines)
    job = replace(predicted(), candidate=place, run_seconds=run, overhead_seconds=overhead, fixed_seconds=100.0)
    return interrupted(job, saves)


# ------------------------------------------------------------------------------------------------- time and cost


def test_checkpoints_in_the_measured_rhythm() -> None:
    """Ten epochs: after each interruption the last one begins again."""
    spot, sure = predicted(checkpoint()), predicted(checkpoint(), place=ON_DEMAND)
    found = spot.interruptions
    assert found.undisturbed_seconds == sure.wall_seconds
    work = sure.run_seconds.value - 10
    assert found.interval_seconds == pytest.approx(work / 10)
    expected = expected_seconds(work, 0.05 / HOUR, restart_seconds=OVERHEAD + 10, interval_seconds=work / 10)
    assert spot.wall_seconds.value == pytest.approx(expected)
    assert found.expected == pytest.approx(expected * 0.05 / HOUR)
    assert spot.cost_usd.value == pytest.approx(hourly_usd(SPOT) * expected / HOUR, abs=1e-3)
    assert spot.wall_seconds.low < sure.wall_seconds.value < spot.wall_seconds.value < spot.wall_seconds.high


def test_without_checkpoints_all_since_the_start_is_lost() -> None:
    spot = predicted()
    run = spot.run_seconds.value
    assert spot.wall_seconds.value == pytest.approx(20 * HOUR * math.expm1((run + OVERHEAD) / (20 * HOUR)))
    assert spot.interruptions.bare_seconds == pytest.approx(spot.wall_seconds.value)
    assert spot.interruptions.interval_seconds is None


def test_the_best_interval() -> None:
    spot = predicted()
    better = at_best_interval(spot)
    assert better.interruptions is not None
    interval = daly_interval(1.0, 20 * HOUR)
    assert spot.interruptions.best_interval_seconds == pytest.approx(interval)
    assert better.wall_seconds.value == pytest.approx(spot.interruptions.best_seconds, rel=1e-3)
    assert better.wall_seconds.value < predicted(checkpoint()).wall_seconds.value < spot.wall_seconds.value
    assert better.cost_usd.value < spot.cost_usd.value
    assert at_best_interval(predicted(place=ON_DEMAND)) == predicted(place=ON_DEMAND)


def test_what_never_gets_done_is_not_offered() -> None:
    spot = predicted(place=often(10))
    assert "hardly come to its end without checkpoints" in spot.infeasible
    assert spot.wall_seconds.value == pytest.approx(MOST_FACTOR * (spot.run_seconds.value + OVERHEAD))
    assert at_best_interval(spot).infeasible == ""
    assert predicted(checkpoint(), place=often(3)).infeasible == ""


@pytest.mark.parametrize(("before", "after"), [(1.0, 200.0), (200.0, 1.0)])
def test_another_length_of_the_run_decides_anew_whether_it_gets_done(before: float, after: float) -> None:
    spot, hours = predicted(), (before, after)
    long, short = (with_run(spot, Range(value=n * HOUR, low=n * HOUR, high=n * HOUR)) for n in hours)
    assert [("hardly come to its end" in one.infeasible) for one in (long, short)] == [n == 200 for n in hours]
    assert with_run(long, short.run_seconds) == short
    assert with_run(replace(long, infeasible="no GPU"), short.run_seconds).infeasible == "no GPU"


def test_a_job_that_has_run_there_is_still_hardly_done_where_machines_are_taken_back() -> None:
    speed = MeasuredSpeed(job_seconds=200 * HOUR, log_spread=0.0, runs=2, last_at=datetime(2026, 11, 1, tzinfo=UTC))
    assert "hardly come to its end" in as_measured(replace(predicted(), infeasible="no GPU"), speed).infeasible
    assert as_measured(replace(predicted(place=ON_DEMAND), infeasible="no GPU"), speed).infeasible == ""


def test_a_verdict_says_that_interruptions_rule_offers_out() -> None:
    endless = workload_of(profile(phase(WORK, steps=1e9)))
    here, spot = predict(endless, Candidate(offer=None)), predict(endless, SPOT)
    verdict = decide(endless.scope, here, [spot], Preferences(), ())
    assert verdict.best_gpu is None
    assert any("1 of 1 spot offers are left out: it would hardly come to its end" in note for note in verdict.notes)
    assert decide(endless.scope, here, [predict(endless, ON_DEMAND)], Preferences(), ()).notes == ()


@examples(60)
@given(steps=st.floats(2e6, 1e9), times=st.floats(5, 100))
def test_what_is_cut_off_is_never_offered(steps: float, times: float) -> None:
    assert "hardly come to its end" in predicted(steps=steps, place=often(times)).infeasible


def test_a_part_of_a_job_takes_longer_in_the_same_proportion() -> None:
    endless = profile(phase(WORK, total=builders.total(None, 100_000, TotalKind.UNBOUNDED), extras=[checkpoint()]))
    spot, sure = predict(workload_of(endless), SPOT), predict(workload_of(endless), ON_DEMAND)
    assert (spot.overhead_seconds, spot.interruptions is None) == (0.0, False)
    factor = spot.wall_seconds.value / sure.wall_seconds.value
    epoch = 0.05 * sure.run_seconds.value / HOUR
    assert factor == pytest.approx(math.exp(0.05 * 100 / HOUR) * math.expm1(epoch) / epoch)
    assert expected_usd_per_hour(spot) == pytest.approx(factor * hourly_usd(SPOT))


def test_each_of_several_machines_may_be_taken() -> None:
    rate, run = builders.interruption_rate(), Range(value=5 * HOUR, low=4 * HOUR, high=6 * HOUR)
    saves = Checkpoints(seconds_each=2.0, count=20)
    one, four = (taken_back(rate, saves, run, machines=n) for n in (1, 4))
    higher = {"low_per_hour": 4 * rate.low_per_hour, "high_per_hour": 4 * rate.high_per_hour}
    same = taken_back(builders.interruption_rate(0.2, **higher), saves, run)
    assert four.wall_seconds == same.wall_seconds
    assert four.expected > 4 * one.expected


def test_a_changed_run_keeps_its_number_of_checkpoints() -> None:
    spot = predicted(checkpoint())
    half = with_run(spot, spot.run_seconds.times(0.5))
    assert half.interruptions.interval_seconds == pytest.approx(0.05 * (spot.run_seconds.value - 20))
    assert half.wall_seconds.value < 0.5 * spot.wall_seconds.value + OVERHEAD


def test_on_demand_nothing_changes() -> None:
    sure = predicted(place=ON_DEMAND)
    assert sure.interruptions is None
    assert sure.wall_seconds == sure.run_seconds.plus(sure.overhead_seconds)
    assert sure.cost_usd == cost_range(ON_DEMAND, sure.wall_seconds)
    assert interruption_sentences(sure) == []
    assert interruption_sentences(None) == []


@examples(100)
@given(
    run=st.tuples(st.floats(20, 1e7), st.floats(1, 3), st.floats(1, 3)),
    per_hour=st.floats(1e-5, 5),
    each=st.floats(0, 500),
    count=st.none() | st.floats(0.01, 1e6),
    overhead=st.sampled_from([0.0, OVERHEAD]),
    machines=st.integers(1, 64),
)
def test_the_interval_holds_the_value_and_nothing_is_faster_than_without(
    run: tuple[float, float, float],
    per_hour: float,
    each: float,
    count: float | None,
    overhead: float,
    machines: int,
) -> None:
    value, below, above = run
    found = taken_back(
        builders.interruption_rate(per_hour),
        Checkpoints(seconds_each=each, count=count),
        Range(value=value, low=value / below, high=value * above),
        machines=machines,
        overhead=overhead,
    )
    wall, plain = found.wall_seconds, found.undisturbed_seconds
    assert 0 < wall.low <= wall.value <= wall.high < math.inf
    assert plain.value * (1 - 1e-9) <= wall.value <= MOST_FACTOR * plain.value * (1 + 1e-9)
    assert found.best_interval_seconds >= LEAST_INTERVAL_SECONDS


# --------------------------------------------------------------------------------------- what is known of checkpoints


def test_the_more_frequent_of_two_checkpoints_counts() -> None:
    extras = [checkpoint(), checkpoint(5000, Rhythm.STEPS), checkpoint(rhythm=Rhythm.RUN)]
    assert checkpoints_of(phase(WORK, extras=extras), 100_000, 10).count == 20
    assert checkpoints_of(phase(WORK, extras=[checkpoint(rhythm=Rhythm.RUN)]), 100_000, 10).count is None


def test_an_unseen_checkpoint_is_the_model_and_its_optimizer_at_the_speed_of_a_disk() -> None:
    large = [builders.optimizer("AdamW", 250_000_000, state_bytes=2_000_000_000)]
    assert checkpoints_of(phase(WORK, optimizers=large), 1000, 0).seconds_each == pytest.approx(15.0)
    assert checkpoints_of(phase(WORK), 1000, 0).seconds_each == 1.0, "a second at least"


# ------------------------------------------------------------------------------------------------------ in words


def test_what_is_measured_and_what_is_assumed() -> None:
    words = " ".join(interruption_sentences(predicted(checkpoint())))
    assert "taken back about every 20.0 h" in words
    assert "assumed from more than 20 % a month: an advisor, 2026-09-17" in words
    assert "every 3.0 h there (1 s each, measured)" in words
    assert "best is every 6 min (Young/Daly)" in words
    assert "costgpu run --spot --recover 4" in words, "1.6 are expected"


def test_words_without_checkpoints() -> None:
    words = " ".join(interruption_sentences(predicted()))
    assert (
        "No checkpoint was seen, so each interruption loses all since the start. With a checkpoint every 6 min" in words
    )
    short = " ".join(interruption_sentences(predicted(steps=2_000)))
    assert "the job is short enough for that" in short


def test_words_where_nothing_is_published() -> None:
    unknown = builders.interruption_rate(
        percent_a_month="", basis="assumed", source="assumed as others", low_per_hour=0.0
    )
    words = " ".join(interruption_sentences(predicted(place=replace(SPOT, interruptions=unknown))))
    assert "nothing is published about it" in words
    assert "hardly ever" in words


def test_an_inferred_checkpoint_says_so() -> None:
    extra = Extra(kind=ExtraKind.CHECKPOINT, seconds_each=1.0, rhythm=Rhythm.EPOCH, measured=False)
    assert "not reached: inferred from its source" in " ".join(interruption_sentences(predicted(extra)))


def test_words_for_a_part_of_a_job() -> None:
    endless = profile(phase(WORK, total=builders.total(None, None, TotalKind.UNBOUNDED)))
    words = " ".join(interruption_sentences(predict(prepare(endless, scope_of(endless), year=YEAR), SPOT)))
    assert "these figures are for one every 6 min (Young/Daly)" in words


# ---------------------------------------------------------------------------------------------------- formulas


@pytest.mark.parametrize(("mean_hours", "minutes"), [(24, 117), (6, 57), (0.25, 9.1)])
def test_daly_s_own_examples(mean_hours: float, minutes: float) -> None:
    """Figures 3 to 5 of the paper: checkpoints of 5 minutes."""
    assert daly_interval(300, mean_hours * HOUR) / 60 == pytest.approx(minutes, rel=0.006)


def test_the_interval_where_it_is_known() -> None:
    assert daly_interval(1, 1e9) == pytest.approx(math.sqrt(2e9), rel=1e-4), "Young's, where interruptions are rare"
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
@given(work=SECONDS, mean=MEANS, restart=RESTARTS, checkpoint=CHECKPOINTS, interval=INTERVALS)
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
@given(work=SECONDS, mean=MEANS, restart=RESTARTS)
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

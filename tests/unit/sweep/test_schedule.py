"""What ASHA can save, what a trial gets of a machine, and how long all of them take."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.errors import UsageError
from costgpu.estimator.memory import need_gib
from costgpu.models.prediction import Range
from costgpu.sweep.asha import Asha, least_share, parse_asha
from costgpu.sweep.schedule import RAY_SECONDS, TRIAL_SECONDS, Resources, Shares, share_out, sweep_time
from tests.properties import examples
from tests.unit.estimator.builders import phase, profile

MINUTE = Range(value=60.0, low=50.0, high=70.0)


@given(grace=st.integers(1, 20), factor=st.integers(2, 8), reports=st.integers(1, 500))
@examples(200)
def test_the_least_share_is_that_of_a_perfect_choice_counted_trial_by_trial(
    grace: int, factor: int, reports: int
) -> None:
    """With enough trials that each rung divides them evenly, every report that is made is counted."""
    rungs = [rung for rung in (grace * factor**k for k in range(12)) if rung < reports]
    trials = factor ** len(rungs)
    made, living, begin = 0, trials, 0
    for rung in rungs:
        made, living, begin = made + living * (rung - begin), living // factor, rung
    made += living * (reports - begin)
    assert least_share(Asha(grace=grace, factor=factor), reports) == pytest.approx(made / (trials * reports))
    assert least_share(Asha(grace=grace), grace) == 1.0, "without a rung nothing is saved"


def test_options_of_asha_need_asha() -> None:
    assert parse_asha(wanted=False, grace=None, factor=None, most=None) is None
    assert parse_asha(wanted=True, grace=None, factor=3, most=9) == Asha(grace=1, factor=3, most=9)
    with pytest.raises(UsageError, match="--asha-factor is for --asha"):
        parse_asha(wanted=False, grace=None, factor=3, most=None)
    with pytest.raises(UsageError, match="below --asha-grace 4"):
        parse_asha(wanted=True, grace=4, factor=None, most=2)


@pytest.mark.parametrize(
    ("asked", "trials", "machines", "expected"),
    [
        (None, 12, Resources(), (1, 0.0, 1)),
        (4, 12, Resources(), (4, 0.0, 1)),
        (4, 3, Resources(), (3, 0.0, 1)),
        (None, 12, Resources(nodes=2, computers=2), (2, 0.0, 2)),
        (None, 12, Resources(nodes=2), (2, 0.0, 1)),
        (None, 12, Resources(gpus=4), (4, 1.0, 4)),
        (8, 12, Resources(gpus=4), (8, 0.5, 4)),
        (6, 12, Resources(gpus=4), (6, 0.5, 4)),
        (3, 12, Resources(gpus=1), (3, 0.3333, 1)),
        (16, 99, Resources(nodes=2, computers=2, gpus=4), (16, 0.5, 8)),
    ],
)
def test_who_gets_what(asked: int | None, trials: int, machines: Resources, expected: tuple[int, float, int]) -> None:
    shares = share_out(asked, trials, machines, None)
    assert (shares.concurrent, shares.gpus_per_trial, shares.alone) == expected


def test_as_many_trials_share_a_gpu_as_fit_into_its_memory() -> None:
    """Each needs 6 GiB of tensors, 1 GiB for CUDA and a quarter more: 8.75 GiB."""
    gib = 2**30
    measured = profile(phase(saved_tensor_bytes=6 * gib), peak_rss_bytes=2 * gib)
    need = need_gib(measured)
    assert need == pytest.approx(8.75, rel=0.05)
    one = Resources(gpus=1, gpu_memory_gib=24.0, memory_gib=64.0)
    shares = share_out(4, 12, one, measured)
    assert (shares.concurrent, shares.gpus_per_trial) == (2, 0.5)
    assert "4 trials at once do not fit" in shares.notes[0]
    assert share_out(2, 12, one, measured).notes == ()
    assert share_out(4, 12, replace(one, gpu_memory_gib=80.0), measured).gpus_per_trial == 0.25
    assert share_out(4, 12, replace(one, gpu_memory_gib=80.0, memory_gib=5.5), measured).concurrent == 2, "main memory"
    assert share_out(4, 12, replace(one, gpu_memory_gib=8.0), measured).concurrent == 1
    assert "not known" in share_out(4, 12, one, None).notes[0]


def test_no_trials_at_once_is_refused() -> None:
    with pytest.raises(UsageError, match="--concurrent 0"):
        share_out(0, 5, Resources(), None)


@pytest.mark.parametrize(
    ("concurrent", "rounds", "value", "low", "high"),
    [(1, 12, 720, 600, 840), (4, 3, 360, 150, 840)],
    ids=["one after another: their sum", "sharing a machine: all gained, or nothing"],
)
def test_the_time_of_all_trials(concurrent: int, rounds: int, value: float, low: float, high: float) -> None:
    time = sweep_time(MINUTE, 12, Shares(concurrent=concurrent, gpus_per_trial=0, alone=1), None, None)
    fixed = RAY_SECONDS + rounds * TRIAL_SECONDS
    assert (time.rounds, time.sharing) == (rounds, concurrent > 1)
    assert (time.seconds.low, time.seconds.high) == (low + fixed, high + fixed)
    assert time.seconds.value == pytest.approx(value + fixed)


def test_asha_lowers_the_lower_end_only_and_never_below_one_trial() -> None:
    shares = Shares(concurrent=1, gpus_per_trial=0, alone=1)
    plain = sweep_time(MINUTE, 12, shares, None, 64)
    saving = sweep_time(MINUTE, 12, shares, Asha(), 64)
    assert saving.seconds.high == plain.seconds.high
    assert saving.seconds.low < plain.seconds.low
    assert saving.seconds.low >= MINUTE.low
    assert sweep_time(MINUTE, 12, shares, Asha(), None).least_share is None

"""Work beside the steps that was seen once: it may come as often as that allows, or never again."""

from dataclasses import replace

import pytest

from costgpu.estimator.predict import predict
from costgpu.models.prediction import Prediction
from costgpu.models.workload import Extra, ExtraKind, Rhythm
from tests.unit.estimator.advisable import gpu, phase, product, profile, workload_of

WORK, PLACE, STEPS = product(4096, 20), gpu("A10G", 1.0), 100_000
VALIDATION = Extra(kind=ExtraKind.VALIDATION, seconds_each=2.0, rhythm=Rhythm.STEPS, every=100.0)


def predicted(*extras: Extra) -> Prediction:
    return predict(workload_of(profile(phase(WORK, steps=STEPS, extras=list(extras)))), PLACE)


def test_the_interval_reaches_from_once_to_as_often_as_told() -> None:
    without, sure, once = predicted(), predicted(VALIDATION), predicted(replace(VALIDATION, seen_once=True))
    assert once.run_seconds.value == sure.run_seconds.value, "as told"
    assert once.run_seconds.high == pytest.approx(sure.run_seconds.high)
    assert without.run_seconds.low < once.run_seconds.low < sure.run_seconds.low
    single = once.parts["validation"] / 1000
    share = 1 - (once.parts["validation"] - single) / once.run_seconds.value
    assert once.run_seconds.low == pytest.approx(share * sure.run_seconds.low)
    assert once.sigma > sure.sigma


def test_the_first_time_is_counted() -> None:
    """A gate that is counted from 0 opens once more than one that is counted from 1, if the last step falls on it."""
    from_zero, from_one = replace(VALIDATION, first=1.0, every=STEPS - 1.0), replace(VALIDATION, first=STEPS - 1.0)
    parts = [predicted(one).parts["validation"] for one in (from_zero, replace(from_one, every=STEPS - 1.0))]
    assert parts[0] == pytest.approx(2 * parts[1])


def test_rollouts_take_as_long_beside_any_gpu() -> None:
    rollout = replace(VALIDATION, kind=ExtraKind.ROLLOUT)
    assert predicted(rollout).parts["rollout"] == rollout.seconds_each * STEPS / 100
    assert predicted(VALIDATION).parts["validation"] < predicted(rollout).parts["rollout"] / 2

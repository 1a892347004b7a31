"""What waits takes as long on every machine, and what one core does is no faster on many."""

import pytest

from costgpu.estimator.advice.changes import with_batch, with_items
from costgpu.estimator.predict import predict
from costgpu.estimator.prepared import prepare
from costgpu.estimator.scope import scope_of
from costgpu.models.prediction import Candidate, Prediction
from costgpu.models.workload import GpuPath, Phase
from tests.unit.estimator import builders, inferring

SMALL, LARGE = builders.offer(vcpus=8), builders.offer(vcpus=128)


def predicted(phase: Phase, *places: Candidate) -> list[Prediction]:
    profile = builders.profile(phase)
    workload = prepare(profile, scope_of(profile), year=2026)
    return [predict(workload, place) for place in places]


@pytest.mark.parametrize("gpu", [GpuPath.TRACED, GpuPath.NONE])
def test_what_waits_is_a_term_of_its_own_on_every_candidate(gpu: GpuPath) -> None:
    phase = builders.phase(gpu=gpu, waiting_seconds_per_step=0.7)
    card = builders.candidate(builders.offer(gpu="GPU"), accelerator=builders.gpu_spec())
    for place in predicted(phase, builders.candidate(SMALL), builders.candidate(LARGE), card):
        assert place.terms["waiting"] == 0.7
        assert place.step_seconds >= 0.7
    (here,) = predicted(phase, Candidate(offer=None))
    assert here.terms == {"measured": 1.0}


def test_a_program_that_sleeps_is_no_faster_on_many_cores() -> None:
    phase = builders.phase(gpu=GpuPath.NONE, trace_steps=0, waiting_seconds_per_step=0.95, host_seconds_per_step=0.05)
    small, large = predicted(phase, builders.candidate(SMALL), builders.candidate(LARGE))
    assert large.step_seconds == pytest.approx(small.step_seconds) == pytest.approx(1.0)


def test_work_of_one_core_is_no_faster_on_many() -> None:
    phase = builders.phase(gpu=GpuPath.NONE, trace_steps=0, host_seconds_per_step=1.0)
    small, large = predicted(phase, builders.candidate(SMALL), builders.candidate(LARGE))
    assert large.step_seconds == pytest.approx(small.step_seconds)
    spread = builders.phase(gpu=GpuPath.NONE, trace_steps=0)
    small, large = predicted(spread, builders.candidate(SMALL), builders.candidate(LARGE))
    assert large.step_seconds < small.step_seconds


@pytest.mark.parametrize("factor", [0.5, 4.0])
def test_no_other_batch_is_taken_to_save_any_waiting(factor: float) -> None:
    phase = builders.phase(waiting_seconds_per_step=0.6)
    expected = 0.6 * max(1.0, factor)
    profile = builders.profile(phase)
    trained = with_batch(prepare(profile, scope_of(profile), year=2026), factor)
    assert trained.profile.phases[0].waiting_seconds_per_step == pytest.approx(expected)
    seen = inferring.profile(inferring.scoring(4, seconds=0.25, waiting_seconds_per_step=0.6))
    scored = with_items(prepare(seen, scope_of(seen), year=2026), factor).profile.phases[0]
    assert scored.waiting_seconds_per_step == pytest.approx(expected)
    assert scored.step.mean_seconds > expected
    asleep = inferring.profile(inferring.scoring(4, seconds=0.25, waiting_seconds_per_step=1.0))
    with_items(prepare(asleep, scope_of(asleep), year=2026), factor)

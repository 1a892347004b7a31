"""How much of a profile is predicted; and profiles of what cannot be measured: reference workloads, language models."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from costgpu.errors import UsageError
from costgpu.estimator.gpu import Execution, precision_of
from costgpu.estimator.interval import PRIOR
from costgpu.estimator.memory import GIB, memory_need
from costgpu.estimator.predict import predict
from costgpu.estimator.prepared import prepare
from costgpu.estimator.reference_profiles import STEP_TOKENS, language_model_profile, nominal_seconds, reference_profile
from costgpu.estimator.scope import Scope, scope_of
from costgpu.measure.profile_file import to_document
from costgpu.models.prediction import Candidate, Prediction, Provenance
from costgpu.models.workload import GpuPath, LaterPhase, Phase, TotalKind, WorkloadProfile
from costgpu.pricing.hardware import accelerators, cpus
from costgpu.pricing.speedups import reference, references
from tests.unit.estimator import builders

MACHINE = builders.machine(
    cores=8, threads=8, memory_gib=32, gemm_gflops=600, gemm_gflops_low=580, copy_gbps=40, op_seconds=4e-6
)
NOW = "2026-11-21T00:00:00+00:00"


def phase(steps: float | None, per_epoch: float | None = None, kind: TotalKind = TotalKind.EXACT) -> Phase:
    return builders.phase(total=builders.total(steps, per_epoch, kind))


def profile(*phases: Phase, later: tuple[float | None, ...] = ()) -> WorkloadProfile:
    again = [LaterPhase(label=f"train.py:{n}", source="again()", steps=s) for n, s in enumerate(later)]
    return builders.profile(*phases, later_phases=again)


def test_a_known_total() -> None:
    assert scope_of(profile(phase(5000, 500))) == Scope("the whole job", True, (5000.0,), (10.0,))
    assert scope_of(profile(phase(5000))) == Scope("the whole job", True, (5000.0,), (0.0,))


def test_several_phases() -> None:
    assert scope_of(profile(phase(100, 50), phase(900, 300))).steps == (100.0, 900.0)
    assert scope_of(profile(phase(100, 50), phase(900, 300))).epochs == (2.0, 3.0)


@pytest.mark.parametrize("kind", [TotalKind.UNKNOWN, TotalKind.UNBOUNDED])
def test_an_unknown_total_is_told_by_the_epoch_or_by_the_thousand(kind: TotalKind) -> None:
    by_epoch = scope_of(profile(phase(100, 50), phase(None, 300, kind)))
    assert (by_epoch.unit, by_epoch.whole) == ("one epoch", False)
    assert (by_epoch.steps, by_epoch.epochs) == ((0.0, 300.0), (0.0, 1.0))
    by_steps = scope_of(profile(phase(100, 50), phase(None, None, kind)))
    assert (by_steps.unit, by_steps.whole) == ("1,000 steps", False)
    assert (by_steps.steps, by_steps.epochs) == ((0.0, 1000.0), (0.0, 0.0))


@given(st.floats(1, 1e6), st.floats(1, 1e5), st.none() | st.floats(1, 1e9))
def test_epochs_override_what_was_found(epochs: float, per_epoch: float, steps: float | None) -> None:
    scope = scope_of(profile(phase(100, 50), phase(steps, per_epoch)), epochs=epochs)
    assert (scope.unit, scope.whole) == ("the whole job", True)
    assert scope.steps == pytest.approx((100.0, epochs * per_epoch))
    assert scope.epochs == pytest.approx((2.0, epochs))


@given(st.floats(1, 1e9), st.none() | st.floats(1, 1e5), st.none() | st.floats(1, 1e9))
def test_total_steps_override_what_was_found(total: float, per_epoch: float | None, steps: float | None) -> None:
    scope = scope_of(profile(phase(100, 50), phase(steps, per_epoch), later=(700, None)), total_steps=total)
    assert (scope.unit, scope.whole, scope.notes) == ("the whole job", True, ())
    assert scope.steps == (100.0, total)
    assert scope.epochs == pytest.approx((2.0, total / per_epoch if per_epoch else 0.0))


def test_later_phases_are_taken_to_be_alike() -> None:
    scope = scope_of(profile(phase(1000, 100), later=(300, 200)))
    assert (scope.steps, scope.epochs) == ((1500.0,), (15.0,))
    (note,) = scope.notes
    assert "500 steps of later phases" in note


def test_a_later_phase_of_unknown_length_makes_the_answer_per_unit() -> None:
    scope = scope_of(profile(phase(1000), later=(None, 200)))
    assert (scope.unit, scope.whole, scope.steps) == ("1,000 steps", False, (1000.0,))
    assert "train.py:0 is of unknown length" in scope.notes[0]
    assert "--total-steps" in scope.notes[0]
    assert scope_of(profile(phase(1000), later=(None,)), total_steps=5000).whole


# -- reference workloads


def like(name: str, epochs: float | None = None) -> WorkloadProfile:
    return reference_profile(reference(name), MACHINE, NOW, "test", epochs)


def again(profile: WorkloadProfile) -> WorkloadProfile:
    """As it comes back from a document."""
    return TypeAdapter(WorkloadProfile).validate_python(to_document(profile))


def predicted(profile: WorkloadProfile, gpu: str | None) -> Prediction:
    spec = accelerators()[gpu] if gpu else None
    memory = spec.memory_gib if spec else 0
    offer = builders.offer(gpu=gpu or "", gpu_memory_gib=memory, vcpus=16, memory_gib=256)
    place = builders.candidate(offer, cpus()["aws", "c7a"], accelerator=spec)
    return predict(prepare(profile, scope_of(profile), year=2026), place)


def test_resnet50_for_90_epochs() -> None:
    profile = like("resnet50", 90)
    phase = profile.phases[0]
    per_epoch = -(-1281167 // phase.data.batch_size) if phase.data.batch_size else 0
    assert phase.total.steps == 90 * per_epoch
    assert phase.total.steps_per_epoch == per_epoch
    assert phase.gpu is GpuPath.COUNTED
    assert phase.step.count == 0
    assert profile.script == "like resnet50"
    assert profile.framework.name == "reference"
    assert "Nothing was measured" in profile.notes[0]
    assert scope_of(profile).whole


@pytest.mark.parametrize(
    ("gpu", "images_per_second"),
    [("V100", 369), ("A100", 928), ("A10", 349), ("RTX 3090", 513)],  # public rows, fp32 or TF32, larger batches
)
def test_resnet50_on_gpus_is_what_was_published(gpu: str, images_per_second: float) -> None:
    profile = like("resnet50", 1)
    there = predicted(profile, gpu)
    batch = profile.phases[0].data.batch_size
    assert batch is not None
    assert not there.infeasible
    assert batch / there.step_seconds == pytest.approx(images_per_second, rel=0.25)
    assert there.run_seconds.low <= 1281167 / images_per_second <= there.run_seconds.high


def test_nothing_of_it_is_called_measured_and_every_interval_is_wide() -> None:
    profile = like("resnet50", 90)
    here = predict(prepare(profile, scope_of(profile), year=2026), Candidate(offer=None))
    for there in (here, predicted(profile, "V100"), predicted(profile, None)):
        assert there.provenance is Provenance.MODELLED
        assert there.run_seconds.high / there.run_seconds.low >= PRIOR.high / PRIOR.low * 0.95
        assert "nothing was measured: a reference workload stands for the script" in there.notes
    assert here.terms == {"nominal": here.step_seconds}


def test_the_cpu_seconds_are_those_that_one_core_took() -> None:
    core = replace(MACHINE, cores=1, threads=1, gemm_gflops=85, copy_gbps=10)
    for name, per_sample in (
        ("resnet50", 0.459),
        ("bert-base", 3.30),
        ("dcgan", 0.31),
    ):  # Zen 3, torch 2.13, 2026-11-21
        totals = like(name).phases[0].totals
        batch = reference(name).batch_size
        assert totals is not None
        assert PRIOR.low < nominal_seconds(totals, core) / (per_sample * batch) < PRIOR.high


@pytest.mark.parametrize("name", sorted(references()))
def test_every_reference_can_be_predicted_and_saved(name: str) -> None:
    profile = like(name)
    assert again(profile) == profile
    there = predicted(profile, "A100")
    assert not there.infeasible
    assert 0 < there.step_seconds < predicted(profile, None).step_seconds * 2
    assert not predicted(profile, "V100").infeasible  # the batch fits 16 GB, of which programs get 14.6 on a T4


def test_epochs_of_what_has_none() -> None:
    assert like("waveglow").phases[0].total.kind is TotalKind.UNKNOWN
    assert not scope_of(like("waveglow")).whole
    with pytest.raises(UsageError, match="waveglow has no epochs"):
        like("waveglow", 3)
    usual = like("resnet50")
    assert usual.phases[0].total.how.startswith("90 epochs, as usual")
    never = replace(reference("resnet50"), epochs=None)
    total = reference_profile(never, MACHINE, NOW, "test").phases[0].total
    assert (total.kind, total.steps) == (TotalKind.UNKNOWN, None)
    assert total.steps_per_epoch


# -- language models


def test_a_model_of_seven_billion_parameters() -> None:
    profile = language_model_profile(7e9, 1e9, MACHINE, NOW, "test")
    phase = profile.phases[0]
    assert phase.totals is not None
    assert phase.total.steps is not None
    assert phase.totals.flops * phase.total.steps == pytest.approx(6 * 7e9 * 1e9)
    need = memory_need(phase, Execution(precision_of(profile.framework))).gib
    assert 7e9 * 18 / GIB < need < 7e9 * 18 / GIB + 20  # and the activations of one sequence
    assert "GiB of accelerator memory" in predicted(profile, "H100").infeasible
    assert any("33 layers of width 4,2" in note for note in profile.notes)


def test_the_share_of_its_peak_that_a_gpu_reaches_is_what_is_published() -> None:
    """Between 21 and 46 % of the peak: Chowdhery et al. 2022 (arXiv:2204.02311), table 3."""
    profile = language_model_profile(1.3e9, 1e9, MACHINE, NOW, "test")
    totals = profile.phases[0].totals
    assert totals is not None
    for gpu in ("A100-80GB", "H100"):
        there = predicted(profile, gpu)
        peak = accelerators()[gpu].bf16_tensor_tflops
        assert peak is not None
        assert not there.infeasible
        assert 0.21 < totals.flops / there.step_seconds / (peak * 1e12) < 0.46


def test_steps_are_no_longer_than_the_tokens() -> None:
    short = language_model_profile(1e8, 10_000, MACHINE, NOW, "test").phases[0]
    assert short.total.steps == 1
    assert short.micro_batches == pytest.approx(10_000 / 2048)
    long = language_model_profile(1e8, 1e9, MACHINE, NOW, "test").phases[0]
    assert long.micro_batches == STEP_TOKENS / 2048


@pytest.mark.parametrize(("parameters", "tokens"), [(1000.0, 1e9), (1e9, 100.0)])
def test_sizes_that_the_rule_is_not_for(parameters: float, tokens: float) -> None:
    with pytest.raises(UsageError):
        language_model_profile(parameters, tokens, MACHINE, NOW, "test")


@given(st.floats(1e6, 1e13), st.floats(2048, 1e14))
def test_any_model_has_a_profile_that_can_be_saved(parameters: float, tokens: float) -> None:
    profile = language_model_profile(parameters, tokens, MACHINE, NOW, "test")
    assert again(profile).phases[0].totals == profile.phases[0].totals
    assert profile.phases[0].step.mean_seconds > 0

"""Inference in the prediction of a job: seconds by term, memory, and calibration by a GPU that measured it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costgpu.estimator.calibration import calibration_of
from costgpu.estimator.cpu import thread_mbps
from costgpu.estimator.predict import predict
from costgpu.estimator.prepared import prepare
from costgpu.estimator.scope import scope_of
from costgpu.models.prediction import Prediction
from costgpu.models.workload import Framework, Phase, Unit, WorkloadProfile
from costgpu.pricing.hardware import accelerator, cpu
from tests.unit.estimator import builders
from tests.unit.estimator.units import convolution, generating, linear, phase, relu

NET = phase([convolution(8), linear(8), relu(8)])


def _profile(measured: Phase) -> WorkloadProfile:
    return builders.profile(measured, framework=Framework(version="2.6.0", python="3.11", cuda_build="12.4"))


def _on(measured: Phase, gpu: str = "T4", family: str = "g4dn") -> Prediction:
    spec = accelerator(gpu)
    place = builders.offer(gpu=gpu, gpu_memory_gib=spec.memory_gib, memory_gib=64)
    whole = _profile(measured)
    workload = prepare(whole, scope_of(whole), year=2026)
    return predict(workload, builders.candidate(place, cpu("aws", family), accelerator=spec))


def test_a_unit_on_a_gpu_is_the_sum_of_its_terms() -> None:
    found = _on(NET)
    assert not found.infeasible
    assert sum(found.terms.values()) == pytest.approx(found.step_seconds)
    assert found.run_seconds.value == pytest.approx(100 * found.step_seconds)
    assert found.run_seconds.low < found.run_seconds.value < found.run_seconds.high


def test_a_slower_host_takes_longer_where_it_is_the_limit() -> None:
    single = phase([linear(1, 64, count=200)])
    assert _on(single, family="p3").step_seconds > 1.05 * _on(single, family="g5").step_seconds


def test_what_does_not_fit_is_told_with_the_need_of_inference() -> None:
    assert "GiB of accelerator memory" in _on(generating(), "P4").infeasible
    assert not _on(generating(), "A100").infeasible


def test_a_gpu_that_measured_it_calibrates_the_device() -> None:
    spec = accelerator("T4")
    modelled = _on(NET).step_seconds
    twice = replace(NET, step=builders.step_times(2 * modelled))
    whole = _profile(twice)
    whole = replace(whole, framework=replace(whole.framework, device="cuda"))
    workload = prepare(whole, scope_of(whole), year=2026)
    found = calibration_of(whole, workload.units, spec)
    assert found.ratios[0] > 1.5


HALF = phase(
    [linear(8, dtype="bfloat16")],
    unit=Unit(trains=False, items=8, weights_dtype="bfloat16", activation_bytes=1),
)


@pytest.mark.parametrize("measured", [NET, HALF, builders.phase()], ids=["inference", "in bf16", "training"])
def test_the_script_s_own_python_is_as_fast_on_a_gpu_s_host_as_on_that_cpu(measured: Phase) -> None:
    """Here a thread is half as fast as there: on either kind of offer its Python takes half as long."""
    host, spec = cpu("aws", "g4dn"), accelerator("T4")
    card = builders.offer(gpu="T4", gpu_memory_gib=spec.memory_gib, memory_gib=64)
    gpu, plain = builders.candidate(card, host, accelerator=spec), builders.candidate(builders.offer(), host)

    def seconds(mbps: float) -> tuple[float, float]:
        whole = _profile(replace(measured, host_seconds_per_step=100.0, step=builders.step_times(200.0)))
        whole = replace(whole, machine=replace(whole.machine, single_thread_mbps=mbps))
        workload = prepare(whole, scope_of(whole), year=2026)
        return predict(workload, gpu).step_seconds, predict(workload, plain).terms["host"]

    there = thread_mbps(host)
    (gpu_slow, cpu_slow), (gpu_same, cpu_same) = seconds(there / 2), seconds(there)
    assert cpu_slow == pytest.approx(cpu_same / 2)
    assert gpu_slow == pytest.approx(gpu_same / 2, rel=0.01)

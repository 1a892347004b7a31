"""Where a workload can run at all, and what the providers bill for it."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.estimator.cost import (
    billed_usd,
    cost_range,
    extras_usd_per_hour,
    hourly_usd,
    ready_seconds,
)
from costgpu.estimator.feasibility import HOST_RESERVE_GIB, cuda_of, host_need_gib, infeasible_reason
from costgpu.estimator.gpu import Execution, Precision
from costgpu.estimator.memory import memory_need
from costgpu.models.offer import AcceleratorSpec, Offer
from costgpu.models.prediction import Candidate, Range
from costgpu.models.workload import Framework, MeasuredMemory, MemoryPeak, OptimizerFacts, Phase, WorkloadProfile
from tests.unit.estimator import builders
from tests.unit.estimator.builders import GIB, candidate, cpu_spec, gpu_spec

FP32 = Precision(half=None, matmul_tf32=False, conv_tf32=True)
AMP = Precision(half="float16", matmul_tf32=False, conv_tf32=True)
CPU = cpu_spec()
HERE = Candidate(offer=None)


def offer(price: float = 1.0, memory: float = 16, *, gpus: float = 0, gpu_memory: float = 16, **changes: Any) -> Offer:
    gpu = "GPU" if gpus else ""
    return builders.offer(price, gpu=gpu, count=gpus, gpu_memory_gib=gpu_memory, memory_gib=memory, **changes)


def board(capability: tuple[int, int] | None = (8, 0), vendor: str = "NVIDIA") -> AcceleratorSpec:
    return gpu_spec(compute_capability=capability, vendor=vendor)


def cpu_machine(one: Offer | None = None, **changes: Any) -> Candidate:
    return candidate(one or offer(), **changes)


def gpu_machine(
    one: Offer | None = None, spec: AcceleratorSpec | None = None, *, on_demand: float | None = None
) -> Candidate:
    price = None if on_demand is None else Decimal(str(on_demand))
    return candidate(one or offer(gpus=1), accelerator=spec or board(), on_demand_usd_per_hour=price)


def optimizer(name: str, parameters: int = 0, state: int = 0) -> OptimizerFacts:
    return builders.optimizer(name, parameters, state_bytes=state)


def phase(*optimizers: OptimizerFacts, model: int = 0, frozen: int = 0, saved: int = 0) -> Phase:
    return builders.phase(optimizers=list(optimizers), model_bytes=model, frozen_bytes=frozen, saved_tensor_bytes=saved)


def profile(*phases: Phase, rss: int | None = GIB, version: str = "2.13.0", cuda: str | None = None) -> WorkloadProfile:
    framework = Framework(version=version, python="3.11", cuda_build=cuda)
    return builders.profile(*(phases or [phase()]), framework=framework, peak_rss_bytes=rss)


def hours(value: float, low: float, high: float) -> Range:
    return Range(value=value, low=low, high=high).times(3600)


# --------------------------------------------------------------------------------------------- accelerator memory


@pytest.mark.parametrize(
    ("measured", "precision", "gib"),
    [
        (
            phase(optimizer("AdamW", GIB // 4, state=2 * GIB), model=int(1.5 * GIB), frozen=GIB // 2, saved=3 * GIB),
            FP32,
            1.5 + 1 + 2 + 3 + 1,
        ),
        # 18 bytes for each trained parameter in all, frozen weights as they are, half the saved tensors
        (
            phase(optimizer("AdamW", GIB, state=8 * GIB), model=6 * GIB, frozen=2 * GIB, saved=4 * GIB),
            AMP,
            18 + 2 + 2 + 1,
        ),
        (phase(optimizer("SGD", GIB // 4, state=GIB), model=GIB, saved=4 * GIB), AMP, 1 + 1 + 1 + 2 + 1),
        (phase(optimizer("SGD", GIB // 4)), FP32, 1 + 1 + 1),  # the model was not seen
    ],
)
def test_memory_of_training(measured: Phase, precision: Precision, gib: float) -> None:
    """Weights, gradients, optimizer state, saved tensors and 1 GiB of runtime."""
    assert memory_need(measured, Execution(precision)).gib == pytest.approx(gib)


@pytest.mark.parametrize(("saved", "fits"), [(11.53, True), (11.56, False)])
def test_it_fits_with_a_quarter_to_spare(saved: float, fits: bool) -> None:
    """Of 16 GiB programs get 15.7, which hold 12.5 GiB: 11.5 of saved tensors and 1 of runtime."""
    reason = infeasible_reason(profile(phase(saved=int(saved * GIB))), gpu_machine())
    assert (reason == "") is fits
    assert fits or "needs 12.6 GiB of accelerator memory, has 15.7 GiB: fits with 89 %" in reason


# ------------------------------------------------------------------------------------------------------ main memory


@pytest.mark.parametrize(("rss", "fits"), [(14.9, True), (15.1, False)])
def test_main_memory(rss: float, fits: bool) -> None:
    """16 GiB less 1 for the system."""
    reason = infeasible_reason(profile(rss=int(rss * GIB)), cpu_machine())
    assert (reason == "") is fits
    assert fits or "has 16 GiB" in reason


# ---------------------------------------------------------------------------------------------------- compatibility


BUILDS = """
2.13.0+cpu 13.0   2.11.0 13.0   2.10.0 12.8   2.7.1 12.8   2.6.0 12.4   1.13.1 11.0   1.12.0 10.0
"""
REFUSED_AND_RUN = {
    "13.0": ("3.7 6.0 7.0", "7.5 9.0 12.0"),
    "12.8": ("3.7", "10.0 12.0"),
    "12.6": ("3.7 10.0", "5.0 7.0"),
    "12.4": ("12.0", "5.0"),
    "11.8": ("", "3.7 8.9 9.0"),
    "11.7": ("8.9", "8.6"),
}
"""Compute capabilities, by the CUDA of a build."""


def pair(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor)


@pytest.mark.parametrize(
    ("version", "build", "cuda"),
    [
        *((version, None, pair(cuda)) for version, cuda in map(str.split, BUILDS.strip().split("   "))),
        ("2.13.0+cu126", "12.6", (12, 6)),
        ("2.0.1", "11.8", (11, 8)),
        ("2.13.0", "13", (13, 0)),
    ],
)
def test_the_cuda_of_a_build(version: str, build: str | None, cuda: tuple[int, int]) -> None:
    assert cuda_of(Framework(version=version, python="3.11", cuda_build=build)) == cuda


@pytest.mark.parametrize(
    ("cuda", "capability", "runs"),
    [
        (cuda, pair(each), runs)
        for cuda, lists in REFUSED_AND_RUN.items()
        for runs, capabilities in enumerate(lists)
        for each in capabilities.split()
    ],
)
def test_which_boards_a_build_runs_on(cuda: str, capability: tuple[int, int], runs: int) -> None:
    reason = infeasible_reason(profile(cuda=cuda), gpu_machine(spec=board(capability)))
    assert (reason == "") == runs
    assert runs or ("GPU" in reason and f"CUDA {cuda}" in reason)


UNTRACED = profile(phase(), replace(phase(), trace_steps=0), version="1.13.1")
DATA_SET = profile(phase(saved=GIB), rss=100 * GIB)  # of which the accelerator takes 2 at most
OLD = gpu_machine(spec=board((7, 0)))


@pytest.mark.parametrize(
    ("measured", "place", "words"),
    [
        (profile(phase(), phase(saved=20 * GIB), phase()), gpu_machine(), "GiB of accelerator memory"),  # the hungriest
        (
            profile(phase(saved=20 * GIB)),
            gpu_machine(offer(gpus=1, gpu_memory=80)),
            "",
        ),  # the offer's own memory counts
        (UNTRACED, OLD, "traced"),
        (UNTRACED, cpu_machine(), ""),  # the step was timed all the same
        (profile(rss=None), cpu_machine(), ""),
        (DATA_SET, gpu_machine(offer(gpus=1, memory=16)), "memory"),
        (DATA_SET, gpu_machine(offer(gpus=1, memory=128)), ""),
        # what moves to the accelerator leaves main memory
        (profile(phase(saved=20 * GIB), rss=21 * GIB), gpu_machine(offer(gpus=1, memory=16, gpu_memory=80)), ""),
        # a CPU build is judged by the wheel that a machine with a GPU would get
        (profile(version="2.13.0+cpu"), OLD, "7.5"),
        (profile(version="2.10.0+cpu"), OLD, ""),
        (profile(), gpu_machine(spec=board(None, vendor="AMD")), "not a CUDA device"),
        (profile(), gpu_machine(offer(gpus=1, architecture="arm64")), "arm64"),
        (profile(), cpu_machine(offer(architecture="arm64")), ""),  # CPU wheels there are
        (profile(), cpu_machine(cpu=replace(CPU, burstable=True)), "burstable"),
        (profile(), gpu_machine(offer(gpus=0.125)), "slice"),
        (profile(), gpu_machine(offer(gpus=8)), ""),  # it uses one of them
    ],
)
def test_why_it_cannot_run_there(measured: WorkloadProfile, place: Candidate, words: str) -> None:
    reason = infeasible_reason(measured, place)
    assert words in reason
    assert bool(words) == bool(reason)


def test_this_machine_ran_it_already() -> None:
    assert infeasible_reason(profile(phase(saved=500 * GIB), rss=500 * GIB), HERE) == ""


@pytest.mark.parametrize(
    ("model", "weights", "gib"),
    [
        (16 * GIB, 16 * GIB, 5e9 / GIB),  # mapped and moved file by file
        (2 * GIB, 2 * GIB, 2.0),
        (4 * GIB, 16 * GIB, 5e9 / GIB),  # quantized on the accelerator
        (32 * GIB, 16 * GIB, 32.0),  # float32 of a file in half precision
        (6 * GIB, 0, 6.0),  # made on the host
    ],
)
def test_main_memory_through_which_weights_come(model: int, weights: int, gib: float) -> None:
    measured = replace(profile(phase(model=model, saved=GIB)), without_weights=True, weights_bytes=weights)
    assert host_need_gib(measured) == pytest.approx(1 + gib + HOST_RESERVE_GIB)
    assert host_need_gib(measured, 4) == pytest.approx(4 * (1 + gib) + HOST_RESERVE_GIB)
    real = replace(measured, without_weights=False, peak_rss_bytes=model + 2 * GIB)
    assert host_need_gib(real) == pytest.approx(1 + (gib if weights else 0) + HOST_RESERVE_GIB), "held, then moved"


def test_this_machine_has_to_hold_what_was_measured_without_weights() -> None:
    peak = MemoryPeak(phase="backward", bytes=100 * GIB, kinds={})
    measured = replace(
        profile(phase()),
        without_weights=True,
        memory=MeasuredMemory(peaks=[peak], reserved_bytes=101 * GIB, steady_bytes=50 * GIB),
    )
    assert "has 16.0 GiB" in infeasible_reason(measured, HERE)
    large = replace(measured, machine=replace(measured.machine, memory_gib=200))
    assert infeasible_reason(large, HERE) == ""
    with_gpu = replace(measured, machine=replace(measured.machine, accelerators=["NVIDIA H200"]))
    assert infeasible_reason(with_gpu, HERE) == "", "what it would take is not this machine's main memory"


# ------------------------------------------------------------------------------------------------------------- cost


@pytest.mark.parametrize(
    ("seconds", "billed"), [(0.0, 60), (1.0, 60), (59.9, 60), (60.0, 60), (60.1, 61), (3600.0, 3600)]
)
def test_by_the_second_and_sixty_at_least(seconds: float, billed: int) -> None:
    assert billed_usd(seconds, 3.6) == pytest.approx(billed * 0.001)


@given(st.floats(0, 1e8), st.floats(0, 1e8), st.floats(0.001, 100))
def test_a_longer_run_is_never_cheaper(one: float, other: float, rate: float) -> None:
    short, long = sorted((one, other))
    assert billed_usd(short, rate) <= billed_usd(long, rate)
    assert billed_usd(long, rate) * 3600 / rate >= long * (1 - 1e-12)


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        (cpu_machine(), 50 * 0.08 / 730 + 0.005),
        (gpu_machine(), 100 * 0.08 / 730 + 0.005),
        (cpu_machine(offer(provider="gcp")), 50 * 0.10 / 730 + 0.005),
        (gpu_machine(offer(provider="gcp", gpus=1)), 100 * 0.10 / 730 + 0.005),
    ],
)
def test_disk_and_address_are_in_the_rate(candidate: Candidate, expected: float) -> None:
    assert extras_usd_per_hour(candidate) == pytest.approx(expected)
    assert hourly_usd(candidate) == pytest.approx(1.0 + expected)
    cost = cost_range(candidate, hours(2, 1, 3))
    assert (cost.value, cost.low, cost.high) == pytest.approx([n * (1 + expected) for n in (2, 1, 3)])


def test_this_machine_costs_nothing() -> None:
    assert cost_range(HERE, hours(300, 30, 3000)) == hours(0, 0, 0)
    assert (hourly_usd(HERE), extras_usd_per_hour(HERE), ready_seconds(HERE)) == (0.0, 0.0, 0.0)


def test_a_machine_takes_time_to_be_ready() -> None:
    assert 60 <= ready_seconds(gpu_machine()) <= 90, "with an image that has the driver"
    assert 160 <= ready_seconds(cpu_machine()) <= 190


def test_the_upper_end_of_spot_is_the_price_on_demand() -> None:
    spot = gpu_machine(offer(0.3, gpus=1, spot=True), on_demand=1.0)
    sure = gpu_machine(offer(1.0, gpus=1))
    cost = cost_range(spot, hours(2.5, 1, 3.5), undisturbed=hours(2, 1, 3))
    assert cost.high == pytest.approx(cost_range(sure, hours(2, 1, 3)).high)
    assert cost.value == pytest.approx(2.5 * hourly_usd(spot)), "some work is done twice"
    assert cost.low == pytest.approx(hourly_usd(spot)), "or none is"
    often = cost_range(spot, hours(2.5, 1, 12), undisturbed=hours(2, 1, 3))
    assert often.high == pytest.approx(12 * hourly_usd(spot)), "interruptions may make it dearer than on demand"


def test_spot_of_unknown_price_on_demand() -> None:
    cost = cost_range(gpu_machine(offer(0.3, gpus=1, spot=True)), hours(2, 1.98, 2.02))
    assert cost.high >= cost.value


@given(
    st.tuples(*[st.floats(0, 1e7)] * 3),
    st.booleans(),
    st.booleans(),
    st.floats(0.01, 50),
    st.none() | st.floats(0.01, 50),
)
def test_a_cost_lies_in_its_range(
    seconds: tuple[float, float, float], spot: bool, gpu: bool, price: float, on_demand: float | None
) -> None:
    low_s, value_s, high_s = sorted(seconds)
    one = offer(round(price, 4), gpus=int(gpu), spot=spot)
    candidate = gpu_machine(one, on_demand=on_demand) if gpu else cpu_machine(one)
    cost = cost_range(candidate, Range(value=value_s, low=low_s, high=high_s))
    assert 0 < cost.low <= cost.value <= cost.high

"""The GPU model against numbers worked out by hand from its published form, and what holds for training and inference.

device = 1.02 F/(P g) + sum k Fw/(S g) + 1.08 B/BW + 0.40 B/(32 SM_GHz) + 3.1 U/BW + d Fd/P32 + 10e-6 K
step = (device^4 + host^4)^(1/4),   S = sqrt(BW * 1e10 * SM_GHz)

One file of more than 400 lines: every term of the form stands beside the others, and the properties hold for all.
"""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.estimator.gpu import (
    Execution,
    Precision,
    Runtime,
    clock_share,
    on_chip_rate,
    optimizer_bytes,
    optimizer_kernels,
    peak_for,
    precision_of,
    sm_gigahertz,
)
from costgpu.estimator.gpu_interval import FORWARD_BASE, gpu_interval
from costgpu.estimator.interval import Interval
from costgpu.estimator.roofline import FORWARD, OVERLAP, TRAINING, GpuTerms, HostCpu, Roofline, beside, gpu_terms
from costgpu.estimator.work import Work
from costgpu.models.offer import AcceleratorSpec
from costgpu.models.workload import Autocast, Framework, OptimizerFacts
from tests.unit.estimator import builders
from tests.unit.estimator.builders import optimizer

FP32 = Precision(half=None, matmul_tf32=False, conv_tf32=True)  # PyTorch's defaults
TF32 = Precision(half=None, matmul_tf32=True, conv_tf32=True)
NO_TF32 = Precision(half=None, matmul_tf32=False, conv_tf32=False)
FP16 = Precision(half="float16", matmul_tf32=False, conv_tf32=True)
BF16 = Precision(half="bfloat16", matmul_tf32=False, conv_tf32=True)
ALONE = HostCpu()


def gpu(
    name: str,
    architecture: str,
    capability: tuple[int, int] | None,
    bandwidth: float,
    fp32: float,
    *,
    tf32: float | None = None,
    half: float | None = None,
    **changes: Any,
) -> AcceleratorSpec:
    """`half` is the rate of fp16 and, from Ampere on, of bf16."""
    known = {
        "architecture": architecture,
        "compute_capability": capability,
        "memory_bandwidth_gbps": bandwidth,
        "fp32_tflops": fp32,
        "tf32_tensor_tflops": tf32,
        "fp16_tensor_tflops": half,
        "bf16_tensor_tflops": half if capability is None or capability >= (8, 0) else None,
    }
    return builders.gpu_spec(name, **{**known, **changes})


# Published peak figures of the vendors.
K80 = gpu("K80", "Kepler", (3, 7), 240, 4.1)
P100 = gpu("P100", "Pascal", (6, 0), 732, 9.3)
P4 = gpu("P4", "Pascal", (6, 1), 192, 5.5, tdp_watts=75)
V100 = gpu("V100", "Volta", (7, 0), 900, 15.7, half=125)
T4 = gpu("T4", "Turing", (7, 5), 320, 8.1, half=65, tdp_watts=70)
RTX_8000 = gpu("Quadro RTX 8000", "Turing", (7, 5), 672, 16.3, half=130.5)
A100 = gpu("A100", "Ampere", (8, 0), 1555, 19.5, tf32=156, half=312)
A10G = gpu("A10G", "Ampere", (8, 6), 600, 35, tf32=35, half=70)
L4 = gpu("L4", "Ada", (8, 9), 300, 30.3, tf32=60, half=121, tdp_watts=72)
H100 = gpu("H100", "Hopper", (9, 0), 3352, 66.9, tf32=495, half=989)
B200 = gpu("B200", "Blackwell", (10, 0), 8000, 75, tf32=1125, half=2250)
L40S = gpu("L40S", "Ada", (8, 9), 864, 91.6, tf32=183, half=362)
MI210 = gpu("MI210", "CDNA2", None, 1638, 22.6, fp32_matrix_tflops=45.3, half=181, vendor="AMD")


def work(flops: dict[tuple[str, str], float] | None = None, moved: float = 0.0, kernels: float = 0.0) -> Work:
    """Of a network whose every op is half under autocast, and whose products fill their tiles."""
    return Work(
        flops=dict(flops or {}),
        moved={("pointwise", "float32"): moved},
        autocast_moved={"pointwise": moved / 2},
        kernels=kernels,
        autocast_kernels=kernels,
    )


def trained(
    step: Work, optimizers: list[OptimizerFacts], precision: Precision, spec: AcceleratorSpec, host: HostCpu = ALONE
) -> GpuTerms:
    return gpu_terms(step, spec, Execution(precision), TRAINING, optimizers=optimizers, host=host)


def widened(
    found: GpuTerms, spec: AcceleratorSpec, compiled: bool, year: int, *, trains: bool = True
) -> tuple[Interval, list[str]]:
    execution = Execution(FP32, runtime=Runtime.COMPILED if compiled else Runtime.EAGER)
    return gpu_interval(found, spec, execution, trains=trains, year=year)


def seconds(step: Work, spec: AcceleratorSpec, precision: Precision = FP32, model: Roofline = TRAINING) -> float:
    return gpu_terms(step, spec, Execution(precision), model).seconds


# ------------------------------------------------------------------------------------------- what a script asks for


def framework(*casts: Autocast, **other: object) -> Framework:
    return replace(Framework(version="2.13.0", python="3.11", autocast=list(casts)), **other)  # type: ignore[arg-type]


def test_precision_is_what_the_script_asks_for() -> None:
    assert precision_of(framework()) == FP32
    assert precision_of(framework(float32_matmul_precision="high")) == TF32
    assert precision_of(framework(float32_matmul_precision="medium")) == TF32
    assert precision_of(framework(matmul_tf32=True)) == TF32
    assert precision_of(framework(conv_tf32=False)) == NO_TF32
    assert precision_of(framework(Autocast(device="cuda", dtype="float16", enabled=True))) == FP16
    assert precision_of(framework(Autocast(device="cuda", dtype="bfloat16", enabled=True))) == BF16


def test_autocast_that_is_off_or_of_the_cpu_asks_for_nothing() -> None:
    assert precision_of(framework(Autocast(device="cuda", dtype="float16", enabled=False))) == FP32
    assert precision_of(framework(Autocast(device="cpu", dtype="bfloat16", enabled=True))) == FP32


# ------------------------------------------------------------------------------------------------ the unit that runs


@pytest.mark.parametrize(
    ("spec", "kind", "dtype", "precision", "tflops", "mode"),
    [
        # fp32 with PyTorch's defaults: matrix multiplies on the cores, convolutions on TF32 where there is any
        (V100, "matmul", "float32", FP32, 15.7, "fp32"),
        (V100, "conv", "float32", FP32, 15.7, "fp32"),
        (A100, "matmul", "float32", FP32, 19.5, "fp32"),
        (A100, "attention", "float32", FP32, 19.5, "fp32"),
        (A100, "conv", "float32", FP32, 156, "tf32"),
        (A100, "conv3x3", "float32", FP32, 156, "tf32"),
        (A100, "conv", "float32", NO_TF32, 19.5, "fp32"),
        (A100, "matmul", "float32", TF32, 156, "tf32"),
        (A100, "attention", "float32", TF32, 156, "tf32"),
        (V100, "matmul", "float32", TF32, 15.7, "fp32"),
        # half precision: tensor cores where there are any; bf16 only where it is in hardware
        (A100, "matmul", "float32", FP16, 312, "half"),
        (A100, "conv", "float32", BF16, 312, "half"),
        (V100, "matmul", "float32", FP16, 125, "half"),
        (V100, "matmul", "float32", BF16, 15.7, "fp32"),
        (P100, "matmul", "float32", FP16, 9.3, "fp32"),
        (K80, "conv", "float32", FP16, 4.1, "fp32"),
        # a model that is in half precision by itself
        (A100, "matmul", "bfloat16", FP32, 312, "half"),
        (V100, "matmul", "float16", FP32, 125, "half"),
        (V100, "matmul", "bfloat16", FP32, 15.7, "fp32"),
        (V100, "matmul", "float16", BF16, 125, "half"),
        # boards that cannot hold their clock under load
        (T4, "matmul", "float32", FP32, 0.55 * 8.1, "fp32"),
        (T4, "matmul", "float32", FP16, 0.55 * 65, "half"),
        (T4, "conv", "float32", BF16, 0.55 * 8.1, "fp32"),
        (P4, "conv", "float32", FP32, 0.45 * 5.5, "fp32"),
        (L4, "conv", "float32", FP32, 0.40 * 60, "tf32"),
        (L4, "matmul", "float32", BF16, 0.40 * 121, "half"),
        (L40S, "matmul", "float32", BF16, 0.75 * 362, "half"),
        # CDNA has matrix units for fp32
        (MI210, "matmul", "float32", FP32, 45.3, "fp32"),
        (MI210, "conv", "float32", FP32, 45.3, "fp32"),
        (MI210, "matmul", "float32", FP16, 181, "half"),
        # double precision
        (V100, "matmul", "float64", FP16, 15.7 / 2, "fp32"),
        (T4, "matmul", "float64", FP32, 8.1 / 32, "fp32"),
    ],
)
def test_the_peak_of_the_unit_that_runs_it(
    spec: AcceleratorSpec, kind: str, dtype: str, precision: Precision, tflops: float, mode: str
) -> None:
    peak, found = peak_for(spec, kind, dtype, precision)
    assert peak == pytest.approx(tflops * 1e12)
    assert found == mode


@pytest.mark.parametrize(
    ("spec", "cores"),
    [
        *((spec, 64) for spec in (P100, V100, T4, A100, MI210)),
        *((spec, 128) for spec in (P4, A10G, L4, H100)),
        (K80, 192),
    ],
)
def test_the_rate_on_the_chip(spec: AcceleratorSpec, cores: int) -> None:
    assert sm_gigahertz(spec) == pytest.approx(spec.fp32_tflops * 1000 / (2 * cores))
    expected = math.sqrt(spec.memory_bandwidth_gbps * 1e9 * 1e10 * spec.fp32_tflops * 1000 / (2 * cores))
    assert on_chip_rate(spec) == pytest.approx(expected)


def test_both_sizes_of_the_a100_have_the_same_multiprocessors() -> None:
    larger = replace(A100, name="A100-80GB", model="A100-SXM4-80GB")
    assert sm_gigahertz(larger) == sm_gigahertz(A100) == pytest.approx(152.3, rel=0.001)  # 108 of them at 1.41 GHz


# ------------------------------------------------------------------------------------------------------- the terms


def test_a_transformer_step_in_fp32_on_a_v100() -> None:
    terms = trained(work({("matmul", "float32"): 3e12, ("attention", "float32"): 1e12}, 5e10, 2000), [], FP32, V100)
    multiprocessors = 15.7e3 / 128  # times GHz
    assert terms.compute == pytest.approx(1.02 * 4e12 / 15.7e12)
    assert terms.on_chip == pytest.approx(0.0068 * 4e12 / math.sqrt(900e9 * 1e10 * multiprocessors))
    assert terms.memory == pytest.approx(1.08 * 5e10 / 900e9 + 0.40 * 5e10 / (32 * multiprocessors * 1e9))
    assert terms.launch == pytest.approx(6e-6 * 2000)
    assert terms.seconds == pytest.approx(0.25987 + 0.02588 + 0.06 + 0.0051 + 0.012, rel=0.001)
    assert terms.notes == ()


def test_a_convolutional_step_with_amp_on_an_a100() -> None:
    """Bytes are those of autocast's types; gradients are cast once, 6 B per parameter, besides SGD's 20 B."""
    step = work({("conv", "float32"): 2e12, ("matmul", "float32"): 1e11}, 4e10, 1000)
    step.autocast_kernels = 1100
    sgd = optimizer("SGD", parameters=25_000_000, tensors=30, momentum=True)
    terms = trained(step, [sgd], FP16, A100)
    multiprocessors = 19.5e3 / 128
    moved = 0.5 * 4e10 + 26 * 25e6
    assert terms.compute == pytest.approx(1.02 * 2.1e12 / 312e12)
    assert terms.on_chip == pytest.approx((0.021 * 2e12 + 0.0021 * 1e11) / math.sqrt(1555e9 * 1e10 * multiprocessors))
    assert terms.memory == pytest.approx(1.08 * moved / 1555e9 + 0.40 * moved / (32 * multiprocessors * 1e9))
    assert terms.launch == pytest.approx(6e-6 * (1100 + 12))


@pytest.mark.parametrize(
    ("kind", "precision", "weight"),
    [
        ("matmul", FP32, 0.0068),
        ("matmul", TF32, 0.0055),
        ("matmul", FP16, 0.0021),
        ("conv", FP32, 0.0148),
        ("conv", NO_TF32, 0.023),
        ("conv_nhwc", FP32, 0.0148),
        ("conv", FP16, 0.021),
        ("conv_nhwc", FP16, 0.00075),
        ("conv3x3", FP16, 0.0072),
        ("conv3x3_nhwc", FP16, 0.00075),
        ("conv_unusual", FP16, 0.034),
        ("grouped", FP16, 0.021),
        ("grouped_nhwc", BF16, 0.00075),
        ("grouped_wide", FP16, 0.021),
        ("grouped_wide_nhwc", FP32, 0.0148),
        ("grouped_wide_nhwc", FP16, 0.0),
        ("grouped_wide", NO_TF32, 0.05),
        ("grouped", NO_TF32, 0.05),
    ],
)
def test_traffic_on_the_chip_by_kind_layout_and_precision(kind: str, precision: Precision, weight: float) -> None:
    found = trained(work({(kind, "float32"): 1e12}), [], precision, A100)
    assert found.on_chip == pytest.approx(weight * 1e12 / math.sqrt(1555e9 * 1e10 * 19.5e3 / 128))


def test_wide_groups_in_channels_last_and_half_precision_run_on_the_cores() -> None:
    terms = trained(work({("grouped_wide_nhwc", "float32"): 1e12}), [], FP16, A100)
    assert terms.depthwise == pytest.approx(10.0 * 1e12 / 19.5e12)
    assert terms.device_seconds == terms.depthwise


@pytest.mark.parametrize(("kind", "precision", "factor"), [("conv", FP16, 2.5), ("conv", TF32, 1), ("matmul", FP16, 1)])
def test_half_precision_convolutions_on_blackwell_of_the_data_centre(
    kind: str, precision: Precision, factor: float
) -> None:
    step = work({(kind, "float32"): 1e12})
    found, plain = (trained(step, [], precision, spec) for spec in (B200, replace(B200, compute_capability=(12, 0))))
    assert found.on_chip == pytest.approx(factor * plain.on_chip)
    assert found.compute == plain.compute


def test_what_fits_into_the_cache_does_not_go_to_memory() -> None:
    """Half of it stays where one op moves half of the cache; the multiprocessors load all of it."""
    cached, moved, loads = replace(A100, l2_mib=40), 1e10, 0.40 * 1e10 / (32 * 19.5e3 / 128 * 1e9)

    def memory(size: float, spec: AcceleratorSpec = cached, precision: Precision = FP32) -> float:
        step = work(moved=moved)
        step.sized[math.log2(size), "float32"] = moved
        step.autocast_sized[math.log2(size / 2)] = moved / 2
        return trained(step, [], precision, spec).memory

    assert memory(20 << 20) == pytest.approx(1.08 * moved / 2 / 1555e9 + loads)
    assert memory(1 << 10) == pytest.approx(loads, rel=1e-3)
    assert memory(40 << 20, precision=FP16) == pytest.approx(memory(20 << 20) / 2)
    assert memory(1 << 40) == pytest.approx(memory(1 << 10, A100)) == pytest.approx(1.08 * moved / 1555e9 + loads)


def test_libraries_of_amd_reach_less_of_the_data_sheet() -> None:
    step = work({("matmul", "float32"): 1e12}, 1e10)
    found, plain = (trained(step, [], FP32, spec) for spec in (MI210, replace(MI210, vendor="NVIDIA")))
    assert found.compute == pytest.approx(plain.compute / 0.75)
    assert found.memory > plain.memory


def test_narrow_products_have_more_traffic_on_the_chip() -> None:
    step = work({("matmul", "float32"): 1e12})
    narrow = replace(step, tiled={("matmul", "float32"): 3e12})
    wide, other = (trained(one, [], FP16, A100) for one in (step, narrow))
    assert other.on_chip == pytest.approx(3 * wide.on_chip)
    assert other.compute == wide.compute


@pytest.mark.parametrize(("kind", "times"), [("depthwise", 30.0), ("depthwise_nhwc", 8.0)])
def test_depthwise_convolutions_run_on_the_cores_in_any_precision(kind: str, times: float) -> None:
    for precision in (FP32, FP16):
        found = trained(work({(kind, "float32"): 1e10}), [], precision, A100)
        assert found.depthwise == pytest.approx(times * 1e10 / 19.5e12)
        assert found.compute == found.on_chip == 0


def test_unaligned_channels_cost_memory_in_half_precision_only() -> None:
    step = replace(work({("conv", "float32"): 1e12}), unaligned_bytes=1e9)
    assert trained(step, [], FP16, A100).memory == pytest.approx(3.1 * 2e9 / 1555e9)
    assert trained(step, [], FP32, A100).memory == 0


def test_winograd_multiplies_less_in_dense_3x3_convolutions_in_fp32_only() -> None:
    dense, other = work({("conv3x3", "float32"): 1e12}), work({("conv", "float32"): 1e12})
    assert trained(dense, [], FP32, V100).compute == pytest.approx(trained(other, [], FP32, V100).compute / 2.25)
    assert trained(dense, [], FP16, V100).compute == pytest.approx(trained(other, [], FP16, V100).compute)


@pytest.mark.parametrize(
    ("name", "architecture", "share"),
    [
        ("RTX 3090", "Ampere", 1.15),
        ("RTX 4090", "Ada", 1.15),
        ("GTX 1080 Ti", "Pascal", 1.15),
        ("RTX 2080 Ti", "Turing", 0.85),
        ("Quadro RTX 8000", "Turing", 0.85),
        ("T4", "Turing", 1.0),  # its derate is of its own
        ("RTX 6000 Ada", "Ada", 1.0),
        ("RTX A6000", "Ampere", 1.0),
        ("A100", "Ampere", 1.0),
    ],
)
def test_the_clock_that_a_board_holds(name: str, architecture: str, share: float) -> None:
    spec = replace(A100, name=name, model=name, architecture=architecture)
    assert clock_share(spec) == share
    step = work({("matmul", "float32"): 1e12})
    listed = trained(step, [], FP16, A100).compute
    derate = {"T4": 0.55, "RTX 6000 Ada": 0.65}.get(name, 1.0)
    assert trained(step, [], FP16, spec).compute == pytest.approx(listed / share / derate)


# -------------------------------------------------------------------------------------------------------- the host


def test_device_and_host_run_side_by_side() -> None:
    assert beside(1.0, 0.0) == beside(0.0, 1.0) == 1.0
    assert beside(0.0, 0.0) == 0.0
    assert beside(1.0, 1e-78) == 1.0, "whose fourth power is too small for a float"
    assert beside(3.0, 3.0) == pytest.approx(3 * 2**0.25)
    assert beside(1.0, 10.0) == pytest.approx(10, rel=1e-4)


def test_what_calls_of_the_framework_add() -> None:
    """Forward calls go through Python, those of autograd do not; a slower core takes longer for both."""
    step = replace(work(moved=0.0, kernels=0.0), forward_calls=1000, backward_calls=2000)
    assert trained(step, [], FP32, A100).calls == pytest.approx(1000 * 40e-6 + 2000 * 7e-6)
    assert trained(step, [], FP32, A100, HostCpu(speed=0.5)).calls == pytest.approx(2 * 0.054)
    busy = replace(step, moved={("pointwise", "float32"): 1e12})
    found = trained(busy, [], FP32, A100)
    assert found.calls < 0.001 * found.seconds
    assert found.seconds == pytest.approx(beside(found.device_seconds, 0.054))


def test_the_scripts_python_hides_behind_the_device_unless_every_step_waits_for_a_value() -> None:
    step = replace(work(moved=1e12), forward_calls=1000)
    device = trained(step, [], FP32, A100).seconds
    hidden = trained(step, [], FP32, A100, HostCpu(script_seconds=0.1))
    assert hidden.host < 0.01
    assert hidden.seconds == pytest.approx(beside(hidden.device_seconds, 0.04 + 0.1))
    waits = trained(replace(step, syncs=1), [], FP32, A100, HostCpu(script_seconds=0.1))
    assert waits.host == pytest.approx(0.1)
    assert waits.seconds == pytest.approx(device + 0.1)
    often = trained(replace(step, syncs=7), [], FP32, A100, HostCpu(script_seconds=0.1))
    assert often.host == pytest.approx(0.1)


@pytest.mark.parametrize("model", [TRAINING, FORWARD], ids=["training", "forward"])
def test_bf16_without_bf16_units_is_said(model: Roofline) -> None:
    step = work({("matmul", "float32"): 1e12, ("conv", "float32"): 1e12})
    (note,) = gpu_terms(step, T4, Execution(BF16), model).notes
    assert "bf16" in note
    assert gpu_terms(work({("matmul", "bfloat16"): 1e12}), V100, Execution(FP32), model).notes == (note,)
    assert gpu_terms(step, A100, Execution(BF16), model).notes == ()
    assert gpu_terms(step, T4, Execution(FP32), model).notes == ()


def test_the_share_without_a_rule_is_of_the_bytes() -> None:
    step = Work(moved={("pointwise", "float32"): 1e9}, unruled_bytes=3e8)
    assert trained(step, [], FP32, V100).unruled_share == pytest.approx(0.3)
    assert trained(work(), [], FP32, V100).unruled_share == 0.0


# --------------------------------------------------------------------------------------------------- the optimizer


@pytest.mark.parametrize(
    ("one", "each"),
    [
        (optimizer("SGD"), 12.0),
        (optimizer("SGD", momentum=True), 20.0),
        (optimizer("Adam"), 72.0),
        (optimizer("AdamW", foreach=True), 72.0),
        (optimizer("AdamW", foreach=False), 72.0),
        (optimizer("AdamW", foreach=False, fused=True), 28.0),
        (optimizer("FusedAdam"), 28.0),
        (optimizer("RMSprop"), 28.0),
        (optimizer("Lion"), 0.0),
    ],
    ids=lambda value: f"{value.name}-{value.foreach}-{value.fused}" if isinstance(value, OptimizerFacts) else None,
)
def test_bytes_of_an_optimizer(one: OptimizerFacts, each: float) -> None:
    assert optimizer_bytes([one], amp=False) == pytest.approx(1000 * each)
    assert optimizer_bytes([one], amp=True) == pytest.approx(1000 * (each + 6))


def test_optimizers_add_up_and_rare_ones_count_less() -> None:
    pair = [optimizer("Adam"), optimizer("SGD", updates_per_step=0.25)]
    assert optimizer_bytes(pair, amp=False) == pytest.approx(1000 * (72 + 12 / 4))
    assert optimizer_bytes([], amp=True) == 0.0


def test_parameters_in_half_precision_have_states_and_gradients_of_their_own_type() -> None:
    mixed = optimizer("AdamW", fused=True, dtypes={"bfloat16": 600, "float32": 400})
    assert optimizer_bytes([mixed], amp=False) == pytest.approx(600 * 14 + 400 * 28)
    assert optimizer_bytes([mixed], amp=True) == pytest.approx(600 * 14 + 400 * (28 + 6))


def test_kernels_of_an_optimizer() -> None:
    """A few per chunk of tensors, or for each tensor where foreach is switched off; ops of a foreign one are traced."""
    few, many = optimizer("Adam", tensors=10), optimizer("Adam", tensors=300)
    assert optimizer_kernels([few]) == 12
    assert optimizer_kernels([many]) == 120
    assert optimizer_kernels([replace(many, foreach=False)]) == 3600
    assert optimizer_kernels([replace(many, foreach=False, fused=True)]) == 120
    assert optimizer_kernels([optimizer("Lion", tensors=300)]) == 0


# ------------------------------------------------------------------------------------------- what can only be better

KINDS = [
    (kind, dtype)
    for kind in ("matmul", "conv", "conv3x3_nhwc", "grouped", "grouped_wide_nhwc", "depthwise", "attention")
    for dtype in ("float32", "bfloat16", "float64")
]
amounts = st.floats(0, 1e16)
steps = st.builds(work, st.dictionaries(st.sampled_from(KINDS), amounts), st.floats(0, 1e13), st.floats(0, 1e6))
specs = st.sampled_from([K80, P100, P4, V100, T4, A100, A10G, L4, L40S, H100, B200, MI210])
precisions = st.sampled_from([FP32, TF32, NO_TF32, FP16, BF16])
factors = st.floats(1, 100)
models = st.sampled_from([TRAINING, FORWARD])


@given(steps, specs, precisions, models, st.sampled_from(KINDS), amounts, amounts, st.floats(0, 1e6))
def test_more_work_is_never_faster(
    step: Work,
    spec: AcceleratorSpec,
    precision: Precision,
    model: Roofline,
    kind: tuple[str, str],
    flops: float,
    moved: float,
    kernels: float,
) -> None:
    before = seconds(step, spec, precision, model)
    assert 0 <= before < math.inf
    for more in (
        replace(step, flops=step.flops | {kind: step.flops.get(kind, 0.0) + flops}),
        replace(step, moved={("pointwise", "float32"): step.bytes_moved + moved}),
        replace(step, kernels=step.kernels + kernels),
    ):
        assert seconds(more, spec, precision, model) >= before


FIGURES = (
    "memory_bandwidth_gbps",
    "fp32_tflops",
    "fp32_matrix_tflops",
    "tf32_tensor_tflops",
    "fp16_tensor_tflops",
    "bf16_tensor_tflops",
)


@given(steps, specs, precisions, models, st.tuples(*[factors] * len(FIGURES)))
def test_a_better_gpu_is_never_slower(
    step: Work, spec: AcceleratorSpec, precision: Precision, model: Roofline, better_by: tuple[float, ...]
) -> None:
    raised = {
        name: getattr(spec, name) * factor
        for name, factor in zip(FIGURES, better_by, strict=True)
        # forward convolutions in TF32 have more traffic on the chip than in fp32
        if getattr(spec, name) is not None and (model is TRAINING or name != "tf32_tensor_tflops")
    }
    better = replace(spec, **raised)
    assert seconds(step, better, precision, model) <= seconds(step, spec, precision, model) * (1 + 1e-9)


@pytest.mark.parametrize("kind", ["matmul", "conv", "conv3x3"])
def test_units_that_are_no_faster_are_no_slower_either(kind: str) -> None:
    """A10G: TF32 at the rate of its fp32 cores; the library takes the faster of its algorithms."""
    without = replace(A10G, tf32_tensor_tflops=None)
    step = work({(kind, "float32"): 1e13})
    assert seconds(step, A10G, TF32) <= seconds(step, without, TF32)


# --------------------------------------------------------------------------------------------------- the intervals


def terms(compute: float = 1.0, calls: float = 0.0, unruled: float = 0.0, **others: float) -> GpuTerms:
    """Of a step to whose device's seconds the host adds `calls`."""
    figures = {"on_chip": 0.0, "memory": 0.0, "launch": 0.0, **others}
    device = compute + others.get("depthwise", 0.0)
    alone = ((device + calls) ** OVERLAP - device**OVERLAP) ** (1 / OVERLAP)
    return GpuTerms(compute=compute, calls_alone=alone, unruled_share=unruled, **figures)  # type: ignore[arg-type]


def ends(*sigmas: float) -> tuple[float, float]:
    """Ends of an interval of independent errors."""
    sigma = math.hypot(*sigmas)
    return math.exp(-1.2816 * sigma), math.exp(1.2816 * sigma)


BASE = Interval.of_sigma(0.10)
LOW, HIGH = BASE.low, BASE.high
HOST_LOW, HOST_HIGH = ends(0.10, 0.40 * (1 - 0.8**4))
K80_LIKE = replace(K80, tdp_watts=150.0)


TRAINED = [
    (terms(takes_turns=True, waits=13), V100, False, 2026, (0.65, 1.60, 1)),
    (terms(), V100, False, 2026, (LOW, HIGH, 0)),
    (terms(0.92, 0.08), V100, False, 2026, (*ends(0.10, 0.40 * (1 - 0.92**4)), 0)),
    (terms(0.8, 0.2), V100, False, 2026, (HOST_LOW, HOST_HIGH, 1)),
    (terms(0.0, 1.0), V100, False, 2026, (*ends(0.10, 0.40), 1)),
    (terms(0.6, depthwise=0.4), V100, False, 2026, (*ends(0.10, 0.35 * 0.4), 0)),
    (terms(grouped_share=0.05), V100, False, 2026, (LOW, HIGH, 0)),
    (terms(grouped_share=0.06), V100, False, 2026, (*ends(0.10, 0.25), 1)),
    (terms(unruled=0.19), V100, False, 2026, (LOW, HIGH, 0)),
    (terms(unruled=0.21), V100, False, 2026, (0.60, 1.70, 1)),
    (terms(unusual_half_share=0.6), V100, False, 2026, (LOW, HIGH * 1.6, 1)),
    (terms(), V100, True, 2026, (LOW * 0.6, HIGH, 1)),
    (terms(), H100, False, 2020, (LOW, HIGH * 1.6 * 1.1, 1)),
    (terms(), H100, False, 2021, (LOW, HIGH * 1.1, 0)),
    (terms(), K80_LIKE, False, 2026, (LOW * 0.9, HIGH * 1.35, 1)),
    (terms(), replace(H100, architecture="Blackwell"), False, 2026, (LOW * 0.9, HIGH * 1.35, 1)),
    (terms(), B200, False, 2026, (LOW * 0.9, HIGH * 1.35, 1)),
    (terms(half_convolution_share=0.5), B200, False, 2026, (0.65, 1.9, 2)),
    (terms(half_convolution_share=0.5), V100, False, 2026, (LOW, HIGH, 0)),
    (terms(half_convolution_share=0.5), RTX_8000, False, 2026, (LOW, HIGH * 1.1, 0)),
    (terms(), L40S, False, 2026, (LOW * 0.9, HIGH * 1.15, 0)),
    (terms(), replace(L40S, model="RTX 4090"), False, 2026, (LOW, HIGH, 0)),
    (terms(), MI210, False, 2026, (LOW * 0.8, HIGH * 1.4, 1)),
    (terms(), T4, False, 2026, (LOW, HIGH * 1.1, 0)),
    (terms(), P4, False, 2026, (LOW, HIGH * 1.1, 0)),
    (
        terms(0.8, 0.2),
        replace(MI210, tdp_watts=75.0),
        True,
        2020,
        (HOST_LOW * 0.8 * 0.6, HOST_HIGH * 1.6 * 1.4 * 1.1, 4),
    ),
]
SCORED = [
    (terms(), V100, False, 2026, (0.86, 1.28, 0)),
    (terms(0.6, depthwise=0.4), V100, False, 2026, (0.86, 1.28, 0)),
    (terms(0.1, 0.9), V100, False, 2026, (0.65, 1.50, 1)),
    (terms(takes_turns=True, waits=13), V100, False, 2026, (0.65, 1.60, 1)),
    (terms(grouped_share=0.06, unusual_half_share=0.6), V100, False, 2026, (0.86, 1.28, 0)),
    (terms(unruled=0.21), V100, False, 2026, (0.60, 1.70, 1)),
    (terms(), V100, True, 2026, (0.80, 1.55, 1)),
    (terms(), H100, False, 2020, (0.86, 1.28 * 1.6, 1)),
    (terms(), H100, False, 2021, (0.86 * 0.9, 1.28 * 1.35, 1)),
    (terms(), K80_LIKE, False, 2026, (0.86 * 0.9, 1.28 * 1.35, 1)),
    (terms(half_convolution_share=0.5), B200, False, 2026, (0.86 * 0.9, 1.28 * 1.35, 1)),
    (terms(half_convolution_share=0.5), RTX_8000, False, 2026, (0.86, 1.28, 0)),
    (terms(), L40S, False, 2026, (0.86, 1.28, 0)),
    (terms(), MI210, False, 2026, (0.86 * 0.8, 1.28 * 1.4, 1)),
    (terms(), T4, False, 2026, (0.86, 1.28 * 1.1, 0)),
]


@pytest.mark.parametrize(
    ("trains", "found", "spec", "compiled", "year", "expected"),
    [*((True, *row) for row in TRAINED), *((False, *row) for row in SCORED)],
)
def test_when_the_interval_widens(
    trains: bool, found: GpuTerms, spec: AcceleratorSpec, compiled: bool, year: int, expected: tuple[float, float, int]
) -> None:
    interval, reasons = widened(found, spec, compiled, year, trains=trains)
    assert (interval.low, interval.high) == pytest.approx(expected[:2])
    assert len(reasons) == len(set(reasons)) == expected[2]
    assert all(reasons)


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize(
    ("found", "spec", "year", "words"),
    [
        (terms(0.1, 0.9), V100, 2026, "host-CPU bound"),
        (terms(takes_turns=True, waits=13), V100, 2026, "the host waits for the GPU 13 times in a pass"),
        (terms(unruled=0.21), V100, 2026, "21% of the bytes are in ops without a rule"),
        (terms(), V100, 2020, "Volta is too new for public measurements"),
        (terms(), K80_LIKE, 2026, "no measurement of Kepler"),
        (terms(), B200, 2026, "no measurement of Blackwell"),
        (terms(), MI210, 2026, "AMD"),
    ],
)
def test_the_reason_of_a_wider_interval(
    found: GpuTerms, spec: AcceleratorSpec, year: int, words: str, trains: bool
) -> None:
    (reason,) = widened(found, spec, compiled=False, year=year, trains=trains)[1]
    assert words in reason


@given(steps, specs, precisions, models, st.booleans(), st.integers(2020, 2030))
def test_every_interval_holds_the_prediction(
    step: Work, spec: AcceleratorSpec, precision: Precision, model: Roofline, compiled: bool, year: int
) -> None:
    found, trains = gpu_terms(step, spec, Execution(precision), model), model is TRAINING
    interval, _ = widened(found, spec, compiled, year, trains=trains)
    base = BASE if trains else FORWARD_BASE
    assert 0 < interval.low <= base.low
    assert interval.high >= base.high
    assert interval.sigma >= base.sigma * (1 - 1e-9)


def test_sigma_is_that_of_a_log_normal_error() -> None:
    """Four of five errors are within 1.2816 standard deviations."""
    assert Interval(math.exp(-1.2816 * 0.3), math.exp(1.2816 * 0.3)).sigma == pytest.approx(0.3)
    assert Interval.of_sigma(0.3).low == pytest.approx(math.exp(-1.2816 * 0.3))
    assert Interval.of_sigma(0.3).high == pytest.approx(math.exp(1.2816 * 0.3))
    assert Interval(0.8, 1.25).sigma == pytest.approx(0.1741, abs=1e-4)
    assert Interval(1.0, 1.0).sigma == 0.0

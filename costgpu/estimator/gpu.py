"""What a GPU is to a step: the peak of the unit that runs it, its clock, its bandwidths, and its optimizers' kernels. Pure.

`roofline` makes seconds of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from costgpu.estimator.work import HALF_TYPES, PRODUCTS
from costgpu.models.offer import AcceleratorSpec
from costgpu.models.workload import Framework, OptimizerFacts, Phase

HOST_GHZ = 3.2  # all-core clock of such a host (AWS g4dn, g5 and g6: 3.1 to 3.6)
# Share of the listed peak that boards hold in training. Source: benchmarks/README.md (2026-11): GeForce boards since
# Ampere and Pascal's clock above their list; Turing's of 250 W fall below it.
GEFORCE_CLOCK, TURING_CLOCK = 1.15, 0.85
GEFORCE = re.compile(r"(GTX |RTX [2-5]0[5-9]0)")
# Share of the listed peak and bandwidth that AMD's libraries reach beside NVIDIA's: the study's AMD trainings were told 34 %
# too short, a part of them because a module of two devices was taken for one. Set by that figure, on no row.
AMD_SHARE = 0.75
# Power-capped boards: share of peak in long GEMMs. Source: benchmarks/README.md; A10 (150 W) fitted on the 11 public
# rows of that card by benchmarks/accuracy.py (2026-11-21).
# L40S: large bf16 products, facts of 2026-11 (0.75 to 0.8). RTX 6000 Ada: the same chip with 300 W instead of 350.
# Ampere's RTX A4000 to A6000 and A40 (1.9 to 2.2 W for a multiprocessor and GHz; A10 1.2) need none in AMP: 14 rows.
POWER_DERATE = {"T4": 0.55, "T4G": 0.55, "P4": 0.45, "L4": 0.40, "A10": 0.70, "L40S": 0.75, "RTX 6000 Ada": 0.65}
CORES_PER_SM = {
    "Kepler": 192,
    "Maxwell": 128,
    "Pascal": 128,
    "Volta": 64,
    "Turing": 64,
    "CDNA": 64,
    "GCN": 64,
    "RDNA": 64,
}
DEFAULT_CORES_PER_SM = 128  # Ampere other than A100, Ada, Hopper, Blackwell
DATA_CENTRE_BLACKWELL = 10  # major compute capability
# fp32 libraries run dense 3x3 convolutions of stride 1 by Winograd's F(2x2, 3x3), which multiplies 2.25 times less
# (Lavin and Gray, CVPR 2016).
WINOGRAD = 2.25
# Bytes per fp32 parameter and update; gradients and states have the parameter's type. Adam passes over its tensors in nine
# kernels, in lists (foreach) as in a loop, and in one where it is fused. Source: benchmarks/README.md.
SGD_BYTES, SGD_MOMENTUM_BYTES, ADAM_BYTES, FUSED_BYTES = 12.0, 20.0, 72.0, 28.0
AMP_CAST_BYTES = 6.0  # a gradient that is cast back
# Torch's own optimizers run foreach kernels on CUDA by default: a few launches per chunk of tensors.
FOREACH_KERNELS, TENSORS_PER_KERNEL = 12.0, 30.0
ADAM_FAMILY = frozenset({"Adam", "AdamW", "NAdam", "RAdam", "Adamax", "FusedAdam", "FusedLAMB"})
LIGHT = frozenset({"SGD"})
NATIVE = ADAM_FAMILY | LIGHT | {"RMSprop", "Adagrad", "Adadelta", "ASGD", "Rprop"}
# Host to device, pinned, GB/s. Source: benchmarks/README.md.
HOST_TO_DEVICE_GBPS = {
    "T4": 6.3,
    "T4G": 6.3,
    "V100": 11.0,
    "V100-32GB": 11.0,
    "A10G": 13.5,
    "L4": 13.5,
    "L40S": 13.5,
    "A100": 18.0,
    "A100-80GB": 18.0,
    "H100": 40.0,
    "H200": 40.0,
    "B200": 50.0,
    "B300": 50.0,
}
DEFAULT_HOST_TO_DEVICE_GBPS = 11.0


class Runtime(StrEnum):
    """How the kernels of a forward pass are launched."""

    EAGER = "eager"
    COMPILED = "compiled"  # torch.compile, default mode
    GRAPHS = "graphs"  # torch.compile with CUDA graphs (mode ``reduce-overhead``)


@dataclass(frozen=True, slots=True)
class Precision:
    """What a script asks for, on a GPU."""

    half: str | None  # dtype of an autocast region for CUDA, or None
    matmul_tf32: bool  # fp32 matrix multiplies may use TF32
    conv_tf32: bool  # fp32 convolutions may


def precision_of(framework: Framework) -> Precision:
    """Return what this script would compute in on a GPU."""
    asked = [cast for cast in framework.autocast if cast.enabled and cast.device in ("cuda", "")]
    half = (asked[0].dtype or "float16") if asked else None
    tf32 = framework.matmul_tf32 or framework.float32_matmul_precision in ("high", "medium")
    return Precision(half=half, matmul_tf32=tf32, conv_tf32=framework.conv_tf32)


@dataclass(frozen=True, slots=True)
class Execution:
    """How a step or forward pass runs, beyond what was traced."""

    precision: Precision  # autocast and TF32
    weights: str | None = None  # dtype that an fp32 model is converted to; None: as traced
    channels_last: bool | None = None  # layout of images; None: as traced
    runtime: Runtime = Runtime.EAGER

    @property
    def autocasts(self) -> bool:
        """Return whether ops have the types that autocast gives them."""
        return self.precision.half is not None and self.weights is None

    def dtype(self, traced: str) -> str:
        """Return the type in which that runs which was traced in another."""
        return self.weights if self.weights is not None and traced == "float32" else traced


def execution_of(framework: Framework) -> Execution:
    """Return how a script runs on a GPU as it is written."""
    return Execution(precision_of(framework), runtime=Runtime.COMPILED if framework.compiled else Runtime.EAGER)


def sm_gigahertz(spec: AcceleratorSpec) -> float:
    """Multiprocessors times clock in GHz, from the fp32 peak."""
    cores = 64 if spec.name.startswith(("A100", "P100")) or spec.model.startswith(("A100", "P100")) else None
    if cores is None:
        known = (n for word, n in CORES_PER_SM.items() if spec.architecture.startswith(word))
        cores = next(known, DEFAULT_CORES_PER_SM)
    return spec.fp32_tflops * 1000 / (2 * cores)


def on_chip_rate(spec: AcceleratorSpec) -> float:
    """S of the model, in FLOP/s per unit weight."""
    return math.sqrt(spec.memory_bandwidth_gbps * 1e9 * 1e10 * sm_gigahertz(spec))


def peak_for(spec: AcceleratorSpec, kind: str, dtype: str, precision: Precision) -> tuple[float, str]:
    """Peak FLOP/s of the unit that runs this work, and its mode (half, tf32, fp32, fp64)."""
    derate = POWER_DERATE.get(spec.name, 1.0)
    fp32 = spec.fp32_matrix_tflops or spec.fp32_tflops
    half = dtype if dtype in HALF_TYPES else precision.half if dtype == "float32" else None
    if half is not None:
        tensor = spec.bf16_tensor_tflops if half == "bfloat16" else spec.fp16_tensor_tflops
        return (tensor * 1e12 * derate, "half") if tensor else (fp32 * 1e12 * derate, "fp32")
    if dtype == "float64":
        wide = 0.5 if spec.model.startswith(("A100", "H100", "H200", "V100", "P100", "GH200", "MI")) else 1 / 32
        return spec.fp32_tflops * 1e12 * wide, "fp32"
    allowed = precision.matmul_tf32 if kind in PRODUCTS else precision.conv_tf32
    if kind.startswith("conv3x3") and WINOGRAD * fp32 > (spec.tf32_tensor_tflops or 0):
        allowed = False  # the libraries take the faster way
    if allowed and spec.tf32_tensor_tflops:
        return spec.tf32_tensor_tflops * 1e12 * derate, "tf32"
    return fp32 * 1e12 * derate, "fp32"


def is_blackwell_server(spec: AcceleratorSpec) -> bool:
    """Return whether this is Blackwell of the data centre, whose kernels are others than GeForce's."""
    return spec.compute_capability is not None and spec.compute_capability[0] == DATA_CENTRE_BLACKWELL


def clock_share(spec: AcceleratorSpec) -> float:
    """Clock that the board holds in training over the listed one; boards in `POWER_DERATE` have theirs there."""
    if spec.architecture.startswith("Turing") and spec.name not in POWER_DERATE:
        return TURING_CLOCK
    return GEFORCE_CLOCK if GEFORCE.match(spec.model) else 1.0


def copy_seconds(phase: Phase, spec: AcceleratorSpec) -> float:
    """Return the seconds of one step for the copy of its batches to the GPU."""
    rate = HOST_TO_DEVICE_GBPS.get(spec.name, DEFAULT_HOST_TO_DEVICE_GBPS) * 1e9
    return phase.data.batch_bytes * phase.data.batches_per_step / rate


def optimizer_bytes(optimizers: Sequence[OptimizerFacts], *, amp: bool) -> float:
    """Return the bytes that the optimizers of one step move on a GPU."""
    moved = 0.0
    for one in optimizers:
        if one.name in ADAM_FAMILY:
            each = FUSED_BYTES if one.fused or one.name.startswith("Fused") else ADAM_BYTES
        elif one.name in LIGHT:
            each = SGD_MOMENTUM_BYTES if one.momentum else SGD_BYTES
        elif one.name in NATIVE:
            each = FUSED_BYTES
        else:
            each = 0.0  # its own ops are counted
        half = sum(count for dtype, count in one.dtypes.items() if dtype in HALF_TYPES)
        cast = AMP_CAST_BYTES if amp else 0.0  # not of gradients in half precision
        moved += one.updates_per_step * ((one.parameters - half) * (each + cast) + half * each / 2)
    return moved


def optimizer_kernels(optimizers: Sequence[OptimizerFacts]) -> float:
    """Return the kernels that the optimizers of one step launch on a GPU."""
    launched = 0.0
    for one in optimizers:
        if one.name in NATIVE:
            loop = one.foreach is False and not one.fused
            each = FOREACH_KERNELS * (one.tensors if loop else max(1.0, one.tensors / TENSORS_PER_KERNEL))
            launched += one.updates_per_step * each
    return launched


def foreign_optimizer(phase: Phase) -> bool:
    """Return whether the phase's optimizer is one that torch does not ship, so that its ops are counted as they are."""
    return any(one.name not in NATIVE for one in phase.optimizers)

"""Seconds of one training step on a GPU: four constants, terms added. Pure.

    t = A*F/P + C*Fw/S + D*B/BW + L*K

F FLOPs (3x3 fp32 convolutions halved: Winograd) over the peak P of the unit that is really used; Fw FLOPs weighted by
on-chip traffic over S = sqrt(BW * 1e10 * SMs * GHz); B bytes over the memory bandwidth; K kernels. Terms are added, not
maxed, because eager kernels overlap little. It holds for eager training on one GPU from Kepler to Hopper; the measured
error is in README.md and can be printed by benchmarks/accuracy.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from costgpu.estimator.op_costs import HALF_TYPES, StepWork
from costgpu.models.offer import AcceleratorSpec
from costgpu.models.workload import Framework, OptimizerFacts, Phase

# Source: benchmarks/README.md (2026-10): fit of 255 public training rows, 20 GPUs, 10 models.
COMPUTE = 1.03
ON_CHIP = 0.0135
MEMORY = 1.20
LAUNCH_SECONDS = 12e-6
ON_CHIP_WEIGHT = {"half": 0.2, "tf32": 0.4, "fp32": 0.5}  # of matrix multiplies; a convolution's is 1
# Power-capped boards: share of peak in long GEMMs. Source: benchmarks/README.md; A10 (150 W) fitted on the 11 public
# rows of that card by benchmarks/accuracy.py (2026-11-21).
POWER_DERATE = {"T4": 0.55, "T4G": 0.55, "P4": 0.45, "L4": 0.40, "A10": 0.70}
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
AMP_BYTES = 0.5
# fp32 libraries run dense 3x3 convolutions of stride 1 by Winograd's F(2x2, 3x3), which multiplies 2.25 times less
# (Lavin and Gray, CVPR 2016); 2.0 of it shows in the public rows (benchmarks/accuracy.py, 2026-11-21).
WINOGRAD = 2.0
# Bytes per parameter and update. Source: benchmarks/README.md.
SGD_BYTES, SGD_MOMENTUM_BYTES, ADAM_BYTES, ADAM_LOOP_BYTES = 12.0, 20.0, 28.0, 72.0
AMP_CAST_BYTES = 12.0
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


@dataclass(frozen=True, slots=True)
class Precision:
    """What a script asks for, on a GPU."""

    half: str | None  # dtype of an autocast region for CUDA, or None
    matmul_tf32: bool  # fp32 matrix multiplies may use TF32
    conv_tf32: bool  # fp32 convolutions may


def precision_of(framework: Framework) -> Precision:
    """What this script would compute in on a GPU."""
    asked = [cast for cast in framework.autocast if cast.enabled and cast.device in ("cuda", "")]
    half = (asked[0].dtype or "float16") if asked else None
    tf32 = framework.matmul_tf32 or framework.float32_matmul_precision in ("high", "medium")
    return Precision(half=half, matmul_tf32=tf32, conv_tf32=framework.conv_tf32)


@dataclass(frozen=True, slots=True)
class GpuTerms:
    """Seconds of one step by term, and what widens its interval."""

    compute: float  # matrix units or cores at their peak
    on_chip: float  # traffic between shared memory and registers
    memory: float  # device memory
    launch: float  # the host that launches kernels
    unruled_share: float  # share of bytes in ops without a rule
    unusual_half_share: float = 0.0  # share of the FLOPs in unusual convolutions at half precision
    notes: tuple[str, ...] = field(default=())

    @property
    def seconds(self) -> float:
        """Seconds of the step on the GPU."""
        return self.compute + self.on_chip + self.memory + self.launch


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
    allowed = precision.conv_tf32 if kind.startswith("conv") else precision.matmul_tf32
    if kind == "conv3x3" and WINOGRAD * fp32 > (spec.tf32_tensor_tflops or 0):
        allowed = False  # the libraries take the faster way
    if allowed and spec.tf32_tensor_tflops:
        return spec.tf32_tensor_tflops * 1e12 * derate, "tf32"
    return fp32 * 1e12 * derate, "fp32"


def copy_seconds(phase: Phase, spec: AcceleratorSpec) -> float:
    """Seconds of one step for the copy of its batches to the GPU."""
    rate = HOST_TO_DEVICE_GBPS.get(spec.name, DEFAULT_HOST_TO_DEVICE_GBPS) * 1e9
    return phase.data.batch_bytes * phase.data.batches_per_step / rate


def optimizer_bytes(optimizers: list[OptimizerFacts], *, amp: bool) -> float:
    """Bytes that the optimizers of one step move on a GPU."""
    moved = 0.0
    for one in optimizers:
        if one.name in ADAM_FAMILY:
            each = ADAM_LOOP_BYTES if one.foreach is False and not one.fused else ADAM_BYTES
        elif one.name in LIGHT:
            each = SGD_MOMENTUM_BYTES if one.momentum else SGD_BYTES
        elif one.name in NATIVE:
            each = ADAM_BYTES
        else:
            each = 0.0  # its own ops are counted
        moved += one.parameters * one.updates_per_step * (each + (AMP_CAST_BYTES if amp else 0.0))
    return moved


def optimizer_kernels(optimizers: list[OptimizerFacts]) -> float:
    """Kernels that the optimizers of one step launch on a GPU."""
    launched = 0.0
    for one in optimizers:
        if one.name in NATIVE:
            loop = one.foreach is False and not one.fused
            each = FOREACH_KERNELS * (one.tensors if loop else max(1.0, one.tensors / TENSORS_PER_KERNEL))
            launched += one.updates_per_step * each
    return launched


def foreign_optimizer(phase: Phase) -> bool:
    """Whether the phase's optimizer is one that torch does not ship, so that its ops are counted as they are."""
    return any(one.name not in NATIVE for one in phase.optimizers)


def gpu_terms(
    work: StepWork, optimizers: list[OptimizerFacts], precision: Precision, spec: AcceleratorSpec
) -> GpuTerms:
    """The model above for one step of `work` on `spec`."""
    compute = weighted = unusual = 0.0
    notes: list[str] = []
    for (kind, dtype), flops in work.flops.items():
        peak, mode = peak_for(spec, kind, dtype, precision)
        if mode == "fp32" and (dtype == "bfloat16" or precision.half == "bfloat16"):
            notes.append("no bf16 units: bf16 work runs at the fp32 rate")
        unusual += flops if kind == "conv_unusual" and mode == "half" else 0.0
        compute += flops / peak / (WINOGRAD if kind == "conv3x3" and mode == "fp32" else 1.0)
        weighted += flops * (1.0 if kind.startswith("conv") else ON_CHIP_WEIGHT[mode])
    amp = precision.half is not None
    moved = work.bytes_moved * (AMP_BYTES if amp else 1.0) + optimizer_bytes(optimizers, amp=amp)
    kernels = work.kernels + optimizer_kernels(optimizers)
    return GpuTerms(
        compute=COMPUTE * compute,
        on_chip=ON_CHIP * weighted / on_chip_rate(spec),
        memory=MEMORY * moved / (spec.memory_bandwidth_gbps * 1e9),
        launch=LAUNCH_SECONDS * kernels,
        unruled_share=work.unruled_bytes / work.bytes_moved if work.bytes_moved else 0.0,
        unusual_half_share=unusual / work.total_flops if work.total_flops else 0.0,
        notes=tuple(dict.fromkeys(notes)),
    )

"""Seconds of one training step on a GPU: a sum for the device, and the host beside it. Pure.

    device = a F/(P g) + sum k Fw/(S g) + m B/BW + n B/(32 SMs Hz) + u U/BW + d Fd/P32 + l K
    step   = (device^4 + host^4)^(1/4),   host = f Cf + b Cb + the script's own Python

F FLOPs (dense 3x3 fp32 convolutions over 2.25: Winograd) over the peak P of the unit that is really used, with the clock
g that the board holds; Fw FLOPs weighted by on-chip traffic over S = sqrt(BW * 1e10 * SMs * GHz), by kind of work,
layout and precision; B bytes (under autocast by the type that each op has), over the memory bandwidth BW and over what
the SMs can load; U bytes of half-precision convolutions with unaligned channels; Fd FLOPs of depthwise convolutions
and wide groups over the peak P32 of the fp32 cores; K kernels; Cf and Cb calls of the framework from modules and from
autograd. The device's terms are added, not maxed, because eager kernels overlap little; device and host run side by
side. It holds for eager training on one GPU from Kepler to Hopper; the measured error is in README.md and can be printed
by benchmarks/accuracy.py.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass, field

from costgpu.estimator.work import HALF_TYPES, NHWC, Work
from costgpu.models.offer import AcceleratorSpec
from costgpu.models.workload import Framework, OptimizerFacts, Phase

# What the sums of `sums_of` are multiplied by; the first word is the term. Source: benchmarks/README.md (2026-11): the
# calibration study's constants of 447 rows, fitted on from there on 255 public rows, 13 GPUs, 74 models.
CONSTANTS = {
    "compute": 1.02,
    "on-chip matmul half": 0.0021,
    "on-chip matmul tf32": 0.0055,
    "on-chip matmul fp32": 0.0068,
    "on-chip conv half": 0.021,
    "on-chip conv3x3 half": 0.0072,
    "on-chip nhwc half": 0.00075,
    "on-chip conv tf32": 0.0148,
    "on-chip conv fp32": 0.023,
    "on-chip grouped fp32": 0.05,
    # of one or three dimensions: 1.9 times that of two, for the study's WaveGlow under AMP was 31 % too fast with it
    "on-chip unusual half": 0.034,
    "memory": 1.08,
    "memory per-SM": 0.40,
    "memory unaligned": 3.1,
    "depthwise nchw": 30.0,
    "depthwise nhwc": 8.0,
    # wide groups in half precision and channels-last, for which libraries fall back to the fp32 cores: from regnety_032
    # alone, and no other network of the rows judges it
    "depthwise wide nhwc": 10.0,
    "launch": 10e-6,
}
# Host seconds of a call from a module and from autograd, on the host of a current GPU instance with torch 2.x; hosts of
# 2018-21 with their torch take OLD_HOST of that. Source: the 52 rows of batch 12 (benchmarks/README.md, 2026-11), whose
# two hosts differ by a factor of two; how much faster current ones are is from forward passes (31-40 us an op against
# 45-60 us, 748 public rows).
FORWARD_CALL_SECONDS, BACKWARD_CALL_SECONDS = 50e-6, 10e-6
OLD_HOST = 1.6
HOST_GHZ = 3.2  # all-core clock of such a host (AWS g4dn, g5 and g6: 3.1 to 3.6)
OVERLAP = 4.0  # exponent with which device and host are joined: 1 would add them, infinity take the longer one
LEAST_SHARE = 1e-6  # of the longer one, below which the shorter one adds nothing that a float could hold
# Share of the listed peak that boards hold in training. Source: benchmarks/README.md (2026-11): GeForce boards since
# Ampere and Pascal's clock above their list; Turing's of 250 W fall below it.
GEFORCE_CLOCK, TURING_CLOCK = 1.15, 0.85
GEFORCE = re.compile(r"(GTX |RTX [2-5]0[5-9]0)")
# Share of the listed peak and bandwidth that AMD's libraries reach beside NVIDIA's: the study's AMD trainings were told 34 %
# too short, a part of them because a module of two devices was taken for one. Set by that figure, on no row.
AMD_SHARE = 0.75
# Data-centre Blackwell: what half-precision convolutions take on the chip, over what its data sheet lets one expect. Set by
# ResNet-50 and SSD on a B200, told 0.54-0.65 of their time; products and element-wise kernels are not the cause (KERNELS
# study, 2026-11). No other row judges it.
DATA_CENTRE_BLACKWELL, BLACKWELL_CONVOLUTIONS = 10, 2.5
SM_BYTES = 32.0  # that an SM loads or stores in a clock
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
# fp32 libraries run dense 3x3 convolutions of stride 1 by Winograd's F(2x2, 3x3), which multiplies 2.25 times less
# (Lavin and Gray, CVPR 2016).
WINOGRAD = 2.25
# Bytes per parameter and update. Source: benchmarks/README.md.
SGD_BYTES, SGD_MOMENTUM_BYTES, ADAM_BYTES, ADAM_LOOP_BYTES = 12.0, 20.0, 28.0, 72.0
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
class Host:
    """The CPU that feeds a GPU."""

    speed: float = 1.0  # of one core, of a current GPU instance's
    script_seconds: float = 0.0  # the script's own Python in one step, there


@dataclass(frozen=True, slots=True)
class GpuTerms:
    """Seconds of one step by term, and what widens its interval."""

    compute: float  # matrix units or cores at their peak
    on_chip: float  # traffic between shared memory and registers
    memory: float  # device memory
    launch: float  # starts and ends of kernels, on the device
    depthwise: float = 0.0  # depthwise convolutions and wide groups, which matrix units do not run
    calls: float = 0.0  # what waiting for the host's calls of the framework adds to the device's seconds
    host: float = 0.0  # what the script's own Python adds to both
    unruled_share: float = 0.0  # share of bytes in ops without a rule
    half_convolution_share: float = 0.0  # share of the FLOPs in half-precision convolutions
    unusual_half_share: float = 0.0  # share of the FLOPs in one- and three-dimensional convolutions at half precision
    grouped_share: float = 0.0  # share of the FLOPs in grouped convolutions
    notes: tuple[str, ...] = field(default=())

    @property
    def device_seconds(self) -> float:
        """Return the seconds of the step's kernels."""
        return self.compute + self.on_chip + self.memory + self.depthwise + self.launch

    @property
    def seconds(self) -> float:
        """Return the seconds of the step on the GPU."""
        return self.device_seconds + self.calls + self.host


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
    allowed = precision.matmul_tf32 if kind in ("matmul", "attention") else precision.conv_tf32
    if kind.startswith("conv3x3") and WINOGRAD * fp32 > (spec.tf32_tensor_tflops or 0):
        allowed = False  # the libraries take the faster way
    if allowed and spec.tf32_tensor_tflops:
        return spec.tf32_tensor_tflops * 1e12 * derate, "tf32"
    return fp32 * 1e12 * derate, "fp32"


def clock_share(spec: AcceleratorSpec) -> float:
    """Clock that the board holds in training over the listed one; boards in `POWER_DERATE` have theirs there."""
    if spec.architecture.startswith("Turing") and spec.name not in POWER_DERATE:
        return TURING_CLOCK
    return GEFORCE_CLOCK if GEFORCE.match(spec.model) else 1.0


def copy_seconds(phase: Phase, spec: AcceleratorSpec) -> float:
    """Return the seconds of one step for the copy of its batches to the GPU."""
    rate = HOST_TO_DEVICE_GBPS.get(spec.name, DEFAULT_HOST_TO_DEVICE_GBPS) * 1e9
    return phase.data.batch_bytes * phase.data.batches_per_step / rate


def optimizer_bytes(optimizers: list[OptimizerFacts], *, amp: bool) -> float:
    """Return the bytes that the optimizers of one step move on a GPU."""
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


def gpu_terms(
    work: Work, optimizers: list[OptimizerFacts], precision: Precision, spec: AcceleratorSpec, host: Host = Host()
) -> GpuTerms:
    """Return the model above for one step of `work` on `spec`."""
    sums, notes, unusual = sums_of(work, optimizers, precision, spec)
    terms: dict[str, float] = defaultdict(float)
    for name, value in sums.items():
        terms[name.split(" ")[0]] += CONSTANTS[name] * value
    device, calls = sum(terms.values()), call_seconds(work, optimizers, precision, host)
    without = beside(device, calls)
    # The host runs ahead of the device until it waits for a value. Where it does so in every step (`.item()`), the
    # device has nothing left to do during the script's own Python. Module calls keep it busy from the first one on.
    serial = min(1.0, work.syncs) * host.script_seconds
    half_convolutions = sum(
        flops
        for (kind, dtype), flops in work.flops.items()
        if kind not in ("matmul", "attention") and peak_for(spec, kind, dtype, precision)[1] == "half"
    )
    grouped = sum(flops for (kind, _), flops in work.flops.items() if kind.startswith("grouped"))  # not depthwise
    return GpuTerms(
        compute=terms["compute"],
        on_chip=terms["on-chip"],
        memory=terms["memory"],
        depthwise=terms["depthwise"],
        launch=terms["launch"],
        calls=without - device,
        host=beside(device, calls + host.script_seconds - serial) - without + serial,
        unruled_share=work.unruled_bytes / work.bytes_moved if work.bytes_moved else 0.0,
        half_convolution_share=half_convolutions / work.total_flops if work.total_flops else 0.0,
        unusual_half_share=unusual / work.total_flops if work.total_flops else 0.0,
        grouped_share=grouped / work.total_flops if work.total_flops else 0.0,
        notes=notes,
    )


def is_blackwell_server(spec: AcceleratorSpec) -> bool:
    """Return whether this is Blackwell of the data centre, whose kernels are others than GeForce's."""
    return spec.compute_capability is not None and spec.compute_capability[0] == DATA_CENTRE_BLACKWELL


def call_seconds(work: Work, optimizers: list[OptimizerFacts], precision: Precision, host: Host) -> float:
    """Return the seconds of the host in the framework in one step."""
    casts = work.autocast_kernels - work.kernels if precision.half is not None else 0.0
    backward = work.backward_calls + casts + optimizer_kernels(optimizers)
    return (FORWARD_CALL_SECONDS * work.forward_calls + BACKWARD_CALL_SECONDS * backward) / host.speed


def beside(device: float, host: float) -> float:
    """Return the seconds of a device and a host that run side by side."""
    longer = max(device, host)
    if longer <= 0:
        return 0.0
    share = max(min(device, host) / longer, LEAST_SHARE)
    return longer * math.pow(1 + math.pow(share, OVERLAP), 1 / OVERLAP)


def sums_of(
    work: Work, optimizers: list[OptimizerFacts], precision: Precision, spec: AcceleratorSpec
) -> tuple[dict[str, float], tuple[str, ...], float]:
    """Return the sums of the device's terms, by the name of their constant.

    Returns:
        The sums, notes for people, and the FLOPs of unusual convolutions in half precision.
    """
    sums: dict[str, float] = defaultdict(float)
    notes: list[str] = []
    reached = AMD_SHARE if spec.vendor == "AMD" else 1.0
    clock, bandwidth = clock_share(spec) * reached, spec.memory_bandwidth_gbps * 1e9 * reached
    unusual, aligned = 0.0, True
    slow_convolutions = BLACKWELL_CONVOLUTIONS if is_blackwell_server(spec) else 1.0
    on_chip = on_chip_rate(spec) * max(clock, 1.0)
    for (kind, dtype), flops in work.flops.items():
        peak, mode = peak_for(spec, kind, dtype, precision)
        if mode == "fp32" and (dtype == "bfloat16" or precision.half == "bfloat16"):
            notes.append("no bf16 units: bf16 work runs at the fp32 rate")
        shape, nhwc = kind.removesuffix(NHWC), kind.endswith(NHWC)
        if shape == "depthwise":
            sums["depthwise nhwc" if nhwc else "depthwise nchw"] += flops / (spec.fp32_tflops * 1e12)
            continue
        if (shape, mode, nhwc) == ("grouped_wide", "half", True):
            sums["depthwise wide nhwc"] += flops / (spec.fp32_tflops * 1e12)
            continue
        done = flops / (WINOGRAD if shape == "conv3x3" and mode == "fp32" else 1.0)
        sums["compute"] += done / (peak * clock)
        convolves_in_half = mode == "half" and shape not in ("matmul", "attention")
        traffic = work.tiled.get((kind, dtype), done) * (slow_convolutions if convolves_in_half else 1.0)
        sums[_on_chip_name(shape, mode, nhwc=nhwc)] += traffic / on_chip
        if convolves_in_half:
            aligned = False
            unusual += flops if shape == "conv_unusual" else 0.0
    amp = precision.half is not None
    moved = (work.autocast_bytes if amp else work.bytes_moved) + optimizer_bytes(optimizers, amp=amp)
    sums["memory"] = moved / bandwidth
    sums["memory per-SM"] = moved / (SM_BYTES * sm_gigahertz(spec) * 1e9)
    if not aligned:
        sums["memory unaligned"] = 2 * work.unaligned_bytes / bandwidth
    sums["launch"] = (work.autocast_kernels if amp else work.kernels) + optimizer_kernels(optimizers)
    return sums, tuple(dict.fromkeys(notes)), unusual


def _on_chip_name(shape: str, mode: str, *, nhwc: bool) -> str:
    """Return the constant of the on-chip traffic of a kind of work."""
    if shape in ("matmul", "attention"):
        return f"on-chip matmul {mode}"
    if mode != "half":
        return f"on-chip grouped {mode}" if shape.startswith("grouped") and mode == "fp32" else f"on-chip conv {mode}"
    if shape == "conv_unusual":
        return "on-chip unusual half"
    return "on-chip nhwc half" if nhwc else f"on-chip {'conv' if shape.startswith('grouped') else shape} half"

"""Seconds of one forward pass on a GPU: the device and the host that launches its kernels run side by side. Pure.

    t = (G^4 + H^4)^(1/4)

G is the device's time: sums of FLOPs over peaks, of FLOPs over the on-chip rate, of bytes over bandwidths and of
kernels, each with its coefficient (`COEFFICIENTS`). H is what the thread needs that launches the kernels: the launches
of modules and those of single ops have each their own cost. Measured error: benchmarks/README.md, by
benchmarks/accuracy_inference.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from costgpu.estimator.gpu import (
    OVERLAP,
    SM_BYTES,
    WINOGRAD,
    Precision,
    beside,
    clock_share,
    on_chip_rate,
    peak_for,
    sm_gigahertz,
)
from costgpu.estimator.interval import MEASURED_INFERENCE, UNRULED, Interval, of_board
from costgpu.estimator.op_costs import ITEM_BYTES
from costgpu.estimator.work import DENSE, GEMV, HALF_TYPES, MATMUL, NHWC, WEIGHTS, Work
from costgpu.models.offer import AcceleratorSpec

# Seconds of the device for one unit of each sum of `device_sums`, and the term that it belongs to. Source of these and
# of all constants of this module that name no other: fitted on 405 public rows of 36 models and 9 GPUs
# (benchmarks/accuracy_inference.py --refit, 2026-11-23), see benchmarks/README.md.
COMPUTE, ON_CHIP, MEMORY, LAUNCH = "compute", "on_chip", "memory", "launch"
COEFFICIENTS: Mapping[str, tuple[str, float]] = {
    # FLOPs over the peak of the unit that runs them; depthwise convolutions run on the fp32 cores
    "conv": (COMPUTE, 0.96),
    "matmul": (COMPUTE, 0.72),
    "grouped": (COMPUTE, 2.1),
    "depthwise": (COMPUTE, 5.0),
    "depthwise_nhwc": (COMPUTE, 17.0),
    "depthwise_half": (COMPUTE, 15.0),
    "depthwise_half_nhwc": (COMPUTE, 6.2),
    # convolutions: FLOPs over the on-chip rate; matrix products: FLOPs weighted by their tiles, over clocks of all
    # multiprocessors
    "conv_half": (ON_CHIP, 0.0135),
    "conv3x3_half": (ON_CHIP, 0.0082),
    "conv_half_nhwc": (ON_CHIP, 0.0030),
    "conv_half_older": (ON_CHIP, 0.0080),  # compute capability below 8.0, any layout
    "conv_tf32": (ON_CHIP, 0.0125),
    "conv_fp32": (ON_CHIP, 0.012),
    "matmul_half": (ON_CHIP, 0.00051),
    "attention_half": (ON_CHIP, 0.0032),
    "matmul_tf32": (ON_CHIP, 0.00085),
    "matmul_fp32": (ON_CHIP, 0.0041),
    # bytes over the memory bandwidth
    "moved": (MEMORY, 1.08),
    "beside": (MEMORY, 0.6),  # of dense convolutions and large matrix products, which read while they compute
    "gemv": (MEMORY, 4.8),  # batched products of one row: decodes without fused attention
    "unaligned": (MEMORY, 1.6),  # convolutions whose channels are no multiple of 8, half precision
    "cache": (MEMORY, 0.37),  # bytes over what the multiprocessors take, 32 a clock each
    "kernels": (LAUNCH, 2.1e-6),
}
# Share of the bytes that reach memory: an L2 cache of 48-96 MiB holds a part of what the next kernel reads.
THROUGH_CACHE = {"Ada": 0.8}
MODULE_SECONDS, OP_SECONDS = 64e-6, 6.5e-6  # of the host, for the launch of a module's kernel and of any other
AUTOCAST_HOST = (
    1.2  # beside its casts; autocast at batch 1 is then 0.72-0.83 times as fast, measured 0.77-0.88 (INFERENCE study)
)
DISPATCH_SECONDS = 10e-6  # of an op beside the script's own Python, where that was measured. Source: INFERENCE study
# What torch.compile leaves of a sum (fitted on 73 rows, the same source), and of the host's time (INFERENCE study, 2026-11).
COMPILED_SUMS: Mapping[str, float] = {
    "moved": 0.60,
    "cache": 0.60,
    "beside": 0.50,
    "conv_half": 0.37,
    "conv3x3_half": 0.37,
    "conv_half_nhwc": 0.37,
    "conv_half_older": 0.37,
}
COMPILED_HOST = {"compiled": 0.6, "graphs": 0.3}
BASE = Interval(0.86, 1.28)
HOST_BOUND = Interval(0.65, 1.50)
COMPILED = Interval(0.80, 1.55)
HOST_BOUND_FROM = 1.0  # host seconds over device seconds
# Waits of a pass up to which host and device still run side by side: `generate()` waits after every token, and its decodes
# fit so. Detection models wait 13 to 360 times, and were told 31 % too short. The width of their interval is assumed.
FEW_WAITS = 3
TURNS = Interval(0.65, 1.60)
# Tensor FLOPs of a clock and multiprocessor over the A100's, and fp32 lanes over the 64 of the chips that the constant
# was fitted on, by major compute capability. Source: accelerators.csv; NVIDIA's kernel times of nine GPUs, of which the
# differences between generations vanish with them (2026-11).
TENSOR_WIDTH = {9: 2.0, 10: 4.0}
FP32_WIDTH = {9: 2.0, 10: 2.0}


class Runtime(StrEnum):
    """How the kernels of a forward pass are launched."""

    EAGER = "eager"
    COMPILED = "compiled"  # torch.compile, default mode
    GRAPHS = "graphs"  # torch.compile with CUDA graphs (mode ``reduce-overhead``)


@dataclass(frozen=True, slots=True)
class Execution:
    """How a forward pass runs, beyond what was traced."""

    precision: Precision  # autocast and TF32
    weights: str | None = None  # dtype that an fp32 model is converted to; None: as traced
    channels_last: bool | None = None  # layout of images; None: as traced
    runtime: Runtime = Runtime.EAGER


@dataclass(frozen=True, slots=True)
class ForwardTerms:
    """Seconds of a forward pass by term, and what widens its interval."""

    compute: float  # matrix units or cores at their peak
    on_chip: float  # traffic between shared memory and registers
    memory: float  # device memory
    launch: float  # gaps between kernels on the device
    host_alone: float  # seconds that the host needs to launch everything
    waits: float = 0.0  # times that the host waits for the device in a pass
    unruled_share: float = 0.0  # share of bytes in ops without a rule
    notes: tuple[str, ...] = field(default=())

    @property
    def device(self) -> float:
        """Return the seconds of the device alone."""
        return self.compute + self.on_chip + self.memory + self.launch

    @property
    def seconds(self) -> float:
        """Return the seconds of the forward pass."""
        return self.device + self.host_alone if self.takes_turns else beside(self.device, self.host_alone)

    @property
    def takes_turns(self) -> bool:
        """Return whether host and device wait for each other so often that neither runs ahead."""
        return self.waits > FEW_WAITS

    @property
    def host(self) -> float:
        """Return what the host adds beyond the device."""
        return self.seconds - self.device

    @property
    def gpu_use(self) -> float:
        """Return the share of the time in which the device computes."""
        return self.device / self.seconds if self.seconds > 0 else 0.0

    def times(self, factor: float) -> ForwardTerms:
        """Return the terms of so many passes in a row."""
        return self.plus(self, factor - 1.0)

    def plus(self, other: ForwardTerms, factor: float = 1.0) -> ForwardTerms:
        """Return the terms of this pass and then `factor` times another."""
        whole = self.device + factor * other.device
        share = (
            (self.device * self.unruled_share + factor * other.device * other.unruled_share) / whole if whole else 0.0
        )
        seconds, waits = self.seconds + factor * other.seconds, max(self.waits, other.waits)
        power = 1.0 if waits > FEW_WAITS else OVERLAP
        return ForwardTerms(
            compute=self.compute + factor * other.compute,
            on_chip=self.on_chip + factor * other.on_chip,
            memory=self.memory + factor * other.memory,
            launch=self.launch + factor * other.launch,
            # such that the seconds are those of the passes after each other
            host_alone=max(0.0, seconds**power - whole**power) ** (1 / power),
            waits=waits,
            unruled_share=share,
            notes=tuple(dict.fromkeys(self.notes + other.notes)),
        )


def forward_terms(
    work: Work,
    spec: AcceleratorSpec,
    execution: Execution,
    *,
    own: float | None = None,
    host_speed: float = 1.0,
    coefficients: Mapping[str, tuple[str, float]] = COEFFICIENTS,
) -> ForwardTerms:
    """Return the model above for one forward pass of `work` on `spec`.

    Args:
        own: Seconds of the script's own Python in it on that host, if they were measured.
        host_speed: Speed of one core of the GPU's host, of a current GPU instance's.
        coefficients: Others than the shipped ones, for a fit.
    """
    terms: dict[str, float] = defaultdict(float)
    compiled = execution.runtime is not Runtime.EAGER
    for name, value in device_sums(work, spec, execution).items():
        term, coefficient = coefficients[name]
        terms[term] += value * coefficient * (COMPILED_SUMS.get(name, 1.0) if compiled else 1.0)
    no_units = any(
        "bfloat16" in (_dtype(traced, execution), execution.precision.half)
        and peak_for(spec, kind, _dtype(traced, execution), execution.precision)[1] == "fp32"
        for kind, traced in work.flops
    )
    return ForwardTerms(
        compute=terms[COMPUTE],
        on_chip=terms[ON_CHIP],
        memory=terms[MEMORY],
        launch=terms[LAUNCH],
        host_alone=host_seconds(work, execution, own=own, host_speed=host_speed),
        waits=work.syncs,
        unruled_share=work.unruled_bytes / work.bytes_moved if work.bytes_moved else 0.0,
        notes=("no bf16 units: bf16 work runs at the fp32 rate",) if no_units else (),
    )


def device_sums(work: Work, spec: AcceleratorSpec, execution: Execution) -> dict[str, float]:
    """Return the sums that make up the device's time, by the names of `COEFFICIENTS`.

    Seconds but for the number of kernels.
    """
    sums: dict[str, float] = defaultdict(float)
    clock = clock_share(spec)
    for (kind, traced), flops in work.flops.items():
        bare, last = kind.removesuffix(NHWC), _last(kind, execution)
        peak, mode = peak_for(spec, bare, _dtype(traced, execution), execution.precision)
        if bare == "depthwise":
            name = "depthwise" + ("_half" if mode == "half" else "") + (NHWC if last else "")
            sums[name] += flops / (spec.fp32_tflops * 1e12 * clock)
        elif bare in ("grouped", "grouped_wide", "conv_unusual"):
            sums["grouped"] += flops / (peak * clock)
        elif bare in ("matmul", "attention"):
            sums["matmul"] += flops / (peak * clock)
        else:
            sums["conv"] += flops / (peak * clock) / (WINOGRAD if bare == "conv3x3" and mode == "fp32" else 1.0)
            sums[_conv_name(bare, mode, last, spec)] += flops / (on_chip_rate(spec) * clock**0.5)
    for (kind, traced), flops in work.tiled.items():
        mode = peak_for(spec, kind, _dtype(traced, execution), execution.precision)[1]
        name = "attention_half" if (kind, mode) == ("attention", "half") else f"matmul_{mode}"
        sums[name] += flops / (sm_gigahertz(spec) * 1e9 * clock * _width(spec, mode))
    bandwidth = spec.memory_bandwidth_gbps * 1e9
    for group, moved in moved_bytes(work, execution).items():
        name = "beside" if group in (DENSE, MATMUL) else "gemv" if group == GEMV else "moved"
        sums[name] += moved / bandwidth * (THROUGH_CACHE.get(spec.architecture, 1.0) if group != WEIGHTS else 1.0)
        if group != DENSE:
            sums["cache"] += moved / (SM_BYTES * sm_gigahertz(spec) * 1e9 * clock)
    if "conv_half" in sums or "conv3x3_half" in sums or "conv_half_nhwc" in sums or "conv_half_older" in sums:
        sums["unaligned"] = work.unaligned_bytes / bandwidth
    sums["kernels"] = work.autocast_kernels if _autocasts(execution) else work.kernels
    return dict(sums)


def moved_bytes(work: Work, execution: Execution) -> dict[str, float]:
    """Return the bytes that a pass moves by group, in the types in which it runs."""
    if _autocasts(execution) and not any(traced in HALF_TYPES for _, traced in work.moved):
        return dict(work.autocast_moved)
    moved: dict[str, float] = defaultdict(float)
    for (group, traced), count in work.moved.items():
        moved[group] += count * ITEM_BYTES.get(_dtype(traced, execution), 4) / ITEM_BYTES.get(traced, 4)
    return dict(moved)


def host_seconds(work: Work, execution: Execution, *, own: float | None = None, host_speed: float = 1.0) -> float:
    """Return the seconds that the host needs to launch the kernels of a pass, one after the other.

    What launches cost was measured with the Python of modules in it; a script whose own Python was found to take longer
    takes that and a dispatch for each kernel.

    Args:
        own: Seconds of the script's own Python between them on that host, if they were measured.
        host_speed: Speed of one core of the host, of a current GPU instance's.
    """
    others = (work.autocast_kernels if _autocasts(execution) else work.kernels) - work.module_kernels
    seconds = (MODULE_SECONDS * work.module_kernels + OP_SECONDS * others) / host_speed
    if own is not None:
        seconds = max(seconds, own + DISPATCH_SECONDS * work.kernels / host_speed)
    return seconds * (AUTOCAST_HOST if _autocasts(execution) else 1.0) * COMPILED_HOST.get(execution.runtime, 1.0)


def forward_interval(
    terms: ForwardTerms, spec: AcceleratorSpec, execution: Execution, *, year: int
) -> tuple[Interval, list[str]]:
    """Return the 80 % interval of a forward pass, and the reasons why it is wider than the base.

    Args:
        year: Year of the prediction, to tell a new architecture.
    """
    interval, reasons = BASE, []
    if terms.host_alone > HOST_BOUND_FROM * terms.device:
        interval = interval.covering(HOST_BOUND)
        reasons.append("host-CPU bound: kernels are too small to keep the GPU busy")
    if terms.takes_turns:
        interval = interval.covering(TURNS)
        reasons.append(f"the host waits for the GPU {terms.waits:.0f} times in a pass: they take turns")
    if terms.unruled_share > 0.2:
        interval = interval.covering(UNRULED)
        reasons.append(f"{terms.unruled_share:.0%} of the bytes are in ops without a rule")
    if execution.runtime is not Runtime.EAGER:
        interval = interval.covering(COMPILED)
        reasons.append("torch.compile: its gain is only roughly known")
    board, why = of_board(spec, MEASURED_INFERENCE, as_of_year=year)
    return interval.stretched(low=board.low, high=board.high), reasons + why


def _conv_name(kind: str, mode: str, last: bool, spec: AcceleratorSpec) -> str:
    if mode != "half":
        return f"conv_{mode}"
    if spec.compute_capability is not None and spec.compute_capability < (8, 0):
        return "conv_half_older"
    return "conv_half" + NHWC if last else f"{kind}_half"


def _width(spec: AcceleratorSpec, mode: str) -> float:
    """Return the work that a multiprocessor does in a clock, over that of the chips that the constants are of."""
    generation = spec.compute_capability[0] if spec.compute_capability is not None else 0
    return (FP32_WIDTH if mode == "fp32" else TENSOR_WIDTH).get(generation, 1.0)


def _dtype(traced: str, execution: Execution) -> str:
    return execution.weights if execution.weights is not None and traced == "float32" else traced


def _last(kind: str, execution: Execution) -> bool:
    return kind.endswith(NHWC) if execution.channels_last is None else execution.channels_last


def _autocasts(execution: Execution) -> bool:
    return execution.precision.half is not None and execution.weights is None

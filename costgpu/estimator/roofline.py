"""Seconds of one training step or forward pass on a GPU: a sum for the device, and the host beside it. Pure.

    device = sum c S
    t      = (device^4 + host^4)^(1/4),   host = s Cs + q Cq + the script's own Python

The sums S (`device_sums`): FLOPs over the peak of the unit that is really used, with the clock that the board holds
(dense 3x3 fp32 convolutions over 2.25: Winograd); FLOPs over the on-chip rate sqrt(BW * 1e10 * SMs * GHz), those of
products weighted by the traffic of their tiles, by kind of work, layout and precision; bytes over the memory bandwidth,
less those of activations that the cache holds until the next op reads them, and bytes over what the SMs can load; bytes
of half-precision convolutions with unaligned channels; FLOPs of depthwise convolutions over the peak of the fp32 cores;
kernels. The device's terms are added, not maxed, because eager kernels overlap little; device and host run side by side.
Cs and Cq are slow and quick calls of the framework (of forward passes `call_seconds` takes the longer of calls and
Python). What training steps and forward passes have in common is code; in what they differ is in their `Roofline`s, which
were fitted apart. Measured error: README.md, by benchmarks/accuracy.py and benchmarks/accuracy_inference.py.

One file of more than 400 lines: the sums and the two tables of their coefficients are read together.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from costgpu.estimator.gpu import (
    AMD_SHARE,
    WINOGRAD,
    Execution,
    Runtime,
    clock_share,
    is_blackwell_server,
    on_chip_rate,
    optimizer_bytes,
    optimizer_kernels,
    peak_for,
    sm_gigahertz,
)
from costgpu.estimator.op_costs import ITEM_BYTES
from costgpu.estimator.work import DENSE, GEMV, MATMUL, NHWC, PRODUCTS, WEIGHTS, Work
from costgpu.models.offer import AcceleratorSpec
from costgpu.models.workload import OptimizerFacts

OVERLAP = 4.0  # exponent with which device and host are joined: 1 would add them, infinity take the longer one
LEAST_SHARE = 1e-6  # of the longer one, below which the shorter one adds nothing that a float could hold
SM_BYTES = 32.0  # that an SM loads or stores in a clock
COMPUTE, ON_CHIP, MEMORY, DEPTHWISE, LAUNCH = "compute", "on-chip", "memory", "depthwise", "launch"
MOVED_AS = {
    DENSE: "moved/beside",
    MATMUL: "moved/beside",
    GEMV: "moved/gemv",
}  # sums of bytes by group, where told apart
# Tensor FLOPs of a clock and multiprocessor over the A100's, and fp32 lanes over the 64 of the chips that the constant
# was fitted on, by major compute capability. Source: accelerators.csv; NVIDIA's kernel times of nine GPUs, of which the
# differences between generations vanish with them (2026-11).
TENSOR_WIDTH = {9: 2.0, 10: 4.0}
FP32_WIDTH = {9: 2.0, 10: 2.0}


def clocks_of_all(spec: AcceleratorSpec, mode: str, clock: float) -> float:
    """Return the rate of the tiles of products by clocks of all multiprocessors, and what each does in a clock."""
    generation = spec.compute_capability[0] if spec.compute_capability is not None else 0
    width = (FP32_WIDTH if mode == "fp32" else TENSOR_WIDTH).get(generation, 1.0)
    return sm_gigahertz(spec) * 1e9 * clock * width


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """The coefficients of training steps or of forward passes, and in what their sums differ."""

    seconds: Mapping[str, tuple[str, float]]  # term, and device seconds for one unit of each sum
    compiled: Mapping[str, float] = field(default_factory=dict)  # what torch.compile leaves of a sum; 1 if not named
    compute_only: frozenset[str] = frozenset()  # convolutions whose on-chip traffic is in the FLOPs' coefficient
    conv_clock: Callable[[float], float]  # what the clock's share does to the on-chip rate of convolutions
    tile_rate: Callable[[AcceleratorSpec, str, float], float]  # of products, from GPU, mode and the clock's share
    clock_power: float  # with which the clock's share counts for depthwise convolutions and what the SMs load
    amd_share: float = 1.0  # of the listed peak and bandwidth that AMD's libraries reach beside NVIDIA's
    winograd_traffic: bool = False  # whether Winograd's algorithm saves traffic on the chip as it saves FLOPs
    blackwell_convolutions: float = 1.0  # on-chip traffic of half-precision convolutions there, over that elsewhere
    through_cache: Mapping[str, float] = field(
        default_factory=dict
    )  # share of the bytes that reach memory, by architecture
    # part of the cache that holds half of what an op moves until the next one reads it; 0 where that is in other figures
    cache_share: float = 0.0
    loaded_beside: frozenset[str] = frozenset()  # groups of bytes that the SMs load while they compute
    calls: Callable[[Work], tuple[float, float]]  # slow and quick calls of the framework, casts and optimizers apart
    call_seconds: tuple[float, float]  # of the host, for a slow and a quick call
    dispatch_seconds: float | None = (
        None  # of a kernel beside the script's own Python; None if that is a term of its own
    )
    autocast_host: float = 1.0  # factor of the host's seconds under autocast, beside its casts
    compiled_host: Mapping[Runtime, float] = field(default_factory=dict)
    few_waits: float = math.inf  # waits for the device up to which host and device still run side by side

    def name(self, *names: str) -> str:
        """Return the first of these sums that has a coefficient, the last one if none has."""
        return next((name for name in names if name in self.seconds), names[-1])


# Source: benchmarks/README.md (2026-11): the calibration study's constants of 447 rows, fitted on from there on 255 public
# rows, 13 GPUs, 74 models. The share of the cache, seconds of kernels and of calls: fine-tunes of language models (the same
# source), with the 255 rows; of these only the 52 of batch 12 wait for their hosts, which are older and slower.
TRAINING = Roofline(
    seconds={
        "flops": (COMPUTE, 1.02),
        "matmul/half": (ON_CHIP, 0.0021),
        "matmul/tf32": (ON_CHIP, 0.0055),
        "matmul/fp32": (ON_CHIP, 0.0068),
        "conv/half": (ON_CHIP, 0.021),
        "conv3x3/half": (ON_CHIP, 0.0072),
        "half_nhwc": (ON_CHIP, 0.00075),
        "conv/tf32": (ON_CHIP, 0.0148),
        "conv/fp32": (ON_CHIP, 0.023),
        "grouped/fp32": (ON_CHIP, 0.05),
        # of one or three dimensions: 1.9 times that of two, for the study's WaveGlow under AMP was 31 % too fast with it
        "conv_unusual/half": (ON_CHIP, 0.034),
        "moved": (MEMORY, 1.08),
        "loaded": (MEMORY, 0.40),
        "unaligned": (MEMORY, 6.2),
        "depthwise": (DEPTHWISE, 30.0),
        "depthwise_nhwc": (DEPTHWISE, 8.0),
        # wide groups in half precision and channels-last, for which libraries fall back to the fp32 cores: from
        # regnety_032 alone, and no other network of the rows judges it
        "grouped_wide/half_nhwc": (DEPTHWISE, 10.0),
        "kernels": (LAUNCH, 6e-6),
    },
    conv_clock=lambda clock: max(clock, 1.0),
    tile_rate=lambda spec, _, clock: on_chip_rate(spec) * max(clock, 1.0),
    clock_power=0.0,
    amd_share=AMD_SHARE,
    winograd_traffic=True,
    cache_share=0.5,
    # Set by ResNet-50 and SSD on a B200, told 0.54-0.65 of their time; products and element-wise kernels are not the cause
    # (KERNELS study, 2026-11). No other row judges it.
    blackwell_convolutions=2.5,
    calls=lambda work: (work.forward_calls, work.backward_calls),
    call_seconds=(40e-6, 7e-6),
)
# Source of all that names no other: fitted on 405 public rows of 36 models and 9 GPUs
# (benchmarks/accuracy_inference.py --refit, 2026-11-23), see benchmarks/README.md.
FORWARD = Roofline(
    seconds={
        "flops/conv": (COMPUTE, 0.96),
        "flops/matmul": (COMPUTE, 0.72),
        "flops/grouped": (COMPUTE, 2.1),
        "depthwise": (COMPUTE, 5.0),
        "depthwise_nhwc": (COMPUTE, 17.0),
        "depthwise/half": (COMPUTE, 15.0),
        "depthwise/half_nhwc": (COMPUTE, 6.2),
        "conv/half": (ON_CHIP, 0.0135),
        "conv3x3/half": (ON_CHIP, 0.0082),
        "half_nhwc": (ON_CHIP, 0.0030),
        "half/older": (ON_CHIP, 0.0080),  # compute capability below 8.0, any layout
        "conv/tf32": (ON_CHIP, 0.0125),
        "conv/fp32": (ON_CHIP, 0.012),
        "matmul/half": (ON_CHIP, 0.00051),
        "attention/half": (ON_CHIP, 0.0032),
        "matmul/tf32": (ON_CHIP, 0.00085),
        "matmul/fp32": (ON_CHIP, 0.0041),
        "moved": (MEMORY, 1.08),
        "moved/beside": (MEMORY, 0.6),  # of dense convolutions and large products, which read while they compute
        "moved/gemv": (MEMORY, 4.8),  # batched products of one row: decodes without fused attention
        "unaligned": (MEMORY, 1.6),
        "loaded": (MEMORY, 0.37),
        "kernels": (LAUNCH, 2.1e-6),
    },
    # Fitted on 73 rows (the same source).
    compiled={
        "moved": 0.60,
        "loaded": 0.60,
        "moved/beside": 0.50,
        "conv/half": 0.37,
        "conv3x3/half": 0.37,
        "half_nhwc": 0.37,
        "half/older": 0.37,
    },
    compute_only=frozenset({"grouped", "grouped_wide", "conv_unusual"}),
    conv_clock=math.sqrt,
    tile_rate=clocks_of_all,
    clock_power=1.0,
    through_cache={"Ada": 0.8},  # an L2 cache of 48-96 MiB holds a part of what the next kernel reads
    loaded_beside=frozenset({DENSE}),
    calls=lambda work: (work.module_kernels, work.kernels - work.module_kernels),
    call_seconds=(64e-6, 6.5e-6),
    dispatch_seconds=10e-6,  # source: INFERENCE study
    # Autocast at batch 1 is then 0.72-0.83 times as fast, measured 0.77-0.88 (INFERENCE study).
    autocast_host=1.2,
    compiled_host={Runtime.COMPILED: 0.6, Runtime.GRAPHS: 0.3},  # INFERENCE study, 2026-11
    # `generate()` waits after every token, and its decodes fit so. Detection models wait 13 to 360 times, and were told 31 %
    # too short.
    few_waits=3,
)


@dataclass(frozen=True, slots=True)
class HostCpu:
    """The CPU that feeds a GPU."""

    speed: float = 1.0  # of one core, of a current GPU instance's
    script_seconds: float | None = None  # the script's own Python in one step or pass, there; None if not measured


@dataclass(frozen=True, slots=True)
class GpuTerms:
    """Seconds of one step or forward pass by term, and what widens its interval."""

    compute: float  # matrix units or cores at their peak
    on_chip: float  # traffic between shared memory and registers
    memory: float  # device memory
    launch: float  # starts and ends of kernels, on the device
    depthwise: float = 0.0  # depthwise convolutions and wide groups, which matrix units do not run
    calls_alone: float = 0.0  # of the host, for the framework's calls
    script_alone: float = 0.0  # of the host, for the script's own Python, where that is a term of its own
    serial: float = 0.0  # part of `script_alone` in which the device has nothing to do
    waits: float = 0.0  # times that the host waits for the device
    takes_turns: bool = False  # whether they wait for each other so often that neither runs ahead
    unruled_share: float = 0.0  # share of bytes in ops without a rule
    half_convolution_share: float = 0.0  # share of the FLOPs in half-precision convolutions
    unusual_half_share: float = 0.0  # share of the FLOPs in one- and three-dimensional convolutions at half precision
    grouped_share: float = 0.0  # share of the FLOPs in grouped convolutions
    notes: tuple[str, ...] = ()

    @property
    def device_seconds(self) -> float:
        """Return the seconds of the device alone."""
        return self.compute + self.on_chip + self.memory + self.depthwise + self.launch

    @property
    def calls(self) -> float:
        """Return what waiting for the host's calls of the framework adds to the device's seconds."""
        return self._joined(self.calls_alone) - self.device_seconds

    @property
    def host(self) -> float:
        """Return what the script's own Python adds to both."""
        return self.seconds - self._joined(self.calls_alone)

    @property
    def seconds(self) -> float:
        """Return the seconds of the whole."""
        return self._joined(self.calls_alone + self.script_alone - self.serial) + self.serial

    @property
    def gpu_use(self) -> float:
        """Return the share of the time in which the device computes."""
        return self.device_seconds / self.seconds if self.seconds > 0 else 0.0

    def _joined(self, host: float) -> float:
        return self.device_seconds + host if self.takes_turns else beside(self.device_seconds, host)

    def plus(self, other: GpuTerms, factor: float) -> GpuTerms:
        """Return the terms of this and then `factor` times another, without Python of the script's own in either."""
        device, turns = self.device_seconds + factor * other.device_seconds, self.takes_turns or other.takes_turns

        def added(name: str) -> float:
            return float(getattr(self, name) + factor * getattr(other, name))

        def mean(name: str) -> float:
            one, more = self.device_seconds, factor * other.device_seconds
            return float((one * getattr(self, name) + more * getattr(other, name)) / device if device else 0.0)

        power = 1.0 if turns else OVERLAP
        # such that the seconds are those of the passes after each other
        host = max(0.0, added("seconds") ** power - device**power) ** (1 / power)
        return GpuTerms(
            compute=added("compute"),
            on_chip=added("on_chip"),
            memory=added("memory"),
            launch=added("launch"),
            depthwise=added("depthwise"),
            calls_alone=host,
            waits=max(self.waits, other.waits),
            takes_turns=turns,
            unruled_share=mean("unruled_share"),
            half_convolution_share=mean("half_convolution_share"),
            unusual_half_share=mean("unusual_half_share"),
            grouped_share=mean("grouped_share"),
            notes=tuple(dict.fromkeys(self.notes + other.notes)),
        )


def gpu_terms(
    work: Work,
    spec: AcceleratorSpec,
    execution: Execution,
    model: Roofline,
    *,
    optimizers: Sequence[OptimizerFacts] = (),
    host: HostCpu = HostCpu(),
) -> GpuTerms:
    """Return the model above for one step or forward pass of `work` on `spec`.

    Args:
        model: `TRAINING` or `FORWARD`.
        optimizers: Optimizers that make an update in it.
    """
    terms: dict[str, float] = defaultdict(float)
    compiled = model.compiled if execution.runtime is not Runtime.EAGER else {}
    for name, value in device_sums(work, spec, execution, model, optimizers).items():
        term, coefficient = model.seconds[name]
        terms[term] += value * coefficient * compiled.get(name, 1.0)
    half = no_units = unusual = grouped = 0.0
    for (kind, traced), flops in work.flops.items():
        dtype = execution.dtype(traced)
        mode = peak_for(spec, kind, dtype, execution.precision)[1]
        half += flops if mode == "half" and kind not in PRODUCTS else 0.0
        unusual += flops if mode == "half" and kind == "conv_unusual" else 0.0
        grouped += flops if kind.startswith("grouped") else 0.0  # not depthwise
        no_units += mode == "fp32" and "bfloat16" in (dtype, execution.precision.half)
    # The host runs ahead of the device until it waits for a value. Where it does so in every step (`.item()`), the
    # device has nothing left to do during the script's own Python. Module calls keep it busy from the first one on.
    script = (host.script_seconds or 0.0) if model.dispatch_seconds is None else 0.0
    moved, every = work.bytes_moved, work.total_flops or 1.0
    return GpuTerms(
        compute=terms[COMPUTE],
        on_chip=terms[ON_CHIP],
        memory=terms[MEMORY],
        launch=terms[LAUNCH],
        depthwise=terms[DEPTHWISE],
        calls_alone=call_seconds(work, execution, model, optimizers=optimizers, host=host),
        script_alone=script,
        serial=min(1.0, work.syncs) * script,
        waits=work.syncs,
        takes_turns=work.syncs > model.few_waits,
        unruled_share=work.unruled_bytes / moved if moved else 0.0,
        half_convolution_share=half / every,
        unusual_half_share=unusual / every,
        grouped_share=grouped / every,
        notes=("no bf16 units: bf16 work runs at the fp32 rate",) if no_units else (),
    )


def device_sums(
    work: Work, spec: AcceleratorSpec, execution: Execution, model: Roofline, optimizers: Sequence[OptimizerFacts] = ()
) -> dict[str, float]:
    """Return the sums of the device's terms by the names of their coefficients: seconds, but for the number of kernels."""
    sums: dict[str, float] = defaultdict(float)
    reached = model.amd_share if spec.vendor == "AMD" else 1.0
    clock, bandwidth = clock_share(spec) * reached, spec.memory_bandwidth_gbps * 1e9 * reached
    fp32 = spec.fp32_tflops * 1e12 * clock**model.clock_power
    older = spec.compute_capability is not None and spec.compute_capability < (8, 0)
    convolves_in_half = False
    for (kind, traced), flops in work.flops.items():
        shape = kind.removesuffix(NHWC)
        last = kind.endswith(NHWC) if execution.channels_last is None else execution.channels_last
        peak, mode = peak_for(spec, shape, execution.dtype(traced), execution.precision)
        laid = mode + NHWC if last else mode
        if shape == "depthwise":
            sums[model.name(f"depthwise/{laid}", "depthwise" + NHWC if last else "depthwise")] += flops / fp32
            continue
        if shape == "grouped_wide" and f"{shape}/{laid}" in model.seconds:
            sums[f"{shape}/{laid}"] += flops / fp32
            continue
        done = flops / (WINOGRAD if shape == "conv3x3" and mode == "fp32" else 1.0)
        family = "matmul" if shape in PRODUCTS else "conv" if shape in ("conv", "conv3x3") else "grouped"
        sums[model.name(f"flops/{family}", "flops")] += done / (peak * clock)
        if shape in PRODUCTS:
            traffic = work.tiled.get((kind, traced), flops)
            sums[model.name(f"{shape}/{mode}", f"matmul/{mode}")] += traffic / model.tile_rate(spec, mode, clock)
        elif shape not in model.compute_only:
            names = [f"{mode}/older"] if older else []
            names += [laid, f"{shape.removesuffix('_wide')}/{mode}", f"conv/{mode}"]
            slower = model.blackwell_convolutions if mode == "half" and is_blackwell_server(spec) else 1.0
            traffic = done if model.winograd_traffic else flops
            sums[model.name(*names)] += slower * traffic / (on_chip_rate(spec) * model.conv_clock(clock))
            convolves_in_half |= mode == "half"
    moved = moved_bytes(work, execution)
    if optimizers:
        moved["optimizer"] = optimizer_bytes(optimizers, amp=execution.autocasts)
    for group, count in moved.items():
        reaching = model.through_cache.get(spec.architecture, 1.0) if group != WEIGHTS else 1.0
        sums[model.name(MOVED_AS.get(group, "moved"), "moved")] += count / bandwidth * reaching
        if group not in model.loaded_beside:
            sums["loaded"] += count / (SM_BYTES * sm_gigahertz(spec) * 1e9 * clock**model.clock_power)
    sums["moved"] -= cached_bytes(work, spec, execution, model) / bandwidth
    if convolves_in_half:
        sums["unaligned"] = work.unaligned_bytes / bandwidth
    sums["kernels"] = (work.autocast_kernels if execution.autocasts else work.kernels) + optimizer_kernels(optimizers)
    return dict(sums)


def moved_bytes(work: Work, execution: Execution) -> dict[str, float]:
    """Return the bytes that are moved by group, in the types in which it runs."""
    if execution.autocasts:
        return dict(work.autocast_moved)
    moved: dict[str, float] = defaultdict(float)
    for (group, traced), count in work.moved.items():
        moved[group] += count * ITEM_BYTES.get(execution.dtype(traced), 4) / ITEM_BYTES.get(traced, 4)
    return dict(moved)


def cached_bytes(work: Work, spec: AcceleratorSpec, execution: Execution, model: Roofline) -> float:
    """Return the bytes of activations that stay in the GPU's cache between the op that writes and the one that reads."""
    room = model.cache_share * (spec.l2_mib or 0.0) * (1 << 20)
    if not room:
        return 0.0
    sizes = list(work.autocast_sized.items())
    if not execution.autocasts:
        sizes = []
        for (power, traced), count in work.sized.items():
            ratio = ITEM_BYTES.get(execution.dtype(traced), 4) / ITEM_BYTES.get(traced, 4)
            sizes.append((power + math.log2(ratio), count * ratio))
    return sum(count / (1 + (2**power / room) ** 2) for power, count in sizes)


def call_seconds(
    work: Work,
    execution: Execution,
    model: Roofline,
    *,
    optimizers: Sequence[OptimizerFacts] = (),
    host: HostCpu = HostCpu(),
) -> float:
    """Return the seconds of the host for the framework's calls in one step or pass, one after the other.

    What calls cost in forward passes was measured with the Python of modules in it; a script whose own Python was found to
    take longer takes that and a dispatch for each kernel.
    """
    slow, quick = model.calls(work)
    quick += (work.autocast_kernels - work.kernels if execution.autocasts else 0.0) + optimizer_kernels(optimizers)
    seconds = (model.call_seconds[0] * slow + model.call_seconds[1] * quick) / host.speed
    if model.dispatch_seconds is not None and host.script_seconds is not None:
        seconds = max(seconds, host.script_seconds + model.dispatch_seconds * work.kernels / host.speed)
    factor = model.autocast_host if execution.autocasts else 1.0
    return seconds * factor * model.compiled_host.get(execution.runtime, 1.0)


def beside(device: float, host: float) -> float:
    """Return the seconds of a device and a host that run side by side."""
    longer = max(device, host)
    if longer <= 0:
        return 0.0
    share = max(min(device, host) / longer, LEAST_SHARE)
    return longer * math.pow(1 + math.pow(share, OVERLAP), 1 / OVERLAP)

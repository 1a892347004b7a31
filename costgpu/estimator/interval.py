"""How the 80 % interval of a prediction is made: where it starts, and what widens it. Pure.

Source of the widening rules and of the widths: benchmarks/README.md; they are set so that 75-90 % of the public rows lie
inside (benchmarks/accuracy.py and benchmarks/accuracy_cpu.py, 2026-11-23).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from costgpu.estimator.cpu import LEAST_SWING, STEADY, core_of, same_chip
from costgpu.estimator.gpu import GEFORCE, Execution, Runtime, is_blackwell_server
from costgpu.estimator.roofline import OVERLAP, GpuTerms
from costgpu.models.offer import AcceleratorSpec, CpuSpec
from costgpu.models.prediction import MeasuredSpeed, Range
from costgpu.models.workload import Machine, StepTimes

Z80 = 1.2816  # an 80 % interval of a normal distribution is +- this many standard deviations


@dataclass(frozen=True, slots=True)
class Interval:
    """Multipliers of a prediction: with 80 % probability the truth lies between `low` and `high` times it."""

    low: float
    high: float

    @classmethod
    def of_sigma(cls, sigma: float) -> Interval:
        """Return the symmetric interval of a log-normal error."""
        return cls(math.exp(-Z80 * sigma), math.exp(Z80 * sigma))

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm."""
        return (math.log(self.high) - math.log(self.low)) / (2 * Z80)

    @property
    def log_center(self) -> float:
        """Logarithm of the geometric middle; not 0 for an asymmetric interval."""
        return math.log(self.low * self.high) / 2

    def covering(self, other: Interval) -> Interval:
        """Return the narrowest interval that holds both."""
        return Interval(min(self.low, other.low), max(self.high, other.high))

    def stretched(self, *, low: float = 1.0, high: float = 1.0) -> Interval:
        """Return the interval with its ends multiplied."""
        return Interval(self.low * low, self.high * high)

    def around(self, value: float) -> Range:
        """Return the interval of a predicted value."""
        return Range(value=value, low=value * self.low, high=value * self.high)


# Beginnings of the names of NVIDIA's architectures of which public measurements were fitted, by what was measured.
MEASURED_INFERENCE = ("Pascal", "Volta", "Turing", "Ampere", "Ada")
MEASURED_TRAINING = (*MEASURED_INFERENCE, "Hopper")
# Standard deviations of the logarithm of the GPU model's error, set so that 75-90 % of the public rows lie inside when
# their model, their chip or both were left out of the fit (benchmarks/accuracy.py, 2026-11-23).
GPU_SIGMA = 0.10  # of the device's seconds, for what most networks are made of
HOST_SIGMA = 0.40  # of the host's seconds: the two hosts of the rows of batch 12 differ by a factor of two
DEPTHWISE_SIGMA = 0.35  # of depthwise convolutions
GROUPED_SIGMA, GROUPED_SHARE = 0.25, 0.05  # of a step with more than that share of its FLOPs in grouped convolutions
NEWEST = (
    1.1  # of the newest of `MEASURED_TRAINING`: the study's rows of the newest boards took 8-10 % longer than predicted
)
# Half-precision convolutions on data-centre Blackwell: 1 / 0.54 where nothing is repaired (channels-last). Source: that of
# `roofline.TRAINING`.
BLACKWELL_CONVOLUTIONS = Interval(0.65, 1.90)
# Professional boards of GeForce chips (compute capability), whose power limits differ: RTX 6000 Ada, told 25 % too short to
# 24 % too long, had 55 % of its trainings in the interval without it.
GEFORCE_CHIPS, PROFESSIONAL = ((8, 6), (8, 9)), Interval(0.90, 1.15)
TURING_CONVOLUTIONS = 1.1  # upper end; in half precision they were told 12 % too short (20 rows of batch 12)
AMD = Interval(0.80, 1.40)  # of a share that is assumed
UNMEASURED = 1.35  # upper end of an architecture without public rows
HOST_BOUND = 0.3  # share of the host's seconds in the error from which on it is worth a word
HOST_WORDS = "host-CPU bound: kernels are too small to keep the GPU busy"
# Of forward passes. The width where host and device take turns is assumed.
FORWARD_BASE, FORWARD_HOST_BOUND = Interval(0.86, 1.28), Interval(0.65, 1.50)
FORWARD_COMPILED, TURNS = Interval(0.80, 1.55), Interval(0.65, 1.60)
HOST_BOUND_FROM = 1.0  # host seconds over device seconds
UNRULED = Interval(0.60, 1.70)
# Only the sums of a step are known. With sums 80 % of the measured times lie between 0.71 and 1.30 times what is predicted
# (255 public rows, benchmarks/counted.py, 2026-11-23), and frameworks count bytes and kernels before their compilers fuse
# them: assumed.
COUNTED = Interval(0.70, 1.45)
# Nothing was measured: a reference workload's arithmetic, on a CPU at its nominal rate. Three of them took 0.85 to 1.5
# times that on one core (see `reference_profiles`); the user's own code is another program, so it is about doubled: assumed.
PRIOR = Interval(0.45, 2.20)
# Set so that 75-90 % of the public rows lie inside (benchmarks/accuracy_cpu.py, 2026-11-23): on as many cores as here, and
# what every doubling or halving of the cores adds. The same family on as many cores is assumed, for want of rows.
CPU_SAME_FAMILY = Interval(0.87, 1.18)
CPU_OTHER_FAMILY = Interval(0.70, 1.55)
CPU_LIBRARY = Interval(0.72, 1.35)  # at least; boosted trees, whose threads may even get into each other's way
PER_DOUBLING, PER_DOUBLING_LIBRARY = Interval(0.93, 1.09), Interval(0.97, 1.30)
# Of a step with more than `SOME_SHARE` of its FLOPs in convolutions, in a profile that was saved before they were timed:
# libraries reach 0.6 to 1.5 times the share of the peak that they reach in products (benchmarks/cpu_hosts.csv).
UNKNOWN_CONVOLUTIONS, SOME_SHARE = Interval(0.75, 1.35), 0.2
HALF_ON_CPU = Interval(0.33, 3.0)  # AMX, AVX512-bf16, Arm's bf16 or none: up to twenty times apart
LEAST_DISTURBED, BUSY_SHARE = 0.02, 0.3  # of the script's time: less is nothing, and more belongs into the headline
MOST_DISTURBED = 0.99  # of the script's time, beyond which nothing was measured
CPU_UNMEASURED = Interval(0.90, 1.15)  # of a family on which nothing was measured: assumed
FAR_SCALING = 8.0  # from so many times the cores on, the interval's width is told
FINISHED_SIGMA = 0.02  # a job that was measured from its start to its end, on the same machine
HERE_SIGMA = 0.06  # a longer run on the same machine; its own swings are added
FEW_STEPS, FEW_STEPS_SIGMA = 5, 0.2
CHANGING_TOTAL_SIGMA = 0.5  # a number of steps that changes from epoch to epoch
LEAST_SURE = 1e-3  # share of a run that is there in any case
UNSEEN_SHARE_SIGMA = 0.35  # of the part of the time that was inferred and not measured
# What is taken for the spread between runs before there are several: that of a longer run on the same machine
# (HERE_SIGMA), worth as much as three runs. So a single run gives +- 15 %, three that agree +- 8 %, and many their own
# spread.
PRIOR_SIGMA, PRIOR_RUNS = HERE_SIGMA, 3
# No machine of a cloud is exactly as fast as the next one of its type: below this an interval would claim what no
# number of runs on other machines can show.
LEAST_SIGMA = math.log(1.05) / Z80
# 90 % quantile of Student's t by degrees of freedom: the upper end of an 80 % interval. Source: any table; the last one
# is the normal distribution's.
T90 = {1: 3.078, 2: 1.886, 3: 1.638, 4: 1.533, 5: 1.476, 6: 1.440, 7: 1.415, 8: 1.397, 9: 1.383, 10: 1.372}


class GpuCase(NamedTuple):
    """A step or forward pass on a GPU, as the rules below ask for it."""

    terms: GpuTerms
    spec: AcceleratorSpec
    execution: Execution
    trains: bool
    year: int  # of the prediction, to tell a new architecture

    @property
    def host_share(self) -> float:
        """Return how much longer the host makes it."""
        seconds = self.terms.seconds
        return 1 - (self.terms.device_seconds / seconds) ** OVERLAP if seconds > 0 else 0.0

    @property
    def host_bound(self) -> bool:
        """Return whether the host decides about its seconds."""
        if self.trains:
            return self.host_share > HOST_BOUND
        return self.terms.calls_alone > HOST_BOUND_FROM * self.terms.device_seconds

    @property
    def measured(self) -> bool:
        """Return whether the model was fitted on this architecture."""
        return self.spec.architecture.startswith(MEASURED_TRAINING if self.trains else MEASURED_INFERENCE)

    @property
    def convolves_in_half(self) -> bool:
        """Return whether it convolves in half precision."""
        return self.terms.half_convolution_share > 0


class WideningRule(NamedTuple):
    """A reason for which the interval of a GPU's step is wider than its base."""

    trains: bool | None  # whether it is for training or for forward passes; None for both
    applies: Callable[[GpuCase], bool]
    covers: Interval | None  # what the interval then holds at least
    stretches: Interval  # multipliers of its ends
    words: Callable[[GpuCase], str] | str = ""


AS_IS = Interval(1.0, 1.0)
RULES = (
    WideningRule(True, lambda step: step.host_bound, None, AS_IS, HOST_WORDS),
    WideningRule(False, lambda step: step.host_bound, FORWARD_HOST_BOUND, AS_IS, HOST_WORDS),
    WideningRule(
        None,
        lambda step: step.terms.takes_turns,
        TURNS,
        AS_IS,
        lambda step: f"the host waits for the GPU {step.terms.waits:.0f} times in a pass: they take turns",
    ),
    WideningRule(
        True,
        lambda step: step.terms.grouped_share > GROUPED_SHARE,
        None,
        AS_IS,
        "grouped convolutions, whose libraries differ",
    ),
    WideningRule(
        None,
        lambda step: step.terms.unruled_share > 0.2,
        UNRULED,
        AS_IS,
        lambda step: f"{step.terms.unruled_share:.0%} of the bytes are in ops without a rule",
    ),
    WideningRule(
        False,
        lambda step: step.execution.runtime is not Runtime.EAGER,
        FORWARD_COMPILED,
        AS_IS,
        "torch.compile: its gain is only roughly known",
    ),
    WideningRule(
        None,
        lambda step: step.year - step.spec.year < 1,
        None,
        Interval(1.0, 1.6),
        lambda step: f"{step.spec.architecture} is too new for public measurements",
    ),
    WideningRule(
        None,
        lambda step: step.year - step.spec.year >= 1 and step.spec.vendor == "NVIDIA" and not step.measured,
        None,
        Interval(0.9, UNMEASURED),
        lambda step: f"no measurement of {step.spec.architecture} is among those that the model was fitted on",
    ),
    WideningRule(None, lambda step: step.spec.vendor == "AMD", None, AMD, "AMD: few public measurements"),
    WideningRule(None, lambda step: step.spec.tdp_watts <= 75, None, Interval(1.0, 1.1)),
    WideningRule(
        True,
        lambda step: step.terms.unusual_half_share > 0.5,
        None,
        Interval(1.0, 1.6),
        "one- or three-dimensional convolutions at half precision",
    ),
    WideningRule(
        True,
        lambda step: step.spec.compute_capability in GEFORCE_CHIPS and not GEFORCE.match(step.spec.model),
        None,
        PROFESSIONAL,
    ),
    WideningRule(
        True,
        lambda step: is_blackwell_server(step.spec) and step.convolves_in_half,
        BLACKWELL_CONVOLUTIONS,
        AS_IS,
        "convolutions in half precision, which take longer on such a GPU than its figures say",
    ),
    WideningRule(
        True,
        lambda step: step.spec.architecture.startswith("Turing") and step.convolves_in_half,
        None,
        Interval(1.0, TURING_CONVOLUTIONS),
    ),
    WideningRule(
        True, lambda step: step.spec.architecture.startswith(MEASURED_TRAINING[-1]), None, Interval(1.0, NEWEST)
    ),
    WideningRule(
        True,
        lambda step: step.execution.runtime is not Runtime.EAGER,
        None,
        Interval(0.6, 1.0),
        "torch.compile may be faster than what was traced",
    ),
)


def gpu_interval(
    terms: GpuTerms, spec: AcceleratorSpec, execution: Execution, *, trains: bool, year: int
) -> tuple[Interval, list[str]]:
    """Return the interval of the GPU model, and the reasons why it is wider than the base.

    In training the relative errors of the terms add up by their weight in the step; that of the host is how much the step
    would be longer with a slower host.

    Args:
        trains: Whether it is a training step, and not a forward pass.
        year: Year of the prediction, to tell a new architecture.
    """
    case, interval, reasons = GpuCase(terms, spec, execution, trains, year), FORWARD_BASE, []
    if trains:
        depthwise = terms.depthwise / terms.seconds if terms.seconds > 0 else 0.0
        grouped = GROUPED_SIGMA if terms.grouped_share > GROUPED_SHARE else 0.0
        sigma = math.hypot(GPU_SIGMA, HOST_SIGMA * case.host_share, DEPTHWISE_SIGMA * depthwise, grouped)
        interval = Interval.of_sigma(sigma)
    for rule in RULES:
        if rule.trains not in (None, trains) or not rule.applies(case):
            continue
        interval = interval.covering(rule.covers) if rule.covers is not None else interval
        interval = interval.stretched(low=rule.stretches.low, high=rule.stretches.high)
        if rule.words:
            reasons.append(rule.words if isinstance(rule.words, str) else rule.words(case))
    return interval, reasons


def cpu_interval(
    machine: Machine, cpu: CpuSpec, *, cores: float, convolved: float = 0.0, half: float = 0.0, library: bool = False
) -> tuple[Interval, list[str]]:
    """Return the interval of a step on a cloud CPU, and the reasons for its width.

    Args:
        cores: Physical cores of the cloud CPU that the step can use.
        convolved: Share of the step's FLOPs that are convolutions.
        half: Share of the step's FLOPs in half precision.
        library: Whether a library with threads of its own does the work, of which no op is known.
    """
    same = same_chip(machine, cpu)
    interval = CPU_SAME_FAMILY if same else CPU_OTHER_FAMILY
    reasons = [] if same else ["another CPU family than this machine's"]
    unsure = core_of(cpu).unsure
    if unsure > 1 and not same and not library:
        interval = interval.stretched(low=1 / unsure, high=unsure)
        reasons.append(f"nobody measured training on {cpu.microarchitecture or 'this kind of core'}")
    if not machine.conv_gflops and convolved > SOME_SHARE and not same:
        interval = interval.stretched(low=UNKNOWN_CONVOLUTIONS.low, high=UNKNOWN_CONVOLUTIONS.high)
        reasons.append("convolutions were not timed on this machine: measure it again")
    if half > SOME_SHARE and not same:
        interval = interval.covering(HALF_ON_CPU)
        reasons.append("half precision, for which CPUs have very different units")
    if library:
        interval = interval.covering(CPU_LIBRARY)
    here = max(1, min(machine.cores, machine.threads))
    doublings = abs(math.log2(max(cores, 1.0) / here))
    each = PER_DOUBLING_LIBRARY if library else PER_DOUBLING
    interval = interval.stretched(low=each.low**doublings, high=each.high**doublings)
    if cores > FAR_SCALING * here:
        reasons.append(f"{cores / here:.0f} times the cores of this machine")
    if cpu.matrix_mult_per_vcpu is None and cpu.bzip2_mbps is None and not same:
        interval = interval.stretched(low=CPU_UNMEASURED.low, high=CPU_UNMEASURED.high)
        reasons.append("nothing was measured on this CPU family")
    swing = machine.gemm_gflops_low / machine.gemm_gflops if machine.gemm_gflops > 0 else 1.0
    if swing < STEADY:
        # Whether a neighbour was busy during the steps is not known; `cpu.undisturbed_share` takes the middle.
        disturbed = math.sqrt(max(swing, LEAST_SWING))
        interval = interval.stretched(low=disturbed, high=1 / disturbed)
        factor = 1 / max(swing, 0.01)
        reasons.append(f"this machine is shared: its speed swung by a factor of {factor:.1f} while it was measured")
    if machine.disturbed_share > LEAST_DISTURBED:
        left = machine.disturbed_share / 2
        interval = interval.stretched(low=1 - left, high=1 + left)
        reasons.append(
            f"other programs took {machine.disturbed_share:.0%} of the script's time here, which is taken off"
        )
    return interval, reasons


def busy_interval(disturbed_share: float) -> Interval:
    """Return how far off a time may be from which so much was taken off: up to all of it, if it was the script's own."""
    left = disturbed_share if disturbed_share > LEAST_DISTURBED else 0.0
    return Interval(1 - left / 2, 1 / (1 - min(left, MOST_DISTURBED)))


def local_interval(step: StepTimes, disturbed_share: float) -> Interval:
    """Return the interval of a longer run on the machine that measured the step.

    Args:
        disturbed_share: Share of the time that other programs took meanwhile: if they stay, it takes as much longer.
    """
    busy = busy_interval(disturbed_share)
    if step.count < FEW_STEPS:
        return Interval.of_sigma(FEW_STEPS_SIGMA).stretched(low=busy.low, high=busy.high)
    swing = 0.0
    if step.median_seconds > 0:
        ratio = max(step.high_seconds / max(step.low_seconds, 1e-9), 1.0)
        swing = math.log(ratio) / (2 * Z80) / math.sqrt(step.count)
    return Interval.of_sigma(math.hypot(HERE_SIGMA, swing)).stretched(low=busy.low, high=busy.high)


def mean_interval(parts: Sequence[tuple[Interval, float]]) -> Interval:
    """Return the interval of a sum of seconds, each with its own: their mean by seconds, since what errs once errs in all.

    Without seconds (nothing of the phase is predicted) the last one's.
    """
    whole = sum(seconds for _, seconds in parts)
    if whole <= 0 or len(parts) == 1:
        return parts[-1][0]
    low = sum(math.log(interval.low) * seconds for interval, seconds in parts) / whole
    high = sum(math.log(interval.high) * seconds for interval, seconds in parts) / whole
    return Interval(math.exp(low), math.exp(high))


def run_range(
    seconds: float,
    interval: Interval,
    *,
    fixed: float,
    unseen: float,
    changing_total: bool,
    drift: float,
    doubtful: float = 0.0,
) -> tuple[Range, float]:
    """Return the interval of a whole run, and the standard deviation of the logarithm of its seconds.

    Args:
        interval: Interval of the steps.
        fixed: Share of the run whose seconds are taken as they were measured (set-up).
        unseen: Share of the run that was inferred and not measured.
        changing_total: Whether the number of steps is only approximate.
        drift: Last quarter of the measured steps over the first; the interval reaches as far.
        doubtful: Share of the run that was seen once and may never come again; the interval begins without it.
    """
    sigma = math.hypot(interval.sigma * (1 - fixed), UNSEEN_SHARE_SIGMA * unseen)
    if changing_total:
        sigma = math.hypot(sigma, CHANGING_TOTAL_SIGMA)
    without = max(1.0 - doubtful, LEAST_SURE)
    lean = math.exp(interval.log_center * (1 - fixed))
    whole = Interval.of_sigma(sigma).stretched(low=lean * without * min(drift, 1.0), high=lean * max(drift, 1.0))
    return whole.around(seconds), math.hypot(sigma, math.log(without) / (2 * Z80))


def sigma_of_runs(speed: MeasuredSpeed) -> float:
    """Return the standard deviation of the logarithm of the next run's seconds, from earlier runs.

    The next run differs from the others' median by its own spread and by the median's. The spread is the larger one of
    two: that of the prior and the runs, pooled by their degrees of freedom; and that of the runs alone, so that a job
    that takes longer at times than others is not taken for a steady one.
    """
    alone = speed.runs - 1
    pooled = (PRIOR_RUNS * PRIOR_SIGMA**2 + alone * speed.log_spread**2) / (PRIOR_RUNS + alone)
    spread = T90.get(PRIOR_RUNS + alone, Z80) * math.sqrt(pooled)
    if alone:
        spread = max(spread, T90.get(alone, Z80) * speed.log_spread)
    return max(spread * math.sqrt(1 + 1 / speed.runs) / Z80, LEAST_SIGMA)


def probability_less(one: float, other: float, sigma: float) -> float:
    """P(one < other) if the logarithm of their ratio is off by `sigma`."""
    if one <= 0 or other <= 0:
        return float(one <= other)
    distance = math.log(other / one)
    if sigma <= 0:
        return 0.5 if distance == 0 else float(distance > 0)
    return 0.5 * (1 + math.erf(distance / sigma / math.sqrt(2)))

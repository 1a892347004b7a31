"""How the 80 % interval of a prediction is made: where it starts, and what widens it. Pure.

Source of the widening rules and of the widths: benchmarks/README.md; they are set so that 75-90 % of the public rows lie
inside (benchmarks/accuracy.py and benchmarks/accuracy_cpu.py, 2026-11-23).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from costgpu.estimator.cpu import LEAST_SWING, STEADY, core_of, same_chip
from costgpu.models.offer import CpuSpec
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


# Only the sums of a step are known. With sums 80 % of the measured times lie between 0.71 and 1.30 times what is predicted
# (255 public rows, benchmarks/counted.py, 2026-11-23), and frameworks count bytes and kernels before their compilers fuse
# them: assumed.
COUNTED = Interval(0.70, 1.45)
# Nothing was measured: a reference workload's arithmetic, on a CPU at its nominal rate. Three of them took 0.85 to 1.5
# times that on one core (see `reference_profiles`); the user's own code is another program, so it is about doubled: assumed.
PRIOR = Interval(0.45, 2.20)
# Set so that 75-90 % of the public rows lie inside (benchmarks/accuracy_cpu.py, 2026-11-23): on as many cores as here, and
# what every doubling or halving of the cores adds. The same family on as many cores is assumed, for want of rows.
# Steps of CPUs that were measured without weights: the spread of the six models of `modelled_steps`. Wider where most
# of them is in half precision (`HALF_ON_CPU`).
UNTIMED = Interval(1 / 1.35, 1.35)
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

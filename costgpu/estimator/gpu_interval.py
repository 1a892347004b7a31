"""The 80 % interval of a step on a GPU: its base, and the table of what widens it. Pure.

Source of the rules and of the widths: benchmarks/README.md; they are set so that 75-90 % of the public rows lie inside
(benchmarks/accuracy.py and benchmarks/accuracy_inference.py, 2026-11-23).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from costgpu.estimator.gpu import GEFORCE, Execution, Runtime, is_blackwell_server
from costgpu.estimator.interval import Interval
from costgpu.estimator.roofline import OVERLAP, GpuTerms
from costgpu.models.offer import AcceleratorSpec

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
GEFORCE_CHIPS = ((8, 6), (8, 9))
TURING_CONVOLUTIONS = 1.1  # upper end; in half precision they were told 12 % too short (20 rows of batch 12)
UNMEASURED = 1.35  # upper end of an architecture without public rows
HOST_BOUND = 0.3  # share of the host's seconds in the error from which on it is worth a word
# Of forward passes. The width where host and device take turns is assumed.
FORWARD_BASE, FORWARD_HOST_BOUND = Interval(0.86, 1.28), Interval(0.65, 1.50)
FORWARD_COMPILED, TURNS = Interval(0.80, 1.55), Interval(0.65, 1.60)
HOST_BOUND_FROM = 1.0  # host seconds over device seconds
UNRULED = Interval(0.60, 1.70)


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
    def new(self) -> bool:
        """Return whether the GPU came out within the year."""
        return self.year - self.spec.year < 1

    @property
    def professional(self) -> bool:
        """Return whether it is a professional board of GeForce's chips, whose power limits differ."""
        return self.spec.compute_capability in GEFORCE_CHIPS and not GEFORCE.match(self.spec.model)

    @property
    def compiled(self) -> bool:
        """Return whether torch.compile makes its kernels."""
        return self.execution.runtime is not Runtime.EAGER

    @property
    def convolves_in_half(self) -> bool:
        """Return whether it convolves in half precision."""
        return self.terms.half_convolution_share > 0


class WideningRule(NamedTuple):
    """A reason for which the interval of a GPU's step is wider than its base."""

    trains: bool | None  # whether it is for training or for forward passes; None for both
    applies: Callable[[GpuCase], bool]
    words: Callable[[GpuCase], str] | str = ""
    covers: Interval | None = None  # what the interval then holds at least
    low: float = 1.0  # multipliers of its ends, after that
    high: float = 1.0


HOST_WORDS = "host-CPU bound: kernels are too small to keep the GPU busy"
GROUPED_WORDS = "grouped convolutions, whose libraries differ"
COMPILED_WORDS = "torch.compile: its gain is only roughly known"
BLACKWELL_WORDS = "convolutions in half precision, which take longer on such a GPU than its figures say"
RULES = (
    WideningRule(True, lambda case: case.host_bound, HOST_WORDS),
    WideningRule(False, lambda case: case.host_bound, HOST_WORDS, FORWARD_HOST_BOUND),
    WideningRule(
        None,
        lambda case: case.terms.takes_turns,
        lambda case: f"the host waits for the GPU {case.terms.waits:.0f} times in a pass: they take turns",
        TURNS,
    ),
    WideningRule(True, lambda case: case.terms.grouped_share > GROUPED_SHARE, GROUPED_WORDS),
    WideningRule(
        None,
        lambda case: case.terms.unruled_share > 0.2,
        lambda case: f"{case.terms.unruled_share:.0%} of the bytes are in ops without a rule",
        UNRULED,
    ),
    WideningRule(False, lambda case: case.compiled, COMPILED_WORDS, FORWARD_COMPILED),
    WideningRule(
        None,
        lambda case: case.new,
        lambda case: f"{case.spec.architecture} is too new for public measurements",
        high=1.6,
    ),
    WideningRule(
        None,
        lambda case: not case.new and case.spec.vendor == "NVIDIA" and not case.measured,
        lambda case: f"no measurement of {case.spec.architecture} is among those that the model was fitted on",
        low=0.9,
        high=UNMEASURED,
    ),
    # of a share of the data sheet that is assumed
    WideningRule(None, lambda case: case.spec.vendor == "AMD", "AMD: few public measurements", low=0.80, high=1.40),
    WideningRule(None, lambda case: case.spec.tdp_watts <= 75, high=1.1),
    WideningRule(
        True,
        lambda case: case.terms.unusual_half_share > 0.5,
        "one- or three-dimensional convolutions at half precision",
        high=1.6,
    ),
    WideningRule(True, lambda case: case.professional, low=0.90, high=1.15),
    WideningRule(
        True,
        lambda case: is_blackwell_server(case.spec) and case.convolves_in_half,
        BLACKWELL_WORDS,
        BLACKWELL_CONVOLUTIONS,
    ),
    WideningRule(
        True,
        lambda case: case.spec.architecture.startswith("Turing") and case.convolves_in_half,
        high=TURING_CONVOLUTIONS,
    ),
    WideningRule(True, lambda case: case.spec.architecture.startswith(MEASURED_TRAINING[-1]), high=NEWEST),
    WideningRule(True, lambda case: case.compiled, "torch.compile may be faster than what was traced", low=0.6),
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
        interval = interval.stretched(low=rule.low, high=rule.high)
        if rule.words:
            reasons.append(rule.words if isinstance(rule.words, str) else rule.words(case))
    return interval, reasons

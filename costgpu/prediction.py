"""The frozen values of an answer: candidates, predictions and the verdict. Imports `models`.

Apart from `models`, so that a command that only reads prices does not pay for them at start-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from costgpu.models import AcceleratorSpec, CpuSpec, Offer


class Provenance(StrEnum):
    """Where a predicted number comes from, best first."""

    MEASURED = "measured"
    BENCHMARKED = "benchmarked"
    MODELLED = "modelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Somewhere that the script could run.

    Attributes:
        offer: None for this machine.
        cpu: None for this machine.
        accelerator: Specs of the offer's accelerator; None without one.
        on_demand_usd_per_hour: For a spot offer, what the same machine costs on demand, if known.
    """

    offer: Offer | None
    cpu: CpuSpec | None = None
    accelerator: AcceleratorSpec | None = None
    on_demand_usd_per_hour: Decimal | None = None

    @property
    def is_gpu(self) -> bool:
        """Whether it has an accelerator."""
        return self.accelerator is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A prediction with its 80 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSpeed:
    """How long a job took on one instance type, in runs that succeeded.

    Attributes:
        job_seconds: Median; no boot, no set-up.
        runs: How many; at least one.
        log_spread: Standard deviation of the logarithm of their seconds; 0 for a single one.
        last_at: When the newest of them was closed.
        steps: Of the newest; None if that run was not estimated.
    """

    job_seconds: float
    runs: int
    log_spread: float
    last_at: datetime
    steps: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Seconds and cost of one workload on one candidate.

    The amounts are for the whole job, or per unit (an epoch, 1,000 steps) where its length is not known.

    Attributes:
        candidate: Where.
        step_seconds: One optimizer step of the last phase, everything in it.
        run_seconds: Training, set-up of the script and the work beside the steps.
        overhead_seconds: Boot and installation before the script starts.
        wall_seconds: Both together.
        cost_usd: What the provider will bill: machine, disk and address, for `wall_seconds`.
        terms: Seconds of one step by cause; they add up to `step_seconds` unless loading hides behind the step.
        parts: Seconds of the run by kind: steps, setup, validation, ...
        sigma: Standard deviation of the logarithm of `run_seconds`.
        provenance: Of `step_seconds`.
        infeasible: Why it cannot run there; empty if it can.
        notes: What widens the interval, and other remarks.
    """

    candidate: Candidate
    step_seconds: float
    run_seconds: Range
    overhead_seconds: float
    wall_seconds: Range
    cost_usd: Range
    terms: dict[str, float]
    parts: dict[str, float]
    sigma: float
    provenance: Provenance
    infeasible: str = ""
    notes: tuple[str, ...] = ()


class Choice(StrEnum):
    """What a verdict says."""

    GPU = "gpu"
    CPU = "cpu"
    HERE = "here"
    TOO_CLOSE = "too_close"
    NOWHERE = "nowhere"


class Objective(StrEnum):
    """What "best" means among offers."""

    CHEAPEST = "cheapest"
    FASTEST = "fastest"
    BALANCED = "balanced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer.

    Attributes:
        choice: Which side.
        sentence: For a person to act on.
        unit: What the amounts are for: ``the whole job``, ``one epoch`` or ``1,000 steps``.
        here: This machine.
        best_cpu: None if no CPU offer is feasible.
        best_gpu: None if no GPU offer is feasible.
        recommended: Where to run it; None with ``nowhere``.
        speedup: CPU seconds over GPU seconds of the run.
        premium: GPU price over CPU price per hour.
        break_even: The speed-up from which the GPU is the cheaper; infinite if none would do.
        probability_gpu_cheaper: By the intervals.
        settle: With ``too_close``: the measurement that would settle it, and its cost.
        table: Feasible predictions that nothing beats in both cost and time, by time.
        notes: What a reader should know.
    """

    choice: Choice
    sentence: str
    unit: str
    here: Prediction
    best_cpu: Prediction | None
    best_gpu: Prediction | None
    recommended: Prediction | None
    speedup: float | None
    premium: float | None
    break_even: float | None
    probability_gpu_cheaper: float | None
    settle: str
    table: tuple[Prediction, ...]
    notes: tuple[str, ...]

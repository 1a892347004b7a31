"""The frozen values of an answer: candidates, predictions and the verdict. Imports `models`.

Apart from `models`, so that a command that only reads prices does not pay for them at start-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum

from costgpu.models.offer import AcceleratorSpec, CpuSpec, Offer


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

    @property
    def accelerator_count(self) -> float:
        """Number of accelerators; below 1 for a slice, 0 without one."""
        return self.offer.accelerator.count if self.offer is not None and self.offer.accelerator is not None else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A prediction with its 80 % interval."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Range:
        """All three multiplied."""
        return Range(value=self.value * factor, low=self.low * factor, high=self.high * factor)

    def plus(self, more: float) -> Range:
        """All three increased."""
        return Range(value=self.value + more, low=self.low + more, high=self.high + more)


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

    @property
    def offer(self) -> Offer | None:
        """The candidate's offer; None for this machine."""
        return self.candidate.offer


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


class AdviceKind(StrEnum):
    """What a piece of advice changes."""

    MIXED_PRECISION = "mixed_precision"
    TF32 = "tf32"
    WORKERS = "workers"
    HOST_PYTHON = "host_python"
    FEWER_ACCUMULATIONS = "fewer_accumulations"
    LARGER_BATCH = "larger_batch"
    TOGETHER = "together"
    PREPROCESSING = "preprocessing"
    BETWEEN_EPOCHS = "between_epochs"
    OTHER_INSTANCE = "other_instance"
    REGION = "region"
    SPOT = "spot"
    DOES_NOT_FIT = "does_not_fit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One change that makes the job cheaper (or, where it costs nothing, shorter), with what the model says it saves.

    Attributes:
        kind: What is changed.
        action: What to do, without a full stop.
        saving_usd: Cost of `before` less that of `after` and `other_usd`; never negative; 0 where no cost is known.
        saving_seconds: Wall clock of `before` less that of `after` and `other_seconds`; negative if it takes longer.
        before: The verdict's recommendation; None where nothing is possible without the change.
        after: The changed workload where it then runs best; None where no time of it is known.
        other_usd: Cost of other machines that the change needs.
        other_seconds: Wall-clock time of those machines.
        probability: That it saves anything.
        at_most: The saving is an upper bound.
        basis: What it was computed from.
        notes: What else a reader should know, one sentence each.
    """

    kind: AdviceKind
    action: str
    saving_usd: float
    saving_seconds: float
    before: Prediction | None
    after: Prediction | None
    other_usd: float = 0.0
    other_seconds: float = 0.0
    probability: float = 1.0
    at_most: bool = False
    basis: str = ""
    notes: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """Saved part of the cost, of the time where it costs nothing; 0 where nothing is known before."""
        if self.before is None:
            return 0.0
        if self.before.cost_usd.value > 0:
            return self.saving_usd / self.before.cost_usd.value
        wall = self.before.wall_seconds.value
        return self.saving_seconds / wall if wall > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """When a GPU that is bought has paid for itself against one cloud offer.

    Attributes:
        against: The offer.
        saving_usd: What one job on the own GPU saves; negative if its energy alone costs more.
        jobs: After how many; infinite if never. `low` and `high` are the intervals' favourable and worst ends.
        hours: Of training on the own GPU until then.
        in_life: Whether a GPU that runs day and night gets there before it is written off.
    """

    against: Prediction
    saving_usd: float
    jobs: Range
    hours: float
    in_life: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """The script on a GPU that the user owns or would buy.

    Attributes:
        prediction: Its candidate has no offer; its cost is the energy.
        price_usd: Of the GPU; None if it is owned already.
        power_usd_per_kwh: Of electricity.
        power_source: ``as given``, or where the default comes from.
        card_watts: Average of the GPU while the script runs.
        host_watts: Of the rest of the computer.
        energy_kwh: Of one job, at the wall.
        amortised_usd: Share of the price in one job; None unless the hours of use are known.
        break_evens: Against the cheapest offer, and against the best GPU offer if that is another; none without a price.
        notes: What a reader should know.
    """

    prediction: Prediction
    price_usd: Decimal | None
    power_usd_per_kwh: float
    power_source: str
    card_watts: float
    host_watts: float
    energy_kwh: Range
    amortised_usd: float | None
    break_evens: tuple[BreakEven, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeNotebook:
    """A notebook service that lends a GPU for nothing, and whether the job fits one session of it.

    Attributes:
        name: Of the service.
        accelerator: That it lends.
        session_hours: After which it ends what runs.
        run_seconds: Of the job there.
        why_not: Why the job does not fit; empty if it does.
        limits: What else is limited, for people.
        source: Of the facts.
        as_of: When they were read.
    """

    name: str
    accelerator: str
    session_hours: float
    run_seconds: Range
    why_not: str
    limits: str
    source: str
    as_of: date

"""Candidates, predictions, the verdict and advice. Imports `offer`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum

from costgpu.models.offer import AcceleratorSpec, CpuSpec, Offer
from costgpu.models.provider_costs import ProviderCosts


class Provenance(StrEnum):
    """Where a predicted number comes from, best first."""

    MEASURED = "measured"
    BENCHMARKED = "benchmarked"
    MODELLED = "modelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Somewhere that the script could run.

    Attributes:
        offer: Offer of a provider; None for this machine.
        cpu: CPU of the offer's family; None for this machine.
        accelerator: Specs of the offer's accelerator; None without one.
        on_demand_usd_per_hour: On-demand price of a spot offer's machine, if known.
        costs: Prices of disk and address where the offer is; None for this machine.
    """

    offer: Offer | None
    cpu: CpuSpec | None = None
    accelerator: AcceleratorSpec | None = None
    on_demand_usd_per_hour: Decimal | None = None
    costs: ProviderCosts | None = None

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
        job_seconds: Median of the job's seconds; no boot, no set-up.
        runs: Number of runs; at least one.
        log_spread: Standard deviation of the logarithm of their seconds; 0 for a single one.
        last_at: Time at which the newest of them was closed.
        steps: Steps of the newest run; None if it was not estimated.
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
        step_seconds: Seconds of one optimizer step of the last phase, everything in it.
        run_seconds: Seconds of training, set-up of the script and the work beside the steps.
        overhead_seconds: Seconds of boot and installation before the script starts.
        wall_seconds: Seconds of run and overhead together.
        cost_usd: Bill of the provider: machine, disk and address, for `wall_seconds`.
        terms: Seconds of one step by cause; they add up to `step_seconds` unless loading hides behind the step.
        parts: Seconds of the run by kind: steps, setup, validation, ...
        sigma: Standard deviation of the logarithm of `run_seconds`.
        provenance: Provenance of `step_seconds`.
        infeasible: Reason why it cannot run there; empty if it can.
        notes: Reasons for the width of the interval, and other remarks.
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
        sentence: The answer for a person to act on.
        unit: Scope of the amounts: ``the whole job``, ``one epoch`` or ``1,000 steps``.
        here: Prediction for this machine.
        best_cpu: Best CPU offer; None if none is feasible.
        best_gpu: Best GPU offer; None if none is feasible.
        recommended: Place to run it; None with ``nowhere``.
        speedup: CPU seconds over GPU seconds of the run.
        premium: GPU price over CPU price per hour.
        break_even: The speed-up from which the GPU is the cheaper; infinite if none would do.
        probability_gpu_cheaper: Probability by the intervals.
        settle: The measurement that would settle a close call, and its cost; else empty.
        table: Feasible predictions that nothing beats in both cost and time, by time.
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
        action: The advice, without a full stop.
        saving_usd: Cost of `before` less that of `after` and `other_usd`; never negative; 0 where no cost is known.
        saving_seconds: Wall clock of `before` less that of `after` and `other_seconds`; negative if it takes longer.
        before: The verdict's recommendation; None where nothing is possible without the change.
        after: The changed workload where it then runs best; None where no time of it is known.
        other_usd: Cost of other machines that the change needs.
        other_seconds: Wall-clock time of those machines.
        probability: Probability that it saves anything.
        at_most: Whether the saving is an upper bound.
        basis: Figures that the saving was computed from.
        notes: Further sentences for a reader.
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
        against: The cloud offer.
        saving_usd: Saving of one job on the own GPU; negative if its energy alone costs more.
        jobs: Number of jobs; infinite if never. `low` and `high` are the intervals' favourable and worst ends.
        hours: Hours of training on the own GPU until then.
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
        prediction: Prediction without an offer; its cost is the energy.
        price_usd: Price of the GPU; None if it is owned already.
        power_usd_per_kwh: Price of electricity.
        power_source: ``as given``, or the source of the default price of electricity.
        card_watts: Average power of the GPU while the script runs.
        host_watts: Power of the rest of the computer.
        energy_kwh: Energy of one job, at the wall.
        amortised_usd: Share of the price in one job; None unless the hours of use are known.
        break_evens: Against the cheapest offer, and against the best GPU offer if that is another; none without a price.
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
        session_hours: Hours after which the service ends what runs.
        run_seconds: Seconds of the job there.
        why_not: Reason why the job does not fit; empty if it does.
        limits: Further limits, for people.
        source: Source of these facts.
        as_of: Day on which they were read.
    """

    name: str
    accelerator: str
    session_hours: float
    run_seconds: Range
    why_not: str
    limits: str
    source: str
    as_of: date

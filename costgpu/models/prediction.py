"""Candidates, predictions, the verdict and advice. Imports `offer`, `parallelism`.

One file of more than 400 lines: what a verdict is made of is read together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from costgpu.models.offer import USABLE_SHARE, AcceleratorSpec, CpuSpec, Interconnect, InterruptionRate, Offer
from costgpu.models.parallelism import Scaling
from costgpu.models.provider_costs import ProviderCosts

LEAST = 1e-9  # smaller amounts count as this in a ratio: a job of no steps takes no time at all


class Provenance(StrEnum):
    """Where a predicted number comes from, best first."""

    MEASURED = "measured"
    BENCHMARKED = "benchmarked"
    MODELLED = "modelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Somewhere that the script could run."""

    offer: Offer | None  # offer of a provider; None for this machine
    cpu: CpuSpec | None = None  # CPU of the offer's family; None for this machine
    accelerator: AcceleratorSpec | None = None  # specs of the offer's accelerator; None without one
    on_demand_usd_per_hour: Decimal | None = None  # on-demand price of a spot offer's machine, if known
    costs: ProviderCosts | None = None  # prices of disk and address where the offer is; None for this machine
    nodes: int = 1  # number of such machines that work together
    interconnect: Interconnect | None = None  # links of the offer's type; None if they are not known
    interruptions: InterruptionRate | None = None  # of a spot offer's machine; None where they do not count
    own_price_seconds: float | None = None  # from now on in which the offer's own price holds; None for a list price
    disk_gib: int | None = None  # size of the root disk; None for the default

    @property
    def is_gpu(self) -> bool:
        """Return whether it has an accelerator."""
        return self.accelerator is not None

    @property
    def accelerator_count(self) -> float:
        """Return the number of accelerators; below 1 for a slice, 0 without one."""
        return self.offer.accelerator.count if self.offer is not None and self.offer.accelerator is not None else 0.0

    @property
    def room_gib(self) -> float:
        """Return the memory of each accelerator that programs get, GiB; 0 without one."""
        chips = self.offer.accelerator if self.offer is not None else None
        if chips is None:
            return 0.0
        spec = self.accelerator
        return chips.memory_gib * (spec.room_gib / spec.memory_gib if spec is not None else USABLE_SHARE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A prediction with its 80 % interval."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Range:
        """Multiply all three."""
        return Range(value=self.value * factor, low=self.low * factor, high=self.high * factor)

    def plus(self, more: float) -> Range:
        """Increase all three."""
        return Range(value=self.value + more, low=self.low + more, high=self.high + more)

    def over(self, other: Range) -> Range:
        """Divide by an independent amount; the log-normal errors add up as squares, on each side of the value."""
        value = _ratio(self.value, other.value)
        down = math.hypot(math.log(_ratio(self.value, self.low)), math.log(_ratio(other.high, other.value)))
        up = math.hypot(math.log(_ratio(self.high, self.value)), math.log(_ratio(other.value, other.low)))
        return Range(value=value, low=value * math.exp(-down), high=value * math.exp(up))


def _ratio(one: float, other: float) -> float:
    return max(one, LEAST) / max(other, LEAST)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSpeed:
    """How long a job took on one instance type, in runs that succeeded."""

    job_seconds: float  # median of the job's seconds; no boot, no set-up
    runs: int  # number of runs; at least one
    log_spread: float  # standard deviation of the logarithm of their seconds; 0 for a single one
    last_at: datetime  # time at which the newest of them was closed
    steps: float | None = None  # steps of the newest run; None if it was not estimated


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceUnit:
    """What one step of a phase of inference makes on a candidate."""

    item: str  # name of an item, such as ``image``; of a unit, such as ``batch``, where its items are not known
    items: float  # items of one unit; 1 where they are not known
    input_tokens: float = 0.0  # tokens of the prompts of one unit; 0 unless it generates tokens
    output_tokens: float = 0.0  # tokens that one unit makes; 0 unless it generates tokens
    prefill_share: float | None = None  # share of its seconds in which prompts are read; None if not known


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePrediction:
    """One phase of a workload on a candidate."""

    label: str  # place of its step
    step_seconds: Range  # seconds of one step, everything in it, with its 80 % interval
    sustained_seconds: Range  # the same with its part of the work beside the steps that recurs
    seconds: float  # seconds of its predicted steps and of the work beside them
    terms: dict[str, float]  # seconds of one step by cause
    unit: InferenceUnit | None = None  # None for training


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Items or tokens of one kind per second, and their cost; boot and set-up, which come once, are not in it."""

    name: str  # what is counted, such as ``image``, ``input token`` or ``output token``
    per_second: Range
    usd_each: Range  # price of the seconds that one takes; 0 on this machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """What a job saves on a candidate, and goes on from after an interruption."""

    seconds_each: float  # seconds to save one; assumed where none was seen
    count: float | None  # number in what is predicted; None if none was seen
    measured: bool = False  # whether one was saved while it was measured; else the source says so, or it is assumed


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruptions:
    """What interruptions make of a job on spot machines, if after each the next machine goes on where it can."""

    rate: InterruptionRate  # of one machine; each of several may be taken, and ends the job on all
    checkpoints: Checkpoints
    restart_seconds: float  # from the creation of the next machine until the job goes on: boot, set-up
    interval_seconds: float | None  # between two checkpoints; None if none was seen
    best_interval_seconds: float  # the interval that costs the least time (Daly)
    expected: float  # mean number of interruptions
    undisturbed_seconds: Range  # wall clock without interruptions
    wall_seconds: Range  # wall clock with them, as the script is written
    best_seconds: float  # the same with a checkpoint at every best interval
    bare_seconds: float  # the same without any checkpoint; infinite where no float holds it


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimit:
    """What becomes of a job that ends by its own clock on a candidate."""

    seconds: float  # seconds after its set-up when its clock ends it; infinite if another phase has no clock
    steps: Range  # steps of the last phase that it makes before its clock ends it
    unlimited_seconds: Range  # seconds of the run if no clock ended it: of the same steps on every candidate
    reached: bool  # whether the clock ends it there, and not its number of steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Seconds and cost of one workload on one candidate.

    The amounts are for the whole job, or per unit (an epoch, 1,000 steps) where its length is not known.
    """

    candidate: Candidate
    step_seconds: float  # seconds of one optimizer step of the last phase, everything in it
    run_seconds: Range  # seconds of training, set-up of the script and the work beside the steps
    overhead_seconds: float  # seconds of boot and installation before the script starts
    wall_seconds: Range  # seconds of run and overhead together, with what interruptions are expected to add
    cost_usd: Range  # bill of the provider: machine, disk and address, for `wall_seconds`
    # seconds of one step by cause; they add up to `step_seconds` unless loading hides behind the step
    terms: dict[str, float]
    parts: dict[str, float]  # seconds of the run by kind: steps, setup, validation, ...
    sigma: float  # standard deviation of the logarithm of `run_seconds`
    provenance: Provenance  # provenance of `step_seconds`
    infeasible: str = ""  # reason why it cannot run there; empty if it can
    notes: tuple[str, ...] = ()  # reasons for the width of the interval, and other remarks
    phases: tuple[PhasePrediction, ...] = ()  # in the order in which they run
    scaling: Scaling | None = None  # how several GPUs work together; None where one works
    fixed_seconds: float = 0.0  # seconds that come once, whatever is predicted: boot, installation, the script's set-up
    interruptions: Interruptions | None = None  # in `wall_seconds` and `cost_usd`; None on demand
    time_limit: TimeLimit | None = None  # in `run_seconds`; None for a job without a clock of its own

    @property
    def work_seconds(self) -> Range:
        """Seconds of the run for the same work on every candidate: without the clock that would end it earlier."""
        return self.time_limit.unlimited_seconds if self.time_limit is not None else self.run_seconds

    @property
    def gpus(self) -> float:
        """GPUs that work: all that work together, one of a script in one process, 0 without any."""
        return self.scaling.gpus if self.scaling is not None else min(1.0, self.candidate.accelerator_count)

    @property
    def efficiency(self) -> float:
        """Throughput of its GPUs over that of as many single ones; 1 where one works."""
        return self.scaling.efficiency if self.scaling is not None else 1.0

    @property
    def interruption_factor(self) -> float:
        """Wall clock with interruptions over that without; 1 on demand."""
        plain = self.run_seconds.value + self.overhead_seconds
        return self.wall_seconds.value / plain if plain > 0 else 1.0

    @property
    def work_share(self) -> float:
        """`work_seconds` over the seconds of the run; 1 where no clock ends it."""
        return self.work_seconds.value / self.run_seconds.value if self.run_seconds.value > 0 else 1.0

    @property
    def outlasts_own_price(self) -> bool:
        """Return whether the job may last longer than the own price that it begins with."""
        held = self.candidate.own_price_seconds
        return held is not None and self.wall_seconds.high > held

    @property
    def offer(self) -> Offer | None:
        """Return the candidate's offer; None for this machine."""
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
class PaysFrom:
    """From how many items (steps, epochs) on a rented machine is worth its boot, where their number is not known."""

    place: Prediction  # the rented machine
    against: Prediction  # this machine, against which it saves time; or an offer, against which it saves money
    items: float  # number of items; 0 from the first, infinite if never
    item: str  # name of an item, or ``step`` or ``epoch`` of a training
    seconds: float  # seconds that so many take on `against`


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A reason why an answer may be wrong."""

    words: str  # in a few words, with its bound
    weight: (
        float  # logarithm of the factor by which a figure may be off; 0.1 or less without one, or if it is told anyhow
    )
    turns: str = ""  # sentence that says what the answer is at its bound; empty if it is the same
    said: str = ""  # what the notes that say it at length have in them; empty if none does


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer.

    Attributes:
        sentence: The answer for a person to act on.
        unit: Scope of the amounts: ``the whole job``, ``one epoch``, ``1,000 steps`` or ``1,000 images``.
        best_cpu: Best CPU offer; None if none is feasible.
        best_gpu: Best GPU offer; None if none is feasible.
        recommended: Place to run it; None with ``nowhere``.
        speedup_range: CPU seconds over GPU seconds of the run, with the 80 % interval.
        premium: GPU price over CPU price per hour.
        break_even: The speed-up from which the GPU is the cheaper; infinite if none would do.
        probability_gpu_cheaper: Probability by the intervals.
        settle: The measurement that would settle a close call, and its cost; else empty.
        table: Feasible predictions that nothing beats in both cost and time, and those of `asked`, by time.
        pays_from: Of a job whose length is not known, when a rented machine is worth its boot.
        asked: The best prediction of each instance type that the user named, by provider, infeasible ones included.
        headline: `sentence` without what it says of a busy machine, which is among the doubts; empty if it says nothing.
        doubts: What could make it wrong, the most important first.
    """

    choice: Choice
    sentence: str
    unit: str
    here: Prediction
    best_cpu: Prediction | None
    best_gpu: Prediction | None
    recommended: Prediction | None
    speedup_range: Range | None
    premium: float | None
    break_even: float | None
    probability_gpu_cheaper: float | None
    settle: str
    table: tuple[Prediction, ...]
    notes: tuple[str, ...]
    pays_from: tuple[PaysFrom, ...] = ()
    asked: tuple[Prediction, ...] = ()
    headline: str = ""
    doubts: tuple[Doubt, ...] = ()

    @property
    def speedup(self) -> float | None:
        """CPU seconds over GPU seconds of the run."""
        return self.speedup_range.value if self.speedup_range is not None else None

    @property
    def interruptible(self) -> Prediction | None:
        """Return the spot machine to explain interruptions by: the recommended one, else the cheapest of the table."""
        spot = [one for one in self.table if one.interruptions is not None]
        cheapest = min(spot, key=lambda one: one.cost_usd.value, default=None)
        is_spot = self.recommended is not None and self.recommended.interruptions is not None
        return self.recommended if is_spot else cheapest


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePlan:
    """Machines of one kind under a steady load of requests, one item each."""

    prediction: Prediction  # one machine, with the batch in which it takes the items
    machines: int
    capacity: Range  # items per second that one machine can do
    utilisation: float  # share of their time in which the machines work
    answer_seconds: float  # average from a request to its answer: a batch fills, waits its turn and is computed
    wait_seconds: float  # the part of it in which nothing is computed
    batch: float  # items of a batch
    usd_per_month: Range  # of all machines, disk and address included; 0 on this machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What it takes to answer requests at a steady rate."""

    rate_per_second: float  # items
    item: str  # name of an item
    choice: Choice
    sentence: str  # the answer for a person to act on
    here: ServicePlan | None  # None if this machine is too slow for the rate
    best_cpu: ServicePlan | None
    best_gpu: ServicePlan | None
    recommended: ServicePlan | None  # None with ``nowhere``
    notes: tuple[str, ...]
    asked: tuple[ServicePlan, ...] = ()  # the best plan of each instance type that the user named and that can serve


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
    LESS_MEMORY = "less_memory"
    DDP = "ddp"
    # of inference
    BATCH_SIZE = "batch_size"
    HALF_PRECISION = "half_precision"
    CHANNELS_LAST = "channels_last"
    COMPILE = "compile"
    CPU_PRECISION = "cpu_precision"
    ENGINE = "engine"
    QUANTIZATION = "quantization"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One change that makes the job cheaper (or, where it costs nothing, shorter), with what the model says it saves."""

    kind: AdviceKind
    action: str  # the advice, without a full stop
    before: Prediction | None  # the verdict's recommendation; None where nothing is possible without the change
    after: Prediction | None = None  # the changed workload where it then runs best; None where no time of it is known
    saving_usd: float = 0.0  # cost of `before` less that of `after` and `other_usd`; never negative; 0 where not known
    # wall clock of `before` less that of `after` and `other_seconds`; negative if it takes longer; 0 where not known
    saving_seconds: float = 0.0
    other_usd: float = 0.0  # cost of other machines that the change needs
    other_seconds: float = 0.0  # wall-clock time of those machines
    probability: float = 1.0  # probability that it saves anything
    at_most: bool = False  # whether the saving is an upper bound
    basis: str = ""  # figures that the saving was computed from
    notes: tuple[str, ...] = ()  # further sentences for a reader

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
    """When a GPU that is bought has paid for itself against one cloud offer."""

    against: Prediction  # the cloud offer
    saving_usd: float  # saving of one job on the own GPU; negative if its energy alone costs more
    jobs: Range  # number of jobs; infinite if never. `low` and `high` are the intervals' favourable and worst ends
    hours: float  # hours of training on the own GPU until then
    in_life: bool  # whether a GPU that runs day and night gets there before it is written off


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """The script on a GPU that the user owns or would buy."""

    prediction: Prediction  # prediction without an offer; its cost is the energy
    price_usd: Decimal | None  # price of the GPU; None if it is owned already
    power_usd_per_kwh: float  # price of electricity
    power_source: str  # ``as given``, or the source of the default price of electricity
    card_watts: float  # average power of the GPU while the script runs
    host_watts: float  # power of the rest of the computer
    energy_kwh: Range  # energy of one job, at the wall
    amortised_usd: float | None  # share of the price in one job; None unless the hours of use are known
    # against the cheapest offer, and against the best GPU offer if that is another; none without a price
    break_evens: tuple[BreakEven, ...]
    notes: tuple[str, ...]

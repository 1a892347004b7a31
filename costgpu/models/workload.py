"""What a script does, as measured: the `WorkloadProfile` and its parts. Imports `parallelism` and `footprint`.

Plain frozen dataclasses; `measure.profile_file` validates stored documents against them with pydantic. Times are
seconds on the machine that measured, memory is bytes unless the name says otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from costgpu.models.footprint import Footprint
from costgpu.models.parallelism import ONE_PROCESS, Parallelism

TensorShape = tuple[list[int], list[int], str]
"""Shape, strides and dtype name of one tensor."""


class TotalKind(StrEnum):
    """What is known about the number of steps."""

    EXACT = "exact"
    APPROXIMATE = "approximate"  # an inner loop's length changes from epoch to epoch
    UPPER_BOUND = "upper_bound"  # the script may stop early
    TIMED = "timed"  # it ends after `Total.seconds` on any machine, however many steps that are
    UNBOUNDED = "unbounded"  # it runs until somebody stops it
    UNKNOWN = "unknown"


class ExtraKind(StrEnum):
    """Work that is not a training step."""

    VALIDATION = "validation"
    CHECKPOINT = "checkpoint"
    EPOCH_START = "epoch_start"  # workers start, files open, and whatever else happens between epochs
    ROLLOUT = "rollout"  # a policy acts in its environment between updates, which no GPU makes faster
    OTHER = "other"


class Rhythm(StrEnum):
    """What an extra repeats with: every so many epochs or steps, or once per run."""

    EPOCH = "epoch"
    STEPS = "steps"
    RUN = "run"


class GpuPath(StrEnum):
    """How the seconds of a step on a GPU can be known."""

    TRACED = "traced"  # from the ops that were traced
    COUNTED = "counted"  # from the FLOPs and bytes that the framework counts itself
    TABLE = "table"  # from measured speed-ups of its kind of work
    NONE = "none"  # a GPU does nothing for this code as it is written


class MemoryKind(StrEnum):
    """What live tensors on an accelerator are for."""

    WEIGHTS = "weights"  # parameters and buffers, and copies of them in other types
    GRADIENTS = "gradients"
    STATES = "states"  # of optimizers
    ACTIVATIONS = "activations"  # kept for the backward pass
    LOGITS = "logits"  # outputs of the size of a vocabulary, and what a loss makes of them
    TEMPORARIES = "temporaries"
    DATA = "data"  # batches, masks, tables


def key_on(workload: str, nodes: int) -> str:
    """Return the key of a workload on several machines, by which its measured speed is found again; its own on one."""
    return f"{workload}@{nodes}" if workload and nodes > 1 else workload


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRow:
    """One kind of op of the traced steps."""

    op: str  # name, such as ``aten::addmm``
    phase: str  # ``forward``, ``backward``, ``optimizer`` or ``validation``; of generation, ``prefill`` or ``decode``
    inputs: list[TensorShape]
    outputs: list[TensorShape]
    count: int  # calls over all traced steps
    seconds: float = 0.0  # seconds in it on this machine over all traced steps
    # ``transposed``, ``groups``, ``output_mask`` of convolutions; ``masks``: inputs that are dropout masks
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTotals:
    """What one step computes, in all, where single ops are not known."""

    flops: float  # FLOPs of matrix multiplies and convolutions, forward and backward
    bytes_moved: float  # bytes moved to and from memory
    kernels: float  # kernels launched
    convolutions: float = 0.0  # share of `flops` that are convolutions
    dtype: str = "float32"  # type in which most of it is computed
    source: str = ""  # who counted


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Seconds of one step without the tracer."""

    count: int  # number of steps timed
    median_seconds: float  # median of the steps with nothing but training in them
    mean_seconds: float  # mean of the same steps; spikes are limited to three medians
    low_seconds: float  # tenth percentile
    high_seconds: float  # ninetieth percentile
    drift: float = 1.0  # median of the last quarter over median of the first; 1 is steady
    traced_only: bool = False  # whether only traced steps were seen (very slow ones)
    # whether the median stands for all steps: each was timed by itself, and on average they take no less
    by_median: bool = False

    @property
    def seconds(self) -> float:
        """Return the seconds that a step counts for, and that people see.

        The median, which a neighbour moves less than the mean: what steps take beyond it on average is work beside
        them (`Phase.extras`). The mean where some steps were timed together, or most take longer than the average.
        """
        return self.median_seconds if self.by_median else self.mean_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLoading:
    """How batches arrive."""

    wait_seconds_per_step: float = 0.0  # time the step waited in ``next(loader)``
    # CPU time to make one batch, in whichever process makes it; None if not seen
    fetch_seconds_per_batch: float | None = None
    fetch_wait_seconds_per_batch: float = 0.0  # time that a worker waits for disk or network to make one batch
    batches_per_step: float = 0.0  # batches drawn for one optimizer step
    workers: int = 0  # workers of the DataLoader; 0 when the main process makes the batches
    batch_size: int | None = None  # samples in a batch; None if there is no tensor to tell
    batch_bytes: int = 0  # bytes of the tensors of one batch


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerFacts:
    """One optimizer of a phase; `updates_per_step` is below 1 for one that steps more rarely than the first."""

    name: str
    parameters: int
    tensors: int
    foreach: bool | None = None
    fused: bool | None = None
    momentum: bool = False
    dtypes: dict[str, int] = field(default_factory=dict)
    state_bytes: int = 0
    updates_per_step: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """How a unit makes tokens: one prefill of all prompts, then one decode for each further token."""

    sequences: float  # sequences decoded together: prompts times beams
    prompt_tokens: float  # tokens of one prompt, median
    new_tokens: float  # tokens made from one prompt, median of what was seen
    decodes: float  # decode calls of one unit
    most_new_tokens: float | None = None  # limit that the script sets; None without one
    traced_decodes: int = 0  # decode calls in the trace, whose ops have the phase ``decode``
    cache_bytes_per_token: float = 0.0  # bytes of the key-value cache for one token of one sequence; 0 if not known
    layers: int = 0  # attention layers; 0 if not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What a phase repeats and its total counts: a training step, a scored batch, or prompts that are answered."""

    name: str = "step"  # ``step``, ``round``, ``tree``, ``fit``, ``iteration``, ``batch``, ``prompt``
    trains: bool = True  # whether it changes a model; False where models only run forward
    items: float | None = None  # rows, images or prompts that it makes results of; None if it cannot be told, or trains
    item: str = "item"  # name of an item
    independent: bool = False  # whether the items can be grouped into other batches
    weights_dtype: str = "float32"  # type of most parameters
    activation_bytes: int = (
        0  # most bytes alive at once, beside parameters; 0 if not known, or kept for a backward pass
    )
    generation: Generation | None = None  # None unless it generates tokens

    def times(self, factor: float) -> Unit:
        """Return the unit with `factor` times the items."""
        made = self.generation
        return replace(
            self,
            items=None if self.items is None else self.items * factor,
            activation_bytes=round(self.activation_bytes * factor),
            generation=None if made is None else replace(made, sequences=made.sequences * factor),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """How many optimizer steps a phase takes, and how that was found."""

    kind: TotalKind
    steps: float | None  # number of steps; None when unknown or unbounded
    steps_per_epoch: float | None  # steps of one epoch; None when there is no epoch to speak of
    how: str  # one line for people
    seconds: float | None = None  # seconds after which the script ends the phase itself, on any machine; None without
    loops: list[str] = field(default_factory=list)  # the loops around the step, outermost first, one line each


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """Work beside the steps, with its own rhythm."""

    kind: ExtraKind
    seconds_each: float  # seconds of one occurrence on this machine
    rhythm: Rhythm
    every: float = 1.0  # epochs or steps from one to the next; ignored for once per run
    first: float | None = None  # epoch or step with which it first comes, from 1; None if not known
    # whether it was seen once and nothing says when it comes again: as often as told, or never
    seen_once: bool = False
    measured: bool = True  # False when it was inferred from the source because the measurement ended before it
    note: str = ""  # place where it was seen

    def count(self, steps: float, epochs: float, *, whole: bool) -> float:
        """Return how often it comes in so many steps or epochs.

        Args:
            whole: Whether they are the whole job, and not a part somewhere in it.
        """
        if self.rhythm is Rhythm.RUN:
            return 1.0 if whole else 0.0
        units, every = (epochs if self.rhythm is Rhythm.EPOCH else steps), max(self.every, 1e-9)
        if not whole or self.first is None:
            return units / every
        return max(0.0, math.floor((units - self.first) / every + 1e-6) + 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One phase of training or inference: the steps under one outermost loop."""

    label: str  # place of its step, such as ``train.py:41``
    total: Total
    steps_observed: int  # steps that really ran
    step: StepTimes
    data: DataLoading = field(default_factory=DataLoading)
    # the first is the one whose steps are counted; empty for hand-written updates
    optimizers: list[OptimizerFacts] = field(default_factory=list)
    ops: list[OpRow] = field(default_factory=list)  # ops of all `trace_steps` traced steps together
    trace_steps: int = 0  # steps in the trace; 0 when none could be traced
    op_seconds_per_step: float = 0.0  # seconds inside the ops of a traced step
    host_seconds_per_step: float = 0.0  # seconds outside ops and data loading: the script's own Python and NumPy
    calls_per_step: float = 0.0
    saved_tensor_bytes: int = 0  # bytes kept for the backward pass of one micro-batch, parameters not counted
    model_bytes: int = 0  # parameters and buffers of the modules that ran
    frozen_bytes: int = 0  # part of `model_bytes` that takes no gradient
    micro_batches: float = 1.0  # backward passes per step
    extras: list[Extra] = field(default_factory=list)  # validation, checkpoints and other work beside the steps
    unit: Unit = field(default_factory=Unit)
    gpu: GpuPath = GpuPath.TRACED
    gpu_reason: str = ""  # explanation for people: why it is only a table's figure, or why a GPU does nothing for it
    kind: str = ""  # kind of work, as the benchmark table names it (``gradient-boosted-trees``); empty if it is traced
    totals: StepTotals | None = None  # sums of a step, with `GpuPath.COUNTED`
    # seconds of a step in which nothing of the program computes: it sleeps, or waits for network, disk or a device
    waiting_seconds_per_step: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterPhase:
    """Training that the script starts after what was measured; `steps` None if that cannot be told."""

    label: str
    source: str
    steps: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine that measured."""

    cpu_model: str  # CPU name as the system reports it
    cores: int  # physical cores that this process may use
    threads: int  # threads that torch used
    memory_gib: float
    gemm_gflops: float  # best fp32 matrix multiply over several windows, GFLOP/s, all threads
    gemm_gflops_low: float  # the tenth-percentile window: how far the machine sags under its neighbours
    copy_gbps: float  # best memory copy, bytes read plus written, GB/s
    op_seconds: float  # least time of a tiny op: the cost of a call
    gemm_threads: int = 0  # threads with which `gemm_gflops` was measured; 0 for as many as cores
    accelerators: list[str] = field(default_factory=list)  # CUDA devices that torch sees here
    single_thread_mbps: float = 0.0  # bzip2 -9 of text on one thread, MB/s; 0 if not measured
    conv_gflops: float = 0.0  # best fp32 3x3 convolution with its backward, GFLOP/s, `gemm_threads`; 0 if not measured
    disturbed_share: float = 0.0  # share of the script's time that other programs took while it was measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Autocast:
    """An autocast region that the script entered."""

    device: str
    dtype: str
    enabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """The script's framework and what it was told about precision."""

    version: str
    python: str  # version of the interpreter; empty where no Python ran
    cuda_build: str | None = None  # CUDA version that this build is for; None for a CPU build
    float32_matmul_precision: str = "highest"  # ``highest``, ``high`` or ``medium``
    matmul_tf32: bool = False  # `torch.backends.cuda.matmul.allow_tf32`
    conv_tf32: bool = True  # `torch.backends.cudnn.allow_tf32`
    autocast: list[Autocast] = field(default_factory=list)
    compiled: int = 0  # number of calls of torch.compile
    name: str = "torch"  # ``torch``, ``keras``, ``jax``, ``xgboost``, ``log lines``, ...
    device: str = "cpu"  # device of the measured steps: ``cpu`` or ``cuda``
    channels_last: bool = False  # whether convolutions got tensors in channels-last order


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPeak:
    """The moment of a phase in which most memory of the accelerator is in use."""

    phase: str  # ``load``, ``forward``, ``backward``, ``optimizer`` or ``evaluation``
    bytes: int  # most bytes of live tensors in that phase
    kinds: dict[str, int]  # the same bytes by `MemoryKind`, at that moment


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMemory:
    """What one process holds on its accelerator, measured from every storage that it makes."""

    peaks: list[MemoryPeak]  # one of each phase that was seen
    reserved_bytes: int  # most bytes that PyTorch's caching allocator would reserve
    steady_bytes: int  # bytes alive after a step: weights, states, and gradients where they are kept

    @property
    def highest(self) -> MemoryPeak | None:
        """Return the peak of the phase that holds most; None where none was seen."""
        return max(self.peaks, key=lambda peak: peak.bytes, default=None)

    @property
    def peak_bytes(self) -> int:
        """Return the most bytes of live tensors; 0 where no peak was seen."""
        return max((peak.bytes for peak in self.peaks), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadProfile:
    """Everything that a prediction needs to know of a script.

    Attributes:
        script: File name or module name.
        created: Time of the measurement, ISO 8601 UTC.
        setup_seconds: Seconds from the start of the script to its first step.
        ended: Whether the script ran to its end during the measurement.
        wall_seconds: Seconds that it ran.
        peak_rss_bytes: Peak memory of the main process; None if the system does not tell.
        phases: Training phases in the order in which they ran.
        later_phases: Training that the measurement did not reach.
        notes: Remarks for a reader, one sentence each.
        workload: Key of what the script does (`costgpu.measure.workload_key`); empty if there is none.
        parallelism: How it trains in several processes; None if it trains in one.
        footprint: Files and packages that it used; None in a profile that was made before they were watched.
        memory: What the measured process, one rank where there are several, holds on its accelerator; None where its
            storages were not measured.
        without_weights: Whether its large tensors had shapes and no values: no step was timed, and the step times of this
            machine are modelled.
        weights_bytes: Bytes of pretrained weights that it loads by the name of a hub or from files, which a rented machine
            downloads.
    """

    script: str
    arguments: list[str]
    created: str
    costgpu_version: str
    machine: Machine
    framework: Framework
    setup_seconds: float
    ended: bool
    wall_seconds: float
    peak_rss_bytes: int | None
    phases: list[Phase]
    later_phases: list[LaterPhase] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    workload: str = ""
    parallelism: Parallelism | None = None
    footprint: Footprint | None = None
    memory: MeasuredMemory | None = None
    without_weights: bool = False
    weights_bytes: int = 0

    @property
    def ranks(self) -> Parallelism:
        """Return how it trains in its processes, be it one."""
        return self.parallelism or ONE_PROCESS

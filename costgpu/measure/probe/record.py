"""The two documents between costgpu and the probe: what is to be measured, and what was seen.

The probe writes the record; `costgpu.measure.profile` turns it into a workload profile. Both sides are shipped together,
so that keys may change with any release. Times are seconds, memory is bytes. Python 3.8. One file of more than 400 lines:
the two are one border.
"""

from __future__ import annotations

from typing import Any, List, Tuple, TypedDict, Union

Trips = Union[float, str, None]  # how often a loop runs: "inf" is endless, None is unknown
Tensor = Tuple[List[int], List[int], str]  # shape, strides, dtype


class ProbeConfig(TypedDict):
    script: str | None
    module: str | None
    args: list[str]
    measure_for: float
    hard_limit: float
    start_limit: float
    steps: int | None
    result: str
    scratch: str
    saved_hooks: bool
    fake_cuda: bool
    alone: bool  # every process group has one member, whatever is asked for
    gpus: int  # that the script is shown, where it is to believe that there are any
    launched: bool  # in an environment of several ranks that nobody has asked for, because the script needs one
    # ``none``: without weights; ``tried``: with them, unless they turn out too large; ``real``: with them
    weights: str
    change: (
        str  # names of changes that are made to the training without weights, with ``+`` between them; empty for none
    )
    every_part: bool  # all micro-batches of a step are computed, be they equal
    free_memory: int  # bytes of this machine before it; 0 if that is not known
    accelerate: list[str] | None  # options of `accelerate launch`; None if that does not start it


class _Counter(TypedDict):
    text: str
    increment: float | None
    increment_line: float | None  # half a line before a test that raises it itself
    loop_line: int | None
    reset_line: int | None
    targets: list[int]  # lines of the loops whose variable it is
    with_step: bool  # it is raised where the step is made, behind the same test
    unsteady: bool  # it is also raised or set back under a test of its own


class Counter(_Counter, total=False):
    """How one side of a comparison changes: where, by how much, and which loop starts it anew."""

    loop_depth: int  # of the function whose loop raises it, where that is not the one that makes the test


class Bound(TypedDict):
    """A comparison of two numbers that ends a loop; `how` is ``while``, ``break`` or ``return``."""

    how: str
    line: int
    test: str
    operator: str
    left: Trips
    right: Trips
    counters: list[Counter]
    step_line: int
    home: int  # line of the innermost loop that makes the test
    everywhere: bool  # it ends the whole script, not only the loops of its function
    latched: bool  # it sets a flag, and the flag ends the loop
    loose: bool  # it is only made every so many iterations


class EarlyExit(TypedDict):
    """A test that may end a loop and follows no counter."""

    line: int
    test: str
    clock: bool


class Gate(TypedDict):
    """A test by a remainder around the step: it is made every so many iterations of the loop."""

    every: float
    text: str  # of that number
    fixed: bool  # nothing in sight changes it
    goes_on: bool | None  # its counter lives on from one execution of the loop to the next; None if not known


class _Loop(TypedDict):
    file: str
    path: str
    line: int
    kind: str
    function: str
    depth: int
    library: bool
    trips: Trips
    why: str
    index: float | None  # of the loop variable, where it counts iterations
    start: float
    stride: float
    bounds: list[Bound]
    early_exit: list[EarlyExit]
    optimizers: bool  # it runs over a list of optimizers
    ragged: bool  # an incomplete group at the end steps too
    varies: bool  # its length is computed from an outer loop's variable
    source: str


class Loop(_Loop, total=False):
    """One loop around the step. `position` is trips, iterations so far, and whether it may end earlier."""

    target: str
    position: tuple[Trips, float | None, bool]
    loader: bool  # it walks a DataLoader
    skips: int  # line of a test before the step that passes an iteration by, for another reason than its number
    guard: int  # line of a test around the step that may come out either way
    opens: bool  # a test lets the step through from some iteration on, and then always
    gate: Gate
    caller: str  # package that calls the script's function that holds it; absent where the script does
    driven: bool  # that package does so in a loop of its own
    seconds: float  # it is over after so many seconds on any machine: what its clock is compared with
    clock: EarlyExit  # the test that does so


def new_loop(**known: Any) -> Loop:
    """Return a loop of which nothing is known but these values."""
    made: Any = {"trips": None, "why": "", "index": None, "start": 0, "stride": 1, "bounds": [], "early_exit": []}
    made.update(known, optimizers=False, ragged=False, varies=False)
    return made


class Snapshot(TypedDict):
    """The loops around one step, outermost first, and what was counted up to it."""

    anchor: int
    batches: int  # of the loader that feeds the steps; of the one that gave most, where that is not known
    all_batches: int
    loops: list[Loop]


class IntervalEvents(TypedDict, total=False):
    """What one interval held besides its step."""

    save: float
    save_bytes: float  # written by torch.save, where nothing else saved
    unwritten_bytes: float  # of tensors without memory, that a save leaves out
    validation: float
    validation_batches: int
    loader_start: float
    opened: int
    traced: bool


class LaterWork(TypedDict, total=False):
    """Training after the loop that was measured."""

    file: str
    line: int
    source: str
    trips: float | None
    times: float  # the length of the training that was measured last, where it is written like that
    why: str


class PeriodicWork(TypedDict):
    """Validation, a checkpoint, or other gated work in a loop's body."""

    kind: str  # ``validation``, ``checkpoint``, or ``work``: other work that may take its time
    line: int
    batches: float | None  # of a DataLoader, or forward passes; None if not known
    batch_size: int | None
    every: Trips  # iterations of the loop from one to the next; "inf" for what does not come back, None if not known
    opens: (
        list[float] | None
    )  # iterations at which it comes, counted from the one that made step `step`; None if not known
    by_steps: bool  # both are numbers of steps
    at_most: bool  # something that is not known decides, too: what is better than before is saved
    after: bool  # it stands after the step in the loop's body
    evaluates: bool  # whether it, or a function that it calls, was seen to run a model in eval mode
    timed: float | None  # seconds of an evaluation by it before the first step; None without one
    test: str  # what it depends on; empty for nothing
    step: int  # the step that had just been made when this was read
    source: str
    loop_line: int
    path: str


class CodePlace(TypedDict):
    """A statement of the script's."""

    file: str
    line: int
    source: str


class Upcoming(TypedDict):
    later: list[LaterWork]
    periodic: list[PeriodicWork]
    applied: list[CodePlace]  # loops that come later and only run a model


class Loader(TypedDict, total=False):
    workers: int
    batch_size: int | None
    pin_memory: bool
    length: int | None
    fetch_seconds: float | None
    fetches: int
    fetch_waits: float  # in which a fetch waited; in the script's own process for a core, too
    fetch_run_delay: float  # in which a worker was ready to fetch and had no core
    start_seconds: float | None  # until its workers first gave a batch, where they start anew each time; None without


class Batch(TypedDict):
    size: int | None
    bytes: int


class Optimizer(TypedDict):
    name: str
    foreach: bool | None
    fused: bool | None
    momentum: bool
    parameters: int
    tensors: int
    dtypes: dict[str, int]
    state_bytes: int
    steps: int


class Op(TypedDict):
    """All calls of one op with the same tensors."""

    op: str
    phase: str
    inputs: list[Tensor]
    outputs: list[Tensor]
    count: int
    seconds: float
    attributes: dict[str, Any]


class Saves(TypedDict):
    """How often a trainer says that it saves a checkpoint."""

    rhythm: str  # ``steps`` or ``epoch``
    every: float


class Validation(TypedDict):
    """What a trainer says of its evaluations, reached or not."""

    batches: float | None  # of one evaluation; None if it does not know
    batch_size: int | None
    rhythm: str  # ``steps``, ``epoch`` or, of training, ``seconds``
    every: float


class _TrainerLength(TypedDict):
    trainer: str
    total: Trips
    per_epoch: float | None
    may_stop: list[str]  # the first is the clock, where there are `seconds`
    how: str


class TrainerLength(_TrainerLength, total=False):
    """What a trainer says of its own length, and how often it saves and evaluates; without what it cannot tell."""

    saves: Saves | None
    validation: Validation | None
    seconds: float | None  # after which it ends on any machine
    acts: bool  # whether what its model does in eval mode is to act in an environment, once in each epoch


class Intervals(TypedDict):
    """The time from each step to the next, and what was seen around the steps."""

    steps: int
    seconds: list[float]
    waits: list[float]  # of which inside next(loader)
    special: dict[str, IntervalEvents]  # interval -> what it held besides its step
    snapshots: list[Snapshot]
    upcoming: Upcoming
    loader: Loader | None
    batch: Batch | None
    optimizers: list[Optimizer]
    model: dict[str, int]  # bytes and frozen_bytes of the modules that ran in the traced steps


class GenerationFacts(TypedDict):
    """Prefill and decodes, of each unit in turn."""

    sequences: list[int]
    prompt_tokens: list[int]
    decodes: list[int]
    most_new_tokens: float | None
    traced_decodes: int
    cache_bytes_per_token: int
    layers: int
    same_loop: bool  # both are calls at one place, whose innermost loop is over tokens


class FollowedSize(TypedDict):
    """A side of the tensors that is computed from a loop's variable."""

    line: int  # of the loop
    text: str  # the expression
    before: int  # at the first trace
    now: int  # at the late one
    mean: float  # over all turns of the loop
    sides: int  # of one tensor that are of this size, at most
    values: float  # mean of the size to the power of `sides`, over all turns of the loop


class _PhaseRecord(Intervals):
    trains: bool
    line: int
    file: str
    told: TrainerLength | None
    elsewhere: int  # steps of the same optimizer at other places, which are not counted
    own_seconds: list[float]  # of the probe, between the intervals
    gap_seconds: float  # before the phase
    blocked: list[float]  # in which the script's thread waited for anything but a core and next(loader)
    run_delay: list[float]  # in which it was ready and had no core; no part of `seconds` and `waits`
    # seconds, waits, blocked and run delay of its only step, from its first batch or forward pass on; else None
    first: tuple[float, float, float, float] | None
    saved_tensor_bytes: int
    micro_batches: int
    device: str
    trace_steps: int
    growth: float  # values that the forward ops of a late step make, over those of the traced one; 1 if none was late
    followed: list[FollowedSize]
    ops: list[Op]
    op_seconds: float
    calls: int
    host_seconds: float
    host_calls: int
    warm_seconds: float | None  # of the first unit, where it is not among the intervals
    tail_seconds: float  # from the last unit to the end of a script that ended


class PhaseRecord(_PhaseRecord, total=False):
    """One phase of torch: the training steps, or units of inference, inside one outermost loop."""

    call: int  # of the function that holds the loop, by a library that calls it again and again: 1 for the first
    # of units that only run models forward:
    sizes: list[int | None]  # items of each unit
    item: str  # image, text, prompt or item
    over_modules: bool  # the innermost loop is over the modules of one unit
    weights_dtype: str
    activation_bytes: int
    generation: GenerationFacts | None


class AutocastRecord(TypedDict):
    device: str
    dtype: str
    enabled: bool


class TorchFacts(TypedDict):
    """What torch says of itself and was told about precision and GPUs."""

    version: str
    threads: int
    cuda_build: str | None
    cuda_devices: list[str]
    float32_matmul_precision: str
    conv_tf32: bool
    matmul_tf32: bool
    autocast: list[AutocastRecord]
    compiled: int
    fake_cuda: bool
    fake_cuda_devices: int
    fake_cuda_failures: list[str]
    attention: list[str]
    cudnn_benchmark: bool
    processes_for_no_gpu: bool
    processes: int  # that train, as the script asks for them


class CollectiveRow(TypedDict):
    """Calls of one collective in an average step."""

    op: str
    dtype: str
    ranks: int  # of its group
    backward: bool  # it is made inside a backward pass
    calls: float
    elements: float
    bytes: float


class Sighting(TypedDict):
    """Something that spreads a model over ranks, all calls at once."""

    what: str
    place: str
    schemes: dict[str, int]  # scheme -> parameters that it was called with
    parameters: int
    trained: int
    unit: int  # parameters of the largest unit that is gathered at once
    units: int  # number of such units


class DataPart(TypedDict):
    """What the loader of the training says of its part of the data."""

    kinds: list[str]  # classes of the loader, its samplers and its dataset
    split_by_node: bool
    samples: int | None
    batches: int | None
    batch_size: int | None
    split_batches: bool
    drop_last: bool
    replicas: int | None


class RanksRecord(TypedDict):
    """How the script trains in several processes, as far as it was seen."""

    asked: int  # processes, by the script itself
    assumed: int  # GPUs that it was shown
    needs_launcher: bool  # it was given a launcher's environment because it failed without one
    nodes: int  # machines, by the script itself
    measured: int  # ranks that it was told
    why_alone: str  # why that was one; empty if nobody stood in the way
    gpu_backend: bool  # it asks for collectives between GPUs
    fixed: bool  # the number of processes is written in the script
    sightings: list[Sighting]
    meshes: list[Tuple[list[int], list[str]]]
    comm_hooks: list[str]
    collectives: list[CollectiveRow]
    answer_seconds: float  # in which collectives were answered
    data: DataPart | None
    rank_batch: int | None
    batch_divided: str
    data_divided: str
    global_batch: bool  # the framework divides the batch among the ranks
    sampler_inserted: bool  # the framework distributes the data


class StepTotalsRecord(TypedDict, total=False):
    """FLOPs, bytes and kernels of a step, as counted from layers or operations."""

    flops: float
    bytes: float
    kernels: float
    convolutions: float
    dtype: str
    unknown_loops: bool


class SearchFacts(TypedDict):
    """What a search of scikit-learn will fit, and how much of it was seen."""

    what: str  # candidates, values (of a parameter), parts of the data
    candidates: int
    folds: int
    refit: bool
    fits: float  # in all, with the refit
    planned: list[list[float]]  # length of a fit (trees, rounds, epochs), number of such fits; empty if not told
    seen: list[float]  # lengths of the fits whose times are in the series
    tried: int  # candidates
    unlike: float  # share of the candidates with a value of another parameter that none of those tried had
    names: list[str]  # of these parameters


class SeriesFacts(TypedDict, total=False):
    """What a framework says of a series; each sets what it knows."""

    total: float | None
    per_epoch: float | None
    epochs: int
    saves: Saves | None
    validation: Validation | None
    may_stop: bool
    batch: int | None
    optimizer: str
    parameters: int | None
    tensors: int
    model_bytes: int | None
    totals: StepTotalsRecord | None
    settings: dict[str, str]
    estimator: str
    asks_gpu: bool
    outer: str
    description: str  # of a progress bar
    may_stop_at: str
    told: bool  # the total is what the script said when it made its bar, not the length of what it goes through
    busy: float
    cost_analysis_flops: float
    uncounted: str
    search: SearchFacts | None  # that this is, or is inside of
    inside: bool  # a part of the fits of a search or a cross-validation, which are counted themselves
    applied: str  # of a jitted function that updates nothing: "only", or "trains" if the script takes gradients
    differentiated: bool  # of a jitted function: gradients were taken in it
    evaluating: float  # seconds of jitted functions that update nothing, beside its steps
    inference: bool  # its steps only run what has been trained; `batch` is then the items of one
    framework: str  # its name where that depends; of a program, whose lines it prints, or ``log lines``
    # of a program that is known by what it prints:
    how: str  # how its total is known, or why it is not
    kind: str  # of work, in the benchmark table; empty if it is not known
    gpu_reason: str
    together: bool  # steps between two lines are timed together
    between_epochs: float  # seconds that an epoch takes beyond its steps


class SurroundingLoop(TypedDict, total=False):
    """A loop around a series: of the script, or (line 0) of a library."""

    trips: Trips
    file: str
    line: int
    position: tuple[Trips, float | None, bool]
    trials: bool  # of a search, which may choose another length for each


class SeriesRecord(TypedDict):
    """One thing that repeats: the steps of a fit, boosting rounds, a progress bar."""

    source: str
    unit: str
    total: float | None
    steps: int
    open: bool
    seconds: list[float]
    lead: float  # from its opening to the first step
    after: float  # from its last step to the end of the measurement
    setup: str  # why it is no more than preparation; empty if it may be the job
    label: str
    facts: SeriesFacts
    special: dict[str, IntervalEvents]
    snapshots: list[Snapshot]
    later: list[LaterWork]  # fits that the script makes afterwards
    periodic: list[PeriodicWork]  # what its source names beside the steps
    openings: int
    around: list[SurroundingLoop]


class PlainLoop(TypedDict):
    """A loop of the script that no framework counts; `index` is how many iterations it has made."""

    file: str
    line: int
    source: str
    trips: float
    index: float
    early: bool
    caller: str  # package that calls the function that holds it; empty where the script does
    driven: bool  # that package does so in a loop of its own


class Again(TypedDict):
    """Of loops that begin anew again and again, though no loop around them that is known moves on."""

    by: str  # package that calls their function; empty for the script, or if that is not known
    times: float  # so far, about
    around: list[SurroundingLoop]  # the library's loops that are known, outermost first


class _LoopProgress(TypedDict):
    loops: list[PlainLoop]
    first: float
    last: float
    lead: float  # from the start of the script until they were first seen
    seconds: float
    times: list[tuple[float, float]]  # seconds and iterations since it was first seen
    libraries: list[str]  # those that compute on a GPU, too, and whose tensors the loops make


class LoopProgress(_LoopProgress, total=False):
    """How far the script's own loops came, outermost first, in iterations of the innermost."""

    again: Again
    clock: str  # the test of a clock that ends the one loop, whose trips are seconds then


class ActivityRecord(TypedDict):
    """CPU seconds in a stretch of time, and looks at the threads of the script: see `probe.activity`."""

    wall: float
    cores: int  # that the process may use; 0 where the system does not tell
    cpu: float  # of the process, all threads, and of what it has started
    children_cpu: float  # of the latter
    main_cpu: float  # of the script's own thread; 0 where the system does not tell
    main_run_delay: float  # in which that thread was ready and had no core
    run_delay: float  # the same of all threads of the process, added up
    neighbours_cpu: (
        float  # of all other programs on the cores that the process may use; 0 where the system does not tell
    )
    stolen: float  # taken from these cores by other virtual machines
    looks: int
    off: int  # looks at which the script's thread did not run
    alone: int  # of which no other thread of the process ran
    quiet: int  # of which no process that it had started ran either
    step_off: int  # as `off`, of looks into steps with nothing beside them, and not into next(loader)
    step_alone: int  # as `alone`, of these


class TimeBudget(TypedDict):
    """A call of a library that ends by the clock, and that was going on when the measurement ended."""

    seconds: float  # of all such calls together
    times: float  # calls, by the loops around them
    words: str


class _Always(TypedDict):
    status: str  # cut, ended, never_stepped, exited, crashed
    python: str
    wall_seconds: float


class MemoryPeakRecord(TypedDict):
    """The most bytes that were alive in a phase."""

    phase: str
    bytes: int
    births: dict[str, int]  # bytes by the phase in which they were made, or ``logits`` or ``data``
    kept: int  # of those made in this phase, the bytes that outlived it


class MemoryRecord(TypedDict):
    """What the script would have held on a GPU, by the storages that it made; bytes."""

    reserved: int  # by an allocator such as PyTorch's
    steady: int  # alive after a step
    peaks: list[MemoryPeakRecord]
    pretrained: int  # weights that it would have loaded, as they are stored
    steered: list[str]  # ops by which values that are not there chose shapes
    skipped: int  # micro-batches that were told by an equal one before them
    computed: list[str]  # ops that were computed on zeros, because nobody tells their shapes


class ProbeRecord(_Always, total=False):
    """What was seen of a script. The last ten are of one that exited or crashed."""

    version: int
    setup_seconds: float
    peak_rss_bytes: int | None
    cpu_seconds: float  # of this process, and of its children that have ended
    children_cpu_seconds: float
    children: int  # processes that the script started for functions of its own
    activity: ActivityRecord | None  # since the first step; without one, since the start
    before: dict[str, float]  # validation and save, before the first step
    series: list[SeriesRecord]
    loops: LoopProgress | None
    awaits_training: bool  # a framework's work was still to come: bars and loops are not the job
    versions: dict[str, str]
    budget: TimeBudget | None
    importing: Tuple[float, float] | None  # seconds and CPU seconds in which frameworks were imported
    fit_going: dict[str, str] | None  # estimator and label of a fit that did not end
    torch: TorchFacts | None
    memory: MemoryRecord | None  # of a script that was measured without weights
    changed: dict[str, str]  # how each change was made that was asked for; without those that found nothing to change
    model_bytes: int  # of the weights of the largest model that was loaded or trained, as far as that was seen
    what: str  # that was too large
    bytes_needed: int  # by that
    ranks: RanksRecord
    phases: list[PhaseRecord]
    optimizers_made: int
    manual: int  # backward passes before the first optimizer step
    probe_errors: list[str]
    where: list[str]
    cut_in_validation: bool
    code: int
    message: str
    kind: str
    raised_in: str  # script, probe, or the library whose code raised it
    missing: str | None
    missing_files: list[list[str]]  # of a hub, that could not be had: repository and name of each
    trail: str
    refused_path: str | None  # that the system did not let it change
    while_tracing: bool
    no_module: bool
    bases: list[str]

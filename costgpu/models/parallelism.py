"""How a training is spread over several processes, as measured and as predicted. Imports nothing of ours.

Bytes are bytes, times seconds. A *rank* is one process of a training; each has one GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Scheme(StrEnum):
    """How a model, its gradients and its optimizer are spread over ranks."""

    SINGLE = "single"  # one process, one GPU
    DATA_PARALLEL = "data_parallel"  # torch.nn.DataParallel: one process that copies the model to every GPU
    DDP = "ddp"  # every rank holds everything; gradients are reduced. Also Horovod, MirroredStrategy, pmap
    ZERO1 = "zero1"  # the optimizer's state is sharded. Also ZeroRedundancyOptimizer
    ZERO2 = "zero2"  # gradients, too
    ZERO3 = "zero3"  # parameters, too (DeepSpeed)
    FSDP = "fsdp"  # parameters, gradients and optimizer are sharded, parameters are freed after the forward pass
    FSDP_GRAD_OP = "fsdp_grad_op"  # parameters stay gathered between forward and backward pass
    HSDP = "hsdp"  # sharded within a machine, replicated between machines
    TENSOR = "tensor"  # tensor parallel: named, not predicted
    PIPELINE = "pipeline"  # pipeline parallel: named, not predicted
    OTHER = "other"  # several processes that communicate in a way that is not known: not predicted

    @property
    def predicted(self) -> bool:
        """Return whether its time on several GPUs can be predicted."""
        return self not in (Scheme.TENSOR, Scheme.PIPELINE, Scheme.OTHER)

    @property
    def phrase(self) -> str:
        """Its name as its users write it."""
        return _PHRASES[self]

    @property
    def shards_optimizer(self) -> bool:
        """Return whether a rank holds, and updates, only a part of the optimizer's state."""
        return self.shards_parameters or self in (Scheme.ZERO1, Scheme.ZERO2)

    @property
    def shards_parameters(self) -> bool:
        """Return whether a rank holds only a part of the parameters between uses."""
        return self in (Scheme.ZERO3, Scheme.FSDP, Scheme.FSDP_GRAD_OP, Scheme.HSDP)


_PHRASES = {
    Scheme.SINGLE: "one process",
    Scheme.DATA_PARALLEL: "DataParallel",
    Scheme.DDP: "DDP",
    Scheme.ZERO1: "ZeRO-1",
    Scheme.ZERO2: "ZeRO-2",
    Scheme.ZERO3: "ZeRO-3",
    Scheme.FSDP: "FSDP",
    Scheme.FSDP_GRAD_OP: "FSDP (SHARD_GRAD_OP)",
    Scheme.HSDP: "HSDP (FSDP in each machine)",
    Scheme.TENSOR: "tensor parallelism",
    Scheme.PIPELINE: "pipeline parallelism",
    Scheme.OTHER: "a parallelism that is not known",
}


class BatchScaling(StrEnum):
    """What becomes of the batch of one rank when there are more ranks."""

    PER_RANK = "per_rank"  # it stays: the global batch grows (weak scaling)
    GLOBAL = "global"  # the script divides a global batch by the number of ranks (strong scaling)
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One kind of collective call of an optimizer step, as one rank makes it."""

    op: str  # ``all_reduce``, ``all_gather``, ``reduce_scatter``, ``broadcast``, ``all_to_all``, ``send``, ...
    dtype: str  # type of the elements, such as ``float32``
    calls_per_step: float
    bytes_per_step: float  # bytes of the whole tensors (gathered, or to be reduced), of all calls of a step
    group_size: int = 0  # ranks of the group that it ran in; 0 if not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """How a script trains in several processes.

    Attributes:
        scheme: How the model is spread.
        how: How that was found, for people, such as ``DistributedDataParallel at train.py:41``.
        launcher: What starts the processes: ``torchrun``, ``accelerate launch``, ``deepspeed``; empty if the script does.
        processes: Ranks that are asked for; None for one per GPU.
        nodes: Machines that are asked for.
        fixed_processes: Whether the number of ranks is written in the script itself, so that another machine does not
            change it.
        measured_ranks: Number of ranks that the script was told during the measurement.
        parameters: Number of parameters of the model, frozen ones included; 0 if not known.
        trained_parameters: Number of those that take gradients.
        gradient_bytes: Bytes of one gradient element as it is reduced.
        gathered_bytes: Bytes of one parameter element as it is gathered; 0 where nothing is gathered.
        reduced_bytes: Bytes of one gradient element as it is reduce-scattered; 0 where nothing is.
        reductions_per_step: How often all gradients are reduced in an optimizer step: 1 with ``no_sync``, else the number
            of micro-batches.
        collectives: What was seen in a step; empty if nothing was.
        batch: What becomes of a rank's batch with more ranks.
        sampler_distributed: Whether every rank gets its own part of the data; None if not known.
        epoch_samples: Samples of one epoch over all ranks; None if not known.
        rank_batch: Samples that one rank takes per micro-batch, as measured; None if not known.
        drop_last: Whether an incomplete last batch is dropped.
        largest_unit_parameters: Parameters of the largest unit that is gathered at once, where parameters are sharded.
        elastic: Whether the launcher was told to go on with fewer machines, or to start its processes again.
        needs_gpu_backend: Whether it asks for collectives between GPUs (NCCL), which a machine without GPUs refuses.
        measured_scheme: How the model was spread during the measurement, where that is not `scheme`; None if it is.
        chosen: Whether nothing is written yet, so that every place is predicted with the scheme that suits it best.
    """

    scheme: Scheme
    how: str = ""
    launcher: str = ""
    processes: int | None = None
    nodes: int = 1
    fixed_processes: bool = False
    measured_ranks: int = 1
    parameters: int = 0
    trained_parameters: int = 0
    gradient_bytes: float = 4.0
    gathered_bytes: float = 0.0
    reduced_bytes: float = 0.0
    reductions_per_step: float = 1.0
    collectives: list[Collective] = field(default_factory=list)
    batch: BatchScaling = BatchScaling.UNKNOWN
    sampler_distributed: bool | None = None
    epoch_samples: int | None = None
    rank_batch: int | None = None
    drop_last: bool = False
    largest_unit_parameters: int = 0
    elastic: bool = False
    needs_gpu_backend: bool = False
    measured_scheme: Scheme | None = None
    chosen: bool = False

    @property
    def alone(self) -> bool:
        """Return whether it is one process on one GPU, however many a machine has."""
        return self.scheme is Scheme.SINGLE


ONE_PROCESS = Parallelism(scheme=Scheme.SINGLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """What several GPUs make of a training on one candidate."""

    gpus: int  # GPUs that work, over all nodes
    nodes: int
    scheme: Scheme
    efficiency: float  # throughput over that of one GPU times `gpus`; 1 is perfect
    efficiency_low: float  # 80 % interval
    efficiency_high: float
    steps: float | None = None  # optimizer steps of the scope with so many ranks; None if that does not change
    communication_seconds: float = 0.0  # of one step, exposed: not hidden behind computing
    straggler_seconds: float = 0.0  # of one step: waiting for the slowest rank, latency
    input_seconds: float = 0.0  # of one step: waiting for data, because the ranks share the host's cores
    memory_gib: float | None = None  # needed on each GPU; None if not known
    mfu: float | None = None  # model FLOPs over what the GPUs could do; None if not known
    strong: bool = False  # whether the global batch stays, rather than that of a GPU
    checkpointed: bool = False  # whether activations are computed again in the backward pass, as the prediction chose
    rank_batch: float | None = None  # samples of a micro-batch of each GPU, where the prediction chose it

"""Which GPUs of a place work, what each of them holds, and how many steps they take. Pure.

Memory of each GPU under each way to spread a model:

    DDP            everything, and one more copy of the gradients in buckets
    ZeRO-1, -2     the optimizer's state over the ranks; -2 the gradients, too
    ZeRO-3, FSDP   everything over the ranks, and the units that are gathered at a time
    HSDP           as FSDP, over the GPUs of one machine

Activations are those of one process in any case. Checked on public runs: Llama 8B under FSDP, 82.4 GiB on 8 GPUs and 67.0
on 128; 16 bytes x 8.03e9 x (1/8 - 1/128) = 14.0 of the difference of 15.4.

With the same batch on every rank and the data split between them, an epoch of N ranks has an N-th of the steps; scripts
that divide a global batch, take a fixed number of steps, or let every rank walk all of the data have as many as before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from costgpu.estimator.fit import fits
from costgpu.estimator.gpu import precision_of
from costgpu.estimator.memory import GIB, MemoryNeed
from costgpu.estimator.multi_gpu.network import Group, links_between
from costgpu.estimator.prepared import Workload
from costgpu.estimator.scope import Scope
from costgpu.models.parallelism import BatchScaling, Parallelism, Scheme
from costgpu.models.prediction import Candidate

ONE = Group(gpus=1, nodes=1, links=None)
WORLD_SIZES = (2, 4, 8, 16, 32, 64)
NODE_COUNTS = (2, 4, 8, 16, 32, 64)  # numbers of machines that are looked at beside one
BUCKET_BYTES = 4.0  # DDP's buckets: one more copy of the gradients (PyTorch's documentation of gradient_as_bucket_view)
GATHERED_UNITS = 2.0  # unsharded units at a time: one in use, one prefetched (PyTorch's documentation of FSDP)
SEVERAL_RUNTIME_GIB = 2.0  # CUDA context, workspaces and NCCL's buffers: 1 to 2 GiB; 1 on one GPU
HALF_GATHERED_BYTES = 2.0  # of a parameter and a reduced gradient, under a policy of mixed precision
# Bytes kept for the backward pass of a transformer's layer: 34 s b h, and 2 s b h where only its input is kept (Korthikanti
# et al. 2022, arXiv:2205.05198, sections 4.1 and 5).
CHECKPOINT_SHARE = 2 / 34
# Of one micro-batch; more saves little. One GPU has no communication to spare, and takes one.
SEQUENCES = (1, 2, 4, 8, 16)
NOT_SPLIT = (
    "every process reads all of the data: its sampler is not distributed, so more GPUs repeat the work instead of"
    " dividing it (DistributedSampler divides it)"
)
FIXED = "the number of steps is fixed: with the same batch on every GPU, more of them do more work in as many steps"
ASSUMED_SPLIT = "whether its data is divided between the processes is not known; taken to be"


def group_on(parallelism: Parallelism, candidate: Candidate) -> Group | str:
    """Return the GPUs of the candidate that the training uses.

    Or the reason why it cannot run, or cannot be predicted, there.

    Args:
        parallelism: How the script trains.
        candidate: The place; `nodes` of them work together.
    """
    nodes = candidate.nodes
    if parallelism.alone:
        return ONE if nodes == 1 else f"it trains in one process, which cannot use {nodes} machines"
    count = int(candidate.accelerator_count)
    if count < 1:
        return ONE if nodes == 1 else "machines without whole GPUs are not predicted together"
    gpus = count * nodes
    if parallelism.fixed_processes and parallelism.processes:
        if parallelism.processes > gpus:
            return f"it starts {parallelism.processes} processes with a GPU each; here there are {gpus}"
        if nodes > 1 and parallelism.processes % nodes:
            return f"it starts {parallelism.processes} processes, which {nodes} machines cannot share evenly"
        gpus = parallelism.processes
    if gpus == 1:
        return ONE
    if not parallelism.scheme.predicted:
        what = parallelism.scheme.phrase
        return f"it uses {what}, whose time on {gpus} GPUs is not predicted: measure it there"
    if parallelism.scheme is Scheme.DATA_PARALLEL and nodes > 1:
        return "torch.nn.DataParallel cannot use several machines"
    links = links_between(candidate.interconnect, gpus // nodes, nodes)
    return links if isinstance(links, str) else Group(gpus=gpus, nodes=nodes, links=links)


# ------------------------------------------------------------------------------------------- ways to spread a model


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One way to train a model that nobody has written yet.

    Of a language model that is known by its size alone, every place is predicted with the fastest one that fits.
    """

    scheme: Scheme
    sequences: int = 1  # samples of a micro-batch, over those of the profile
    checkpointed: bool = False  # whether activations are computed again in the backward pass


def layouts(group: Group, micro_batches: float) -> Iterator[Layout]:
    """Yield the ways that are worth a try on these GPUs, the simplest first.

    Args:
        group: The GPUs.
        micro_batches: Micro-batches of a step on all of them together, one sample each.
    """
    schemes = [Scheme.DDP]
    if group.gpus > 1:
        schemes.append(Scheme.FSDP)
    if group.nodes > 1 and group.gpus > group.nodes:
        schemes.append(Scheme.HSDP)
    for checkpointed in (False, True):
        for scheme in schemes:
            for sequences in SEQUENCES:
                if sequences == 1 or 1 < group.gpus <= micro_batches / sequences:
                    yield Layout(scheme=scheme, sequences=sequences, checkpointed=checkpointed)


def sharded(parallelism: Parallelism, *, half: bool) -> Parallelism:
    """Return the same training under FSDP, which gathers units in half precision if the training uses it."""
    each = HALF_GATHERED_BYTES if half else 4.0
    measured = parallelism.measured_scheme or parallelism.scheme
    return replace(parallelism, scheme=Scheme.FSDP, measured_scheme=measured, gathered_bytes=each, reduced_bytes=each)


def as_several(workload: Workload) -> Workload | None:
    """Return the workload as one process on each GPU under DDP; None if that is no change of a PyTorch training script.

    The batch of a GPU stays; where the number of steps is fixed, it is divided.
    """
    profile = workload.profile
    phases = profile.phases
    trains = profile.framework.name == "torch" and all(phase.unit.trains for phase in phases)
    parameters = max((sum(one.parameters for one in phase.optimizers) for phase in phases), default=0)
    if not trains or not profile.ranks.alone or not parameters:
        return None
    counted = any(fixed and steps for fixed, steps in zip(workload.scope.fixed, workload.scope.steps, strict=False))
    spread = Parallelism(
        scheme=Scheme.DDP,
        how="as several processes",
        parameters=parameters,
        trained_parameters=parameters,
        batch=BatchScaling.GLOBAL if counted else BatchScaling.PER_RANK,
        sampler_distributed=True,
        rank_batch=phases[-1].data.batch_size,
    )
    return replace(workload, profile=replace(profile, parallelism=spread))


def as_sharded(workload: Workload) -> Workload | None:
    """Return the workload under FSDP, in as many processes as before, or one on each GPU; None as for `as_several`."""
    changed = as_several(workload) if workload.profile.ranks.alone else workload
    if changed is None:
        return None
    half = precision_of(workload.profile.framework).half is not None
    spread = sharded(changed.profile.ranks, half=half)
    return replace(changed, profile=replace(changed.profile, parallelism=spread))


# ----------------------------------------------------------------------------------------------------------- memory


def held_under(layout: Layout, held: MemoryNeed, layers: float) -> MemoryNeed:
    """Return what a process holds under a layout.

    Args:
        layout: The layout.
        held: What it holds with such micro-batches, without checkpointing.
        layers: Number of layers, of equal size.
    """
    if not layout.checkpointed:
        return held
    return replace(held, activations=held.activations * (CHECKPOINT_SHARE + 1 / max(1.0, layers)))


def memory_gib(held: MemoryNeed, parallelism: Parallelism, ranks: int, per_node: int) -> float:
    """Return the memory that each of several GPUs needs, GiB, without a margin.

    Args:
        held: Bytes of one process that holds everything.
        parallelism: How the model is spread.
        ranks: GPUs over all machines, 2 or more.
        per_node: GPUs of one machine that work.
    """
    scheme = parallelism.scheme
    shards = max(1, per_node) if scheme is Scheme.HSDP else ranks
    weights, gradients, optimizer = held.weights, held.gradients, held.optimizer
    more = 0.0
    if scheme.shards_parameters:
        weights, gradients, optimizer = weights / shards, gradients / shards, optimizer / shards
        more = _gathered(held, parallelism)
    elif scheme in (Scheme.ZERO1, Scheme.ZERO2):
        optimizer /= shards
        gradients /= shards if scheme is Scheme.ZERO2 else 1
    if held.gathered is not None and held.gathered_under is scheme:
        more = held.gathered
    elif scheme in (Scheme.DDP, Scheme.DATA_PARALLEL, Scheme.ZERO1):
        more = BUCKET_BYTES * held.trained
    return (weights + gradients + optimizer + held.activations + more) / GIB + SEVERAL_RUNTIME_GIB


def _gathered(held: MemoryNeed, parallelism: Parallelism) -> float:
    """Bytes of parameters and gradients that are whole at a time; of a model of unknown units, all of them."""
    parameters = max(parallelism.parameters, parallelism.trained_parameters, held.trained)
    gathered = parallelism.gathered_bytes or parallelism.gradient_bytes
    reduced = parallelism.reduced_bytes or parallelism.gradient_bytes
    units = parallelism.largest_unit_parameters
    if not units or GATHERED_UNITS * units >= parameters:
        return parameters * (gathered + reduced)
    kept = parameters * gathered if parallelism.scheme is Scheme.FSDP_GRAD_OP else 0.0
    return GATHERED_UNITS * units * (gathered + reduced) + kept


def least_gpus(held: MemoryNeed, parallelism: Parallelism, memory: float) -> int | None:
    """Return the least number of GPUs, of a power of two up to 64, on which it fits; None if it fits on none.

    Args:
        held: Bytes of one process that holds everything.
        parallelism: How the model is spread.
        memory: GiB of each GPU that programs get.
    """
    fitting = (n for n in WORLD_SIZES if fits(memory_gib(held, parallelism, n, n), memory, held.error))
    return next(fitting, None)


# -------------------------------------------------------------------------------------------------- number of steps


def keeps_global_batch(parallelism: Parallelism) -> bool:
    """Return whether the global batch stays with more ranks, so that each takes less of it (strong scaling)."""
    return parallelism.batch is BatchScaling.GLOBAL


def step_ratio(parallelism: Parallelism, ranks: int) -> float:
    """Return steps of an epoch with so many ranks over those with the ranks of the measurement."""
    if keeps_global_batch(parallelism) or parallelism.sampler_distributed is False:
        return 1.0
    before = max(1, parallelism.measured_ranks)
    samples, batch = parallelism.epoch_samples, parallelism.rank_batch
    if not samples or not batch:
        return before / ranks
    whole = math.floor if parallelism.drop_last else math.ceil
    return max(1, whole(samples / (ranks * batch))) / max(1, whole(samples / (before * batch)))


def scope_with(scope: Scope, parallelism: Parallelism, ranks: int) -> tuple[Scope, list[str]]:
    """Return the scope with the steps that so many ranks take, and remarks on their number.

    Args:
        scope: As told by the profile.
        parallelism: How the script trains.
        ranks: Number of processes that train.
    """
    notes = []
    if ranks > 1 and parallelism.sampler_distributed is False and not keeps_global_batch(parallelism):
        notes.append(NOT_SPLIT)
    ratio = step_ratio(parallelism, ranks)
    fixed = scope.fixed or (False,) * len(scope.steps)
    if ratio == 1:
        return scope, notes
    if any(is_fixed and steps for is_fixed, steps in zip(fixed, scope.steps, strict=True)):
        notes.append(FIXED)
    if ranks > 1 and parallelism.sampler_distributed is None and not all(fixed):
        notes.append(ASSUMED_SPLIT)
    steps = tuple(count if is_fixed else count * ratio for count, is_fixed in zip(scope.steps, fixed, strict=True))
    return replace(scope, steps=steps), notes

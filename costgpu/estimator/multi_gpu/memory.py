"""Memory of each GPU under each way to spread a model, and how many GPUs it fits. Pure.

    DDP            everything, and one more copy of the gradients in buckets
    ZeRO-1, -2     the optimizer's state over the ranks; -2 the gradients, too
    ZeRO-3, FSDP   everything over the ranks, and the units that are gathered at a time
    HSDP           as FSDP, over the GPUs of one machine

Activations are those of one process in any case. Checked on public runs: Llama 8B under FSDP, 82.4 GiB on 8 GPUs and 67.0
on 128; 16 bytes x 8.03e9 x (1/8 - 1/128) = 14.0 of the difference of 15.4.
"""

from __future__ import annotations

from costgpu.estimator.multi_gpu.constants import BUCKET_BYTES, GATHERED_UNITS, SEVERAL_RUNTIME_GIB
from costgpu.estimator.training_memory import TrainingBytes
from costgpu.models.parallelism import Parallelism, Scheme

GIB = 2**30
WORLD_SIZES = (2, 4, 8, 16, 32, 64)
HALF_GATHERED_BYTES = 2.0  # of a parameter and a reduced gradient, under a policy of mixed precision


def memory_gib(held: TrainingBytes, parallelism: Parallelism, ranks: int, per_node: int) -> float:
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
    if scheme in (Scheme.DDP, Scheme.DATA_PARALLEL, Scheme.ZERO1):
        more = BUCKET_BYTES * held.trained
    return (weights + gradients + optimizer + held.activations + more) / GIB + SEVERAL_RUNTIME_GIB


def _gathered(held: TrainingBytes, parallelism: Parallelism) -> float:
    """Bytes of parameters and gradients that are whole at a time; of a model of unknown units, all of them."""
    parameters = max(parallelism.parameters, parallelism.trained_parameters, held.trained)
    gathered = parallelism.gathered_bytes or parallelism.gradient_bytes
    reduced = parallelism.reduced_bytes or parallelism.gradient_bytes
    units = parallelism.largest_unit_parameters
    if not units or GATHERED_UNITS * units >= parameters:
        return parameters * (gathered + reduced)
    kept = parameters * gathered if parallelism.scheme is Scheme.FSDP_GRAD_OP else 0.0
    return GATHERED_UNITS * units * (gathered + reduced) + kept


def least_gpus(held: TrainingBytes, parallelism: Parallelism, memory: float, margin: float) -> int | None:
    """Return the least number of GPUs, of a power of two up to 64, on which it fits; None if it fits on none.

    Args:
        held: Bytes of one process that holds everything.
        parallelism: How the model is spread.
        memory: GiB of each GPU.
        margin: Factor of the need that must be there.
    """
    fitting = (n for n in WORLD_SIZES if margin * memory_gib(held, parallelism, n, n) <= memory)
    return next(fitting, None)

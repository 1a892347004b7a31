"""Bytes that each GPU contributes to the collectives of one optimizer step. Pure.

    DDP, ZeRO-1, ZeRO-2           2 g P_t, for each reduction of a step (ZeRO-2: the first half at every micro-batch)
    FSDP, ZeRO-3                  (2 p P_a + r P_t) x micro-batches
    FSDP without resharding       (p P_a + r P_t) x micro-batches
    HSDP                          FSDP within a machine, and 2 r P_t between machines, once

P_t trained and P_a all parameters; g, p, r bytes per gradient, gathered parameter and reduced gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

from costgpu.models.parallelism import Parallelism, Scheme

# Bytes of whole tensors that a collective moves, over those that each GPU sends: a ring's all-reduce goes round twice.
TRIPS = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "broadcast": 1.0}


@dataclass(frozen=True, slots=True)
class Volume:
    """Bytes of one optimizer step."""

    all_ranks: float  # in the group of all ranks; of HSDP, in that of one machine
    between: float = 0.0  # between the machines alone


def bytes_per_step(parallelism: Parallelism, micro_batches: float) -> Volume | None:
    """Return what each GPU contributes to the collectives of a step; None if it is not known.

    Args:
        micro_batches: Forward and backward passes of one optimizer step.
    """
    trained, every = parallelism.trained_parameters, max(parallelism.parameters, parallelism.trained_parameters)
    if not every:
        moved = sum(TRIPS.get(one.op, 0.0) * one.bytes_per_step for one in parallelism.collectives)
        return Volume(moved) if moved > 0 else None
    micro = max(1.0, micro_batches)
    scheme = parallelism.scheme
    gathered = (parallelism.gathered_bytes or parallelism.gradient_bytes) * every
    reduced = (parallelism.reduced_bytes or parallelism.gradient_bytes) * trained
    whole = 2 * parallelism.gradient_bytes * trained
    if scheme in (Scheme.FSDP, Scheme.ZERO3):
        return Volume((2 * gathered + reduced) * micro)
    if scheme is Scheme.FSDP_GRAD_OP:
        return Volume((gathered + reduced) * micro)
    if scheme is Scheme.HSDP:
        return Volume((2 * gathered + reduced) * micro, 2 * reduced)
    if scheme is Scheme.ZERO2:
        return Volume(whole / 2 * (1 + micro))
    return Volume(whole * max(1.0, parallelism.reductions_per_step))

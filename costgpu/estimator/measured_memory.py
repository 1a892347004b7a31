"""Measured memory of a process, for other batches, another precision and other numbers of GPUs. Pure.

What stays with another batch is weights, gradients, states and whatever else is alive after a step; the rest scales. With
another number of ranks, what is sharded is divided anew: of each kind at most its share of the whole model, the rest being
units that are gathered, or buckets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from costgpu.models.parallelism import Parallelism, Scheme
from costgpu.models.workload import MeasuredMemory, MemoryKind, MemoryPeak, Phase

STATES = (MemoryKind.WEIGHTS, MemoryKind.GRADIENTS, MemoryKind.STATES)
WHATEVER_THE_BATCH = ("load", "optimizer")  # phases in which nothing is of the size of a batch
HALF_SHARE = 0.5  # of the bytes kept for the backward pass, under autocast
CAST_WEIGHTS = 0.5  # copies in half precision that autocast keeps, over weights in fp32


def resized_memory(memory: MeasuredMemory, factor: float) -> MeasuredMemory:
    """Return what the process would hold with `factor` times the samples in a micro-batch."""
    if factor == 1:
        return memory
    return _with_peaks(memory, [_resized(memory, peak, factor) for peak in memory.peaks], factor)


def under_autocast(memory: MeasuredMemory) -> MeasuredMemory:
    """Return what a process that was measured in fp32 would hold under autocast."""
    peaks = []
    for peak in resized_memory(memory, HALF_SHARE).peaks:
        casts = round(CAST_WEIGHTS * peak.kinds.get(MemoryKind.WEIGHTS, 0)) * (peak.phase not in WHATEVER_THE_BATCH)
        weights = {MemoryKind.WEIGHTS.value: peak.kinds.get(MemoryKind.WEIGHTS, 0) + casts}
        peaks.append(replace(peak, bytes=peak.bytes + casts, kinds={**peak.kinds, **weights}))
    return _with_peaks(memory, peaks, HALF_SHARE)


def with_shares(memory: MeasuredMemory, left: Mapping[MemoryKind, float]) -> MeasuredMemory:
    """Return what the process would hold if so much were left of each kind; of the others, all of it."""
    peaks = []
    for peak in memory.peaks:
        kinds = {kind: round(size * left.get(MemoryKind(kind), 1.0)) for kind, size in peak.kinds.items()}
        peaks.append(replace(peak, bytes=peak.bytes + sum(kinds.values()) - sum(peak.kinds.values()), kinds=kinds))
    return _with_peaks(memory, peaks, 1.0)


def _with_peaks(memory: MeasuredMemory, peaks: list[MemoryPeak], factor: float) -> MeasuredMemory:
    """Return the memory with other peaks, of which the allocator reserves as much more as before."""
    before = memory.peak_bytes
    after = max((peak.bytes for peak in peaks), default=0)
    if before:
        return replace(memory, peaks=peaks, reserved_bytes=round(memory.reserved_bytes * after / before))
    stays = min(memory.steady_bytes, memory.reserved_bytes)
    return replace(memory, reserved_bytes=round(stays + (memory.reserved_bytes - stays) * factor))


def _resized(memory: MeasuredMemory, peak: MemoryPeak, factor: float) -> MemoryPeak:
    if peak.phase in WHATEVER_THE_BATCH:
        return peak
    states = sum(peak.kinds.get(kind, 0) for kind in STATES)
    stays = max(states, min(memory.steady_bytes, peak.bytes))
    after = round(stays + (peak.bytes - stays) * factor)
    others = (after - states) / (peak.bytes - states) if peak.bytes > states else 1.0
    kinds = {kind: size if kind in STATES else round(size * others) for kind, size in peak.kinds.items()}
    return replace(peak, bytes=after, kinds=kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBytes:
    """What the processes of a training hold together, by measurement of one of them."""

    weights: float  # of the whole model, as are the next two
    gradients: float
    optimizer: float
    rest: float  # of each process, all that the allocator reserves beside them
    # of each process, weights and gradients that are gathered or copied at a time; None where one alone was measured
    gathered: float | None


def held_bytes(memory: MeasuredMemory, phase: Phase, parallelism: Parallelism) -> HeldBytes:
    """Return what was measured of one rank as what all hold: divided by the ranks of the measurement, it is that again.

    Args:
        memory: Of the rank.
        phase: Sizes of the whole model.
        parallelism: How it was measured, and under which scheme.
    """
    peak = memory.highest
    kinds = peak.kinds if peak is not None else {MemoryKind.WEIGHTS.value: memory.steady_bytes}
    weights, gradients, states = (float(kinds.get(kind, 0)) for kind in STATES)
    rest = max(0.0, memory.reserved_bytes - weights - gradients - states)
    ranks, scheme = max(1, parallelism.measured_ranks), parallelism.measured_scheme or parallelism.scheme
    if ranks == 1:
        return HeldBytes(weights=weights, gradients=gradients, optimizer=states, rest=rest, gathered=None)
    if scheme is Scheme.HSDP:
        ranks = max(1, ranks // max(1, parallelism.nodes))

    trained, state_bytes = phase.model_bytes - phase.frozen_bytes, sum(one.state_bytes for one in phase.optimizers)
    whole, gathered = [], 0.0
    for held, of_all, sharded in (
        (weights, phase.model_bytes, scheme.shards_parameters),
        (gradients, trained, scheme.shards_parameters or scheme is Scheme.ZERO2),
        (states, state_bytes, scheme.shards_optimizer),
    ):
        share = min(held, of_all / ranks) if sharded and of_all else held
        whole.append(share * ranks if sharded else share)
        gathered += held - share
    return HeldBytes(weights=whole[0], gradients=whole[1], optimizer=whole[2], rest=rest, gathered=gathered)

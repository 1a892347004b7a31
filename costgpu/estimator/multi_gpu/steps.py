"""How many optimizer steps a training takes with another number of ranks. Pure.

With the same batch on every rank and the data split between them, an epoch of N ranks has an N-th of the steps; scripts
that divide a global batch, take a fixed number of steps, or let every rank walk all of the data have as many as before.
"""

from __future__ import annotations

import math
from dataclasses import replace

from costgpu.estimator.scope import Scope
from costgpu.models.parallelism import BatchScaling, Parallelism, Scheme

NOT_SPLIT = (
    "every process reads all of the data: its sampler is not distributed, so more GPUs repeat the work instead of"
    " dividing it (DistributedSampler divides it)"
)
FIXED = "the number of steps is fixed: with the same batch on every GPU, more of them do more work in as many steps"
ASSUMED_SPLIT = "whether its data is divided between the processes is not known; taken to be"


def keeps_global_batch(parallelism: Parallelism) -> bool:
    """Return whether the global batch stays with more ranks, so that each takes less of it (strong scaling)."""
    return parallelism.batch is BatchScaling.GLOBAL or parallelism.scheme is Scheme.DATA_PARALLEL


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

"""What a workload puts on the disk of a rented machine, and how long its download takes. Pure."""

from __future__ import annotations

import math
from dataclasses import replace

from costgpu.estimator.scope import Scope
from costgpu.models.defaults import BOOT_DISK_GIB, DISK_BYTES_PER_SECOND, HUB_BYTES_PER_SECOND, MOSTLY_FROZEN
from costgpu.models.prediction import Candidate
from costgpu.models.storage import StorageNeed
from costgpu.models.workload import Extra, ExtraKind, Phase, WorkloadProfile

FLOAT32_BYTES = 4  # of a parameter, where the size of the model is not known
MOST_KEPT = (
    5  # checkpoints that a disk is given room for: our choice, for most trainers can be told to delete older ones
)


def state_bytes(phase: Phase) -> float:
    """Return the bytes of the model and of its optimizers' states: what a whole checkpoint holds."""
    parameters = sum(optimizer.parameters for optimizer in phase.optimizers)
    state = sum(optimizer.state_bytes for optimizer in phase.optimizers)
    return max(phase.model_bytes, FLOAT32_BYTES * parameters) + state


def usual_checkpoint_bytes(phase: Phase) -> float:
    """Return the bytes of a checkpoint that nobody saw: where nearly all is frozen, as under adapters, what is trained."""
    return _trained_bytes(phase) if phase.frozen_bytes > MOSTLY_FROZEN * phase.model_bytes else state_bytes(phase)


def storage_of(profile: WorkloadProfile, scope: Scope) -> StorageNeed:
    """Return what the job puts on its machine's disk.

    A training of pretrained weights is taken to save once at least: its result, which comes after all that was measured.
    """
    largest = saves = 0.0
    for phase, steps, epochs in zip(profile.phases, scope.steps, scope.epochs, strict=True):
        found = [extra for extra in phase.extras if extra.kind is ExtraKind.CHECKPOINT]
        saves += sum(extra.count(steps, epochs, whole=scope.whole) for extra in found)
        largest = max([largest, *(_saved_bytes(extra, phase) for extra in found)])
        if profile.weights_bytes and phase.unit.trains:
            saves, largest = max(1.0, saves), max(largest, _trained_bytes(phase))
    count = math.ceil(saves) if largest else 0
    return StorageNeed(
        download_bytes=profile.weights_bytes,
        download_seconds=profile.weights_bytes / HUB_BYTES_PER_SECOND,
        checkpoint_bytes=round(largest),
        saves=count,
        kept=min(count, MOST_KEPT),
    )


def with_disk(candidate: Candidate, need: StorageNeed) -> Candidate:
    """Return a rented candidate with the root disk that a job needs; unchanged where the default one has room."""
    if candidate.offer is None:
        return candidate
    default = BOOT_DISK_GIB[candidate.is_gpu]
    size = need.disk_gib(default)
    return replace(candidate, disk_gib=size) if size > default else candidate


def _saved_bytes(extra: Extra, phase: Phase) -> float:
    """Return the bytes of a checkpoint: by how long it took, at least what is trained and at most everything."""
    return min(max(extra.seconds_each * DISK_BYTES_PER_SECOND, _trained_bytes(phase)), state_bytes(phase))


def _trained_bytes(phase: Phase) -> float:
    """Return the bytes of a checkpoint without what is frozen: of adapters, they alone."""
    return state_bytes(phase) - min(phase.frozen_bytes, phase.model_bytes)

"""Which kinds of GPUs a measured training fits. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from costgpu.estimator.feasibility import incompatible
from costgpu.estimator.fit import FITS
from costgpu.estimator.multi_gpu.on_gpus import need_and_fit
from costgpu.estimator.prepared import Workload
from costgpu.models.estimate import GpuFit
from costgpu.models.prediction import Candidate, Prediction

TOO_SMALL, LARGE_ENOUGH = 3, 4  # kinds that are told: the nearest to the need on each side


def gpu_fits(workload: Workload, places: Iterable[Candidate], chosen: Prediction | None) -> tuple[GpuFit, ...]:
    """Return the kinds of GPUs about as large as a training needs, the smallest first; empty if it was not measured.

    Args:
        chosen: What is recommended: its kind is among them, and all are as many of a kind as it has, where there are such.
    """
    profile, found = workload.profile, {}
    if profile.memory is None or not any(phase.unit.trains for phase in profile.phases):
        return ()
    for place in places:
        spec, count = place.accelerator, place.accelerator_count
        if spec is None or count < 1 or place.nodes > 1 or (spec.name, count) in found:
            continue
        told = None if incompatible(spec, place, profile.framework) else need_and_fit(workload, place)
        found[spec.name, count] = (place.room_gib, told)
    kinds = {}
    for (name, _), (room, told) in sorted(found.items(), key=lambda one: (one[1][0], one[0])):
        if told is not None:
            gpus, need, probability = told
            kinds[name, gpus] = GpuFit(
                name=name,
                gpus=gpus,
                need_gib=need,
                memory_gib=room,
                probability=probability,
                enough=probability >= FITS,
            )
    number = chosen.gpus if chosen is not None and chosen.gpus else 1
    as_many = [one for one in kinds.values() if one.gpus == number] or list(kinds.values())
    small, large = ([one for one in as_many if one.enough is enough] for enough in (False, True))
    spec = chosen.candidate.accelerator if chosen is not None else None
    named = [one for one in large[LARGE_ENOUGH:] if spec is not None and one.name == spec.name]
    nearest = sorted(small, key=lambda one: one.memory_gib / one.need_gib)[-TOO_SMALL:]
    return tuple(sorted([*nearest, *large[:LARGE_ENOUGH], *named], key=lambda one: one.memory_gib))

"""The work of a step with more or fewer samples in it: of a larger batch, or of one rank's share of a batch. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from costgpu.estimator.measured_memory import resized_memory
from costgpu.estimator.op_costs import FILL, FREE, GATHER, SCATTER, tensor_bytes
from costgpu.estimator.prepared import Workload
from costgpu.estimator.unit_work import Pass
from costgpu.models.workload import DataLoading, Phase, Rhythm, StepTimes


def resized(workload: Workload, index: int, samples: float, micro_batches: float = 1.0) -> Workload:
    """Return the workload with phase `index` taking `samples` times the samples in `micro_batches` times the micro-batches.

    Arithmetic, data, activations and measured memory but for what stays are taken per sample; launches, framework calls,
    the script's own Python, and the bytes of weights per micro-batch; of inference, per unit. The number of steps stays.
    """
    if samples == 1 and micro_batches == 1:
        return workload
    profile, unit, before = workload.profile, workload.units[index], workload.splits[index]
    phase, each = profile.phases[index], samples / micro_batches
    waited, waiting = phase.data.wait_seconds_per_step, waiting_of(phase, samples)
    if phase.unit.trains:
        split = replace(
            before, compute=before.compute * samples, memory=before.memory * samples, host=before.host * samples
        )
        work = unit.work.scaled(size=samples, launches=micro_batches, same_bytes=weight_bytes(phase))
        unit = replace(unit, passes=(Pass(work),))
        step = scaled_step(phase.step, lambda seconds: seconds * samples)
    else:
        work = unit.work
        same = min(1.0, work.weight_bytes / work.bytes_moved) if work.bytes_moved > 0 else 0.0
        memory = before.memory * (same + (1 - same) * samples)
        split = replace(before, compute=before.compute * samples, memory=memory)
        unit = unit.scaled(samples)
        ratio = split.seconds / before.seconds if before.seconds > 0 else 1.0  # all of it waits
        apart = waited + phase.waiting_seconds_per_step
        step = scaled_step(phase.step, lambda seconds: max(0.0, seconds - apart) * ratio + waited * samples + waiting)
    data = larger_data(phase.data, each)
    passes, splits, phases = list(workload.passes), list(workload.splits), list(profile.phases)
    passes[index], splits[index] = unit.passes, split
    phases[index] = replace(
        phase,
        step=step,
        waiting_seconds_per_step=waiting,
        data=replace(
            data,
            batches_per_step=data.batches_per_step * micro_batches,
            wait_seconds_per_step=waited * samples,
        ),
        micro_batches=max(1.0, phase.micro_batches * micro_batches),
        saved_tensor_bytes=round(phase.saved_tensor_bytes * each),
        host_seconds_per_step=phase.host_seconds_per_step * micro_batches,
        unit=phase.unit.times(samples),
    )
    held, trainings = profile.memory, [at for at, one in enumerate(profile.phases) if one.unit.trains]
    if held is not None and trainings and index == trainings[-1]:  # it is of all phases, and is scaled once
        held = resized_memory(held, each)
    return replace(workload, profile=replace(profile, phases=phases, memory=held), passes=passes, splits=splits)


def in_larger_units(workload: Workload, index: int, factor: float) -> Workload:
    """Return the workload with `factor` times the samples in what phase `index` repeats, and as often fewer of that.

    The script's own Python is then taken per sample where it trains.
    """
    changed = resized(workload, index, factor)
    phases, steps = list(changed.profile.phases), list(changed.scope.steps)
    phase, total = phases[index], phases[index].total
    phases[index] = replace(
        phase,
        total=replace(
            total,
            steps=None if total.steps is None else total.steps / factor,
            steps_per_epoch=None if total.steps_per_epoch is None else total.steps_per_epoch / factor,
        ),
        extras=[
            replace(extra, every=extra.every / factor, first=None) if extra.rhythm is Rhythm.STEPS else extra
            for extra in phase.extras
        ],
        host_seconds_per_step=phase.host_seconds_per_step * (factor if phase.unit.trains else 1.0),
    )
    steps[index] /= factor
    profile, scope = replace(changed.profile, phases=phases), replace(changed.scope, steps=tuple(steps))
    return replace(changed, profile=profile, scope=scope)


def with_optimizer_share(workload: Workload, index: int, shards: int) -> Workload:
    """Return the workload with the part of the optimizer's state and work in phase `index` that one of so many ranks has."""
    if shards == 1:
        return workload
    phases = list(workload.profile.phases)
    own = [
        replace(
            one,
            parameters=round(one.parameters / shards),
            state_bytes=round(one.state_bytes / shards),
            dtypes={name: round(count / shards) for name, count in one.dtypes.items()},
        )
        for one in phases[index].optimizers
    ]
    phases[index] = replace(phases[index], optimizers=own)
    return replace(workload, profile=replace(workload.profile, phases=phases))


def waiting_of(phase: Phase, factor: float) -> float:
    """Seconds that a step with `factor` times the items waits: whether that is for each of them is not known.

    So no batch, larger or smaller, is taken to save any of it.
    """
    return phase.waiting_seconds_per_step * max(1.0, factor)


def larger_data(data: DataLoading, factor: float) -> DataLoading:
    """Return the batches with `factor` times the samples, each of which takes as long as before."""
    fetch = data.fetch_seconds_per_batch
    return replace(
        data,
        fetch_seconds_per_batch=None if fetch is None else fetch * factor,
        fetch_wait_seconds_per_batch=data.fetch_wait_seconds_per_batch * factor,
        batch_size=None if data.batch_size is None else round(data.batch_size * factor),
        batch_bytes=round(data.batch_bytes * factor),
    )


def scaled_step(step: StepTimes, change: Callable[[float], float]) -> StepTimes:
    """Return the times with `change` applied to each."""
    return replace(
        step,
        median_seconds=change(step.median_seconds),
        mean_seconds=change(step.mean_seconds),
        low_seconds=change(step.low_seconds),
        high_seconds=change(step.high_seconds),
    )


def weight_bytes(phase: Phase) -> float:
    """Return the bytes of weights and their gradients that one step moves, the optimizer apart: the same for any batch.

    Weights are known by their shapes, which the traced optimizer shows; a shape with the size of a batch in it is not
    taken for one.
    """
    shapes = {tuple(t[0]) for row in phase.ops if row.phase == "optimizer" for t in [*row.inputs, *row.outputs]}
    shapes = {shape for shape in shapes if len(shape) > 1 and phase.data.batch_size not in shape}
    shapes |= {shape[::-1] for shape in shapes}
    moved = 0.0
    for row in phase.ops:
        if row.phase not in ("forward", "backward") or row.op in FREE or row.op in GATHER:
            continue
        tensors = row.outputs if row.op in SCATTER or row.op in FILL else [*row.inputs, *row.outputs]
        moved += row.count * sum(tensor_bytes(t) for t in tensors if tuple(t[0]) in shapes)
    return moved / max(1, phase.trace_steps)

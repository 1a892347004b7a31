"""A workload of inference as it would be after a change to its script. Pure: each function returns a new `Workload`."""

from __future__ import annotations

from dataclasses import replace

from costgpu.estimator.cpu import StepSplit
from costgpu.estimator.gpu import Precision
from costgpu.estimator.inference.cpu import half_gain
from costgpu.estimator.inference.gpu import Runtime
from costgpu.estimator.prepared import Workload
from costgpu.estimator.resize import larger_data, scaled_step, scaled_work, waiting_of
from costgpu.models.offer import CpuSpec
from costgpu.models.workload import Phase, Rhythm


def with_items(workload: Workload, factor: float) -> Workload:
    """Return the workload with `factor` times the items in each unit of its last phase, and as many units fewer.

    Arithmetic, data and the bytes of activations are taken per item; launches, framework calls, the script's own Python
    and the bytes of weights per unit. Other phases stay as they are, and so does a last one that is training.
    """
    profile, scope = workload.profile, workload.scope
    phase, unit, work, split = profile.phases[-1], workload.units[-1], workload.works[-1], workload.splits[-1]
    if phase.unit.trains or unit is None:
        return workload
    weights = sum(one.times * one.work.weight_bytes for one in unit.passes)
    same = min(1.0, weights / work.bytes_moved) if work.bytes_moved > 0 else 0.0
    larger = replace(split, compute=split.compute * factor, memory=split.memory * (same + (1 - same) * factor))
    before = _seconds(split)
    ratio = _seconds(larger) / before if before > 0 else 1.0  # all of it waits
    return replace(
        workload,
        profile=replace(profile, phases=[*profile.phases[:-1], _larger_phase(phase, factor, ratio)]),
        scope=replace(scope, steps=(*scope.steps[:-1], scope.steps[-1] / factor)),
        works=[*workload.works[:-1], scaled_work(work, size=factor, same_bytes=weights)],
        splits=[*workload.splits[:-1], larger],
        units=(*workload.units[:-1], unit.scaled(factor)),
    )


def _seconds(split: StepSplit) -> float:
    return split.compute + split.memory + split.calls + split.host


def _larger_phase(phase: Phase, factor: float, ratio: float) -> Phase:
    """Return the phase with `factor` times the items in a unit, which takes `ratio` times as long here, loading apart."""
    total, waited = phase.total, phase.data.wait_seconds_per_step
    waiting = waiting_of(phase, factor)
    apart = waited + phase.waiting_seconds_per_step
    return replace(
        phase,
        step=scaled_step(phase.step, lambda seconds: max(0.0, seconds - apart) * ratio + waited * factor + waiting),
        waiting_seconds_per_step=waiting,
        data=replace(larger_data(phase.data, factor), wait_seconds_per_step=waited * factor),
        total=replace(
            total,
            steps=None if total.steps is None else total.steps / factor,
            steps_per_epoch=None if total.steps_per_epoch is None else total.steps_per_epoch / factor,
        ),
        extras=[
            replace(extra, every=extra.every / factor, first=None) if extra.rhythm is Rhythm.STEPS else extra
            for extra in phase.extras
        ],
        unit=phase.unit.times(factor),
    )


def with_weights(workload: Workload, dtype: str) -> Workload:
    """Return the workload with its fp32 models converted to a half precision on a GPU, without autocast."""
    execution = workload.execution
    off = replace(execution.precision, half=None)
    return replace(workload, execution=replace(execution, weights=dtype, precision=off))


def with_inference_tf32(workload: Workload) -> Workload:
    """Return the workload with TF32 for the fp32 matrix products of its inference."""
    precision = workload.execution.precision
    tf32 = Precision(half=None, matmul_tf32=True, conv_tf32=precision.conv_tf32)
    return replace(workload, execution=replace(workload.execution, precision=tf32))


def with_channels_last(workload: Workload) -> Workload:
    """Return the workload with its images and convolutions in channels-last order."""
    return replace(workload, execution=replace(workload.execution, channels_last=True))


def with_compile(workload: Workload) -> Workload:
    """Return the workload under torch.compile in its default mode."""
    return replace(workload, execution=replace(workload.execution, runtime=Runtime.COMPILED))


def with_cpu_bfloat16(workload: Workload, cpu: CpuSpec, vcpus: int) -> Workload:
    """Return the workload with its fp32 models in bf16 on this CPU, calls into the framework and Python left as they are.

    The gain is that of the whole unit by the formulas for both types, so that nets of tiny ops hardly gain.
    """
    splits, works = list(workload.splits), list(workload.works)
    for index, (split, unit) in enumerate(zip(workload.splits, workload.units, strict=True)):
        if unit is not None:
            gain = half_gain(unit, cpu, vcpus)
            splits[index] = replace(split, compute=split.compute / gain, memory=split.memory / gain)
            flops = {(kind, "bfloat16"): value for (kind, _), value in works[index].flops.items()}
            works[index] = replace(works[index], flops=flops)  # no fp32 peak limits it
    return replace(workload, splits=splits, works=works)


def with_cpu_float32(workload: Workload) -> Workload:
    """Return the workload with its half-precision models in fp32 on CPUs, which doubles the memory of their weights."""
    profile = workload.profile
    more = max(phase.model_bytes for phase in profile.phases if not phase.unit.trains)
    rss = None if profile.peak_rss_bytes is None else profile.peak_rss_bytes + more
    return replace(workload, profile=replace(profile, peak_rss_bytes=rss), cpu_dtype="float32")

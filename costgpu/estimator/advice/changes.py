"""A workload as it would be after a change to its script. Pure: each function `with...` returns a new `Workload`.

What a change does to a number that no profile holds (a kernel for each cast, the start of a worker) is not in the
changed workload, so that its prediction is what `costgpu estimate` will say of the changed script. It is the change's
overhead (`cast_seconds`, `worker_seconds`), which a saving has to survive: an upper end, not a mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from costgpu.estimator.cpu import host_cores
from costgpu.estimator.gpu import CONSTANTS
from costgpu.estimator.prepared import Workload
from costgpu.estimator.resize import larger_data, scaled_split, scaled_step, waiting_of, weight_bytes
from costgpu.models.prediction import Prediction
from costgpu.models.workload import Autocast, DataLoading, Extra, ExtraKind, GpuPath, Phase, Rhythm

# Gradients of weights are cast back; the other casts of autocast are in the traced step. Source: torch's autocast op
# lists ("ops that can autocast to float16", docs of torch 2.x).
CASTS_PER_WEIGHT = 1.0
# GradScaler looks at every gradient once (foreach) and waits for the answer.
SCALER_KERNELS = 10.0
# CPU time of a batch on its way from a worker (queue and shared memory), and of a worker from fork to exit, which are
# the start of an epoch. Source: benchmarks/advice.py toll, on two Zen 3 cores (torch 2.13, 2026-11-21): 0.5-0.7 ms for
# 1 kB to 1.5 MB (busy: 0.7-1.1), and 0.10-0.14 s.
HANDOVER_SECONDS = 1e-3
WORKER_START_SECONDS = 0.12


def traced(workload: Workload) -> bool:
    """Return whether the work of every phase is known op by op."""
    return all(phase.gpu is GpuPath.TRACED and phase.trace_steps > 0 for phase in workload.profile.phases)


def uses_loader(data: DataLoading) -> bool:
    """Return whether its batches come from a DataLoader whose work was timed."""
    return data.batches_per_step > 0 and bool(data.fetch_seconds_per_batch)


def with_half(workload: Workload, dtype: str) -> Workload:
    """Return the workload under ``torch.autocast("cuda")``; `dtype` is ``float16`` or ``bfloat16``."""
    framework = workload.profile.framework
    casts = [Autocast(device="cuda", dtype=dtype, enabled=True), *framework.autocast]
    return replace(workload, profile=replace(workload.profile, framework=replace(framework, autocast=casts)))


def with_tf32(workload: Workload) -> Workload:
    """Return the workload after ``torch.set_float32_matmul_precision("high")``."""
    framework = replace(workload.profile.framework, float32_matmul_precision="high", matmul_tf32=True)
    return replace(workload, profile=replace(workload.profile, framework=framework))


def with_workers(workload: Workload, workers: int) -> Workload:
    """Return the workload with so many DataLoader workers in every phase that has a DataLoader with fewer."""

    def change(phase: Phase) -> Phase:
        if not uses_loader(phase.data) or phase.data.workers >= workers:
            return phase
        waited = phase.data.wait_seconds_per_step
        waits = min(waited, _wait_here(phase, workload, workers))
        data = replace(phase.data, workers=workers, wait_seconds_per_step=waits)
        return replace(
            phase, data=data, step=scaled_step(phase.step, lambda seconds: max(0.0, seconds - waited + waits))
        )

    return _phases(workload, change)


def _wait_here(phase: Phase, workload: Workload, workers: int) -> float:
    """Return the seconds that a step on this machine then waits for data.

    Training and workers share the cores: no step is shorter than what both together need of all cores.
    """
    data, machine = phase.data, workload.profile.machine
    rest = max(0.0, phase.step.seconds - data.wait_seconds_per_step)
    work = (data.fetch_seconds_per_batch or 0.0) * data.batches_per_step
    waiting = data.fetch_wait_seconds_per_batch * data.batches_per_step / workers
    cores = max(1, machine.cores)
    shared = (rest * min(machine.threads, cores) + work) / cores
    return max(rest, shared, work / min(workers, cores) + waiting) - rest


def with_batch(workload: Workload, factor: float) -> Workload:
    """Return the workload with `factor` times the samples in a batch and as many steps fewer: the same samples in all.

    Arithmetic, data, the script's own Python and the bytes of activations are taken per sample; launches, framework
    calls, the optimizer and the bytes of weights and their gradients per step.
    """

    def change(phase: Phase) -> Phase:
        data, total = phase.data, phase.total
        return replace(
            phase,
            step=scaled_step(phase.step, lambda seconds: seconds * factor),
            waiting_seconds_per_step=waiting_of(phase, factor),
            data=replace(larger_data(data, factor), wait_seconds_per_step=data.wait_seconds_per_step * factor),
            total=replace(
                total,
                steps=None if total.steps is None else total.steps / factor,
                steps_per_epoch=None if total.steps_per_epoch is None else total.steps_per_epoch / factor,
            ),
            saved_tensor_bytes=round(phase.saved_tensor_bytes * factor),
            host_seconds_per_step=phase.host_seconds_per_step * factor,
            op_seconds_per_step=phase.op_seconds_per_step * factor,
            extras=[
                replace(extra, every=extra.every / factor, first=None) if extra.rhythm is Rhythm.STEPS else extra
                for extra in phase.extras
            ],
        )

    works = [
        work.scaled(size=factor, same_bytes=weight_bytes(phase))
        for work, phase in zip(workload.works, workload.profile.phases, strict=True)
    ]
    splits = [scaled_split(split, factor) for split in workload.splits]
    scope = replace(workload.scope, steps=tuple(steps / factor for steps in workload.scope.steps))
    return replace(_phases(workload, change), works=works, splits=splits, scope=scope)


def with_fewer_accumulations(workload: Workload, factor: int) -> Workload:
    """Return the workload with `factor` micro-batches of every step in one: the same gradients from fewer launches."""

    def change(phase: Phase) -> Phase:
        data = larger_data(phase.data, factor)
        return replace(
            phase,
            data=replace(data, batches_per_step=data.batches_per_step / factor),
            saved_tensor_bytes=phase.saved_tensor_bytes * factor,
            micro_batches=phase.micro_batches / factor,
        )

    works = [work.scaled(launches=1.0 / factor, same_bytes=0.0) for work in workload.works]
    return replace(_phases(workload, change), works=works)


def without_host_python(workload: Workload) -> Workload:
    """Return the workload without the script's own Python in the step."""
    splits = [replace(split, host=0.0) for split in workload.splits]
    return replace(_phases(workload, lambda phase: replace(phase, host_seconds_per_step=0.0)), splits=splits)


def with_setup(workload: Workload, seconds: float) -> Workload:
    """Return the workload with a set-up of so many seconds."""
    return replace(workload, profile=replace(workload.profile, setup_seconds=seconds))


def without_epoch_starts(workload: Workload) -> Workload:
    """Return the workload without the work between epochs that is neither validation nor a checkpoint."""
    return _phases(workload, lambda phase: replace(phase, extras=[e for e in phase.extras if not starts_epoch(e)]))


def starts_epoch(extra: Extra) -> bool:
    """Return whether it is work that repeats with every epoch, before its first step."""
    return extra.kind is ExtraKind.EPOCH_START and extra.rhythm is Rhythm.EPOCH


def _phases(workload: Workload, change: Callable[[Phase], Phase]) -> Workload:
    profile = workload.profile
    return replace(workload, profile=replace(profile, phases=[change(phase) for phase in profile.phases]))


def cast_seconds(workload: Workload) -> float:
    """Return the seconds that launching the casts of mixed precision takes over the whole run."""
    total = 0.0
    for phase, steps in zip(workload.profile.phases, workload.scope.steps, strict=True):
        weights = sum(one.tensors * one.updates_per_step for one in phase.optimizers) * phase.micro_batches
        total += steps * CONSTANTS["launch"] * (CASTS_PER_WEIGHT * weights + SCALER_KERNELS)
    return total


def worker_seconds(workload: Workload, workers: int, after: Prediction) -> float:
    """Workers that start, batches that are handed over, and, without a GPU, cores that the training wants as well."""
    total = 0.0
    profile, scope = workload.profile, workload.scope
    for phase, steps, epochs in zip(profile.phases, scope.steps, scope.epochs, strict=True):
        data = phase.data
        if not uses_loader(data) or data.workers >= workers:
            continue
        total += WORKER_START_SECONDS * (workers - data.workers) * max(1.0, epochs)
        if data.workers == 0:
            total += HANDOVER_SECONDS * data.batches_per_step * steps
        if after.candidate.offer is not None and not after.candidate.is_gpu:
            work = (data.fetch_seconds_per_batch or 0.0) * data.batches_per_step
            total += steps * work / host_cores(after.candidate)
    return total

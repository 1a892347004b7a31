"""A workload as it would be after a change to its script. Pure: each function returns a new `Workload`.

Functions that take a place return None where the change does nothing there. What a change does to a number that no profile
holds (a kernel for each cast, the start of a worker) is not in the changed workload, so that its prediction is what
`costgpu estimate` will say of the changed script. It is the change's overhead (`cast_seconds`, `worker_seconds`), which a
saving has to survive: an upper end, not a mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from costgpu.estimator.cpu import host_cores
from costgpu.estimator.cpu_peak import HalfUnit, half_gain, half_unit
from costgpu.estimator.gpu import Runtime
from costgpu.estimator.measured_memory import resized_memory, under_autocast
from costgpu.estimator.prepared import Workload
from costgpu.estimator.resize import in_larger_units, larger_data, scaled_step
from costgpu.estimator.roofline import TRAINING
from costgpu.estimator.unit_work import Pass
from costgpu.estimator.work import HALF_TYPES
from costgpu.models.prediction import Candidate, Prediction
from costgpu.models.workload import Autocast, DataLoading, Extra, ExtraKind, GpuPath, Phase, Rhythm

BFLOAT16_SINCE = (8, 0)  # compute capability. Source: NVIDIA's CUDA C++ Programming Guide, "Compute Capabilities"
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


# ------------------------------------------------------------------------------------------------ what the script is


def traced(workload: Workload) -> bool:
    """Return whether the work of every phase is known op by op."""
    return all(phase.gpu is GpuPath.TRACED and phase.trace_steps > 0 for phase in workload.profile.phases)


def is_torch(workload: Workload) -> bool:
    """Return True for PyTorch that was traced op by op: other frameworks choose their precision in other words."""
    return traced(workload) and workload.profile.framework.name == "torch"


def inferences(workload: Workload) -> list[Phase]:
    """Return the phases that only run models forward."""
    return [phase for phase in workload.profile.phases if not phase.unit.trains]


def weight_types(workload: Workload) -> set[str]:
    """Return the types of most parameters of the models that only run forward."""
    return {phase.unit.weights_dtype for phase in inferences(workload)}


def in_float32(workload: Workload) -> bool:
    """Return whether all models that only run forward are PyTorch's and in fp32, and stay so on a GPU."""
    return is_torch(workload) and not weight_types(workload) & HALF_TYPES and workload.execution.weights is None


def uses_loader(data: DataLoading) -> bool:
    """Return whether its batches come from a DataLoader whose work was timed."""
    return data.batches_per_step > 0 and bool(data.fetch_seconds_per_batch)


def starts_epoch(extra: Extra) -> bool:
    """Return whether it is work that repeats with every epoch, before its first step."""
    return extra.kind is ExtraKind.EPOCH_START and extra.rhythm is Rhythm.EPOCH


# -------------------------------------------------------------------------------------------------------- precision


def half_for(place: Candidate) -> str:
    """Return the half precision to use on an accelerator; empty where there is no unit for it."""
    spec = place.accelerator
    if spec is None or spec.compute_capability is None:
        return ""
    if spec.compute_capability >= BFLOAT16_SINCE and spec.bf16_tensor_tflops:
        return "bfloat16"
    return "float16" if spec.fp16_tensor_tflops else ""


def with_autocast(workload: Workload, place: Candidate, _: int = 1) -> Workload | None:
    """Return the workload under ``torch.autocast("cuda")`` in the half precision of the place."""
    if not (dtype := half_for(place)):
        return None
    framework = workload.profile.framework
    casts = [Autocast(device="cuda", dtype=dtype, enabled=True), *framework.autocast]
    memory = workload.profile.memory
    halved = replace(
        workload.profile,
        framework=replace(framework, autocast=casts),
        memory=under_autocast(memory) if memory is not None else None,
    )
    return replace(workload, profile=halved)


def with_half_weights(workload: Workload, place: Candidate, _: int = 1) -> Workload | None:
    """Return the workload with its fp32 models converted to the half precision of a GPU, without autocast."""
    if not (dtype := half_for(place)):
        return None
    execution = workload.execution
    off = replace(execution.precision, half=None)
    return replace(workload, execution=replace(execution, weights=dtype, precision=off))


def with_tf32(workload: Workload, place: Candidate, _: int = 1) -> Workload | None:
    """Return the workload after ``torch.set_float32_matmul_precision("high")``."""
    if place.accelerator is None or not place.accelerator.tf32_tensor_tflops:
        return None
    framework = replace(workload.profile.framework, float32_matmul_precision="high", matmul_tf32=True)
    precision = replace(workload.execution.precision, matmul_tf32=True)
    return replace(
        workload,
        profile=replace(workload.profile, framework=framework),
        execution=replace(workload.execution, precision=precision),
    )


def with_channels_last(workload: Workload, place: Candidate, _: int = 1) -> Workload | None:
    """Return the workload with its images and convolutions in channels-last order, if it computes in half precision."""
    execution = workload.execution
    halved = execution.weights is not None or execution.precision.half is not None
    if not place.is_gpu or not (halved or weight_types(workload) <= HALF_TYPES):
        return None
    return replace(workload, execution=replace(execution, channels_last=True))


def with_compile(workload: Workload, place: Candidate, _: int = 1) -> Workload | None:
    """Return the workload under torch.compile in its default mode."""
    if not place.is_gpu:
        return None
    return replace(workload, execution=replace(workload.execution, runtime=Runtime.COMPILED))


def with_cpu_bfloat16(workload: Workload, place: Candidate, _: int = 1) -> Workload | None:
    """Return the workload with its fp32 models in bf16 on a CPU that has units for it, calls and Python as they are.

    The gain is that of the whole unit by the formulas for both types, so that nets of tiny ops hardly gain.
    """
    cpu, offer = place.cpu, place.offer
    if place.is_gpu or cpu is None or offer is None or half_unit(cpu, "bfloat16") is HalfUnit.NONE:
        return None
    splits, passes = list(workload.splits), list(workload.passes)
    for index, (split, unit) in enumerate(zip(workload.splits, workload.units, strict=True)):
        gain = half_gain(unit, cpu, offer.vcpus)
        splits[index] = replace(split, compute=split.compute / gain, memory=split.memory / gain)
        flops = {(kind, "bfloat16"): value for (kind, _), value in unit.work.flops.items()}
        passes[index] = (Pass(replace(unit.work, flops=flops)),)  # no fp32 peak limits it
    return replace(workload, splits=splits, passes=passes)


def from_cpu_float16(workload: Workload, place: Candidate, _: int = 1) -> Workload | None:
    """Return the workload with its float16 models in bf16 on a CPU that has units for it."""
    if place.is_gpu or place.cpu is None or half_unit(place.cpu, "bfloat16") is HalfUnit.NONE:
        return None
    return replace(workload, cpu_dtype="bfloat16") if weight_types(workload) == {"float16"} else None


def with_cpu_float32(workload: Workload, place: Candidate, _: int = 1) -> Workload | None:
    """Return the workload with its half-precision models in fp32, twice as large, on a CPU without units for them."""
    types = weight_types(workload)
    if place.cpu is None or any(half_unit(place.cpu, dtype) is not HalfUnit.NONE for dtype in types):
        return None
    profile = workload.profile
    more = max(phase.model_bytes for phase in inferences(workload))
    rss = None if profile.peak_rss_bytes is None else profile.peak_rss_bytes + more
    return replace(workload, profile=replace(profile, peak_rss_bytes=rss), cpu_dtype="float32")


def cast_seconds(workload: Workload) -> float:
    """Return the seconds that launching the casts of mixed precision takes over the whole run."""
    total = 0.0
    for phase, steps in zip(workload.profile.phases, workload.scope.steps, strict=True):
        weights = sum(one.tensors * one.updates_per_step for one in phase.optimizers) * phase.micro_batches
        total += steps * TRAINING.seconds["kernels"][1] * (CASTS_PER_WEIGHT * weights + SCALER_KERNELS)
    return total


# ---------------------------------------------------------------------------------------------------------- loading


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


# ---------------------------------------------------------------------------------------------------------- batches


def with_batch(workload: Workload, factor: float) -> Workload:
    """Return the workload with `factor` times the samples in a batch and as many steps fewer: the same samples in all."""
    for index in range(len(workload.profile.phases)):
        workload = in_larger_units(workload, index, factor)
    return workload


def with_items(workload: Workload, factor: float) -> Workload:
    """Return the workload with `factor` times the items in each unit of its last phase, and as many units fewer.

    Other phases stay as they are, and so does a last one that is training.
    """
    last = len(workload.profile.phases) - 1
    return workload if workload.profile.phases[last].unit.trains else in_larger_units(workload, last, factor)


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

    works = [unit.work.scaled(launches=1.0 / factor, same_bytes=0.0) for unit in workload.units]
    changed, memory = _phases(workload, change), workload.profile.memory
    if memory is not None:
        changed = replace(changed, profile=replace(changed.profile, memory=resized_memory(memory, factor)))
    return replace(changed, passes=[(Pass(work),) for work in works])


# ------------------------------------------------------------------------------------ work that is done elsewhere


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


def _phases(workload: Workload, change: Callable[[Phase], Phase]) -> Workload:
    profile = workload.profile
    return replace(workload, profile=replace(profile, phases=[change(phase) for phase in profile.phases]))

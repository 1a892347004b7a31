"""Seconds and cost of a measured workload on a candidate. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from costgpu.estimator import benchmark_table
from costgpu.estimator import cpu as cpu_model
from costgpu.estimator.calibration import Calibration, calibrated, calibration_of, local_gpu
from costgpu.estimator.cost import cost_range, ready_seconds, with_run
from costgpu.estimator.feasibility import infeasible_reason
from costgpu.estimator.gpu import copy_seconds, foreign_optimizer, gpu_terms, precision_of
from costgpu.estimator.interval import (
    COUNTED,
    FINISHED_SIGMA,
    PRIOR,
    Interval,
    cpu_interval,
    gpu_interval,
    local_interval,
    run_range,
    sigma_of_runs,
)
from costgpu.estimator.op_costs import StepWork, counted_work, step_work
from costgpu.estimator.scope import Scope, scope_of
from costgpu.models.offer import AcceleratorSpec, Speedup
from costgpu.models.prediction import Candidate, MeasuredSpeed, Prediction, Provenance
from costgpu.models.workload import ExtraKind, GpuPath, Phase, Rhythm, StepTimes, TotalKind, WorkloadProfile

NOT_MEASURED = "nothing was measured: a reference workload stands for the script"
SAME_STEPS = 0.01  # numbers of steps that differ by less are the same job: some can be told only approximately


@dataclass(slots=True)
class Workload:
    """A profile with everything that does not depend on the candidate computed once; and the benchmark table."""

    profile: WorkloadProfile
    scope: Scope
    works: list[StepWork]
    splits: list[cpu_model.StepSplit]
    year: int
    speedups: tuple[Speedup, ...] = ()
    calibration: Calibration | None = None


@dataclass(slots=True)
class _Step:
    """One step on a candidate; `unknown` says why it cannot be told, empty if it can."""

    terms: dict[str, float]
    interval: Interval
    notes: list[str]
    provenance: Provenance = Provenance.MODELLED
    unknown: str = ""


def prepare(
    profile: WorkloadProfile,
    scope: Scope,
    *,
    year: int,
    speedups: Sequence[Speedup] = (),
    cards: Iterable[AcceleratorSpec] = (),
) -> Workload:
    """Computes what all candidates share.

    Args:
        year: This year, to tell a new architecture.
        speedups: The benchmark table, for phases whose `gpu` is `GpuPath.TABLE`.
        cards: All known GPUs, to find the one of this machine where that measured the profile.
    """
    works = [_work(phase) for phase in profile.phases]
    splits = [
        cpu_model.split_step(
            _busy_seconds(phase),
            work,
            phase.calls_per_step,
            phase.host_seconds_per_step,
            profile.machine,
        )
        for phase, work in zip(profile.phases, works, strict=True)
    ]
    calibration = calibration_of(profile, works, local_gpu(profile.machine.accelerators, cards))
    return Workload(profile, scope, works, splits, year, tuple(speedups), calibration)


def _busy_seconds(phase: Phase) -> float:
    """The measured step without the time that it waited for data."""
    return max(phase.step.mean_seconds - phase.data.wait_seconds_per_step, 0.1 * phase.step.mean_seconds)


def _work(phase: Phase) -> StepWork:
    if phase.gpu is GpuPath.COUNTED and phase.totals is not None:
        return counted_work(phase.totals)
    return step_work(phase.ops, phase.trace_steps, optimizer_ops=foreign_optimizer(phase))


def predict(workload: Workload, candidate: Candidate, measured: MeasuredSpeed | None = None) -> Prediction:
    """The prediction for one candidate; an infeasible one says why and is still filled in.

    Args:
        measured: Earlier runs of this very job there; they count for the whole job with the same number of steps.
    """
    modelled = _modelled(workload, candidate)
    if measured is None or not is_same_job(measured, workload.scope, scope_of(workload.profile)):
        return modelled
    return as_measured(modelled, measured)


def is_same_job(speed: MeasuredSpeed, scope: Scope, own: Scope) -> bool:
    """Whether that was this job: all of it, with as many steps.

    Args:
        own: What the script does by itself: as long as that is what a run of unknown length did.
    """
    total = scope.total_steps
    if total is None:
        return False
    steps = speed.steps if speed.steps is not None else own.total_steps
    return steps is not None and abs(steps - total) <= SAME_STEPS * max(steps, total)


def as_measured(modelled: Prediction, speed: MeasuredSpeed) -> Prediction:
    """The prediction with the seconds that this very job took there."""
    seconds, sigma = speed.job_seconds, sigma_of_runs(speed)
    step = modelled.step_seconds * seconds / modelled.run_seconds.value if modelled.run_seconds.value > 0 else 0.0
    times = "1 run" if speed.runs == 1 else f"{speed.runs} runs"
    return replace(
        with_run(modelled, Interval.of_sigma(sigma).around(seconds)),
        step_seconds=step,
        terms={"run": step},
        parts={"the whole job": seconds},
        sigma=sigma,
        provenance=Provenance.MEASURED,
        infeasible="",  # it has run there
        notes=(f"measured in {times}, last {speed.last_at:%Y-%m-%d}",),
    )


def _modelled(workload: Workload, candidate: Candidate) -> Prediction:
    profile, scope = workload.profile, workload.scope
    parts: dict[str, float] = {"steps": 0.0}
    unknown = ""
    unseen = 0.0
    for index, phase in enumerate(profile.phases):
        step = _step(workload, index, candidate)
        unknown = unknown or step.unknown
        seconds = sum(step.terms.values()) or phase.step.mean_seconds
        parts["steps"] += seconds * scope.steps[index]
        for name, value, measured in _extras(phase, seconds, scope, index, candidate):
            parts[name] = parts.get(name, 0.0) + value
            unseen += 0.0 if measured else value
    if scope.whole:
        parts["set-up"] = profile.setup_seconds
    run = sum(parts.values())
    interval = step.interval
    if candidate.offer is None and profile.ended and scope.whole and _all_steps(profile, scope):
        run, interval, unseen = profile.wall_seconds, Interval.of_sigma(FINISHED_SIGMA), 0.0
    run_seconds, sigma = run_range(
        run,
        interval,
        fixed=min(1.0, parts.get("set-up", 0.0) / run) if run > 0 else 0.0,
        unseen=unseen / run if run > 0 else 0.0,
        changing_total=scope.whole and any(p.total.kind is TotalKind.APPROXIMATE for p in profile.phases),
        drift=profile.phases[-1].step.drift,
    )
    overhead = ready_seconds(candidate) if scope.whole else 0.0
    wall = run_seconds.plus(overhead)
    return Prediction(
        candidate=candidate,
        step_seconds=seconds,
        run_seconds=run_seconds,
        overhead_seconds=overhead,
        wall_seconds=wall,
        cost_usd=cost_range(candidate, wall),
        terms=step.terms,
        parts=parts,
        sigma=sigma,
        provenance=step.provenance,
        infeasible=infeasible_reason(profile, candidate, precision_of(profile.framework)) or unknown,
        notes=tuple(dict.fromkeys(step.notes)),
    )


def _all_steps(profile: WorkloadProfile, scope: Scope) -> bool:
    return scope.steps == tuple(float(phase.total.steps or 0.0) for phase in profile.phases)


def _step(workload: Workload, index: int, candidate: Candidate) -> _Step:
    phase = workload.profile.phases[index]
    if candidate.offer is None:
        return _local_step(phase.step)
    if candidate.accelerator is None:
        return _cpu_step(workload, index, candidate)
    if phase.gpu is GpuPath.TABLE:
        return _table_step(workload, phase, candidate, candidate.accelerator)
    return _gpu_step(workload, index, candidate, candidate.accelerator)


def _local_step(step: StepTimes) -> _Step:
    if not step.count:
        return _Step({"nominal": step.mean_seconds}, PRIOR, [NOT_MEASURED])
    return _Step({"measured": step.mean_seconds}, local_interval(step), [], Provenance.MEASURED)


def _cpu_step(workload: Workload, index: int, candidate: Candidate) -> _Step:
    offer, cpu, machine = candidate.offer, candidate.cpu, workload.profile.machine
    phase = workload.profile.phases[index]
    assert offer is not None  # noqa: S101 - the caller's branch
    assert cpu is not None  # noqa: S101 - every offer has a CPU: a data invariant
    terms = cpu_model.step_there(
        workload.splits[index],
        workload.works[index],
        machine,
        cpu,
        offer.vcpus,
        spreads=phase.gpu in (GpuPath.TABLE, GpuPath.NONE),
    )
    cores = offer.vcpus / cpu.vcpus_per_core
    interval, notes = cpu_interval(machine, same_chip=cpu_model.same_chip(machine, cpu), cores=cores)
    if not phase.step.count:
        interval = interval.covering(PRIOR)
        notes.append(NOT_MEASURED)
    terms["loading"] = _loading(phase, sum(terms.values()), max(1.0, cores - 1))
    return _Step(terms, interval, notes)


def _table_step(workload: Workload, phase: Phase, candidate: Candidate, spec: AcceleratorSpec) -> _Step:
    """A step by the speed-ups that others measured on the same kind of work."""
    seconds = _busy_seconds(phase)
    serial = min(1.0, phase.host_seconds_per_step / seconds) if seconds > 0 else 0.0
    rate = benchmark_table.cpu_rate(cpu_model.rates_here(workload.profile.machine), serial)
    work = benchmark_table.Work(phase.kind, workload.profile.framework.name, phase.unit, seconds, rate)
    found = benchmark_table.table_speed(work, spec, workload.speedups)
    if found is None:
        why = f"no speed-up of {phase.kind or 'this kind of work'} on a GPU is known"
        return _Step({"table": seconds}, PRIOR, [], unknown=why)
    notes = [phase.gpu_reason, *found.notes] if phase.gpu_reason else list(found.notes)
    if candidate.accelerator_count > 1:
        notes.append(f"taken to use one of its {candidate.accelerator_count:g} GPUs")
    terms = {"table": seconds / found.speedup}
    terms["loading"] = _loading(phase, terms["table"], cpu_model.host_cores(candidate))
    return _Step(terms, Interval.of_sigma(found.sigma), notes, Provenance.BENCHMARKED)


def _gpu_step(workload: Workload, index: int, candidate: Candidate, spec: AcceleratorSpec) -> _Step:
    profile, phase = workload.profile, workload.profile.phases[index]
    found = gpu_terms(workload.works[index], phase.optimizers, precision_of(profile.framework), spec)
    interval, notes = gpu_interval(found, spec, compiled=profile.framework.compiled > 0, as_of_year=workload.year)
    notes += found.notes
    if phase.gpu is GpuPath.COUNTED:
        interval = interval.covering(COUNTED)
        if phase.step.count:
            notes.append(f"from the sums of a step, not from its ops: {phase.totals.source if phase.totals else ''}")
        else:
            interval = interval.covering(PRIOR)
            notes.append(NOT_MEASURED)
    if candidate.accelerator_count > 1:
        notes.append(f"the script uses one of its {candidate.accelerator_count:g} GPUs")
    modelled = {
        "compute": found.compute,
        "on-chip": found.on_chip,
        "memory": found.memory,
        "launch": found.launch,
        "host": phase.host_seconds_per_step,
        "copy": copy_seconds(phase, spec),
    }
    terms = calibrated(workload.calibration, index, modelled, spec)
    if workload.calibration is not None:
        notes.append(f"set right by what was measured on the {workload.calibration.spec.name} here")
    terms["loading"] = _loading(phase, sum(terms.values()), cpu_model.host_cores(candidate))
    return _Step(terms, interval, notes)


def _loading(phase: Phase, step_seconds: float, cores: float) -> float:
    """Seconds that the step waits for data: all of it without workers, else what the step does not hide."""
    data = phase.data
    if not data.batches_per_step:
        return 0.0
    fetch = data.fetch_seconds_per_batch
    if fetch is None:
        return data.wait_seconds_per_step
    work = fetch * data.batches_per_step
    if data.workers == 0:
        return work
    waiting = data.fetch_wait_seconds_per_batch * data.batches_per_step / data.workers  # disk or network: anywhere
    return max(0.0, work / min(float(data.workers), max(1.0, cores)) + waiting - step_seconds)


def _extras(
    phase: Phase, seconds: float, scope: Scope, index: int, candidate: Candidate
) -> list[tuple[str, float, bool]]:
    """Name, seconds in all, and whether it was measured, of the work beside the steps."""
    ratio = seconds / phase.step.mean_seconds if phase.step.mean_seconds > 0 else 1.0
    found = []
    for extra in phase.extras:
        if extra.rhythm is Rhythm.EPOCH:
            times = scope.epochs[index] / max(extra.every, 1e-9)
        elif extra.rhythm is Rhythm.STEPS:
            times = scope.steps[index] / max(extra.every, 1e-9)
        else:
            times = 1.0 if scope.whole else 0.0
        scales = extra.kind in (ExtraKind.VALIDATION, ExtraKind.OTHER) and extra.rhythm is not Rhythm.RUN
        each = extra.seconds_each * (ratio if scales and candidate.offer is not None else 1.0)
        found.append((extra.kind.value.replace("_", " "), each * times, extra.measured))
    return found

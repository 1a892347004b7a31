"""Seconds and cost of a measured workload on a candidate. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from costgpu.estimator import benchmark_table
from costgpu.estimator import cpu as cpu_model
from costgpu.estimator.calibration import Calibration, calibrated, calibration_of, local_gpu
from costgpu.estimator.cost import cost_range, ready_seconds, with_run
from costgpu.estimator.feasibility import infeasible_reason
from costgpu.estimator.gpu import HOST_GHZ, Host, Precision, copy_seconds, foreign_optimizer, gpu_terms, precision_of
from costgpu.estimator.inference.gpu import Execution
from costgpu.estimator.inference.steps import UnitSeconds, on_cpu_in_half, on_gpu, unit_rows
from costgpu.estimator.inference.unit import Unit, execution_of, unit_of
from costgpu.estimator.interval import (
    COUNTED,
    FEW_STEPS,
    FINISHED_SIGMA,
    PRIOR,
    Interval,
    cpu_interval,
    gpu_interval,
    local_interval,
    mean_interval,
    run_range,
    sigma_of_runs,
)
from costgpu.estimator.op_costs import StepWork, counted_work, step_work
from costgpu.estimator.scope import Scope, scope_of
from costgpu.estimator.throughput import inference_unit
from costgpu.models.offer import AcceleratorSpec, Speedup
from costgpu.models.prediction import Candidate, MeasuredSpeed, PhasePrediction, Prediction, Provenance
from costgpu.models.workload import ExtraKind, GpuPath, Machine, Phase, Rhythm, StepTimes, TotalKind, WorkloadProfile

NOT_MEASURED = "nothing was measured: a reference workload stands for the script"
FEW_STEPS_LOW, FEW_STEPS_HIGH = 0.8, 1.2  # a step on a CPU of which few were timed: assumed
WRITTEN = Execution(Precision(half=None, matmul_tf32=False, conv_tf32=True))  # fp32, and PyTorch's defaults
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
    units: tuple[Unit | None, ...] = ()  # units of the phases of inference, None for training; one for each phase
    cpu_dtype: str = ""  # type in which half-precision models run on a cloud CPU; empty for their own
    execution: Execution = WRITTEN  # how phases of inference run on a GPU


@dataclass(slots=True)
class _Step:
    """One step on a candidate; `unknown` says why it cannot be told, empty if it can."""

    terms: dict[str, float]
    interval: Interval
    notes: list[str]
    provenance: Provenance = Provenance.MODELLED
    unknown: str = ""
    prefill_share: float | None = None  # of a unit that generates tokens; None if this place's is not known


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
    units = tuple(unit_of(phase) if phase.inference is not None else None for phase in profile.phases)
    return Workload(
        profile,
        scope,
        works,
        splits,
        year,
        tuple(speedups),
        calibration,
        units,
        execution=execution_of(profile.framework),
    )


def _busy_seconds(phase: Phase) -> float:
    """The measured step without the time that it waited, for data or anything else."""
    step = phase.step.mean_seconds
    fed = max(step - phase.data.wait_seconds_per_step, 0.1 * step)
    return max(0.0, fed - phase.waiting_seconds_per_step)


def _work(phase: Phase) -> StepWork:
    if phase.gpu is GpuPath.COUNTED and phase.totals is not None:
        return counted_work(phase.totals)
    return step_work(unit_rows(phase), phase.trace_steps, optimizer_ops=foreign_optimizer(phase))


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
        phases=tuple(_phase_as_measured(phase, modelled, seconds, sigma) for phase in modelled.phases),
        sigma=sigma,
        provenance=Provenance.MEASURED,
        infeasible="",  # it has run there
        notes=(f"measured in {times}, last {speed.last_at:%Y-%m-%d}",),
    )


def _phase_as_measured(phase: PhasePrediction, modelled: Prediction, seconds: float, sigma: float) -> PhasePrediction:
    """A phase whose share of the measured run is that of the modelled one."""
    factor = seconds / modelled.run_seconds.value if modelled.run_seconds.value > 0 else 1.0
    interval = Interval.of_sigma(sigma)
    return replace(
        phase,
        step_seconds=interval.around(phase.step_seconds.value * factor),
        sustained_seconds=interval.around(phase.sustained_seconds.value * factor),
        seconds=phase.seconds * factor,
        terms={name: value * factor for name, value in phase.terms.items()},
    )


def _modelled(workload: Workload, candidate: Candidate) -> Prediction:
    profile, scope = workload.profile, workload.scope
    parts: dict[str, float] = {}
    unknown = ""
    unseen = 0.0
    phases: list[PhasePrediction] = []
    steps: list[_Step] = []
    for index, phase in enumerate(profile.phases):
        step = _step(workload, index, candidate)
        unknown = unknown or step.unknown
        seconds = sum(step.terms.values()) or phase.step.mean_seconds
        name = steps_name(profile.phases, index)
        parts[name] = parts.get(name, 0.0) + seconds * scope.steps[index]
        beside = _extras(phase, seconds, scope, index, candidate)
        for name, value, measured in beside:
            parts[name] = parts.get(name, 0.0) + value
            unseen += 0.0 if measured else value
        steps.append(step)
        recurs = sum(b[1] for e, b in zip(phase.extras, beside, strict=True) if e.rhythm is not Rhythm.RUN)
        each = recurs / scope.steps[index] if scope.steps[index] > 0 else 0.0
        phases.append(
            PhasePrediction(
                label=phase.label,
                step_seconds=step.interval.around(seconds),
                sustained_seconds=step.interval.around(seconds + each),
                seconds=seconds * scope.steps[index] + sum(value for _, value, _ in beside),
                terms=step.terms,
                unit=inference_unit(phase, step.prefill_share),
            )
        )
    if scope.whole:
        parts["set-up"] = profile.setup_seconds
    run = sum(parts.values())
    interval = mean_interval([(one.interval, phase.seconds) for one, phase in zip(steps, phases, strict=True)])
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
        cost_usd=cost_range(candidate, wall, whole=scope.whole),
        terms=step.terms,
        parts=parts,
        sigma=sigma,
        provenance=step.provenance,
        infeasible=infeasible_reason(profile, candidate, precision_of(profile.framework), workload.execution)
        or unknown,
        notes=tuple(dict.fromkeys(note for one in steps for note in one.notes)),
        phases=tuple(phases),
        fixed_seconds=ready_seconds(candidate) + profile.setup_seconds,
    )


def steps_name(phases: Sequence[Phase], index: int) -> str:
    """The part of a run that the steps of a phase are; training and inference apart where a script does both."""
    kinds = {phase.inference is None for phase in phases}
    if len(kinds) == 1:
        return "steps"
    return "training" if phases[index].inference is None else "inference"


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
    cores = offer.vcpus / cpu.vcpus_per_core
    unit = workload.units[index]
    own = _script_seconds(machine, phase, candidate)
    half = on_cpu_in_half(unit, phase, cpu, offer.vcpus, workload.cpu_dtype, own=own) if unit is not None else None
    if half is not None:
        loading = _loading(phase, sum(half.terms.values()), max(1.0, cores - 1))
        beside = {"waiting": phase.waiting_seconds_per_step, "loading": loading}
        terms = {**half.terms, **beside}
        return _Step(terms, half.interval, half.notes, prefill_share=half.prefill_share)
    work, spreads = workload.works[index], phase.gpu in (GpuPath.TABLE, GpuPath.NONE)
    terms = cpu_model.step_there(workload.splits[index], work, machine, cpu, offer.vcpus, spreads=spreads)
    interval, notes = cpu_interval(
        machine,
        same_chip=cpu_model.same_chip(machine, cpu),
        cores=cores,
        library=spreads and not work.kernels,
        measured=cpu.matrix_mult_per_vcpu is not None,
    )
    if not phase.step.count:
        interval = interval.covering(PRIOR)
        notes.append(NOT_MEASURED)
    elif phase.step.count < FEW_STEPS:
        interval = interval.stretched(low=FEW_STEPS_LOW, high=FEW_STEPS_HIGH)
        notes.append(
            "only one step was timed" if phase.step.count == 1 else f"only {phase.step.count} steps were timed"
        )
    terms["waiting"] = phase.waiting_seconds_per_step
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
    terms = {"table": seconds / found.speedup, "waiting": phase.waiting_seconds_per_step}
    terms["loading"] = _loading(phase, sum(terms.values()), cpu_model.host_cores(candidate))
    return _Step(terms, Interval.of_sigma(found.sigma), notes, Provenance.BENCHMARKED)


def _gpu_step(workload: Workload, index: int, candidate: Candidate, spec: AcceleratorSpec) -> _Step:
    phase, unit = workload.profile.phases[index], workload.units[index]
    if unit is not None:
        if unit.own_seconds is not None:
            unit = replace(unit, own_seconds=_script_seconds(workload.profile.machine, phase, candidate))
        step = on_gpu(unit, phase, workload.execution, spec, year=workload.year, host_speed=_host_speed(candidate))
    else:
        step = _training_step(workload, index, candidate, spec)
    interval, notes = step.interval, step.notes
    if phase.gpu is GpuPath.COUNTED:
        interval = interval.covering(COUNTED)
        if phase.step.count:
            notes.append(f"from the sums of a step, not from its ops: {phase.totals.source if phase.totals else ''}")
        else:
            interval = interval.covering(PRIOR)
            notes.append(NOT_MEASURED)
    if candidate.accelerator_count > 1:
        notes.append(f"the script uses one of its {candidate.accelerator_count:g} GPUs")
    terms = calibrated(workload.calibration, index, step.terms, spec)
    if workload.calibration is not None:
        notes.append(f"set right by what was measured on the {workload.calibration.spec.name} here")
    terms["waiting"] = phase.waiting_seconds_per_step
    terms["loading"] = _loading(phase, sum(terms.values()), cpu_model.host_cores(candidate))
    return _Step(terms, interval, notes, prefill_share=step.prefill_share)


def _training_step(workload: Workload, index: int, candidate: Candidate, spec: AcceleratorSpec) -> UnitSeconds:
    """One step of training on a GPU."""
    framework, phase = workload.profile.framework, workload.profile.phases[index]
    host = Host(_host_speed(candidate), _script_seconds(workload.profile.machine, phase, candidate))
    found = gpu_terms(workload.works[index], phase.optimizers, precision_of(framework), spec, host)
    interval, notes = gpu_interval(found, spec, compiled=framework.compiled > 0, as_of_year=workload.year)
    modelled = {
        "compute": found.compute,
        "on-chip": found.on_chip,
        "memory": found.memory,
        "depthwise": found.depthwise,
        "launch": found.launch,
        "calls": found.calls,
        "host": found.host,
        "copy": copy_seconds(phase, spec),
    }
    return UnitSeconds(modelled, interval, [*notes, *found.notes])


def _host_speed(candidate: Candidate) -> float:
    """One core of the offer's CPU over one of a current GPU instance's, by their clocks."""
    ghz = candidate.cpu.all_core_ghz if candidate.cpu is not None else None
    return ghz / HOST_GHZ if ghz else 1.0


def _script_seconds(machine: Machine, phase: Phase, candidate: Candidate) -> float:
    """Seconds of the script's own Python in a step on the offer's CPU, as on offers without a GPU."""
    ratio = cpu_model.thread_ratio(machine, candidate.cpu) if candidate.cpu is not None else 1.0
    return phase.host_seconds_per_step * cpu_model.undisturbed_share(machine) * ratio


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

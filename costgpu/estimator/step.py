"""Seconds of one step of a workload on a candidate, as one process takes it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from costgpu.estimator import benchmark_table
from costgpu.estimator import cpu as cpu_model
from costgpu.estimator.calibration import calibrated
from costgpu.estimator.cpu_peak import (
    ABSOLUTE,
    ABSOLUTE_UNMEASURED,
    HalfUnit,
    half_unit,
    unit_seconds_on_cpu,
    unit_terms_on_cpu,
)
from costgpu.estimator.gpu import HOST_GHZ, copy_seconds
from costgpu.estimator.gpu_interval import gpu_interval
from costgpu.estimator.interval import (
    COUNTED,
    FEW_STEPS,
    HALF_ON_CPU,
    PRIOR,
    SOME_SHARE,
    UNTIMED,
    Interval,
    cpu_interval,
    local_interval,
)
from costgpu.estimator.prepared import Workload, busy_seconds
from costgpu.estimator.unit_work import UnitWork, pass_terms, terms_of
from costgpu.estimator.work import HALF_TYPES, half_share
from costgpu.models.offer import AcceleratorSpec, CpuSpec
from costgpu.models.prediction import Candidate, Provenance
from costgpu.models.workload import GpuPath, Machine, Phase

UNTIMED_HERE = "measured without weights: its time on CPUs is modelled from its ops"
NOT_MEASURED = "nothing was measured: a reference workload stands for the script"
FEW_STEPS_LOW, FEW_STEPS_HIGH = 0.8, 1.2  # a step on a CPU of which few were timed: assumed


@dataclass(slots=True)
class Step:
    """One step, or one unit of inference, on a candidate; `unknown` says why it cannot be told, empty if it can."""

    terms: dict[str, float]  # seconds
    interval: Interval
    notes: list[str]
    provenance: Provenance = Provenance.MODELLED
    unknown: str = ""
    prefill_share: float | None = None  # of a unit that generates tokens; None if this place's is not known


def step_on(workload: Workload, index: int, candidate: Candidate, core_share: float = 1.0) -> Step:
    """One step of a phase there, as one process takes it: on this machine, on a CPU, or on one GPU.

    Args:
        core_share: Share of a core that feeds its GPU; below 1 where more processes than vCPUs train on a machine.
    """
    phase = workload.profile.phases[index]
    if candidate.offer is None:
        if workload.profile.without_weights:
            interval = UNTIMED if half_share(workload.units[index].work) < SOME_SHARE else HALF_ON_CPU
            return Step({"counted": phase.step.seconds}, interval, [UNTIMED_HERE])
        if not phase.step.count:
            return Step({"nominal": phase.step.seconds}, PRIOR, [NOT_MEASURED])
        interval = local_interval(phase.step, workload.profile.machine.disturbed_share)
        return Step({"measured": phase.step.seconds}, interval, [], Provenance.MEASURED)
    if candidate.accelerator is None:
        return _cpu_step(workload, index, candidate)
    if phase.gpu is GpuPath.TABLE:
        return _table_step(workload, phase, candidate, candidate.accelerator)
    return _gpu_step(workload, index, candidate, candidate.accelerator, core_share)


def _cpu_step(workload: Workload, index: int, candidate: Candidate) -> Step:
    offer, cpu, machine = candidate.offer, candidate.cpu, workload.profile.machine
    phase = workload.profile.phases[index]
    assert offer is not None  # noqa: S101 - the caller's branch
    assert cpu is not None  # noqa: S101 - every offer has a CPU: a data invariant
    cores = offer.vcpus / cpu.vcpus_per_core
    if half := _half_dtype(workload, index):
        step = _half_on_cpu(workload.units[index], cpu, offer.vcpus, half)
        if phase.unit.trains:  # the rows behind it are of models that run forward
            step.interval = step.interval.covering(ABSOLUTE_UNMEASURED)
            step.notes.append(f"how fast {half} trains on such a CPU was not measured")
        step.terms["host"] = _script_seconds(machine, phase, candidate)
    else:
        step = _scaled_on_cpu(workload, index, cpu, offer.vcpus)
    step.terms["waiting"] = phase.waiting_seconds_per_step
    step.terms["loading"] = loading_seconds(phase, sum(step.terms.values()), max(1.0, cores - 1))
    return step


def _half_dtype(workload: Workload, index: int) -> str:
    """Return the half-precision type in which a phase is computed on a CPU, if what was measured here tells nothing of it.

    So it is with inference, whose units in that type a CPU may have or not, and with what was measured without weights.
    """
    phase, work = workload.profile.phases[index], workload.units[index].work
    if not phase.unit.trains:
        known = phase.unit.weights_dtype in HALF_TYPES
        return (workload.cpu_dtype or phase.unit.weights_dtype) if known else ""
    if not workload.profile.without_weights or half_share(work) < SOME_SHARE:
        return ""
    flops = {kind: count for kind, count in work.flops.items() if kind[1] in HALF_TYPES}
    return max(flops, key=lambda kind: flops[kind])[1]


def _scaled_on_cpu(workload: Workload, index: int, cpu: CpuSpec, vcpus: int) -> Step:
    """Return the step that was measured here on a cloud CPU, data loading and waiting apart."""
    phase, machine, work = workload.profile.phases[index], workload.profile.machine, workload.units[index].work
    spreads = phase.gpu in (GpuPath.TABLE, GpuPath.NONE)
    terms = cpu_model.step_there(workload.splits[index], work, machine, cpu, vcpus, spreads=spreads)
    interval, notes = cpu_interval(
        machine,
        cpu,
        cores=vcpus / cpu.vcpus_per_core,
        convolved=work.convolved_share,
        half=half_share(work),
        library=spreads and not work.kernels,
    )
    if workload.profile.without_weights:
        interval = interval.stretched(low=UNTIMED.low, high=UNTIMED.high)
        notes.append(UNTIMED_HERE)
    elif not phase.step.count:
        interval = interval.covering(PRIOR)
        notes.append(NOT_MEASURED)
    elif phase.step.count < FEW_STEPS:
        interval = interval.stretched(low=FEW_STEPS_LOW, high=FEW_STEPS_HIGH)
        notes.append(
            "only one step was timed" if phase.step.count == 1 else f"only {phase.step.count} steps were timed"
        )
    return Step(terms, interval, notes)


def _half_on_cpu(unit: UnitWork, cpu: CpuSpec, vcpus: int, dtype: str) -> Step:
    """Return a unit of a model in half precision on a cloud CPU, the script's own Python, loading and waiting apart.

    What was measured here is of no use for it: this CPU may or may not have units for that type.

    Args:
        dtype: Type that it computes in there, to which the model may have been converted.
    """
    notes = [f"{dtype} on a CPU: from its peak, not from what was measured here"]
    interval, has = ABSOLUTE, half_unit(cpu, dtype) if dtype in HALF_TYPES else None
    if has is HalfUnit.NONE:
        notes.append(f"no units for {dtype}: this model would be faster in float32 there")
    elif has is HalfUnit.UNMEASURED:
        interval = ABSOLUTE_UNMEASURED
        notes.append(f"how fast {dtype} is on such a CPU was not measured")
    share = _first_share([unit_seconds_on_cpu(UnitWork((one,)), cpu, vcpus, dtype) for one in unit.passes])
    return Step(unit_terms_on_cpu(unit, cpu, vcpus, dtype), interval, notes, prefill_share=share)


def _table_step(workload: Workload, phase: Phase, candidate: Candidate, spec: AcceleratorSpec) -> Step:
    """Return a step by the speed-ups that others measured on the same kind of work."""
    seconds = busy_seconds(phase)
    serial = min(1.0, phase.host_seconds_per_step / seconds) if seconds > 0 else 0.0
    rate = benchmark_table.cpu_rate(cpu_model.rates_here(workload.profile.machine), serial)
    work = benchmark_table.TableWork(phase.kind, workload.profile.framework.name, phase.unit.name, seconds, rate)
    found = benchmark_table.table_speed(work, spec, workload.speedups)
    if found is None:
        why = f"no speed-up of {phase.kind or 'this kind of work'} on a GPU is known"
        return Step({"table": seconds}, PRIOR, [], unknown=why)
    notes = [phase.gpu_reason, *found.notes] if phase.gpu_reason else list(found.notes)
    if candidate.accelerator_count > 1 and workload.profile.ranks.alone:
        notes.append(f"taken to use one of its {candidate.accelerator_count:g} GPUs")
    terms = {"table": seconds / found.speedup, "waiting": phase.waiting_seconds_per_step}
    terms["loading"] = loading_seconds(phase, sum(terms.values()), cpu_model.host_cores(candidate))
    return Step(terms, Interval.of_sigma(found.sigma), notes, Provenance.BENCHMARKED)


def _gpu_step(workload: Workload, index: int, candidate: Candidate, spec: AcceleratorSpec, core_share: float) -> Step:
    phase, profile = workload.profile.phases[index], workload.profile
    unit = workload.units[index]
    execution = workload.execution_of(phase)
    if unit.own_seconds is not None:
        unit = replace(unit, own_seconds=_script_seconds(profile.machine, phase, candidate) / core_share)
    ghz = (candidate.cpu.all_core_ghz if candidate.cpu is not None else None) or HOST_GHZ
    passes = pass_terms(unit, spec, execution, host_speed=core_share * ghz / HOST_GHZ)
    found = terms_of(unit, passes)
    interval, notes = gpu_interval(found, spec, execution, trains=phase.unit.trains, year=workload.year)
    notes += found.notes
    if phase.gpu is GpuPath.COUNTED:
        interval = interval.covering(COUNTED)
        if phase.step.count:
            notes.append(f"from the sums of a step, not from its ops: {phase.totals.source if phase.totals else ''}")
        else:
            interval = interval.covering(PRIOR)
            notes.append(NOT_MEASURED)
    if candidate.accelerator_count > 1 and profile.ranks.alone:
        notes.append(f"the script uses one of its {candidate.accelerator_count:g} GPUs")
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
    if not phase.unit.trains:  # its depthwise convolutions are in `compute`, the script's own Python is in `calls`
        del modelled["depthwise"], modelled["host"]
    terms = calibrated(workload.calibration, index, modelled, spec)
    if workload.calibration is not None:
        notes.append(f"set right by what was measured on the {workload.calibration.spec.name} here")
    terms["waiting"] = phase.waiting_seconds_per_step
    terms["loading"] = loading_seconds(phase, sum(terms.values()), cpu_model.host_cores(candidate))
    share = _first_share([one.times * each.seconds for one, each in zip(unit.passes, passes, strict=True)])
    return Step(terms, interval, notes, prefill_share=share)


def _first_share(seconds: list[float]) -> float | None:
    """Return the prefill's share of a unit that has decodes as well."""
    whole = sum(seconds)
    return seconds[0] / whole if len(seconds) > 1 and whole > 0 else None


def _script_seconds(machine: Machine, phase: Phase, candidate: Candidate) -> float:
    """Return the seconds of the script's own Python in a step on the offer's CPU, as on offers without a GPU."""
    ratio = cpu_model.thread_ratio(machine, candidate.cpu) if candidate.cpu is not None else 1.0
    return phase.host_seconds_per_step * cpu_model.undisturbed_share(machine) * ratio


def loading_seconds(phase: Phase, step_seconds: float, cores: float) -> float:
    """Return the seconds that the step waits for data: all of it without workers, else what the step does not hide.

    Args:
        step_seconds: Seconds of the step without loading.
        cores: Cores that make the batches of this process; below 1 where processes share them.
    """
    data = phase.data
    if not data.batches_per_step:
        return 0.0
    fetch = data.fetch_seconds_per_batch
    if fetch is None:
        return data.wait_seconds_per_step
    work = fetch * data.batches_per_step
    if data.workers == 0:
        return work / min(1.0, cores)
    waiting = data.fetch_wait_seconds_per_batch * data.batches_per_step / data.workers  # disk or network: anywhere
    return max(0.0, work / min(float(data.workers), cores) + waiting - step_seconds)

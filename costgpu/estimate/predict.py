"""Seconds and cost of a measured workload on a candidate. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from costgpu.estimate import benchmark_table
from costgpu.estimate import cpu as cpu_model
from costgpu.estimate.calibration import Anchor, anchor_of, anchored, spec_here
from costgpu.estimate.cost import cost_range, ready_seconds
from costgpu.estimate.feasibility import why_not
from costgpu.estimate.gpu import (
    DEFAULT_HOST_TO_DEVICE_GBPS,
    HOST_TO_DEVICE_GBPS,
    foreign_optimizer,
    gpu_terms,
    precision_of,
)
from costgpu.estimate.history import applies, as_measured
from costgpu.estimate.interval import (
    COUNTED,
    CPU_OTHER_FAMILY,
    CPU_SAME_FAMILY,
    PRIOR,
    Z80,
    Interval,
    gpu_interval,
)
from costgpu.estimate.op_costs import StepWork, counted_work, step_work
from costgpu.estimate.scope import Amount, amount_of
from costgpu.models.offer import AcceleratorSpec, Speedup
from costgpu.models.prediction import Candidate, MeasuredSpeed, Prediction, Provenance, Range
from costgpu.models.workload import ExtraKind, GpuPath, Phase, Rhythm, TotalKind, WorkloadProfile

STEADY, LEAST_SWING = 0.8, 0.4  # of the micro-benchmark: slowest window over fastest
HERE_SIGMA = 0.06  # a longer run on the same machine; its own swings are added
FAR_SCALING = 8.0  # from so many times the cores on, the interval widens
CHANGING_TOTAL_SIGMA = 0.5  # a number of steps that changes from epoch to epoch
NOT_MEASURED = "nothing was measured: a reference workload stands for the script"
UNSEEN_SHARE_SIGMA = 0.35  # of the part of the time that was inferred and not measured


@dataclass(slots=True)
class Workload:
    """A profile with everything that does not depend on the candidate computed once; and the benchmark table."""

    profile: WorkloadProfile
    amount: Amount
    works: list[StepWork]
    splits: list[cpu_model.LocalStep]
    year: int
    speedups: tuple[Speedup, ...] = ()
    anchor: Anchor | None = None


@dataclass(slots=True)
class _Step:
    """One step on a candidate: seconds by term, interval, remarks, where it comes from; why it cannot be told."""

    terms: dict[str, float]
    interval: Interval
    notes: list[str]
    provenance: Provenance = Provenance.MODELLED
    unknown: str = ""


def prepare(
    profile: WorkloadProfile,
    amount: Amount,
    *,
    year: int,
    speedups: Sequence[Speedup] = (),
    cards: Iterable[AcceleratorSpec] = (),
) -> Workload:
    """Computes what all candidates share.

    Args:
        profile: Measured.
        amount: How much of it.
        year: Now, to tell a new architecture.
        speedups: The benchmark table, for phases whose `gpu` is `GpuPath.TABLE`.
        cards: All that are known, to find the GPU of this machine among, where that measured the profile.
    """
    works = [_work(phase) for phase in profile.phases]
    splits = [
        cpu_model.split_step(
            max(phase.step.mean_seconds - phase.data.wait_seconds_per_step, 0.1 * phase.step.mean_seconds),
            work,
            phase.calls_per_step,
            phase.host_seconds_per_step,
            profile.machine,
        )
        for phase, work in zip(profile.phases, works, strict=True)
    ]
    anchor = anchor_of(profile, works, spec_here(profile.machine.accelerators, cards))
    return Workload(profile, amount, works, splits, year, tuple(speedups), anchor)


def _work(phase: Phase) -> StepWork:
    if phase.gpu is GpuPath.COUNTED and phase.totals is not None:
        return counted_work(phase.totals)
    return step_work(phase.ops, phase.trace_steps, optimizer_ops=foreign_optimizer(phase))


def predict(workload: Workload, candidate: Candidate, measured: MeasuredSpeed | None = None) -> Prediction:
    """The prediction for one candidate; an infeasible one says why and is still filled in.

    Args:
        workload: What.
        candidate: Where.
        measured: How long this very job took there; it counts for the whole job with the same number of steps.
    """
    modelled = _modelled(workload, candidate)
    if measured is None or not applies(measured, workload.amount, amount_of(workload.profile)):
        return modelled
    return as_measured(modelled, measured)


def _modelled(workload: Workload, candidate: Candidate) -> Prediction:
    profile, amount = workload.profile, workload.amount
    steps_seconds: list[float] = []
    parts: dict[str, float] = {"steps": 0.0}
    terms: dict[str, float] = {}
    notes: list[str] = []
    interval = Interval(1.0, 1.0)
    provenance = Provenance.MEASURED if candidate.offer is None else Provenance.MODELLED
    unknown = ""
    unseen = 0.0
    for index, phase in enumerate(profile.phases):
        step = _step(workload, index, candidate)
        terms, interval, notes, provenance = step.terms, step.interval, step.notes, step.provenance
        unknown = unknown or step.unknown
        seconds = _step_seconds(phase, terms)
        steps_seconds.append(seconds)
        parts["steps"] += seconds * amount.steps[index]
        for name, value, measured in _extras(phase, seconds, amount, index, candidate):
            parts[name] = parts.get(name, 0.0) + value
            unseen += 0.0 if measured else value
    if amount.whole:
        parts["set-up"] = profile.setup_seconds
    run = sum(parts.values())
    sigma = interval.sigma
    all_steps = amount.steps == tuple(float(phase.total.steps or 0.0) for phase in profile.phases)
    if candidate.offer is None and profile.ended and amount.whole and all_steps:
        run, sigma, unseen = profile.wall_seconds, 0.02, 0.0
    fixed = min(1.0, parts.get("set-up", 0.0) / run) if run > 0 else 0.0
    sigma = math.hypot(sigma * (1 - fixed), UNSEEN_SHARE_SIGMA * unseen / run if run > 0 else 0.0)
    if any(phase.total.kind is TotalKind.APPROXIMATE for phase in profile.phases) and amount.whole:
        sigma = math.hypot(sigma, CHANGING_TOTAL_SIGMA)
    center = math.log(interval.low * interval.high) / 2 * (1 - fixed)  # asymmetric intervals lean
    low, high = run * math.exp(center - Z80 * sigma), run * math.exp(center + Z80 * sigma)
    drift = profile.phases[-1].step.drift
    if drift > 1:
        high *= drift
    elif drift < 1:
        low *= drift
    overhead = ready_seconds(candidate) if amount.whole else 0.0
    wall = (run + overhead, low + overhead, high + overhead)
    cost = cost_range(candidate, wall)
    return Prediction(
        candidate=candidate,
        step_seconds=steps_seconds[-1],
        run_seconds=Range(value=run, low=low, high=high),
        overhead_seconds=overhead,
        wall_seconds=Range(value=wall[0], low=wall[1], high=wall[2]),
        cost_usd=Range(value=cost[0], low=cost[1], high=cost[2]),
        terms=terms,
        parts=parts,
        sigma=sigma,
        provenance=provenance,
        infeasible=why_not(profile, candidate, precision_of(profile.framework)) or unknown,
        notes=tuple(dict.fromkeys(notes)),
    )


def _step(workload: Workload, index: int, candidate: Candidate) -> _Step:
    phase = workload.profile.phases[index]
    if candidate.offer is None:
        if not phase.step.count:
            return _Step({"nominal": phase.step.mean_seconds}, Interval(*PRIOR), [NOT_MEASURED])
        spread = 0.0
        if phase.step.median_seconds > 0 and phase.step.count >= 5:
            ratio = max(phase.step.high_seconds / max(phase.step.low_seconds, 1e-9), 1.0)
            spread = math.log(ratio) / (2 * Z80) / math.sqrt(phase.step.count)
        sigma = math.hypot(HERE_SIGMA if phase.step.count >= 5 else 0.2, spread)
        return _Step(
            {"measured": phase.step.mean_seconds},
            Interval(math.exp(-Z80 * sigma), math.exp(Z80 * sigma)),
            [],
            Provenance.MEASURED,
        )
    if candidate.accelerator is None:
        return _cpu_step(workload, index, candidate)
    if phase.gpu is GpuPath.TABLE:
        return _table_step(workload, index, candidate)
    return _gpu_step(workload, index, candidate)


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
    same = cpu_model.same_chip(machine, cpu)
    low, high = CPU_SAME_FAMILY if same else CPU_OTHER_FAMILY
    notes = [] if same else ["another CPU family than this machine's"]
    cores = offer.vcpus / cpu.vcpus_per_core
    if cores > FAR_SCALING * machine.cores:
        low, high = low * 0.85, high * 1.25
        notes.append(f"{cores / machine.cores:.0f} times the cores of this machine")
    swing = machine.gemm_gflops_low / machine.gemm_gflops if machine.gemm_gflops > 0 else 1.0
    if swing < STEADY:
        low *= max(swing, LEAST_SWING)  # the steps may have been timed while a neighbour was busy
        notes.append(f"this machine is shared: its speed swung by a factor of {1 / swing:.1f} while it was measured")
    if not phase.step.count:
        low, high = min(low, PRIOR[0]), max(high, PRIOR[1])
        notes.append(NOT_MEASURED)
    terms["loading"] = _loading(phase, sum(terms.values()), max(1.0, cores - 1))
    return _Step(terms, Interval(low, high), notes)


def _table_step(workload: Workload, index: int, candidate: Candidate) -> _Step:
    """By the speed-ups that others measured on the same kind of work."""
    offer, spec, machine = candidate.offer, candidate.accelerator, workload.profile.machine
    assert offer is not None  # noqa: S101 - the caller's branch
    assert spec is not None  # noqa: S101 - the caller's branch
    phase = workload.profile.phases[index]
    seconds = max(phase.step.mean_seconds - phase.data.wait_seconds_per_step, 0.1 * phase.step.mean_seconds)
    serial = min(1.0, phase.host_seconds_per_step / seconds) if seconds > 0 else 0.0
    rate = benchmark_table.cpu_rate(cpu_model.rates_here(machine), serial)
    work = benchmark_table.Work(phase.kind, workload.profile.framework.name, phase.unit, seconds, rate)
    found = benchmark_table.table_speed(work, spec, workload.speedups)
    if found is None:
        why = f"no speed-up of {phase.kind or 'this kind of work'} on a GPU is known"
        return _Step({"table": seconds}, Interval(*PRIOR), [], unknown=why)
    notes = [phase.gpu_reason, *found.notes] if phase.gpu_reason else list(found.notes)
    if offer.accelerator is not None and offer.accelerator.count > 1:
        notes.append(f"taken to use one of its {offer.accelerator.count:g} GPUs")
    terms = {"table": seconds / found.speedup}
    cores = max(1.0, offer.vcpus / (candidate.cpu.vcpus_per_core if candidate.cpu else 2))
    terms["loading"] = _loading(phase, terms["table"], cores)
    return _Step(terms, Interval(found.low, found.high), notes, Provenance.BENCHMARKED)


def _gpu_step(workload: Workload, index: int, candidate: Candidate) -> _Step:
    offer, spec = candidate.offer, candidate.accelerator
    assert offer is not None  # noqa: S101 - the caller's branch
    assert spec is not None  # noqa: S101 - the caller's branch
    profile, phase = workload.profile, workload.profile.phases[index]
    precision = precision_of(profile.framework)
    count = offer.accelerator.count if offer.accelerator else 1.0
    found = gpu_terms(workload.works[index], phase.optimizers, precision, spec)
    low, high, notes = gpu_interval(found, spec, compiled=profile.framework.compiled > 0, as_of_year=workload.year)
    notes += found.notes
    if phase.gpu is GpuPath.COUNTED:
        low, high = min(low, COUNTED[0]), max(high, COUNTED[1])
        if phase.step.count:
            notes.append(f"from the sums of a step, not from its ops: {phase.totals.source if phase.totals else ''}")
        else:
            low, high = min(low, PRIOR[0]), max(high, PRIOR[1])
            notes.append(NOT_MEASURED)
    if count > 1:
        notes.append(f"the script uses one of its {count:g} GPUs")
    modelled = {
        "compute": found.compute,
        "on-chip": found.on_chip,
        "memory": found.memory,
        "launch": found.launch,
        "host": phase.host_seconds_per_step,
        "copy": _copy_seconds(phase, spec.name),
    }
    terms = anchored(workload.anchor, index, modelled, spec)
    if workload.anchor is not None:
        notes.append(f"set right by what was measured on the {workload.anchor.spec.name} here")
    cores = max(1.0, offer.vcpus / (candidate.cpu.vcpus_per_core if candidate.cpu else 2))
    terms["loading"] = _loading(phase, sum(terms.values()), cores)
    return _Step(terms, Interval(low, high), notes)


def _copy_seconds(phase: Phase, accelerator: str) -> float:
    rate = HOST_TO_DEVICE_GBPS.get(accelerator, DEFAULT_HOST_TO_DEVICE_GBPS) * 1e9
    return phase.data.batch_bytes * phase.data.batches_per_step / rate


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


def _step_seconds(phase: Phase, terms: dict[str, float]) -> float:
    return sum(terms.values()) or phase.step.mean_seconds


def _extras(
    phase: Phase, seconds: float, amount: Amount, index: int, candidate: Candidate
) -> list[tuple[str, float, bool]]:
    """Name, seconds in all, and whether it was measured, of the work beside the steps."""
    ratio = seconds / phase.step.mean_seconds if phase.step.mean_seconds > 0 else 1.0
    found = []
    for extra in phase.extras:
        if extra.rhythm is Rhythm.EPOCH:
            times = amount.epochs[index] / max(extra.every, 1e-9)
        elif extra.rhythm is Rhythm.STEPS:
            times = amount.steps[index] / max(extra.every, 1e-9)
        else:
            times = 1.0 if amount.whole else 0.0
        scales = extra.kind in (ExtraKind.VALIDATION, ExtraKind.OTHER) and extra.rhythm is not Rhythm.RUN
        each = extra.seconds_each * (ratio if scales and candidate.offer is not None else 1.0)
        found.append((extra.kind.value.replace("_", " "), each * times, extra.measured))
    return found

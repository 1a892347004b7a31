"""Seconds and cost of a measured workload on a candidate. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from costgpu.estimator.cost import ready_seconds
from costgpu.estimator.feasibility import infeasible_reason, memory_shortage
from costgpu.estimator.interval import FINISHED_SIGMA, Interval, mean_interval, run_range, sigma_of_runs
from costgpu.estimator.multi_gpu.on_gpus import on_gpus
from costgpu.estimator.prepared import Workload, prepare
from costgpu.estimator.scope import Scope, scope_of
from costgpu.estimator.spot import checkpoints_of, with_interruptions, with_run
from costgpu.estimator.step import Step
from costgpu.estimator.storage import with_disk
from costgpu.estimator.throughput import inference_unit
from costgpu.estimator.time_limit import limited
from costgpu.models.prediction import (
    Candidate,
    InferenceUnit,
    MeasuredSpeed,
    PhasePrediction,
    Prediction,
    Provenance,
)
from costgpu.models.workload import ExtraKind, Phase, Rhythm, TotalKind

__all__ = ["Workload", "as_measured", "is_same_job", "lacks_memory", "predict", "prepare", "scaled", "steps_name"]

SAME_STEPS = 0.01  # numbers of steps that differ by less are the same job: some can be told only approximately


@dataclass(frozen=True, slots=True)
class _Beside:
    """All of one kind of work beside the steps."""

    name: str
    seconds: float
    measured: bool
    doubtful: float  # seconds that it does not take if it never comes again


def predict(workload: Workload, candidate: Candidate, measured: MeasuredSpeed | None = None) -> Prediction:
    """Return the prediction for one candidate; an infeasible one says why and is still filled in.

    Args:
        measured: Earlier runs of this very job there; they count for the whole job with the same number of steps.
    """
    modelled = limited(_modelled(workload, candidate), workload.scope)
    if measured is None or not is_same_job(measured, workload.scope, scope_of(workload.profile)):
        return modelled
    return as_measured(modelled, measured)


def lacks_memory(workload: Workload, candidate: Candidate) -> bool:
    """Return whether the memory of a candidate, accelerators or machine, does not suffice."""
    there = on_gpus(workload, candidate)
    each = there.group.each
    return bool(
        memory_shortage(workload.profile, candidate, workload.execution, too_large=there.too_large, processes=each)
    )


def is_same_job(speed: MeasuredSpeed, scope: Scope, own: Scope) -> bool:
    """Return whether that was this job: all of it, with as many steps.

    Args:
        own: What the script does by itself: as long as that is what a run of unknown length did.
    """
    total = scope.total_steps
    if total is None:
        return False
    steps = speed.steps if speed.steps is not None else own.total_steps
    return steps is not None and abs(steps - total) <= SAME_STEPS * max(steps, total)


def as_measured(modelled: Prediction, speed: MeasuredSpeed) -> Prediction:
    """Return the prediction with the seconds that this very job took there."""
    seconds, sigma = speed.job_seconds, sigma_of_runs(speed)
    interval, run = Interval.of_sigma(sigma), modelled.run_seconds.value
    known = scaled(replace(modelled, infeasible=""), seconds / run if run > 0 else 1.0)  # it has run there
    times = "1 run" if speed.runs == 1 else f"{speed.runs} runs"
    return replace(
        with_run(known, interval.around(seconds)),
        terms={"run": known.step_seconds},
        parts={"the whole job": seconds},
        phases=tuple(
            replace(
                phase,
                step_seconds=interval.around(phase.step_seconds.value),
                sustained_seconds=interval.around(phase.sustained_seconds.value),
            )
            for phase in known.phases
        ),
        sigma=sigma,
        provenance=Provenance.MEASURED,
        notes=(f"measured in {times}, last {speed.last_at:%Y-%m-%d}",),
    )


def scaled(prediction: Prediction, factor: float) -> Prediction:
    """Return the prediction with `factor` times the run."""
    return replace(
        with_run(prediction, prediction.run_seconds.times(factor)),
        step_seconds=prediction.step_seconds * factor,
        terms={name: seconds * factor for name, seconds in prediction.terms.items()},
        parts={name: seconds * factor for name, seconds in prediction.parts.items()},
        phases=tuple(
            replace(
                phase,
                step_seconds=phase.step_seconds.times(factor),
                sustained_seconds=phase.sustained_seconds.times(factor),
                seconds=phase.seconds * factor,
                terms={name: seconds * factor for name, seconds in phase.terms.items()},
            )
            for phase in prediction.phases
        ),
    )


def _modelled(workload: Workload, candidate: Candidate) -> Prediction:
    profile = workload.profile
    there = on_gpus(workload, candidate)
    scope = there.scope
    candidate, downloading = with_disk(candidate, workload.storage), 0.0
    if candidate.offer is not None:
        downloading = workload.storage.download_seconds
    parts: dict[str, float] = {}
    unknown = ""
    unseen = doubtful = 0.0
    phases: list[PhasePrediction] = []
    steps: list[Step] = []
    for index, phase in enumerate(profile.phases):
        step = there.steps[index].step
        unknown = unknown or step.unknown
        seconds = sum(step.terms.values()) or phase.step.seconds
        name = steps_name(profile.phases, index)
        parts[name] = parts.get(name, 0.0) + seconds * scope.steps[index]
        beside = _extras(phase, there.steps[index].single_seconds, scope, index, candidate)
        for one in beside:
            parts[one.name] = parts.get(one.name, 0.0) + one.seconds
            unseen += 0.0 if one.measured else one.seconds
            doubtful += one.doubtful
        steps.append(step)
        recurs = sum(b.seconds for e, b in zip(phase.extras, beside, strict=True) if e.rhythm is not Rhythm.RUN)
        each = recurs / scope.steps[index] if scope.steps[index] > 0 else 0.0
        phases.append(
            PhasePrediction(
                label=phase.label,
                step_seconds=step.interval.around(seconds),
                sustained_seconds=step.interval.around(seconds + each),
                seconds=seconds * scope.steps[index] + sum(one.seconds for one in beside),
                terms=step.terms,
                unit=_unit_of_all(inference_unit(phase, step.prefill_share), workload.scope, scope, index),
            )
        )
    if scope.whole:
        parts["set-up"] = profile.setup_seconds
        if downloading:
            parts["download"] = downloading
            unseen += downloading
        if there.rendezvous_seconds:
            parts["rendezvous"] = there.rendezvous_seconds
    run = sum(parts.values())
    interval = mean_interval([(one.interval, phase.seconds) for one, phase in zip(steps, phases, strict=True)])
    own_steps = tuple(float(phase.total.steps or 0.0) for phase in profile.phases)
    if candidate.offer is None and profile.ended and scope.whole and scope.steps == own_steps:
        run, interval, unseen = profile.wall_seconds, Interval.of_sigma(FINISHED_SIGMA), 0.0
        doubtful = 0.0
    run_seconds, sigma = run_range(
        run,
        interval,
        fixed=min(1.0, (parts.get("set-up", 0.0) + parts.get("download", 0.0)) / run) if run > 0 else 0.0,
        unseen=unseen / run if run > 0 else 0.0,
        doubtful=doubtful / run if run > 0 else 0.0,
        changing_total=scope.whole and any(p.total.kind is TotalKind.APPROXIMATE for p in profile.phases),
        drift=profile.phases[-1].step.drift,
    )
    overhead = ready_seconds(candidate) if scope.whole else 0.0
    prediction = Prediction(
        candidate=candidate,
        step_seconds=seconds,
        run_seconds=run_seconds,
        overhead_seconds=overhead,
        wall_seconds=run_seconds,
        cost_usd=run_seconds,
        terms=step.terms,
        parts=parts,
        sigma=sigma,
        provenance=step.provenance,
        infeasible=infeasible_reason(
            profile,
            candidate,
            workload.execution,
            too_large=there.too_large,
            processes=there.group.each,
        )
        or there.unknown
        or unknown,
        notes=tuple(dict.fromkeys([note for one in steps for note in one.notes] + there.notes)),
        phases=tuple(phases),
        scaling=there.scaling,
        fixed_seconds=ready_seconds(candidate) + downloading + profile.setup_seconds,
    )
    saves = checkpoints_of(profile.phases[-1], scope.steps[-1], scope.epochs[-1], whole=scope.whole)
    return with_interruptions(prediction, saves)


def _unit_of_all(unit: InferenceUnit | None, measured: Scope, there: Scope, index: int) -> InferenceUnit | None:
    """Return what a step of all processes together makes: as many times more as the same items take fewer steps."""
    if unit is None or there.steps == measured.steps or there.steps[index] <= 0:
        return unit
    times = measured.steps[index] / there.steps[index]
    return replace(
        unit,
        items=unit.items * times,
        input_tokens=unit.input_tokens * times,
        output_tokens=unit.output_tokens * times,
    )


def steps_name(phases: Sequence[Phase], index: int) -> str:
    """Return the part of a run that the steps of a phase are; training and inference apart where a script does both."""
    kinds = {phase.unit.trains for phase in phases}
    if len(kinds) == 1:
        return "steps"
    return "training" if phases[index].unit.trains else "inference"


def _extras(phase: Phase, seconds: float, scope: Scope, index: int, candidate: Candidate) -> list[_Beside]:
    """Return the work beside the steps.

    Args:
        seconds: Seconds of a step of one process there: validation and checkpoints of rank 0 stop all others.
    """
    ratio = seconds / phase.step.seconds if phase.step.seconds > 0 else 1.0
    found = []
    for extra in phase.extras:
        times = extra.count(scope.steps[index], scope.epochs[index], whole=scope.whole)
        kinds = (ExtraKind.VALIDATION, ExtraKind.OTHER, *([] if candidate.is_gpu else [ExtraKind.ROLLOUT]))
        scales = extra.kind in kinds and extra.rhythm is not Rhythm.RUN
        each = extra.seconds_each * (ratio if scales and candidate.offer is not None else 1.0)
        once = min(times, 1.0 if scope.whole else 0.0) if extra.seen_once else times
        found.append(_Beside(extra.kind.value.replace("_", " "), each * times, extra.measured, each * (times - once)))
    return found

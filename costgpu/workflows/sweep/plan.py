"""From a request to the plan of a sweep: an ordinary run whose command is the tuner."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psutil

from costgpu.estimator.scope import scope_of
from costgpu.job.launch import job_name
from costgpu.job.plan import LaunchPlace
from costgpu.measure import find_interpreter
from costgpu.models.job import JobSpec, Launcher
from costgpu.models.prediction import Prediction
from costgpu.models.workload import WorkloadProfile
from costgpu.providers import registry
from costgpu.sweep.bundle import Sweep, tuner_argv, tuner_spec
from costgpu.sweep.schedule import Resources, Shares, SweepTime, of_the_sweep, share_out, sweep_time
from costgpu.sweep.tuner.arguments import arguments_of
from costgpu.workflows.context import AppContext
from costgpu.workflows.estimate.measure import script_request
from costgpu.workflows.reporter import Reporter
from costgpu.workflows.runs.places import Places
from costgpu.workflows.runs.plan import PlannedRun, plan_run
from costgpu.workflows.runs.start import context_of
from costgpu.workflows.sweep.find_ray import find_ray, setup_with_ray
from costgpu.workflows.sweep.request import SweepRequest, sweep_of_request


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSweep:
    """A plan of a sweep and what it takes to carry it out."""

    sweep: Sweep
    name: str
    spec: dict[str, Any]  # what the tuner reads
    time: SweepTime | None  # None if the length of a trial is not known
    planned: PlannedRun


@contextmanager
def planned_sweep(request: SweepRequest, reporter: Reporter) -> Iterator[tuple[AppContext, PlannedSweep]]:
    """Check and plans; nothing is spent. The context can carry the plan out.

    Raises:
        UsageError: An option is wrong.
        MissingImport: There is no Ray on this machine, where the trials are to run.
    """
    if not request.infra and not request.renting:
        request = replace(request, infra=(registry.this_computer().name,))
    if request.machines > 1:
        request = replace(request, launcher=Launcher.RAY)
    sweep = sweep_of_request(request)
    script = script_request(request, reporter)
    first = arguments_of(sweep.space.example, sweep.template)
    here = request.here
    tuner_python = ""
    if here:
        tuner_python = find_ray(find_interpreter(request.python or script.python, dict(os.environ)).path)
    with context_of(request, script.workdir, reporter) as context:
        name = job_name(request.name or (script.script.stem if script.script else str(script.module)))
        name = f"{name}-{context.clock.now():%Y%m%d-%H%M%S}"
        made: dict[str, Any] = {}

        def adapt(spec: JobSpec, places: Places, profile: WorkloadProfile | None) -> tuple[JobSpec, Places]:
            machines = _resources(places.ranked[0], request.machines)
            shares = share_out(request.concurrent, sweep.space.trials, machines, profile)
            full = replace(sweep, concurrent=shares.concurrent, gpus_per_trial=shares.gpus_per_trial)
            made["sweep"] = full
            made["time"], timed = _timed(full, shares, places, profile, request.machines)
            argv = spec.argv[: len(spec.argv) - len(first)]
            made["spec"] = tuner_spec(full, name, argv, python=spec.python, grace_seconds=spec.grace_seconds)
            setup = spec.setup
            if not here and request.setup != "":
                setup = setup_with_ray(spec.setup, users=request.setup is not None)
            notes = [*timed.notes, *shares.notes]
            adapted = replace(spec, argv=tuner_argv(name), python=tuner_python, setup=setup, outputs=(), processes=0)
            return adapted, replace(timed, notes=notes)

        measured = replace(script, arguments=[*script.arguments, *first])
        planned = plan_run(request, measured, context, adapt)
        yield context, PlannedSweep(name=name, planned=planned, **made)


def _resources(place: LaunchPlace, nodes: int) -> Resources:
    """Return what one machine of the place has."""
    offer = place.offer
    if registry.is_here(offer.provider):
        from costgpu.job.agent.observe.machine_stats import gpu_count

        memory = psutil.virtual_memory().total / 2**30
        return Resources(nodes=nodes, gpus=gpu_count(), memory_gib=memory)
    gpus = int(offer.accelerator.count) if offer.accelerator is not None else 0
    gib = offer.accelerator.memory_gib if offer.accelerator is not None else 0.0
    return Resources(
        nodes=nodes,
        computers=nodes,
        gpus=gpus,
        memory_gib=offer.memory_gib,
        gpu_memory_gib=place.prediction.candidate.room_gib if place.prediction is not None else gib,
    )


def _timed(
    sweep: Sweep, shares: Shares, places: Places, profile: WorkloadProfile | None, nodes: int
) -> tuple[SweepTime | None, Places]:
    """Return how long the sweep takes at the first place, and the places with the predictions of the whole sweep."""
    if profile is None:
        return None, places
    scope = scope_of(profile)
    epochs = scope.epochs[-1] if scope.whole else 0.0
    reports = float(sweep.asha.most) if sweep.asha is not None and sweep.asha.most else epochs if epochs > 1 else None
    times = [
        None if place.prediction is None else _time_of(place.prediction, sweep, shares, reports)
        for place in places.ranked
    ]
    ranked = [
        place
        if time is None or place.prediction is None
        else replace(place, prediction=of_the_sweep(place.prediction, time, nodes))
        for place, time in zip(places.ranked, times, strict=True)
    ]
    storage = places.storage.times(math.ceil(sweep.space.trials / nodes))
    return times[0], replace(places, ranked=ranked, storage=storage)


def _time_of(trial: Prediction, sweep: Sweep, shares: Shares, reports: float | None) -> SweepTime:
    once = trial.parts.get("download", 0.0)
    alone = trial.run_seconds.times(1 - once / trial.run_seconds.value) if once else trial.run_seconds
    return sweep_time(alone, sweep.space.trials, shares, sweep.asha, reports, once)

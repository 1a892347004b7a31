"""A prediction from earlier runs of the same job on the same instance type. Pure."""

from __future__ import annotations

from dataclasses import replace

from costgpu.estimate.cost import with_run
from costgpu.estimate.interval import Interval, sigma_of_runs
from costgpu.estimate.scope import Scope
from costgpu.models.prediction import MeasuredSpeed, Prediction, Provenance

SAME_STEPS = 0.01  # numbers of steps that differ by less are the same job: some can be told only approximately


def applies(speed: MeasuredSpeed, scope: Scope, own: Scope) -> bool:
    """Whether that was this job: all of it, with as many steps.

    Args:
        speed: Measured speed of earlier runs.
        scope: What is to be predicted.
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

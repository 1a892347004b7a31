"""Measures or looks up a workload, predicts it everywhere, and says where to run it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime

from costgpu.errors import UsageError
from costgpu.estimate.predict import predict, prepare
from costgpu.estimate.scope import scope_of
from costgpu.estimate.verdict import decide
from costgpu.models.prediction import Candidate, Verdict
from costgpu.models.workload import WorkloadProfile
from costgpu.pricing.hardware import accelerators
from costgpu.pricing.speedups import speedups
from costgpu.workflows.estimate.extras import Extras, compute_extras, own_gpu
from costgpu.workflows.estimate.profile_source import ProfileSource, find_profile
from costgpu.workflows.estimate.request import EstimateRequest, check
from costgpu.workflows.estimate.speed_history import SpeedHistory
from costgpu.workflows.offers import candidates
from costgpu.workflows.reporter import Reporter


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An answer with what it rests on.

    Attributes:
        log: File with the program's output; None if nothing was run.
        today: Day from which the age of prices is counted.
    """

    verdict: Verdict
    profile: WorkloadProfile
    extras: Extras
    log: str | None
    today: date


def estimate(request: EstimateRequest, reporter: Reporter, profile: WorkloadProfile | None = None) -> Estimate:
    """Answers one request; wrong options are errors before anything is measured.

    Args:
        request: What to estimate.
        reporter: Hears remarks and progress.
        profile: A profile to use instead of measuring what the request names.
    """
    if profile is None:
        check(request)
    preferences = request.preferences()
    own_gpu(request)
    places = candidates(request.gpus, request.infra, spot=request.spot, reporter=reporter)
    now = datetime.now(UTC)
    found = ProfileSource(profile, None, request.epochs) if profile else find_profile(request, now, reporter)
    if found.epochs is not None and not found.profile.phases[-1].total.steps_per_epoch:
        raise UsageError("No epochs could be found in this script.", hint="Use --total-steps.")
    scope = scope_of(found.profile, epochs=found.epochs, total_steps=request.total_steps)
    workload = prepare(found.profile, scope, year=now.year, speedups=speedups(), cards=accelerators().values())
    with SpeedHistory(found.profile.workload, reporter) as history:
        here = predict(workload, Candidate(offer=None), history.speed(None))
        offers = [predict(workload, place, history.speed(place.offer)) for place in places]
        verdict = decide(scope, here, offers, preferences, ())
        history.record(verdict, found.profile, now)
    return Estimate(
        verdict=verdict,
        profile=found.profile,
        extras=compute_extras(request, workload, verdict, offers, preferences, reporter),
        log=found.log,
        today=now.date(),
    )

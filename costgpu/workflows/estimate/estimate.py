"""Measures or looks up a workload, predicts it everywhere, and says where to run it, with advice and more besides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from costgpu.errors import UsageError
from costgpu.estimator.advice.advise import advise
from costgpu.estimator.buy_vs_rent import COLAB_GPU, OwnershipTerms, find_gpu, fits_colab, ownership
from costgpu.estimator.cost import energy_kwh
from costgpu.estimator.doubts import doubts_of, ending_prices
from costgpu.estimator.gpu_fits import gpu_fits
from costgpu.estimator.multi_gpu.layouts import NODE_COUNTS
from costgpu.estimator.multi_gpu.words import needs_nodes, rows_by_gpus
from costgpu.estimator.predict import predict
from costgpu.estimator.prepared import prepare
from costgpu.estimator.scope import scope_of
from costgpu.estimator.service import as_served, serve
from costgpu.estimator.unit_notes import unit_notes
from costgpu.estimator.verdict import decide
from costgpu.models.estimate import Estimate
from costgpu.models.offer import AcceleratorSpec
from costgpu.models.prediction import Candidate, Choice, Prediction
from costgpu.models.workload import GpuPath, WorkloadProfile
from costgpu.pricing.hardware import accelerators
from costgpu.pricing.speedups import speedups
from costgpu.units import parse_usd
from costgpu.workflows.estimate.changed import changes_tried
from costgpu.workflows.estimate.measure import ProfileSource, find_profile
from costgpu.workflows.estimate.request import EstimateRequest, check
from costgpu.workflows.estimate.speed_history import SpeedHistory
from costgpu.workflows.offers import candidates, on_nodes
from costgpu.workflows.reporter import Reporter

NOT_SERVED = "--rate is for a script that only runs a model, such as one that scores or generates; this one trains."


def own_gpu(request: EstimateRequest) -> tuple[AcceleratorSpec, OwnershipTerms] | None:
    """Return the user's own GPU and what it costs; None without one.

    Raises:
        UsageError: There is no such card or no such price.
    """
    if request.own is None:
        if request.own_price is not None or request.power_price is not None:
            option = "--own-price" if request.own_price is not None else "--power-price"
            raise UsageError(f"{option} is for a GPU of your own.", hint=f'--own "RTX 3090" {option} ...')
        return None
    return find_gpu(request.own, accelerators()), OwnershipTerms(
        price_usd=parse_usd(request.own_price, "--own-price") if request.own_price is not None else None,
        power_usd_per_kwh=float(parse_usd(request.power_price, "--power-price"))
        if request.power_price is not None
        else None,
    )


def estimate(request: EstimateRequest, reporter: Reporter, profile: WorkloadProfile | None = None) -> Estimate:
    """Answer one request; wrong options are errors before anything is measured.

    Args:
        profile: A profile to use instead of measuring what the request names.
    """
    if profile is None:
        check(request)
    preferences = request.preferences()
    card = own_gpu(request)
    places = candidates(
        request.gpus,
        request.infra,
        spot=request.spot,
        reporter=reporter,
        instance_types=request.instance_type,
    )
    now = datetime.now(UTC)
    found = ProfileSource(profile, None, request.epochs) if profile else find_profile(request, now, reporter)
    if found.epochs is not None and not found.profile.phases[-1].total.steps_per_epoch:
        raise UsageError("No epochs could be found in this script.", hint="Use --total-steps.")
    rate = request.items_per_second
    if rate is not None and found.profile.phases[-1].unit.trains:
        raise UsageError(NOT_SERVED, hint="Leave out --rate for the time and cost of the job.")
    scope = scope_of(found.profile, epochs=found.epochs, total_steps=request.total_steps, per_items=rate is not None)
    workload = prepare(found.profile, scope, year=now.year, speedups=speedups(), cards=accelerators().values())
    counts = _node_counts(request, found.profile)
    with SpeedHistory(found.profile.workload, reporter) as history:
        here = predict(workload, Candidate(offer=None), history.speed(None))
        offers = [
            predict(workload, place, history.speed(place.offer, place.nodes)) for place in as_nodes(places, counts)
        ]
        if request.nodes is None and needs_nodes(found.profile, offers, preferences.deadline_seconds):
            counts = (1, *NODE_COUNTS)
            more = on_nodes(places, NODE_COUNTS)
            offers += [predict(workload, place, history.speed(place.offer, place.nodes)) for place in more]
        disturbed = found.profile.machine.disturbed_share
        verdict = decide(scope, here, offers, preferences, unit_notes(found.profile), disturbed)
    service = (
        None if rate is None else serve(workload, rate, here, offers, preferences.objective, preferences.instance_types)
    )
    verdict = verdict if service is None else as_served(verdict, service)
    verdict = replace(
        verdict,
        notes=(*verdict.notes, *ending_prices(verdict.table)),
        doubts=doubts_of(verdict, found.profile, scope, preferences, now.date()),
    )

    def predictions(gpus: str | None, infra: tuple[str, ...], *, spot: bool) -> list[Prediction]:
        found = candidates(gpus, infra, spot=spot, reporter=reporter)
        return [predict(workload, place) for place in as_nodes(found, counts)]

    narrowed = request.gpus is not None or bool(request.infra)
    wider = predictions(None, (), spot=request.spot) if narrowed and rate is None else []
    spot_offers = [] if request.spot or rate is not None else predictions(request.gpus, request.infra, spot=True)
    tried = (
        []
        if service is not None
        else changes_tried(workload, found, request.python, verdict, offers, preferences, reporter)
    )
    shown = (verdict.here, *verdict.table)
    return Estimate(
        verdict=verdict,
        profile=found.profile,
        log=found.log,
        today=now.date(),
        # what saves money for 1,000 items need not save a machine
        advice=()
        if service is not None
        else tuple(
            advise(workload, verdict, offers, preferences, spot_offers=spot_offers, wider_offers=wider, tried=tried)
        ),
        own=ownership(workload, *card, verdict) if card is not None else None,
        looked_up=tuple(
            dict.fromkeys(phase.kind for phase in found.profile.phases if phase.gpu is GpuPath.TABLE and phase.kind)
        ),
        fits_colab=verdict.choice is not Choice.HERE and fits_colab(workload, accelerators()[COLAB_GPU]),
        energy=tuple((p, energy_kwh(p, found.profile.machine)) for p in shown) if request.energy else None,
        service=service,
        by_gpus=rows_by_gpus(offers, verdict.recommended),
        fits=gpu_fits(workload, places, verdict.recommended),
    )


def _node_counts(request: EstimateRequest, profile: WorkloadProfile) -> tuple[int, ...]:
    """Return the numbers of machines to predict first: those that the user, or else the script's launcher, asks for."""
    counts = request.node_counts or (profile.ranks.nodes,)
    if max(counts) > 1 and profile.ranks.alone:
        raise UsageError(
            "--nodes is for a training in several processes; this script has one, which cannot use several machines.",
            hint="Put its launcher before it, such as torchrun or accelerate launch.",
        )
    return counts


def as_nodes(places: Sequence[Candidate], counts: Sequence[int]) -> list[Candidate]:
    """Return the places as so many machines each, and those without GPUs as they are, to compare with."""
    if tuple(counts) == (1,):
        return list(places)
    return [*(place for place in places if not place.is_gpu), *on_nodes(places, counts)]

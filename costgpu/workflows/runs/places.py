"""Where a run can go, best place first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal

from costgpu.errors import AuthError, PriceNotFound, UsageError
from costgpu.estimator.predict import lacks_memory, predict
from costgpu.estimator.prepared import Workload, prepare
from costgpu.estimator.scope import scope_of
from costgpu.estimator.verdict import Preferences, decide, effective_cost
from costgpu.job.plan import SIZE_GROWTH, LaunchPlace
from costgpu.models.offer import Offer
from costgpu.models.prediction import Candidate, Choice, Prediction
from costgpu.models.storage import NO_STORAGE, StorageNeed
from costgpu.models.workload import WorkloadProfile
from costgpu.pricing.hardware import accelerators
from costgpu.pricing.query import matches
from costgpu.pricing.speedups import speedups
from costgpu.providers import registry
from costgpu.render.phrases import accelerator_name
from costgpu.units import format_usd, parse_accelerator, parse_usd
from costgpu.workflows.context import AppContext
from costgpu.workflows.estimate.speed_history import SpeedHistory
from costgpu.workflows.offers import OfferRequest, candidates, on_nodes
from costgpu.workflows.reporter import Reporter
from costgpu.workflows.runs.request import RunRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Places to run a job at."""

    ranked: list[LaunchPlace]
    verdict: str  # the sentence that says why; empty without one
    notes: list[str]
    fallback: list[LaunchPlace] = field(default_factory=list)  # on demand, where no spot machine is free
    larger: list[LaunchPlace] = field(default_factory=list)  # for a job that runs out of memory
    storage: StorageNeed = NO_STORAGE  # what the job puts on the disk of a rented machine


def check_credentials(context: AppContext, providers: Iterable[str]) -> None:
    """Check that one of the providers accepts the credentials here.

    Raises:
        AuthError: None does.
    """
    usable, without = _with_credentials(providers)
    if not usable:
        raise AuthError(
            f"There are no credentials for {' or '.join(without)} here.",
            hint="; ".join(f"{name}: {registry.spec(name).login_hint}" for name in without),
        )
    refused: list[AuthError] = []
    for name in usable:
        try:
            context.provider(name).identity()
        except AuthError as error:
            refused.append(error)
        else:
            return
    if len(refused) == 1:
        raise refused[0]
    raise AuthError(
        " ".join(error.message for error in refused), hint=" Or: ".join(error.hint for error in refused if error.hint)
    )


def _with_credentials(providers: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return providers with credentials here, and those without."""
    usable: list[str] = []
    without: list[str] = []
    for name in providers:
        (usable if registry.spec(name).has_credentials() else without).append(name)
    return usable, without


def providers_of(found: Iterable[Candidate]) -> list[str]:
    """Return the names of the providers of some candidates, sorted."""
    return sorted({candidate.offer.provider for candidate in found if candidate.offer})


def wanted_offers(request: RunRequest, reporter: Reporter) -> list[Candidate]:
    """Return the offers that were asked for and can be launched; none if only this machine is meant.

    Raises:
        PriceNotFound: There is none.
        UsageError: A name is wrong.
    """
    if request.here:
        return []
    remote = tuple(place for place in request.infra if not registry.is_here(place))
    types = {name.lower() for name in request.instance_type}
    size = OfferRequest(cpus=request.cpus, memory=request.memory).query
    named = request.instance_type
    found = candidates(request.gpus, remote, spot=bool(request.spot), reporter=reporter, instance_types=named)
    found = [c for c in found if c.offer and matches(c.offer, size)]
    if request.gpus and not parse_accelerator(request.gpus).none:
        found = [c for c in found if c.is_gpu]
    if types:
        found = [c for c in found if c.offer and c.offer.instance_type.lower() in types]
    launchable = [c for c in found if c.offer and registry.find(c.offer.provider)]
    if found and not launchable:
        names = ", ".join(providers_of(found))
        known = ", ".join(registry.names())
        raise UsageError(f"costgpu cannot launch on {names} yet.", hint=f"It launches on {known}.")
    if not launchable:
        raise PriceNotFound("No offer matches.", hint="costgpu offers lists what there is.")
    return launchable


def find_places(
    request: RunRequest,
    context: AppContext,
    profile: WorkloadProfile | None,
    today: date,
    *,
    workload_key: str,
) -> Places:
    """Return where to run a job.

    Where the ledger has earlier runs of the same workload, their measured speed is the prediction.

    Args:
        profile: The measured script; None if it was not measured.
    """
    scope = scope_of(profile) if profile else None
    workload = (
        prepare(profile, scope, year=today.year, speedups=speedups(), cards=accelerators().values())
        if profile and scope
        else None
    )
    whole = scope is not None and scope.whole
    several = request.machines > 1
    history = SpeedHistory(workload_key if workload else "", context.reporter, ledger=context.ledger)
    here = predict(workload, Candidate(offer=None), history.speed(None)) if workload else None
    known = here if whole and not several else None  # several places of this machine share its cores
    own_offer = registry.this_computer().own_offer
    assert own_offer is not None  # noqa: S101 - it has one
    price = Decimal(0) if request.assume_price is None else parse_usd(request.assume_price, "--assume-price")
    here_place = LaunchPlace(offer=own_offer(price, today), prediction=known)
    notes = [] if whole or scope is None else [f"The length of the whole job is not known; predicted: {scope.unit}."]
    if request.here:
        if workload is not None and here is not None and here.infeasible:
            fits = _what_fits(replace(request, infra=()), workload, context.reporter, gpu=False)
            raise UsageError(f"The job cannot run on this computer: {here.infeasible}.", hint=fits)
        return Places(ranked=[here_place], verdict="", notes=notes)
    wanted = wanted_offers(request, context.reporter)
    usable, without = _with_credentials(providers_of(wanted))
    if usable and without:  # not a place to go to, or to fail over to
        wanted = [c for c in wanted if c.offer and c.offer.provider in usable]
        notes.append(f"Not considered: {', '.join(without)} (no credentials here).")
    chosen = bool(request.instance_type or request.gpus)

    def by_price() -> Places:
        ranked = sorted(wanted, key=lambda c: c.offer.price_usd_per_hour if c.offer else 0)
        storage = workload.storage if workload is not None else NO_STORAGE
        return Places(ranked=[_place(c, None) for c in ranked], verdict="", notes=notes, storage=storage)

    if workload is None or scope is None or here is None:
        if not (chosen or request.cpus or request.memory):
            raise UsageError(
                "Without an estimate nothing says what machine to run it on.",
                hint="Name one: --infra local, -t g5.xlarge or --gpus L4:1, with --max-cost or --max-duration.",
            )
        return by_price()
    if request.recover is None:  # one machine until the job is over: what a lease is for
        wanted = [replace(c, interruptions=None) for c in wanted]
    places = on_nodes(wanted, [request.machines]) if several else wanted
    predicted = [predict(workload, c, history.speed(c.offer, c.nodes)) for c in places]
    predictions = [p for p in predicted if not p.infeasible]
    if not predictions and several and chosen:
        small = [p.offer for p in predicted if lacks_memory(workload, p.candidate)]
        wanted = [c for c in wanted if c.offer not in small]
    if not predictions and several and chosen and wanted:
        why = next((p.infeasible for p in predicted), "machines without GPUs are not predicted together")
        notes.append(f"No estimate for {request.machines} machines: {why}.")
        return by_price()
    if not predictions:
        on_gpu = any(p.candidate.is_gpu for p in predicted)
        raise UsageError(_no_place(predicted), hint=_what_fits(request, workload, context.reporter, gpu=on_gpu))
    best_first = sorted(predictions, key=lambda p: (effective_cost(p, Preferences()), p.wall_seconds.value))
    sentence = ""
    if not chosen:
        verdict = decide(scope, here, predictions, Preferences(), ())
        sentence = verdict.sentence
        if verdict.choice is Choice.HERE and not several and request.may_stay_here:
            return Places(ranked=[here_place], verdict=sentence, notes=notes)
        if verdict.recommended is not None and verdict.recommended in best_first:
            best_first.remove(verdict.recommended)
            best_first.insert(0, verdict.recommended)
    ranked_places = [_place(p.candidate, p if whole else None) for p in best_first]
    return Places(ranked=ranked_places, verdict=sentence, notes=notes, storage=workload.storage)


def _no_place(predicted: Sequence[Prediction]) -> str:
    """Return why a job can run on none of the machines asked for: what the one with the most memory lacks."""

    def memory_gib(prediction: Prediction) -> float:
        offer = prediction.offer
        chips = offer.accelerator if offer is not None else None
        return chips.count * chips.memory_gib if chips is not None else offer.memory_gib if offer is not None else 0.0

    named = {p.offer.instance_type: p for p in sorted(predicted, key=memory_gib) if p.offer is not None}
    if not named:
        return "The job can run on none of the machines asked for."
    name, largest = list(named.items())[-1]
    if len(named) == 1:
        return f"The job cannot run on {name}: {largest.infeasible}."
    most = f"The one with the most memory is {name}: {largest.infeasible}."
    return f"The job can run on none of the machines asked for. {most}"


def _what_fits(request: RunRequest, workload: Workload, reporter: Reporter, *, gpu: bool) -> str:
    """Name the cheapest machine on which the job can run, of any size; with a GPU, or whatever it has."""
    anywhere = replace(request, instance_type=(), gpus=None, cpus=None, memory=None)
    found = wanted_offers(anywhere, reporter)
    places = on_nodes(found, [request.machines]) if request.machines > 1 else found
    fitting = [
        p for p in (predict(workload, place) for place in places) if not p.infeasible and p.candidate.is_gpu >= gpu
    ]
    if not fitting:
        return "costgpu estimate says why."
    best = min(fitting, key=lambda p: p.cost_usd.value)
    offer = best.candidate.offer
    assert offer is not None  # noqa: S101 - only offers were asked for
    what = accelerator_name(offer.accelerator) if offer.accelerator is not None else f"{offer.memory_gib:g} GiB"
    price = f"{format_usd(offer.price_usd_per_hour)} an hour by the price of {offer.price_as_of}"
    return (
        f"{offer.provider} {offer.instance_type} ({what}, {price}) would do; costgpu estimate compares all that would."
    )


def with_more_memory(request: RunRequest, first: Offer) -> RunRequest:
    """Return what to look for if a job runs out of memory on the first place: as many GPUs, or CPUs, and more memory."""
    gpu, gpus = first.accelerator, "none"
    if gpu is not None:
        gpus = f"{gpu.memory_gib * SIZE_GROWTH:g}GB:{gpu.count:g}"
    return replace(request, instance_type=(), gpus=gpus, cpus=None, memory=f"{first.memory_gib:g}+")


def _place(candidate: Candidate, prediction: Prediction | None) -> LaunchPlace:
    assert candidate.offer is not None  # noqa: S101 - only offers are launched
    links = candidate.interconnect
    return LaunchPlace(
        offer=candidate.offer,
        prediction=prediction,
        on_demand_usd_per_hour=candidate.on_demand_usd_per_hour,
        placement=links is not None and links.placement,
        efa_interfaces=links.efa_interfaces if links is not None else 0,
    )

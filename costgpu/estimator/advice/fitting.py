"""Advice where one accelerator holds too little or takes too long: larger ones, several, smaller models. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from costgpu.estimator.advice.changes import traced
from costgpu.estimator.advice.context import MIN_PROBABILITY, AdviceContext, error_between
from costgpu.estimator.cost import hourly_usd
from costgpu.estimator.feasibility import incompatible
from costgpu.estimator.interval import probability_less
from costgpu.estimator.memory import need_gib, what_fits
from costgpu.estimator.multi_gpu.layouts import as_several, as_sharded
from costgpu.estimator.multi_gpu.words import ddp_words
from costgpu.estimator.predict import predict
from costgpu.estimator.prepared import Workload
from costgpu.estimator.verdict import Preferences, allowed, best, effective_cost
from costgpu.estimator.verdict_sentence import describe
from costgpu.models.prediction import Advice, AdviceKind, Prediction
from costgpu.units import format_duration, format_usd

LEAST_SECONDS = 3600.0  # a shorter job is not worth the change to several GPUs
MOST_OF_THE_TIME = 0.6  # what takes more than this of the time is not worth it, either
MEMORY_OF_INFERENCE = "weights, key-value cache and activations, with a margin"
MEMORY = "parameters, gradients, optimizer state and saved tensors, with a margin of a quarter"
MEMORY_MEASURED = "what its storages hold, measured, with a margin of an eighth"
SEVERAL = "the model of several GPUs"
WRAP = "The script must wrap its model: torch.distributed.fsdp.fully_shard() of each block, then of the model."
FITS = {"as written": "as written", "half": "in half precision"}


def does_not_fit(
    workload: Workload,
    offers: Sequence[Prediction],
    wider: Sequence[Prediction],
    preferences: Preferences,
    context: AdviceContext | None,
) -> Advice | None:
    """Return the cheapest accelerator that holds the job, or, where none does, the number of them that would.

    Of a training in several processes of which each holds more than any GPU: FSDP; None if it fits, or shards already.

    Args:
        offers: Places to run it.
        wider: Places that the user's options left out.
        context: What a saving is counted from; None where nothing is recommended.
    """
    scheme, before = workload.profile.ranks.scheme, context.before if context is not None else None
    gpus = [place for place in offers if place.candidate.is_gpu]
    wider = [place for place in wider if place.candidate.is_gpu]
    places = [*gpus, *wider]
    if not workload.profile.ranks.alone:
        shards = scheme.shards_parameters or not scheme.predicted
        if shards or any(not place.infeasible for place in places):
            return None
        return _sharded(workload, preferences, before, f"It fits no GPU under {scheme.phrase}", places)
    need = need_gib(workload.profile, workload.execution)
    too_small = any(place.candidate.room_gib < need for place in gpus)
    basis = _basis(workload)
    if not traced(workload) or not too_small or any(not place.infeasible for place in gpus):
        return None
    head = f"It needs {need:.1f} GiB on one accelerator"
    one = best(wider, preferences)
    if one is not None:
        action = f"{head}: {describe(one)} has them"
        if context is None:
            return _unpriced(None, action, after=one, basis=basis)
        return context.advice(AdviceKind.DOES_NOT_FIT, action, one, basis=basis)
    head += ", more than any offer has"
    if smaller := _made_to_fit(workload, places):
        return _unpriced(before, head, smaller, basis=MEMORY_OF_INFERENCE)
    if found := _sharded(workload, preferences, before, head, places):
        return found
    several = [p for p in places if _together(p, need) and _software_runs(workload, p)]
    if not several:
        return _unpriced(before, f"{head}, and more than the accelerators of any offer together", basis=basis)
    cheapest = min(several, key=lambda place: hourly_usd(place.candidate))
    return _unpriced(
        before,
        f"{head}; the cheapest that hold it together: {describe(cheapest)}",
        "The script must shard its model over them (FSDP, DeepSpeed), which costgpu does not do for it.",
        f"Time and cost there are not known; it is {format_usd(hourly_usd(cheapest.candidate))} an hour.",
        basis=basis,
    )


def _unpriced(
    before: Prediction | None, action: str, *notes: str, after: Prediction | None = None, basis: str = MEMORY
) -> Advice:
    """Advice on what a job needs that names no saving."""
    return Advice(kind=AdviceKind.DOES_NOT_FIT, action=action, before=before, after=after, basis=basis, notes=notes)


def _basis(workload: Workload) -> str:
    """Return what is known of the memory of a training."""
    return MEMORY if workload.profile.memory is None else MEMORY_MEASURED


def _sharded(
    workload: Workload, preferences: Preferences, before: Prediction | None, why: str, places: Sequence[Prediction]
) -> Advice | None:
    """Return the best place whose GPUs hold the training together under FSDP; None if it is not known that any do."""
    shared = best(_on_several(as_sharded(workload), places), preferences)
    if shared is None:
        return None
    time, usd = format_duration(shared.wall_seconds.value), format_usd(shared.cost_usd.value)
    action = f"{why}; under FSDP it fits {describe(shared)}: about {time} and {usd}"
    return _unpriced(before, action, WRAP, after=shared if before is None else None, basis=_basis(workload))


def _on_several(changed: Workload | None, places: Sequence[Prediction]) -> list[Prediction]:
    """Return a training in several processes on one machine at each place with several GPUs."""
    return [
        predict(changed, place.candidate)
        for place in places
        if changed is not None and place.candidate.accelerator_count >= 2 and place.candidate.nodes == 1
    ]


def _made_to_fit(workload: Workload, places: Sequence[Prediction]) -> str:
    """Return the cheapest GPU that inference would fit after a change of batch or precision, and the change; else empty."""
    if any(phase.unit.trains for phase in workload.profile.phases):
        return ""
    for place in sorted(places, key=lambda place: hourly_usd(place.candidate)):
        offer = place.offer
        if offer is None or offer.accelerator is None or not _software_runs(workload, place):
            continue
        each = [
            {fit.change: fit.batch for fit in what_fits(phase, workload.execution, place.candidate.room_gib)}
            for phase in workload.profile.phases
        ]
        words = [
            FITS.get(change, f"with {change} weights") + (f" at {batch:.0%} of the batch" if batch < 1 else "")
            for change in each[0]
            if all(change in one for one in each) and (batch := min(one[change] for one in each))
        ]
        if words:
            return f"On {describe(place)} it fits {' or '.join(words)}."
    return ""


def _together(place: Prediction, need: float) -> bool:
    offer = place.offer
    chips = offer.accelerator if offer is not None else None
    return chips is not None and chips.count >= 2 and chips.count * place.candidate.room_gib >= need


def _software_runs(workload: Workload, place: Prediction) -> bool:
    spec = place.candidate.accelerator
    return spec is not None and not incompatible(spec, place.candidate, workload.profile.framework)


def several_gpus(context: AdviceContext) -> Advice | None:
    """Return the cheapest place with several GPUs on which a script of one process takes far less time under DDP.

    None for a short job, or without one.
    """
    before, changed = context.before, as_several(context.workload)
    if changed is None or not before.candidate.is_gpu or not context.workload.scope.whole:
        return None
    limit = MOST_OF_THE_TIME * before.wall_seconds.value
    found = [
        after
        for after in (_on_several(changed, context.offers) if before.wall_seconds.value >= LEAST_SECONDS else ())
        if allowed(after, context.preferences) and after.wall_seconds.value <= limit
    ]
    after = min(found, key=lambda one: effective_cost(one, context.preferences), default=None)
    if after is None:
        return None
    probability = probability_less(after.wall_seconds.value, before.wall_seconds.value, error_between(before, after))
    if probability < MIN_PROBABILITY:
        return None
    action, notes = ddp_words(after, changed.profile.phases[-1].data.batch_size)
    return Advice(
        kind=AdviceKind.DDP,
        action=action,
        saving_usd=max(0.0, before.cost_usd.value - after.cost_usd.value),
        saving_seconds=before.wall_seconds.value - after.wall_seconds.value,
        before=before,
        after=after,
        probability=probability,
        basis=SEVERAL,
        notes=notes,
    )

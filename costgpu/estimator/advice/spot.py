"""Advice on spot machines: when their expected cost wins, interruptions included, and what that asks of the script. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from costgpu.estimator.advice.context import AdviceContext, cheapest_of_each_type, error_between
from costgpu.estimator.interval import Z80
from costgpu.estimator.spot import advice_words, at_best_interval
from costgpu.estimator.verdict import best
from costgpu.models.offer import PurchaseOption
from costgpu.models.prediction import Advice, AdviceKind, Prediction


def spot_machine(context: AdviceContext, spot: Sequence[Prediction]) -> Advice | None:
    """Spot machines, where they win clearly with what interruptions add; with checkpoints, if none was seen."""
    before = context.before
    offer = before.offer if before is not None else None
    if before is None or offer is None or offer.purchase_option is PurchaseOption.SPOT:
        return None
    last = context.workload.profile.phases[-1]
    infers = not last.unit.trains
    places = [
        place if infers else _with_checkpoints(place)
        for place in cheapest_of_each_type(spot, None)
        if place.offer is not None and place.offer.purchase_option is PurchaseOption.SPOT
    ]
    first = best(places, context.preferences)
    same = [
        place
        for place in places
        if place.offer is not None
        and (place.offer.instance_type, place.candidate.nodes) == (offer.instance_type, before.candidate.nodes)
        and not place.infeasible
    ]
    for found in [*([first] if first is not None else []), *same]:
        as_written = next(place for place in spot if place.candidate is found.candidate)
        action, notes = advice_words(
            as_written, found, infers=infers, timed=bool(last.step.count), whole=context.workload.scope.whole
        )
        advice = context.advice(
            AdviceKind.SPOT,
            action,
            found,
            sigma=math.hypot(error_between(before, found), _rate_error(found)),
            basis="spot prices, which change, and assumed interruptions",
            notes=notes,
        )
        if advice is not None:
            return advice
    return None


def _with_checkpoints(place: Prediction) -> Prediction:
    """Return the place as it is where checkpoints were seen; else with the best ones."""
    found = place.interruptions
    return place if found is None or found.interval_seconds is not None else at_best_interval(place)


def _rate_error(place: Prediction) -> float:
    """Return the standard deviation of the logarithm of the time that the error of the interruption rate causes."""
    found, factor = place.interruptions, place.interruption_factor
    if found is None or found.undisturbed_seconds.high <= 0 or factor <= 0:
        return 0.0
    return max(0.0, math.log(found.wall_seconds.high / found.undisturbed_seconds.high / factor)) / Z80

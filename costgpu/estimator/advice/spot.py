"""Advice on spot machines: when their expected cost wins, interruptions included, and what that asks of the script. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from costgpu.estimator.advice.context import AdviceContext, cheapest_of_each_type, error_between
from costgpu.estimator.cost import at_best_interval
from costgpu.estimator.interval import Z80
from costgpu.estimator.spot_words import ALL_LOST, rate_words, recover_option
from costgpu.estimator.verdict import best
from costgpu.models.offer import PurchaseOption
from costgpu.models.prediction import Advice, AdviceKind, Interruptions, Prediction
from costgpu.units import format_duration, format_usd


def spot_machine(context: AdviceContext, spot: Sequence[Prediction]) -> Advice | None:
    """Spot machines, where they win clearly with what interruptions add; with checkpoints, if none was seen."""
    before = context.before
    offer = before.offer if before is not None else None
    if before is None or offer is None or offer.purchase_option is PurchaseOption.SPOT:
        return None
    infers = not context.workload.profile.phases[-1].unit.trains
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
        advice = context.advice(
            AdviceKind.SPOT,
            _action(context, as_written, found),
            found,
            sigma=math.hypot(error_between(before, found), _rate_error(found.interruptions)),
            basis="spot prices, which change, and assumed interruptions",
            notes=_notes(context, as_written, found),
        )
        if advice is not None:
            return advice
    return None


def _with_checkpoints(place: Prediction) -> Prediction:
    """Return the place as it is where checkpoints were seen; else with the best ones."""
    found = place.interruptions
    return place if found is None or found.interval_seconds is not None else at_best_interval(place)


def _rate_error(found: Interruptions | None) -> float:
    """Return the standard deviation of the logarithm of the time that the error of the interruption rate causes."""
    if found is None or found.undisturbed_seconds.high <= 0 or found.factor <= 0:
        return 0.0
    return max(0.0, math.log(found.wall_seconds.high / found.undisturbed_seconds.high / found.factor)) / Z80


def _action(context: AdviceContext, as_written: Prediction, after: Prediction) -> str:
    found, phase = as_written.interruptions, context.workload.profile.phases[-1]
    words = "Spot" if after.interruptions is None else f"Spot with {recover_option(after.interruptions)}"
    if not phase.unit.trains:
        return words
    if found is not None and found.interval_seconds is not None:
        return f"{words}, as the script saves checkpoints"
    return f"{words} and checkpoints ({'none was seen in what was measured' if phase.step.count else 'a must'})"


def _notes(context: AdviceContext, as_written: Prediction, after: Prediction) -> list[str]:
    found = as_written.interruptions
    if found is None:
        return []
    rate = rate_words(after, after.interruptions or found)
    notes = [f"Interruptions are in it: {rate}."]
    best_words = f"every {format_duration(found.best_interval_seconds)} (Young/Daly)"
    each = format_duration(found.checkpoints.seconds_each)
    wall, usd = format_duration(as_written.wall_seconds.value), format_usd(as_written.cost_usd.value)
    infers = not context.workload.profile.phases[-1].unit.trains
    if infers and not context.workload.scope.whole:
        return ["An interruption loses what it has in hand.", *notes]
    if infers:
        return [f"Unless it keeps its results and goes on after them, {ALL_LOST}; that is in it.", *notes]
    if found.interval_seconds is not None:
        loses = format_duration(found.interval_seconds)
        how = "measured" if found.checkpoints.measured else "inferred"
        first = f"It saves every {loses} there ({each} each, {how}), which is what an interruption loses at most,"
        return [f"{first} if the script resumes from them; best is {best_words}.", *notes]
    first = f"Counted is a checkpoint {best_words}, {each} each (assumed), and a script that resumes from it."
    if not context.workload.scope.whole:
        return [first, *notes]
    if as_written.infeasible:
        return [f"{first} Without one {ALL_LOST}, and it would hardly come to its end.", *notes]
    return [f"{first} Without one {ALL_LOST}: {wall} and {usd} on average.", *notes]

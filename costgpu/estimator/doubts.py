"""What could make an answer wrong: each doubt with its bound, and whether another answer wins there. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date

from costgpu.estimator.cost import cost_range
from costgpu.estimator.interval import CHANGING_TOTAL_SIGMA, FEW_STEPS, PRIOR, UNTIMED, Interval, busy_interval
from costgpu.estimator.scope import Scope
from costgpu.estimator.step import FEW_STEPS_HIGH, FEW_STEPS_LOW
from costgpu.estimator.verdict import Preferences, allowed, choose, work_seconds
from costgpu.estimator.verdict_sentence import FASTER
from costgpu.models.prediction import LEAST, Choice, Doubt, Objective, Prediction, Verdict
from costgpu.models.workload import TotalKind, WorkloadProfile
from costgpu.units import format_ratio, format_usd

LEAST_FACTOR = 1.2  # by which a figure may be off, to be a doubt
EARLY = 0.1  # share of its steps that a script which may stop early is taken to make at least: assumed
OLD_DAYS = 90  # of a price, after which its age is a doubt
ANSWERS = {"here": "run it here", "cpu": "run it on a CPU", "gpu": "run it on a GPU", "": "no place meets the limits"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bound:
    """How far the figures of CPUs may be off, and whether those of this machine and of the GPUs are with them."""

    words: str
    ends: Interval
    case: Callable[[float], str]  # what is the case at an end, for a sentence that begins with "Unless"
    gpus: bool = False
    here: bool = True
    said: str = ""
    told: bool = False  # whether the answer tells it anyhow, as "at most", and how early the answer turns is looked for


def doubts_of(
    verdict: Verdict, profile: WorkloadProfile, scope: Scope, preferences: Preferences, today: date
) -> tuple[Doubt, ...]:
    """Return the doubts about a verdict: those that would turn it first, then by how far off it may be."""
    bounds = _bounds(verdict, profile, preferences)
    bounds = (one for one in bounds if one.ends.low > 0 and LEAST_FACTOR <= one.ends.high / one.ends.low < math.inf)
    found = [_weighed(bound, verdict, scope, preferences) for bound in bounds]
    found += _unbounded(verdict, profile, scope, today)
    return tuple(sorted(found, key=lambda one: (not one.turns, -one.weight)))


def _bounds(verdict: Verdict, profile: WorkloadProfile, preferences: Preferences) -> Iterator[_Bound]:
    last = profile.phases[-1]
    share = f"{100 * profile.machine.disturbed_share:.0f} %"
    busy, taken = (
        busy_interval(profile.machine.disturbed_share),
        f"(other programs took {share} of this machine's time)",
    )
    yield _Bound(
        words=f"busy machine: {share}, CPU figures {_span(busy)}",
        ends=busy,
        case=lambda factor: f"CPU figures are really {_times(factor)} {taken}",
        said="other programs took",
    )
    drift, (grew, growing) = last.step.drift, ("grew", "growing") if last.step.drift > 1 else ("fell", "falling")
    yield _Bound(
        words=f"steps {grew}: times x{drift:.2g}",
        ends=Interval(min(drift, 1.0), max(drift, 1.0)),
        case=lambda _: f"the time of its steps goes on {growing} (x{drift:.2g})",
        gpus=True,
        said="the step time",
    )
    if last.total.kind is TotalKind.UPPER_BOUND:
        yield _Bound(
            words="it may stop early",
            ends=Interval(EARLY, 1.0),
            case=lambda factor: f"it stops within the first {100 * factor:.0f} % of its steps",
            gpus=True,
            said="stop early",
            told=True,
        )
    if last.total.kind is TotalKind.APPROXIMATE:
        off = Interval.of_sigma(CHANGING_TOTAL_SIGMA)
        yield _Bound(
            words=f"number of steps changes: {_span(off)}",
            ends=off,
            case=lambda factor: f"its changing number of steps comes out at {_times(factor)}",
            gpus=True,
        )
    if last.step.count < FEW_STEPS and not profile.ended:
        few, timed = Interval(FEW_STEPS_LOW, FEW_STEPS_HIGH), f"only {last.step.count} of its steps timed"
        if not last.step.count:
            few, timed = PRIOR, "nothing was measured"
        if profile.without_weights:
            few = UNTIMED if verdict.best_cpu is None else Interval.of_sigma(verdict.best_cpu.sigma)
            timed = "its time on CPUs is modelled"
        yield _Bound(
            words=f"{timed}: CPU figures {_span(few)}",
            ends=few,
            case=lambda factor: f"CPU figures are really {_times(factor)} ({timed})",
            said="timed" if last.step.count else timed,
        )
    ratio, even = verdict.speedup_range, verdict.break_even
    sided = verdict.choice in (Choice.CPU, Choice.GPU) and preferences.objective is not Objective.FASTEST
    if sided and ratio is not None and even is not None and ratio.low < even < ratio.high:
        yield _Bound(
            words=f"speed-up {format_ratio(ratio.low)}-{format_ratio(ratio.high)}, break-even {format_ratio(even)}",
            ends=Interval(ratio.low / ratio.value, ratio.high / ratio.value),
            case=lambda factor: f"a GPU is {format_ratio(ratio.value * factor)} as fast, an end of the interval",
            here=False,
        )


def _span(ends: Interval) -> str:
    return f"x{ends.low:.2g}-{ends.high:.2g}"


def _times(factor: float) -> str:
    return f"{factor:.2g} {'of' if factor < 1 else 'times'} these"


def _weighed(bound: _Bound, verdict: Verdict, scope: Scope, preferences: Preferences) -> Doubt:
    def answer(factor: float) -> str:
        factors = (factor if bound.here else 1.0, factor, factor if bound.gpus else 1.0)
        return _answer(verdict, scope, preferences, factors)

    turning, turns = [], ""
    if scope.whole:
        usual = answer(1.0)
        turning = [factor for factor in (bound.ends.high, bound.ends.low) if answer(factor) != usual]
        if turning and bound.told:  # not at its end, which is assumed, but at the last percent that turns the answer
            low, high = round(100 * bound.ends.low), 100
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if answer(middle / 100) == usual else (middle, high)
            turning = [low / 100]
    if turning:
        turns = f"Unless {bound.case(turning[0])}: then {ANSWERS[answer(turning[0])]}."
    weight = 0.1 if bound.told else math.log(bound.ends.high / bound.ends.low)
    return Doubt(words=bound.words, weight=weight, turns=turns, said=bound.said)


def _answer(verdict: Verdict, scope: Scope, preferences: Preferences, factors: tuple[float, float, float]) -> str:
    """Return which side wins if this machine, the CPUs and the GPUs took so many times as long."""
    places = (verdict.here, verdict.best_cpu, verdict.best_gpu)
    moved = [None if one is None else _scaled(one, factor) for one, factor in zip(places, factors, strict=True)]
    here, cpu, gpu = moved[0], *(one if one is not None and allowed(one, preferences) else None for one in moved[1:])
    kept = next((after for one, after in zip(places, moved, strict=True) if one is verdict.recommended), None)
    assert here is not None  # noqa: S101 - this machine always is among the places
    choice, chosen = choose(here, cpu, gpu, preferences, scope)
    if verdict.choice is choice is Choice.TOO_CLOSE:
        return "close"
    if chosen is not None and kept is not None and here in (chosen, kept):
        times = work_seconds(chosen) / max(work_seconds(kept), LEAST)
        chosen = kept if FASTER < times < 1 / FASTER else chosen  # no sooner to speak of
    return "" if chosen is None else "here" if chosen is here else "gpu" if chosen.candidate.is_gpu else "cpu"


def _scaled(prediction: Prediction, factor: float) -> Prediction:
    """Return a prediction whose run takes so many times as long; one that a clock ends makes so many fewer steps."""
    limit = prediction.time_limit
    if limit is not None:
        limit = replace(limit, unlimited_seconds=limit.unlimited_seconds.times(factor))
        prediction = replace(prediction, time_limit=limit)
        if limit.reached:
            return prediction
    wall = prediction.wall_seconds.plus(prediction.run_seconds.value * (factor - 1))
    cost = cost_range(prediction.candidate, wall, whole=prediction.overhead_seconds > 0)
    return replace(prediction, run_seconds=prediction.run_seconds.times(factor), wall_seconds=wall, cost_usd=cost)


def ending_prices(predictions: Iterable[Prediction]) -> list[str]:
    """Return a remark for each own price that may end before its job does."""
    return list(
        dict.fromkeys(
            f"The own price of {offer.instance_type} holds until {own.until}, and the job may last longer: the list price,"
            f" {format_usd(own.list_usd_per_hour)}/h, counts from then on."
            for each in predictions
            if (offer := each.candidate.offer) is not None
            and (own := offer.own_price) is not None
            and each.outlasts_own_price
        )
    )


def _unbounded(verdict: Verdict, profile: WorkloadProfile, scope: Scope, today: date) -> Iterator[Doubt]:
    """Yield what no factor is known of."""
    if not scope.whole and any(not phase.unit.trains for phase in profile.phases):
        yield Doubt(words=f"length unknown: amounts for {scope.unit}", weight=0.09)
    if unfit := sum(bool(one.infeasible) for one in verdict.asked):
        named = "a type that was asked for" if unfit == 1 else f"{unfit} types that were asked for"
        yield Doubt(words=f"{named} will not do", weight=0.08, said="will not do")
    offers = [one.offer for one in verdict.table if one.offer is not None]
    age = max(((today - offer.price_as_of).days for offer in offers), default=0)
    if age > OLD_DAYS:
        yield Doubt(words=f"prices of {age} days ago", weight=0.05)

"""What a phase of inference makes per second on a candidate, and what an item or a token costs. Pure.

    items/s = items of a unit / seconds of a unit, its part of the work beside the units that recurs included
    USD per item = price per hour / 3600 / (items/s)

Price is that of the machine with its disk and address. Boot and set-up come once and are not in it. Where it is known
how long a unit reads prompts (prefill) and makes tokens (decode), input and output tokens have their own seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from costgpu.estimator.cost import cost_range, expected_usd_per_hour, hourly_usd
from costgpu.models.prediction import (
    InferenceUnit,
    PaysFrom,
    PhasePrediction,
    Prediction,
    Range,
    Throughput,
)
from costgpu.models.workload import Phase
from costgpu.units import plural_unit

PREFILL, DECODE = "prefill", "decode"
CALL = "call"
THOUSAND, MILLION = 1e3, 1e6
LEAST_USD = 1e-4  # a thousand items that cost less are priced by the million
TIMES = ((1.0, "s"), (60.0, "min"), (3600.0, "h"))
INPUT_TOKEN, OUTPUT_TOKEN = "input token", "output token"


def inference_unit(phase: Phase, prefill_share: float | None = None) -> InferenceUnit | None:
    """Return what one step of the phase makes; None for training.

    Args:
        prefill_share: Share of its seconds in which prompts are read; None to take what was measured here, if it was.
    """
    unit, generation = phase.unit, phase.unit.generation
    if unit.trains:
        return None
    known = bool(unit.items)
    item = unit.item if known else unit.name if unit.name not in ("", "step") else CALL
    items = unit.items or 1.0
    if generation is None:
        return InferenceUnit(item=item, items=items)
    prompts = items if known else generation.sequences  # beams compete for the tokens of one prompt
    return InferenceUnit(
        item=item,
        items=items,
        input_tokens=prompts * generation.prompt_tokens,
        output_tokens=prompts * generation.new_tokens,
        prefill_share=prefill_share if prefill_share is not None else measured_prefill_share(phase),
    )


def measured_prefill_share(phase: Phase) -> float | None:
    """Share of a unit's op time that reads prompts, by the traced prefill and decodes; None if either was not timed."""
    generation = phase.unit.generation
    if generation is None or generation.traced_decodes <= 0 or phase.trace_steps <= 0:
        return None
    prefill = sum(row.seconds for row in phase.ops if row.phase == PREFILL) / phase.trace_steps
    decode = sum(row.seconds for row in phase.ops if row.phase == DECODE) / generation.traced_decodes
    if prefill <= 0 or decode <= 0:
        return None
    return prefill / (prefill + decode * generation.decodes)


def throughputs(prediction: Prediction, phase: PhasePrediction) -> tuple[Throughput, ...]:
    """Return the items, then input and output tokens, as far as they are known; empty for training.

    Tokens whose prefill and decode are not known apart are output tokens with all seconds of the unit.
    """
    unit, seconds, place = phase.unit, phase.sustained_seconds, prediction
    if unit is None or seconds.low <= 0:
        return ()
    found = [_throughput(unit.item, seconds, unit.items, place)]
    share = unit.prefill_share
    if unit.output_tokens <= 0:
        return tuple(found)
    if share is not None and 0 < share < 1 and unit.input_tokens > 0:
        found.append(_throughput(INPUT_TOKEN, seconds.times(share), unit.input_tokens, place))
        found.append(_throughput(OUTPUT_TOKEN, seconds.times(1 - share), unit.output_tokens, place))
    else:
        found.append(_throughput(OUTPUT_TOKEN, seconds, unit.output_tokens, place))
    return tuple(found)


def inference_phase(prediction: Prediction) -> PhasePrediction | None:
    """Return the last phase of inference; None if there is none."""
    return next((phase for phase in reversed(prediction.phases) if phase.unit is not None), None)


def pays_from(place: Prediction, against: Prediction, unit: tuple[str, float] = ("step", 1.0)) -> PaysFrom | None:
    """From how many items on a rented machine saves money against another, or time against this machine, which is free.

    N = (fixed there - fixed here) / (an item here - an item there), in seconds or in USD; infinite if it never does.

    Args:
        unit: What is counted of a training, a step or an epoch, and the steps that it takes.
    """
    item, each = _item_seconds(place, unit)
    _, other_each = _item_seconds(against, unit)
    if each <= 0 or other_each <= 0 or place is against:
        return None
    own_each, own_fixed = other_each, against.fixed_seconds
    fixed, other_fixed = place.fixed_seconds, against.fixed_seconds
    if against.candidate.offer is not None:
        rate, other_rate = expected_usd_per_hour(place), expected_usd_per_hour(against)
        each, other_each, fixed, other_fixed = (
            each * rate,
            other_each * other_rate,
            fixed * rate,
            other_fixed * other_rate,
        )
    items = max(0.0, fixed - other_fixed) / (other_each - each) if other_each > each else math.inf
    return PaysFrom(place=place, against=against, items=items, item=item, seconds=own_fixed + items * own_each)


def _item_seconds(prediction: Prediction, unit: tuple[str, float]) -> tuple[str, float]:
    """Return what is counted of a job, and the seconds that one takes; 0 where they are not known."""
    phase = inference_phase(prediction)
    if phase is not None and phase.unit is not None:
        return phase.unit.item, phase.sustained_seconds.value / phase.unit.items
    name, steps = unit
    return name, steps * prediction.phases[-1].sustained_seconds.value if prediction.phases else 0.0


def fixed_usd(place: Prediction) -> float:
    """Return what boot and set-up cost; 0 on this machine."""
    return place.fixed_seconds / 3600 * hourly_usd(place.candidate)


def time_of(rates: Sequence[float]) -> tuple[float, str]:
    """Return the shortest time in which the slowest of these rates per second makes one; its seconds and name."""
    return next((time for time in TIMES if min(rates) * time[0] >= 1), TIMES[-1])


def price_quantity(found: Sequence[Throughput]) -> float:
    """Return how many are priced together: a million tokens; 1,000 items, or a million of the cheapest."""
    if any(is_token(one) for one in found):
        return MILLION
    priced = [one.usd_each.value for one in found if one.usd_each.value > 0]
    return MILLION if priced and min(priced) * THOUSAND < LEAST_USD else THOUSAND


def quantity_words(name: str, number: float) -> str:
    """``1,000 images``, ``million output tokens``."""
    return f"{'million' if number == MILLION else f'{number:,.0f}'} {plural_unit(name)}"


def is_token(one: Throughput) -> bool:
    """Return whether it counts tokens."""
    return one.name in (INPUT_TOKEN, OUTPUT_TOKEN)


def _throughput(name: str, seconds: Range, count: float, place: Prediction) -> Throughput:
    rate = Range(value=count / seconds.value, low=count / seconds.high, high=count / seconds.low)
    expected = seconds.times(place.interruption_factor)
    usd = cost_range(place.candidate, expected, whole=False, undisturbed=seconds).times(1 / count)
    return Throughput(name=name, per_second=rate, usd_each=usd)

"""What inference makes per second and what that costs, as text and as parts of a JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from costgpu.estimator.scope import WHOLE_JOB
from costgpu.estimator.throughput import MILLION, THOUSAND, fixed_usd, is_token, price_quantity, throughputs, time_of
from costgpu.models.prediction import PaysFrom, PhasePrediction, Prediction, Throughput, Verdict
from costgpu.models.workload import Phase, WorkloadProfile
from costgpu.render.document import json_object, picked
from costgpu.render.phrases import offer_name, short_offer_name, steps_phrase
from costgpu.render.text.layout import WIDTH, cut, wrap
from costgpu.units import format_bare_usd, format_duration, format_free, format_number, format_usd, plural_unit

NAME_WIDTH = 28
PLACE_WIDTH = 12


def places_of(verdict: Verdict) -> list[Prediction]:
    """Return this machine, the best CPU offer and the best GPU offer, as far as there are any."""
    return [p for p in (verdict.here, verdict.best_cpu, verdict.best_gpu) if p is not None]


def inference_text(verdict: Verdict, profile: WorkloadProfile) -> str:
    """Return the phases of a script that trains and infers, and what each phase of inference makes; empty for training."""
    if all(phase.unit.trains for phase in profile.phases):
        return ""
    blocks = [phases_text(verdict, profile)] if len(profile.phases) > 1 and verdict.unit == WHOLE_JOB else []
    several = sum(not phase.unit.trains for phase in profile.phases) > 1
    for index, phase in enumerate(profile.phases):
        rows = throughput_rows(verdict, index)
        if not phase.unit.trains and rows:
            blocks.append("\n".join(_throughput_lines(rows, verdict, f" ({phase.label})" if several else "")))
    if len(blocks) > 0 and (fixed := fixed_words(verdict)):
        blocks[-1] += "\n" + wrap(fixed, "  ")
    return "\n\n".join(blocks)


def inference_rows(verdict: Verdict, profile: WorkloadProfile, most: int) -> list[str]:
    """Return what its last phase of inference makes, in the kind that says the most, if so many rows hold it."""
    inferring = [index for index, phase in enumerate(profile.phases) if not phase.unit.trains]
    rows = throughput_rows(verdict, inferring[-1]) if inferring else []
    lines = _throughput_lines(rows, verdict, "", kinds=1) if rows else []
    return lines if len(lines) <= most else []


def throughput_rows(verdict: Verdict, index: int) -> list[tuple[Prediction, tuple[Throughput, ...]]]:
    """Each place with what it makes of the phase with this index."""
    found = [(p, throughputs(p, p.phases[index])) for p in places_of(verdict) if len(p.phases) > index]
    return [(place, rates) for place, rates in found if rates]


def _throughput_lines(
    rows: Sequence[tuple[Prediction, tuple[Throughput, ...]]], verdict: Verdict, where: str, *, kinds: int | None = None
) -> list[str]:
    """Return a table for each kind that is counted: tokens out and in, then items."""
    lines = ["Once it runs, boot and set-up apart" + where + ":"]
    names = list(dict.fromkeys(rate.name for _, rates in rows for rate in rates))
    for name in [*names[:0:-1], *names[:1]][:kinds]:
        shown = [(place, rate) for place, rates in rows for rate in rates if rate.name == name]
        number = price_quantity([rate for _, rate in shown])
        seconds, time = time_of([rate.per_second.value for _, rate in shown])
        each = "per 1M" if number >= 1e6 else f"per {number:,.0f}"
        lines += _row("  ", cut(plural_unit(name), NAME_WIDTH), f"per {time}", "80 %", each, "80 %")
        for place, rate in shown:
            made, usd = rate.per_second.times(seconds), rate.usd_each.times(number)
            cost, span = format_usd(usd.value), f"{format_usd(usd.low)}-{format_bare_usd(usd.high)}"
            if place.candidate.offer is None:
                cost, span = format_free(), ""
            mark, title = ("* " if place is verdict.recommended else "  "), short_offer_name(place)
            between = f"{format_number(made.low)}-{format_number(made.high)}"
            lines += _row(mark, title, format_number(made.value), between, cost, span)
    return lines


def _row(mark: str, name: str, rate: str, between: str, cost: str, span: str) -> list[str]:
    """Return a row of the table; wide figures take their room from the name, which gets a line of its own if needed."""
    figures = f" {rate:>7} {between:>13} {cost:>9} {span:>17}"
    room = min(NAME_WIDTH, WIDTH - len(f"{mark:2}{figures}"))
    if len(name) <= room:
        return [f"{mark:2}{name:{room}}{figures}".rstrip()]
    return [f"{mark}{name}", (" " * min(2 + NAME_WIDTH, WIDTH - len(figures)) + figures).rstrip()]


def fixed_words(verdict: Verdict) -> str:
    """Return what comes once, on the best offers."""
    words = []
    for place in (verdict.best_cpu, verdict.best_gpu):
        if place is not None and place.candidate.offer is not None:
            usd = fixed_usd(place)
            name = place.candidate.offer.instance_type
            words.append(f"{format_duration(place.fixed_seconds)} and {format_usd(usd)} on {name}")
    return f"Boot and set-up come once: {', '.join(words)}." if words else ""


def phases_text(verdict: Verdict, profile: WorkloadProfile) -> str:
    """Each phase of a script with its own total, and how long it takes on this machine and the best offers."""
    titles = [("here", verdict.here), ("best CPU", verdict.best_cpu), ("best GPU", verdict.best_gpu)]
    shown = [(title, place) for title, place in titles if place is not None and place.phases]
    room = WIDTH - 2 - PLACE_WIDTH * len(shown)
    head = "".join(f"{title:>{PLACE_WIDTH}}" for title, _ in shown)
    lines = [f"{'By phase:':{room + 2}}{head}"]
    for index, phase in enumerate(profile.phases):
        name = f"{phase_name(phase)}, {steps_phrase(phase)}"
        times = "".join(f"{format_duration(place.phases[index].seconds):>{PLACE_WIDTH}}" for _, place in shown)
        if len(name) > room:
            lines.append(f"  {cut(name, WIDTH - 2)}")
            name = ""
        lines.append(f"  {name:{room}}{times}")
    return "\n".join(lines)


def phase_name(phase: Phase) -> str:
    """``training (train.py:41)``."""
    return f"{'training' if phase.unit.trains else 'inference'} ({phase.label})"


def inference_values(verdict: Verdict, profile: WorkloadProfile) -> list[dict[str, Any]]:
    """Each phase of inference as a part of a document: per second, and US dollars per 1,000 items or million tokens."""
    return [
        json_object(
            {
                "label": phase.label,
                "steps": phase.total.steps,
                "unit": phase.unit.name,
                "inference": {
                    "items_per_step": phase.unit.items,
                    **picked(phase.unit, "item", "independent", "weights_dtype", "activation_bytes", "generation"),
                },
                "places": [_place_value(place, rates) for place, rates in throughput_rows(verdict, index)],
            }
        )
        for index, phase in enumerate(profile.phases)
        if not phase.unit.trains
    ]


def _place_value(place: Prediction, rates: Sequence[Throughput]) -> dict[str, Any]:
    offer = place.candidate.offer
    return {
        "where": "offer" if offer is not None else "here",
        **({} if offer is None else picked(offer, "provider", "region", "instance_type", "purchase_option")),
        "accelerator": place.candidate.accelerator.name if place.candidate.accelerator is not None else None,
        "fixed_seconds": place.fixed_seconds,
        "fixed_usd": fixed_usd(place),
        "throughput": [
            {
                "name": rate.name,
                "per_second": rate.per_second,
                "usd_per_million" if is_token(rate) else "usd_per_thousand": rate.usd_each.times(
                    MILLION if is_token(rate) else THOUSAND
                ),
            }
            for rate in rates
        ],
    }


def phase_values(phases: Sequence[PhasePrediction]) -> list[dict[str, Any]]:
    """Return the phases of one prediction as parts of a document."""
    return [
        {**picked(phase, "label", "step_seconds", "sustained_seconds", "seconds"), "terms_seconds": phase.terms}
        for phase in phases
    ]


def pays_from_value(one: PaysFrom) -> dict[str, Any]:
    """When a rented machine is worth its boot, as a part of a document; no number of items if never."""
    return json_object(
        {
            "place": offer_name(one.place),
            "against": offer_name(one.against),
            "saves": "time" if one.against.candidate.offer is None else "cost",
            **picked(one, "items", "item", "seconds"),
        }
    )

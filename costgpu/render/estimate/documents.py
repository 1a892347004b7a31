"""An estimate as a versioned JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from costgpu.estimator.throughput import MILLION, THOUSAND, fixed_usd, is_token
from costgpu.models.estimate import Estimate
from costgpu.models.prediction import (
    Advice,
    Ownership,
    PaysFrom,
    Prediction,
    Service,
    ServicePlan,
    Throughput,
    Verdict,
)
from costgpu.models.workload import Unit, WorkloadProfile
from costgpu.render.document import document, json_value, picked
from costgpu.render.estimate.memory import memory_value
from costgpu.render.estimate.multi_gpu import scaling_value, scaling_values
from costgpu.render.estimate.tables import throughput_rows
from costgpu.render.phrases import offer_name
from costgpu.render.text.offers import offer_value

SCHEMA = "costgpu.verdict"
PLACES = ("here", "best_cpu", "best_gpu", "recommended")


def estimate_json(found: Estimate) -> str:
    """Return the versioned document; amounts in seconds and US dollars, the trace left out."""
    verdict, profile, today = found.verdict, found.profile, found.today
    energy = [{"where": offer_name(place), "kwh": kwh} for place, kwh in found.energy or ()]
    return document(
        SCHEMA,
        format=SCHEMA,  # the name of the key `schema` in version 1
        verdict={
            **picked(verdict, "choice", "sentence", "unit", "speedup", "speedup_range", "premium"),
            "break_even_speedup": verdict.break_even,
            "probability_gpu_cheaper": verdict.probability_gpu_cheaper,
            "settle": verdict.settle or None,
            "doubts": [picked(doubt, "words", "turns") for doubt in verdict.doubts],
            "notes": [*profile.notes, *verdict.notes],
        },
        **{name: prediction_value(getattr(verdict, name), today) for name in PLACES},
        table=[prediction_value(prediction, today) for prediction in verdict.table],
        asked=[{**(prediction_value(one, today) or {}), "infeasible": one.infeasible or None} for one in verdict.asked],
        inference=inference_values(verdict, profile),
        pays_from=[pays_from_value(one) for one in verdict.pays_from],
        workload=workload_value(profile),
        advice=advice_values(found.advice),
        own=own_value(found.own) if found.own is not None else None,
        by_gpus=scaling_values(found.by_gpus),
        memory=memory_value(found),
        service=service_value(found.service) if found.service is not None else None,
        **({} if found.energy is None else {"energy_kwh": energy}),
    )


def prediction_value(prediction: Prediction | None, today: date) -> dict[str, Any] | None:
    """One prediction as JSON values."""
    if prediction is None:
        return None
    offer = prediction.candidate.offer
    value: dict[str, Any] = {
        "where": "offer" if offer else "here",
        **picked(prediction, "step_seconds", "run_seconds", "overhead_seconds", "wall_seconds", "cost_usd"),
        **scaling_value(prediction),
        "terms_seconds": prediction.terms,
        "parts_seconds": prediction.parts,
        "phases": [
            {**picked(phase, "label", "step_seconds", "sustained_seconds", "seconds"), "terms_seconds": phase.terms}
            for phase in prediction.phases
        ],
        **picked(prediction, "provenance", "notes"),
    }
    if prediction.time_limit is not None:
        value["time_limit"] = prediction.time_limit
    if prediction.interruptions is not None:
        names = ("rate", "checkpoints", "restart_seconds", "interval_seconds", "best_interval_seconds", "expected")
        more = ("undisturbed_seconds", "best_seconds", "bare_seconds")
        value["interruptions"] = picked(prediction.interruptions, *names, *more)
    if offer is not None:
        value["offer"] = offer_value(offer, today)
    return value


def workload_value(profile: WorkloadProfile) -> dict[str, Any]:
    """Return the measurement as a part of a document, its trace left out."""
    value: dict[str, Any] = json_value(profile)
    for phase, measured in zip(value["phases"], profile.phases, strict=True):
        phase.pop("ops")
        phase.update(json_value(unit_values(measured.unit)))
    return value


def unit_values(unit: Unit) -> dict[str, Any]:
    """Return the name of a unit, and what it makes, as version 1 has them; None for training."""
    made = picked(unit, "item", "independent", "weights_dtype", "activation_bytes", "generation")
    return {"unit": unit.name, "inference": None if unit.trains else {"items_per_step": unit.items, **made}}


def inference_values(verdict: Verdict, profile: WorkloadProfile) -> list[dict[str, Any]]:
    """Each phase of inference as a part of a document: per second, and US dollars per 1,000 items or million tokens."""
    return [
        {
            "label": phase.label,
            "steps": phase.total.steps,
            **unit_values(phase.unit),
            "places": [_place_value(place, rates) for place, rates in throughput_rows(verdict, index)],
        }
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


def pays_from_value(one: PaysFrom) -> dict[str, Any]:
    """When a rented machine is worth its boot, as a part of a document; no number of items if never."""
    return {
        "place": offer_name(one.place),
        "against": offer_name(one.against),
        "saves": "time" if one.against.candidate.offer is None else "cost",
        **picked(one, "items", "item", "seconds"),
    }


def advice_values(advice: Sequence[Advice]) -> list[dict[str, Any]]:
    """Each as a part of a document, in the order given; amounts in US dollars and seconds."""
    return [
        {
            **picked(one, "kind", "action", "saving_usd", "saving_seconds"),
            "saving_share": one.share,
            **picked(one, "at_most", "probability"),
            "before": _advised_place(one.before),
            "after": _advised_place(one.after),
            **picked(one, "other_usd", "other_seconds", "basis", "notes"),
        }
        for one in advice
    ]


def _advised_place(prediction: Prediction | None) -> dict[str, Any] | None:
    if prediction is None:
        return None
    offer = prediction.candidate.offer
    document: dict[str, Any] = {
        "where": "offer" if offer else "here",
        "cost_usd": prediction.cost_usd.value,
        "wall_seconds": prediction.wall_seconds.value,
        "step_seconds": prediction.step_seconds,
        "terms_seconds": prediction.terms,
    }
    if offer is not None:
        document |= {
            **picked(offer, "provider", "region", "instance_type", "purchase_option"),
            "accelerator": offer.accelerator.name if offer.accelerator else None,
            "accelerators": offer.accelerator.count if offer.accelerator else 0,
        }
    return document


def own_value(own: Ownership) -> dict[str, Any]:
    """Return a part of a document; an infinite number of jobs is null."""
    spec = own.prediction.candidate.accelerator
    return {
        "accelerator": spec.name if spec else None,
        "model": spec.model if spec else None,
        "infeasible": own.prediction.infeasible or None,
        **picked(own, "price_usd", "power_usd_per_kwh", "power_source"),
        "step_seconds": own.prediction.step_seconds,
        "run_seconds": own.prediction.run_seconds,
        "terms_seconds": own.prediction.terms,
        **picked(own, "card_watts", "host_watts", "energy_kwh"),
        "energy_cost_usd": own.prediction.cost_usd,
        "amortised_usd": own.amortised_usd,
        "provenance": own.prediction.provenance,
        "break_even": [
            {
                "against": offer_name(found.against),
                "cost_usd": found.against.cost_usd.value,
                **picked(found, "saving_usd", "jobs", "hours", "in_life"),
            }
            for found in own.break_evens
        ],
        "notes": own.notes,
    }


def service_value(service: Service) -> dict[str, Any]:
    """Return the service as a part of a document; amounts in US dollars a month, times in seconds."""
    return {
        **picked(service, "rate_per_second", "item", "choice", "sentence"),
        **{name: _plan_value(getattr(service, name)) for name in PLACES},
        "asked": [_plan_value(one) for one in service.asked],
        **picked(service, "notes"),
    }


def _plan_value(one: ServicePlan | None) -> dict[str, Any] | None:
    if one is None:
        return None
    offer = one.prediction.candidate.offer
    return {
        "where": offer_name(one.prediction),
        "own_price": offer.own_price if offer is not None else None,
        "price_as_of": offer.price_as_of if offer is not None else None,
        **picked(
            one, "machines", "capacity", "utilisation", "answer_seconds", "wait_seconds", "batch", "usd_per_month"
        ),
    }

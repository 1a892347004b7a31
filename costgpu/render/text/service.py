"""A script as a service at a steady rate, as text and as a part of a JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from costgpu.models.prediction import Service, ServicePlan
from costgpu.render.document import json_object, picked
from costgpu.render.phrases import offer_name, short_offer_name
from costgpu.render.text.layout import WIDTH, Column, cut, table
from costgpu.units import format_bare_usd, format_duration, format_free, format_frequency, format_percent, format_usd


def service_plans(service: Service) -> list[ServicePlan]:
    """Return this machine, if it carries the load, the best offers, and those of the types that were asked for."""
    plans = [one for one in (service.here, service.best_cpu, service.best_gpu) if one is not None]
    return [*plans, *(one for one in service.asked if one not in plans)]


def month_words(one: ServicePlan) -> tuple[str, str]:
    """Return the cost a month and its interval, which is empty where the number of machines is certain."""
    usd = one.usd_per_month
    if one.prediction.candidate.offer is None:
        return format_free(), ""
    span = "" if usd.low == usd.high else f"{format_usd(usd.low)}-{format_bare_usd(usd.high)}"
    return format_usd(usd.value), span


def service_text(service: Service) -> str:
    """Return the machines for the load, how busy they are, how long an answer takes, and what they cost a month."""

    def mark(one: ServicePlan) -> str:
        return "*" if one is service.recommended else ">" if one in service.asked else " "

    def batch(one: ServicePlan) -> str:
        return (
            f"{one.batch:,.0f}" if service_plans(service) and any(p.batch > 1 for p in service_plans(service)) else ""
        )

    names = {id(one): f"{mark(one)} {short_offer_name(one.prediction)}" for one in service_plans(service)}
    columns: Sequence[Column[ServicePlan]] = (
        Column("", lambda one: names[id(one)]),
        Column("machines", lambda one: str(one.machines), right=True),
        Column("used", lambda one: format_percent(one.utilisation), right=True),
        Column("batch", batch, right=True),
        Column("answer", lambda one: format_duration(one.answer_seconds), right=True),
        Column("a month", lambda one: month_words(one)[0], right=True),
        Column("80 %", lambda one: month_words(one)[1], right=True),
    )
    plans = service_plans(service)
    if not plans:
        return ""
    head = f"For {format_frequency(service.rate_per_second, service.item)}, boot and set-up apart:"
    lines = table(columns, plans)
    if max(map(len, lines)) > WIDTH:  # amounts in millions; their intervals stand in the sentence
        lines = table(columns[:-1], plans)
    if (over := max(map(len, lines)) - WIDTH) > 0:
        longest = max(map(len, names.values())) - over
        names = {key: cut(name, longest) for key, name in names.items()}
        lines = table(columns[:-1], plans)
    return "\n".join([head, *lines])


def service_value(service: Service) -> dict[str, Any]:
    """Return the service as a part of a document; amounts in US dollars a month, times in seconds."""
    return json_object(
        {
            **picked(service, "rate_per_second", "item", "choice", "sentence"),
            "here": _plan_value(service.here),
            "best_cpu": _plan_value(service.best_cpu),
            "best_gpu": _plan_value(service.best_gpu),
            "recommended": _plan_value(service.recommended),
            "asked": [_plan_value(one) for one in service.asked],
            **picked(service, "notes"),
        }
    )


def _plan_value(one: ServicePlan | None) -> dict[str, Any] | None:
    if one is None:
        return None
    offer = one.prediction.candidate.offer
    return {
        "where": offer_name(one.prediction),
        "own_price": offer.own_price if offer is not None else None,
        "price_as_of": offer.price_as_of.isoformat() if offer is not None else None,
        **picked(
            one, "machines", "capacity", "utilisation", "answer_seconds", "wait_seconds", "batch", "usd_per_month"
        ),
    }

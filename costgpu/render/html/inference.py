"""Tables of inference for a verdict's page: what it makes per second, its phases, and the script as a service."""

from __future__ import annotations

from markupsafe import Markup

from costgpu.estimator.scope import WHOLE_JOB
from costgpu.estimator.throughput import price_quantity, quantity_words, time_of
from costgpu.models.prediction import Prediction, Service, Verdict
from costgpu.models.provider_costs import HOURS_PER_MONTH
from costgpu.models.workload import WorkloadProfile
from costgpu.render.html.page import Table, name, ranged, two_lines
from costgpu.render.phrases import offer_name, steps_phrase
from costgpu.render.text.inference import phase_name, places_of, throughput_rows
from costgpu.render.text.service import month_words, service_plans
from costgpu.units import (
    format_duration,
    format_free,
    format_frequency,
    format_number,
    format_percent,
    format_usd,
    plural_unit,
)


def _star(prediction: Prediction, recommended: Prediction | None) -> str:
    return Markup("{}{}").format(name(offer_name(prediction)), " ★" if prediction is recommended else "")


def throughput_tables(verdict: Verdict, profile: WorkloadProfile) -> list[Table]:
    """One table for each kind of thing that a phase of inference makes."""
    tables = []
    for index, phase in enumerate(profile.phases):
        rows = throughput_rows(verdict, index)
        names = list(dict.fromkeys(rate.name for _, rates in rows for rate in rates))
        for kind in [*names[:0:-1], *names[:1]]:
            shown = [(place, rate) for place, rates in rows for rate in rates if rate.name == kind]
            number = price_quantity([rate for _, rate in shown])
            seconds, time = time_of([rate.per_second.value for _, rate in shown])
            cells = [
                [
                    _star(place, verdict.recommended),
                    ranged(rate.per_second.times(seconds), format_number),
                    format_free() if place.candidate.offer is None else ranged(rate.usd_each.times(number), format_usd),
                ]
                for place, rate in shown
            ]
            plural = plural_unit(kind)
            head = ["Where", f"{plural[:1].upper()}{plural[1:]} per {time}", f"Cost per {quantity_words(kind, number)}"]
            tables.append(Table(f"{plural[:1].upper()}{plural[1:]} ({phase.label})", head, cells))
    return tables


def phases_table(verdict: Verdict, profile: WorkloadProfile) -> Table | None:
    """Each phase of a script that trains and infers, or infers in several; None for any other."""
    if len(profile.phases) < 2 or verdict.unit != WHOLE_JOB or all(p.unit.trains for p in profile.phases):
        return None
    places = [place for place in places_of(verdict) if place.phases]
    rows = [
        [
            name(phase_name(phase)),
            steps_phrase(phase),
            *(format_duration(place.phases[index].seconds) for place in places),
        ]
        for index, phase in enumerate(profile.phases)
    ]
    return Table("Phases", ["Phase", "Length", *(name(offer_name(place)) for place in places)], rows, text=(1,))


def service_table(service: Service) -> Table:
    """Return this machine, if it carries the load, the best offers, and those of the types that were asked for."""
    rows = [
        [
            _star(one.prediction, service.recommended.prediction if service.recommended is not None else None),
            str(one.machines),
            format_percent(one.utilisation),
            f"{one.batch:,.0f}",
            two_lines(format_duration(one.answer_seconds), f"{format_duration(one.wait_seconds)} of it waiting"),
            two_lines(*month_words(one)) if month_words(one)[1] else month_words(one)[0],
        ]
        for one in service_plans(service)
    ]
    head = ["Where", "Machines", "In use", "Batch", "Answer, average", "A month"]
    return Table(f"For {format_frequency(service.rate_per_second, service.item)}", head, rows)


def service_tiles(service: Service) -> list[tuple[str, str, str]]:
    """Return the recommendation in figures."""
    one = service.recommended
    if one is None:
        return []
    usd, span = month_words(one)
    offer = one.prediction.candidate.offer
    place = name(offer_name(one.prediction))
    return [
        ("Recommended", name(offer.instance_type) if offer is not None else place, place),
        ("Machines", str(one.machines), f"{format_percent(one.utilisation)} of their time in use"),
        ("Cost a month", usd, f"80 %: {span}" if span else f"{HOURS_PER_MONTH} hours, disk and address included"),
        (
            "Answer",
            format_duration(one.answer_seconds),
            f"on average, {format_duration(one.wait_seconds)} of it waiting",
        ),
    ]

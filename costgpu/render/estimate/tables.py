"""The tables of an estimate, as its report and its first screen show them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date

from costgpu.estimator.scope import WHOLE_JOB
from costgpu.estimator.step import UNTIMED_HERE
from costgpu.estimator.throughput import price_quantity, quantity_words, throughputs, time_of
from costgpu.models.offer import PurchaseOption
from costgpu.models.prediction import (
    Ownership,
    Prediction,
    Provenance,
    Range,
    Service,
    ServicePlan,
    Throughput,
    Verdict,
)
from costgpu.models.workload import WorkloadProfile
from costgpu.providers import registry
from costgpu.render.estimate.own_gpu import cents, own_name
from costgpu.render.phrases import (
    TERM_PHRASES,
    THIS_MACHINE,
    counted,
    interval,
    machines_name,
    offer_name,
    own_price_notes,
    short_offer_name,
    steps_phrase,
    visible,
    with_interval,
)
from costgpu.render.report import ASKED_FOR, RECOMMENDED, Cell, Heading, Row, Table, cell_of
from costgpu.render.text.layout import cut
from costgpu.render.text.offers import day_span, image_notes, price_age_days
from costgpu.units import (
    format_bare_usd,
    format_duration,
    format_free,
    format_number,
    format_percent,
    format_usd,
    plural_unit,
)

OWN_PRICES = 2  # of the user's own, told below a table
LONGEST_ITEM = 28  # columns of the name of what is made
LEAST_SECONDS = 0.5e-6  # of a part that is shown: less would be 0 µs
PROVENANCE_PHRASES = {
    Provenance.MEASURED: "measured",
    Provenance.BENCHMARKED: "from measured speed-ups of such work",
    Provenance.MODELLED: "modelled",
}


def candidates_table(verdict: Verdict, rows: Sequence[Prediction], today: date, own: Ownership | None = None) -> Table:
    """Return the time and cost of this machine, offers and one's own GPU; the steps, where a clock ends the job."""
    clocked = any(p.time_limit is not None and p.time_limit.reached for p in rows)
    mine = own.prediction if own is not None else None
    numbers = {id(one): f"{number}. " for number, one in enumerate(verdict.table, 1)}
    cells: list[Row] = []
    for one in [*rows, *([mine] if mine is not None else [])]:
        offer, wall, price = one.candidate.offer, one.wall_seconds, Cell("–")
        if one is mine:
            where = Cell(f"{own_name(one)} (electricity)", long=own_name(one))
            price = Cell("electricity")
        elif offer is None:
            where = Cell(f"{THIS_MACHINE}{' (does not fit)' * bool(one.infeasible)}")
        else:
            own_image, own_price = registry.needs_own_image(offer), offer.own_price is not None
            measured = " (measured)" if one.provenance is Provenance.MEASURED else ""
            spot = ", spot" if offer.purchase_option is PurchaseOption.SPOT else ""
            where = Cell(
                f"{short_offer_name(one, f'/{offer.region}')}{'=' * own_price}{'^' * own_image}{measured}",
                long=f"{numbers.get(id(one), '')}{machines_name(offer, one.candidate.nodes, '×')}",
                below=f"{visible(offer.provider)} {visible(offer.region)}{spot}"
                f"{' (needs your image)' * own_image}{' (own price)' * own_price}",
            )
            age = counted(price_age_days(offer, today), "day")
            price = Cell(f"{format_usd(offer.price_usd_per_hour)}/h", below=f"{age} old")
        mark = mark_of(one, verdict.recommended, verdict.asked)
        time = Cell(format_duration(wall.value), interval(format_duration(wall.low), format_duration(wall.high)))
        cost = Cell(format_free()) if offer is None and one is not mine else _amount_cell(one.cost_usd, cents)
        made = [with_interval(one.time_limit.steps, format_number) if one.time_limit else ""] if clocked else []
        source = PROVENANCE_PHRASES[one.provenance]
        cells.append([replace(where, mark=mark), time, cost, *made, price, source])
    head = [
        Heading("", long="where"),
        Heading("time", 9),
        Heading("cost", 8) if clocked else Heading("cost", 8, "80 %", 15),
        *([Heading("steps", 15)] if clocked else []),
        Heading("price"),
        Heading("step time is", words=True),
    ]
    return Table("The fastest first", head, cells, legend=_legend(rows, today, cells))


def mark_of(one: Prediction, recommended: Prediction | None, asked: Sequence[Prediction] = ()) -> str:
    """Return the marks of a place in a table, the one that matters more first."""
    return RECOMMENDED * (one is recommended) + ASKED_FOR * any(one is each for each in asked)


def _amount_cell(usd: Range, name: Callable[[float], str] = format_usd) -> Cell:
    """``$0.13`` and ``$0.11-0.15``."""
    return Cell(name(usd.value), f"{format_usd(usd.low)}-{format_bare_usd(usd.high)}")


def _legend(rows: Sequence[Prediction], today: date, cells: Sequence[Row]) -> list[str]:
    """Return how old the prices of a table are, if it has offers, and what the marks of a terminal mean."""
    offers = [p.candidate.offer for p in rows if p.candidate.offer is not None]
    if not offers:
        return []
    listed = [offer for offer in offers if offer.own_price is None]
    ages = sorted({price_age_days(offer, today) for offer in listed})
    age = f"{ages[0]}-{ages[-1]}" if len(ages) > 1 else f"{ages[0]}" if ages else ""
    prices = f"Prices of {day_span([offer.price_as_of for offer in listed])}: {age} days old. " if listed else ""
    notes = own_price_notes(offers)
    own = [f"= {note}" for note in notes[:OWN_PRICES]]
    own += [f"= and {len(notes) - OWN_PRICES} more: costgpu prices list"] * (len(notes) > OWN_PRICES)
    return [
        f"{prices}{RECOMMENDED} is the recommendation.",
        *own,
        *([f"{ASKED_FOR} was asked for with -t."] if any(cell_of(row[0]).mark == ASKED_FOR for row in cells) else []),
        *image_notes(offers),
    ]


def places_of(verdict: Verdict) -> list[tuple[str, Prediction]]:
    """Return this machine, the best CPU offer and the best GPU offer, as far as there are any, with their titles."""
    titles = (("here", verdict.here), ("best CPU", verdict.best_cpu), ("best GPU", verdict.best_gpu))
    return [(title, place) for title, place in titles if place is not None]


def throughput_tables(verdict: Verdict, profile: WorkloadProfile, *, last: bool = False) -> list[Table]:
    """Return a table for each kind of thing that the phases make: tokens out and in, then items; none for training.

    Args:
        last: Whether to leave out all phases but the last that makes any.
    """
    found = [(phase, throughput_rows(verdict, index)) for index, phase in enumerate(profile.phases)]
    found = [(phase, rows) for phase, rows in found if rows][-1 if last else 0 :]
    tables = []
    for phase, rows in found:
        where = f" ({phase.label})" if len(found) > 1 else ""
        names = list(dict.fromkeys(rate.name for _, rates in rows for rate in rates))
        for name in [*names[:0:-1], *names[:1]]:
            shown = [(place, rate) for place, rates in rows for rate in rates if rate.name == name]
            number = price_quantity([rate for _, rate in shown])
            seconds, time = time_of([rate.per_second.value for _, rate in shown])
            cells: list[Row] = []
            for place, rate in shown:
                made, free = rate.per_second.times(seconds), place.candidate.offer is None
                cells.append(
                    [
                        Cell(short_offer_name(place), long=offer_name(place), mark=mark_of(place, verdict.recommended)),
                        Cell(format_number(made.value), f"{format_number(made.low)}-{format_number(made.high)}"),
                        Cell(format_free()) if free else _amount_cell(rate.usd_each.times(number)),
                    ]
                )
            plural, each = plural_unit(name), "per 1M" if number >= 1e6 else f"per {number:,.0f}"
            head = [
                Heading(f"{cut(plural, LONGEST_ITEM)}{where}", long="where"),
                Heading(f"per {time}", 7, "80 %", 13, f"{plural} per {time}"),
                Heading(each, 9, "80 %", 17, f"cost per {quantity_words(name, number)}"),
            ]
            tables.append(Table(f"{plural}{where}", head, cells))
    return tables


def throughput_rows(verdict: Verdict, index: int) -> list[tuple[Prediction, tuple[Throughput, ...]]]:
    """Return each place with what it makes of the phase with this index."""
    found = [(p, throughputs(p, p.phases[index])) for _, p in places_of(verdict) if len(p.phases) > index]
    return [(place, rates) for place, rates in found if rates]


def phases_table(verdict: Verdict, profile: WorkloadProfile) -> Table | None:
    """Return the time of each phase of a script that trains and infers, or infers in several; None for any other."""
    places = [(title, place) for title, place in places_of(verdict) if place.phases]
    kinds = ["training" if phase.unit.trains else "inference" for phase in profile.phases]
    if len(kinds) < 2 or verdict.unit != WHOLE_JOB or "inference" not in kinds:
        return None
    rows: list[Row] = [
        [
            Cell(f"{kind} ({phase.label}), {steps_phrase(phase)}"),
            *(format_duration(place.phases[index].seconds) for _, place in places),
        ]
        for index, (kind, phase) in enumerate(zip(kinds, profile.phases, strict=True))
    ]
    return Table(
        "", [Heading("", long="phase"), *(Heading(title, 11, long=offer_name(p)) for title, p in places)], rows
    )


def service_plans(service: Service) -> list[ServicePlan]:
    """Return this machine, if it carries the load, the best offers, and those of the types that were asked for."""
    plans = [one for one in (service.here, service.best_cpu, service.best_gpu) if one is not None]
    return [*plans, *(one for one in service.asked if one not in plans)]


def month_cell(one: ServicePlan) -> Cell:
    """Return the cost a month, with its interval where the number of machines is not certain."""
    usd = one.usd_per_month
    if one.prediction.candidate.offer is None:
        return Cell(format_free())
    return Cell(format_usd(usd.value)) if usd.low == usd.high else _amount_cell(usd)


def service_table(service: Service, today: date) -> Table | None:
    """Return the machines for the load, how busy they are, how long an answer takes, and what they cost a month.

    None where no machine carries it.
    """
    plans, chosen = service_plans(service), service.recommended
    if not plans:
        return None
    batches = any(one.batch > 1 for one in plans)
    rows: list[Row] = []
    for one in plans:
        place = one.prediction
        mark = RECOMMENDED * (one is chosen) + ASKED_FOR * (one in service.asked)
        batch = [f"{one.batch:,.0f}"] if batches else []
        answer = Cell(format_duration(one.answer_seconds), below=f"{format_duration(one.wait_seconds)} of it waiting")
        rows.append(
            [
                Cell(short_offer_name(place), long=offer_name(place), mark=mark),
                str(one.machines),
                format_percent(one.utilisation),
                *batch,
                answer,
                month_cell(one),
            ]
        )
    head = [
        Heading("", long="where"),
        Heading("machines", 8),
        Heading("used", 5),
        *([Heading("batch", 5)] if batches else []),
        Heading("answer", 7, long="answer, average"),
        Heading("a month", 9, "80 %", 17),
    ]
    return Table("", head, rows, legend=_legend([one.prediction for one in plans], today, rows))


def sources_table(verdict: Verdict, today: date, own: Ownership | None) -> Table:
    """Return what the time and price of this machine, the best offers and one's own GPU are made of."""
    rows: list[Row] = []
    for title, prediction in shown_places(verdict, own):
        rows.append([title if prediction is not None else f"{title}: no offer is possible"])
        if prediction is None:
            continue
        terms = {TERM_PHRASES.get(name, visible(name)): seconds for name, seconds in prediction.terms.items()}
        rows.append([f"one step ({_step_source(prediction)})", format_duration(prediction.step_seconds), ""])
        rows += _shares(terms)
        rows.append(["the run", format_duration(prediction.run_seconds.value), ""])
        rows += _shares(prediction.parts)
        if prediction.overhead_seconds > 0:
            boot = format_duration(prediction.overhead_seconds)
            rows.append(["boot and installation (published figures)", boot, ""])
        if (offer := prediction.candidate.offer) is not None:
            age = f"{offer.price_as_of} ({price_age_days(offer, today)} days old)"
            price = f"{format_usd(offer.price_usd_per_hour)}/h"
            rows.append([f"price: {visible(offer.price_source)}, {age}", price, ""])
    head = [Heading("", long="what"), Heading("", 9, long="value"), Heading("", 5, long="of it")]
    return Table("", head, rows, folded="Numbers")


def shown_places(verdict: Verdict, own: Ownership | None) -> list[tuple[str, Prediction | None]]:
    """Return the places whose figures are explained, with their titles."""
    shown: list[tuple[str, Prediction | None]] = [("This machine", verdict.here)]
    for title, best in (("Best CPU offer", verdict.best_cpu), ("Best GPU offer", verdict.best_gpu)):
        shown.append((f"{title}: {offer_name(best)}" if best is not None else title, best))
    if own is not None:
        shown.append((own_name(own.prediction).replace("your ", "Your ", 1), own.prediction))
    return shown


def _shares(parts: Mapping[str, float]) -> list[Row]:
    """Return a row for each part of a time, with its share."""
    whole = sum(parts.values()) or 1.0
    return [
        [f"  {name}", format_duration(seconds), f"{seconds / whole:.0%}"]
        for name, seconds in parts.items()
        if seconds >= LEAST_SECONDS
    ]


def _step_source(prediction: Prediction) -> str:
    if prediction.provenance is Provenance.MEASURED:
        return "measured there" if prediction.candidate.offer else "measured here"
    if prediction.provenance is Provenance.BENCHMARKED:
        return "table of measured speed-ups"
    if prediction.candidate.is_gpu:
        return "model fitted on public measurements"
    return "modelled from its ops" if UNTIMED_HERE in prediction.notes else "scaled from the measurement here"

"""A verdict as one HTML page; its prose is in the template ``verdict.html``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime

from markupsafe import Markup

from costgpu.estimator.spot import interruption_sentences
from costgpu.models.prediction import Ownership, Prediction, Provenance, Service, Verdict
from costgpu.models.workload import Phase, WorkloadProfile
from costgpu.providers import registry
from costgpu.render.html.charts import STACK_HEIGHT, Point, Stack, cost_and_time, shares
from costgpu.render.html.inference import phases_table, service_table, service_tiles, throughput_tables
from costgpu.render.html.page import PageSection, Table, day, name, ranged, render, responsive, share, two_lines
from costgpu.render.phrases import (
    TERM_PHRASES,
    THIS_MACHINE,
    accelerator_name,
    counted,
    extra_phrase,
    model_phrase,
    notes_of,
    offer_name,
    steps_phrase,
    visible,
    waiting_phrase,
)
from costgpu.render.text.buy_vs_rent import cents, energies, own_basis, own_sentences
from costgpu.render.text.inference import fixed_words
from costgpu.render.text.offers import price_age_days
from costgpu.render.text.several_gpus import scaling_sentences
from costgpu.units import format_duration, format_free, format_ratio, format_usd, plural_unit
from costgpu.version import __version__

LEAST_SHARE = 0.005  # of a step, to be in the legend
LEAST_USD = 1e-9  # a cost on a logarithmic axis
LEAST_STEPS = 5  # for tenths of them to mean anything
DRAWN_TERMS = (
    "compute",
    "on-chip",
    "memory",
    "depthwise",
    "launch",
    "calls",
    "host",
    "copy",
    "loading",
    "communication",
    "stragglers",
)  # with a colour each
PROVENANCE_PHRASES = {
    Provenance.MEASURED: "measured",
    Provenance.BENCHMARKED: "from measured speed-ups of such work",
    Provenance.MODELLED: "modelled",
}
LEGEND = (
    ("gpu round", "GPU"),
    ("cpu", "CPU"),
    ("ring", "recommended"),
    ("stroke", "80 % interval: slower costs more"),
    ("front", "no other is cheaper and faster"),
    ("dots", THIS_MACHINE),
)


def verdict_html(
    verdict: Verdict,
    profile: WorkloadProfile,
    advice: Sequence[str],
    today: date,
    *,
    own: Ownership | None = None,
    notebooks: Sequence[str] = (),
    energy: Sequence[float] | None = None,
    service: Service | None = None,
) -> str:
    """Return the page.

    Args:
        advice: What would make the job cheaper, best first, a sentence each.
        today: The day from which the age of prices is counted.
        own: The script on the user's own GPU.
        notebooks: Sentences about free notebook services that the job fits.
        energy: kWh of this machine and of each row of the verdict's table; None to leave that column out.
        service: The script as a service at a steady rate, where that was asked for.
    """
    possible = own if own is not None and not own.prediction.infeasible else None
    on_spot = interruption_sentences(verdict.interruptible) if service is None else []
    doubts = [f"Doubts: {'; '.join(doubt.words for doubt in verdict.doubts)}."] if verdict.doubts else []
    return render(
        "verdict.html",
        verdict=verdict,
        profile=profile,
        drawn_terms=DRAWN_TERMS,
        command=" ".join([profile.script, *profile.arguments]),
        measured_on=_day(profile.created),
        tiles=_tiles(verdict) if service is None else service_tiles(service),
        service=None if service is None else service_table(service),
        throughputs=throughput_tables(verdict, profile),
        fixed=fixed_words(verdict),
        phases=phases_table(verdict, profile),
        scatter=_scatter(verdict, possible, energy, today),
        steps=_steps(verdict, possible),
        advice=advice,
        notebooks=notebooks,
        own_sentences=own_sentences(own, verdict.unit) if own else (),
        own_basis=own_basis(own) if own else (),
        prices=_prices(verdict, today),
        notes=[*doubts, *scaling_sentences(verdict.recommended), *on_spot, *notes_of(verdict, profile)],
        today=today,
        version=__version__,
        steps_phrase=steps_phrase,
        phase_facts=_phase_facts,
        plural_unit=plural_unit,
        extra_phrase=extra_phrase,
    )


def _day(created: str) -> str:
    try:
        return day(datetime.fromisoformat(created).date())
    except ValueError:
        return created


def _tiles(verdict: Verdict) -> list[tuple[str, str, str]]:
    tiles: list[tuple[str, str, str]] = []
    if verdict.recommended is not None:
        offer = verdict.recommended.candidate.offer
        wall, cost = verdict.recommended.wall_seconds, verdict.recommended.cost_usd
        time_note = f"80 %: {format_duration(wall.low)} – {format_duration(wall.high)}"
        time = ("Time", format_duration(wall.value), time_note)
        if offer is None:
            tiles += [("Recommended", THIS_MACHINE, "no rent"), time]
            tiles.append(("Cost", format_free(), Markup("of {}").format(name(verdict.unit))))
        else:
            place = Markup("{}, {}").format(name(offer.provider), name(offer.region))
            if offer.accelerator:
                count = verdict.recommended.candidate.nodes * offer.accelerator.count
                place += Markup(", {:g}× {}").format(count, name(offer.accelerator.name))
            cost_note = f"80 %: {format_usd(cost.low)} – {format_usd(cost.high)}"
            nodes = verdict.recommended.candidate.nodes
            machine = (
                name(offer.instance_type) if nodes == 1 else Markup("{}× {}").format(nodes, name(offer.instance_type))
            )
            tiles += [("Recommended", machine, place), time]
            tiles.append(("Cost", format_usd(cost.value), cost_note))
        if (scaling := verdict.recommended.scaling) is not None:
            note = f"of {scaling.gpus} single GPUs, under {scaling.scheme.phrase}"
            tiles.append(("Efficiency", share(scaling.efficiency), note))
    speedup = verdict.speedup_range
    if speedup is not None and verdict.premium is not None and verdict.break_even is not None:
        even = "never" if math.isinf(verdict.break_even) else f"from {format_ratio(verdict.break_even)}"
        span = f"80 %: {format_ratio(speedup.low)} – {format_ratio(speedup.high)}"
        note = f"{span}; for {format_ratio(verdict.premium)} the price; pays {even}"
        tiles.append(("GPU speed-up", format_ratio(speedup.value), note))
    if verdict.probability_gpu_cheaper is not None:
        tiles.append(("GPU is cheaper", _chance(verdict.probability_gpu_cheaper), "probability, by the intervals"))
    return tiles


def _chance(probability: float) -> str:
    """Never certain: ``> 99 %``."""
    if 0.01 <= probability <= 0.99:
        return share(probability)
    return f">{share(0.99)}" if probability > 0.5 else f"<{share(0.01)}"


def _scatter(verdict: Verdict, own: Ownership | None, energy: Sequence[float] | None, today: date) -> PageSection:
    """Draw cost against time of all candidates."""
    rows = list(verdict.table)
    points = [_point(prediction, str(number), verdict, own) for number, prediction in enumerate(rows, 1)]
    if own is not None and own.prediction.cost_usd.value > 0:
        points.append(_point(own.prediction, "own", verdict, own))
    table = _candidates(verdict, own, energy, today)
    if not points:
        return PageSection(table=table)
    description = "The table below has the numbers."
    if rows:
        cheapest = _cost_in_time(min(rows, key=lambda prediction: prediction.cost_usd.value))
        fastest = _cost_in_time(min(rows, key=lambda prediction: prediction.wall_seconds.value))
        description = f"The cheapest is {cheapest}; the fastest is {fastest}. {description}"
    here = verdict.here.wall_seconds.value
    here_title = f"{THIS_MACHINE}: {format_duration(here)}, {format_free()}"
    picture = responsive(
        lambda width, height: cost_and_time(width, height, points, here, here_title),
        "Cost against time of each candidate",
        description,
        wide=400,
        narrow=340,
    )
    mine = [("own diamond", "your GPU, electricity only")] if own else []
    return PageSection(picture=picture, legend=[*LEGEND, *mine], table=table)


def _cost_in_time(prediction: Prediction) -> str:
    cost, time = format_usd(prediction.cost_usd.value), format_duration(prediction.wall_seconds.value)
    return f"{offer_name(prediction)} at {cost} in {time}"


def _name(prediction: Prediction, own: Ownership | None) -> str:
    """Return where, as plain text."""
    if own is not None and prediction is own.prediction:
        spec = prediction.candidate.accelerator
        return f"your {visible(spec.name)}" if spec else "your GPU"
    return offer_name(prediction)


def _point(prediction: Prediction, label: str, verdict: Verdict, own: Ownership | None) -> Point:
    mine = own is not None and prediction is own.prediction
    wall, cost = prediction.wall_seconds, prediction.cost_usd
    where = _name(prediction, own)
    return Point(
        label=label,
        style="own" if mine else "gpu" if prediction.candidate.is_gpu else "cpu",
        title=f"{label}. {where}: {format_duration(wall.value)}, {cents(cost.value)}",
        seconds=(wall.value, wall.low, wall.high),
        usd=(max(cost.value, LEAST_USD), max(cost.low, LEAST_USD), max(cost.high, LEAST_USD)),
        chosen=prediction is verdict.recommended,
        front=not mine,
    )


def _candidates(verdict: Verdict, own: Ownership | None, energy: Sequence[float] | None, today: date) -> Table:
    """Return this machine, the offers, and one's own GPU."""
    rows: list[list[str]] = []
    for number, prediction in enumerate((verdict.here, *verdict.table)):
        offer = prediction.candidate.offer
        price = "–"
        if offer is not None:
            age = counted(price_age_days(offer, today), "day")
            price = two_lines(f"{format_usd(offer.price_usd_per_hour)}/h", f"{age} old")
        star = " ★" if prediction is verdict.recommended else ""
        star += " (asked for)" if any(prediction is one for one in verdict.asked) else ""
        star += " (needs your image)" if offer is not None and registry.needs_own_image(offer) else ""
        where = Markup("{}{}{}").format(f"{number}. " if number else "", _place(prediction), star)
        rows.append([where, *_times(prediction), price, PROVENANCE_PHRASES[prediction.provenance]])
    if own is not None:
        provenance = PROVENANCE_PHRASES[own.prediction.provenance]
        rows.append([_name(own.prediction, own), *_times(own.prediction, own=True), "electricity", provenance])
    head = ["Where", "Time", "Cost", "Price", "Step time is"]
    if energy is not None:
        amounts = [*energy[: 1 + len(verdict.table)], *([own.energy_kwh.value] if own is not None else [])]
        rows = [[*row, words] for row, words in zip(rows, energies(amounts), strict=True)]
        head.append("Energy")
    return Table("Candidates, the fastest first", head, rows, text=(4,))


def _place(prediction: Prediction) -> str:
    offer = prediction.candidate.offer
    if offer is None:
        return THIS_MACHINE
    nodes, chips = prediction.candidate.nodes, offer.accelerator
    all_chips = replace(chips, count=nodes * chips.count) if chips is not None else None
    gpu = Markup(" ({})").format(name(accelerator_name(all_chips, "×"))) if all_chips is not None else ""
    spot = ", spot" if offer.purchase_option.value == "spot" else ""
    first = Markup("{}{}{}").format(f"{nodes}× " if nodes > 1 else "", name(offer.instance_type), gpu)
    return two_lines(first, Markup("{} {}{}").format(name(offer.provider), name(offer.region), spot))


def _times(prediction: Prediction, *, own: bool = False) -> list[str]:
    """Time and cost with their intervals."""
    free = prediction.candidate.offer is None and not own
    cost = format_free() if free else ranged(prediction.cost_usd, cents)
    return [ranged(prediction.wall_seconds, format_duration), cost]


def _steps(verdict: Verdict, own: Ownership | None) -> PageSection | None:
    """Return what a step's time goes into, of this machine and the best candidates; None if nothing is known."""
    shown = [("This machine", verdict.here)]
    for title, best in (("Best CPU offer", verdict.best_cpu), ("Best GPU offer", verdict.best_gpu)):
        shown += [(f"{title}: {offer_name(best)}", best)] if best is not None else []
    if own is not None:
        shown.append((_name(own.prediction, own).replace("your ", "Your ", 1), own.prediction))
    stacks, rows, used = [], [], set()
    for title, prediction in shown:
        terms = {key: seconds for key, seconds in prediction.terms.items() if seconds > 0}
        if not terms:
            continue
        whole = sum(terms.values())
        used |= {key for key, seconds in terms.items() if seconds >= LEAST_SHARE * whole}
        parts = [(_style(key), _term(key), seconds) for key, seconds in terms.items()]
        stacks.append(Stack(name=title, total=f"{format_duration(prediction.step_seconds)} a step", parts=parts))
        facts = [(_term(key), seconds, share(seconds / whole)) for key, seconds in terms.items()]
        facts += [
            (f"in the whole run: {key}", seconds, "–") for key, seconds in prediction.parts.items() if seconds > 0
        ]
        if prediction.overhead_seconds:
            facts.append(("boot and installation (published figures)", prediction.overhead_seconds, "–"))
        rows += [
            [name(title) if index == 0 else "", name(what), format_duration(seconds), part]
            for index, (what, seconds, part) in enumerate(facts)
        ]
    if not stacks:
        return None
    totals = "; ".join(f"{stack.name}: {stack.total}" for stack in stacks)
    height = len(stacks) * STACK_HEIGHT - 4
    picture = responsive(
        lambda width, _: shares(width, stacks),
        "What a step's time goes into",
        f"{totals}. The table below has the numbers.",
        wide=height,
        narrow=height,
    )
    legend = [(_style(key), _term(key)) for key in [*TERM_PHRASES, *sorted(used - TERM_PHRASES.keys())] if key in used]
    head = ["Where", "What", "Time", "Of a step"]
    table = Table("A step by cause, and the run by part", head, rows, text=(1,))
    return PageSection(picture=picture, legend=legend, table=table)


def _term(key: str) -> str:
    return TERM_PHRASES.get(key, visible(key))


def _style(key: str) -> str:
    return key if key in DRAWN_TERMS else "other"


def _phase_facts(phase: Phase) -> str:
    """Return what was measured of a step."""
    step, unit = phase.step, phase.unit.name or "step"
    took = f"{format_duration(step.median_seconds)} a {unit} here (median of {step.count:,})"
    if step.count >= LEAST_STEPS:
        took += f", eight of ten between {format_duration(step.low_seconds)} and {format_duration(step.high_seconds)}"
    return "; ".join(filter(None, (took, waiting_phrase(phase), model_phrase(phase))))


def _prices(verdict: Verdict, today: date) -> PageSection:
    """Return how old the prices are, and the source of each number."""
    shown = (("This machine", verdict.here), ("Best CPU offer", verdict.best_cpu), ("Best GPU offer", verdict.best_gpu))
    rows: list[list[str]] = []
    for title, prediction in shown:
        if prediction is None:
            rows.append([title, "–", "no offer is possible", "–"])
            continue
        step = format_duration(prediction.step_seconds)
        rows.append([title, "a\N{NO-BREAK SPACE}step", _step_source(prediction), step])
        offer = prediction.candidate.offer
        if offer is None:
            continue
        when = f", {day(offer.price_as_of)}: {price_age_days(offer, today)} days old"
        source = Markup("{}{}").format(name(offer.price_source), when)
        rows.append(["", "price", source, f"{format_usd(offer.price_usd_per_hour)}/h"])
        if prediction.overhead_seconds:
            rows.append(["", "boot", "published figures", format_duration(prediction.overhead_seconds)])
    table = Table("Sources", ["Where", "What", "Source", "Value"], rows, text=(1, 2))
    offers = [prediction.candidate.offer for prediction in verdict.table if prediction.candidate.offer is not None]
    if not offers:
        return PageSection(table=table)
    oldest, newest = min(offer.price_as_of for offer in offers), max(offer.price_as_of for offer in offers)
    span = day(oldest) if oldest == newest else f"{day(oldest)} to {day(newest)}"
    age = max(price_age_days(offer, today) for offer in offers)
    return PageSection(description=f"Prices of {span}: up to {age} days old.", table=table)


def _step_source(prediction: Prediction) -> str:
    if prediction.provenance is Provenance.MEASURED:
        return "measured there" if prediction.candidate.offer else "measured here"
    if prediction.provenance is Provenance.BENCHMARKED:
        return "table of measured speed-ups"
    if prediction.candidate.is_gpu:
        return "model fitted on public measurements"
    return "scaled from the measurement here by published CPU figures"

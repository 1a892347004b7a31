"""A verdict as one HTML page that needs nothing else: no script, no font, no request. Result -> str; no I/O.

Every text that comes from a script, a user or a provider goes through `pieces.text` or `said`.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from html import escape
from importlib.resources import files

from costgpu.models.prediction import Ownership, Prediction, Provenance, Verdict
from costgpu.models.workload import WorkloadProfile
from costgpu.render.estimate_phrases import TERM_PHRASES
from costgpu.render.html import elements
from costgpu.render.html.ledger_page import CSP
from costgpu.render.html.verdict_figures import Point, Stack, cost_and_time, shares
from costgpu.render.html.verdict_length import length_html, said, span
from costgpu.render.phrases import offer_name
from costgpu.render.text.buy_vs_rent import cents, energies, own_basis, own_sentences
from costgpu.units import format_duration, format_ratio, format_usd

LEAST_SHARE = 0.005  # of a step, to be in the legend
LEAST_USD = 1e-9  # a cost on a logarithmic axis
NAMED = "Recommended"
TERM_STYLES = frozenset({"compute", "on-chip", "memory", "launch", "calls", "host", "copy", "loading"})
PROVENANCE_WORDS = {
    Provenance.MEASURED: "measured",
    Provenance.BENCHMARKED: "from measured speed-ups of such work",
    Provenance.MODELLED: "modelled",
}


def verdict_html(
    verdict: Verdict,
    profile: WorkloadProfile,
    advice: Sequence[str],
    today: date,
    *,
    own: Ownership | None = None,
    notebooks: Sequence[str] = (),
    energy: Sequence[float] | None = None,
    version: str = "",
) -> str:
    """The page.

    Args:
        verdict: The answer.
        profile: The workload.
        advice: What would make the job cheaper, best first, a sentence each.
        today: From which the age of prices is counted.
        own: The script on the user's own GPU.
        notebooks: Sentences about free notebook services that the job fits.
        energy: kWh of this machine and of each row of the verdict's table; None to leave that column out.
        version: Of costgpu; else the one that measured.
    """
    style = "".join(
        files("costgpu.render.html").joinpath(name).read_text(encoding="utf-8")
        for name in ("ledger_page.css", "verdict_page.css")
    )
    parts = [
        _header(verdict, profile),
        _tiles(verdict),
        _scatter(verdict, own, energy, today),
        _steps(verdict, own),
        _advice(advice, notebooks),
        _own(own, verdict.unit),
        length_html(profile),
        _prices(verdict, today),
        _notes(verdict, profile),
        _footer(profile, today, version),
    ]
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{CSP}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>Where to run {escape(elements.plain(profile.script))}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _header(verdict: Verdict, profile: WorkloadProfile) -> str:
    command = " ".join([profile.script, *profile.arguments])
    machine = profile.machine
    where = f"Measured {_when(profile.created)} on {machine.cores} cores of {elements.text(machine.cpu_model)}"
    return (
        f"<header><h1>Where to run {elements.text(profile.script)}</h1>"
        f"<p class='soft'><code>{elements.text(command, 300)}</code>. {where}.</p>"
        f"<p class='answer'>{said(verdict.sentence)}</p></header>"
    )


def _when(created: str) -> str:
    try:
        at = datetime.fromisoformat(created)
    except ValueError:
        return said(created)
    return f"{elements.day(at.date())}"


def _usd_span(low: float, high: float) -> str:
    return f"{format_usd(low)} – {format_usd(high)}"


def _tiles(verdict: Verdict) -> str:
    tiles: list[tuple[str, str, str]] = []
    chosen = verdict.recommended
    if chosen is not None:
        offer = chosen.candidate.offer
        name = elements.text(offer.instance_type) if offer else "this machine"
        place = f"{elements.text(offer.provider)}, {elements.text(offer.region)}" if offer else "no rent"
        gpu = (
            f", {offer.accelerator.count:g}× {elements.text(offer.accelerator.name)}"
            if offer and offer.accelerator
            else ""
        )
        wall, cost = chosen.wall_seconds, chosen.cost_usd
        tiles += [
            (NAMED, name, place + gpu),
            ("Time", format_duration(wall.value), f"80 %: {span(wall.low, wall.high)}"),
            (
                "Cost",
                format_usd(cost.value) if offer else "$0",
                f"80 %: {_usd_span(cost.low, cost.high)}" if offer else f"of {elements.text(verdict.unit)}",
            ),
        ]
    if verdict.speedup is not None and verdict.premium is not None and verdict.break_even is not None:
        even = "never" if math.isinf(verdict.break_even) else f"from {format_ratio(verdict.break_even)}"
        tiles.append(
            (
                "GPU speed-up",
                format_ratio(verdict.speedup),
                f"for {format_ratio(verdict.premium)} the price; pays {even}",
            )
        )
    if verdict.probability_gpu_cheaper is not None:
        tiles.append(("GPU is cheaper", _chance(verdict.probability_gpu_cheaper), "probability, by the intervals"))
    cells = "".join(
        f'<div class="tile{" name" if n == NAMED else ""}"><dt>{n}</dt><dd>{v}</dd><dd>{d}</dd></div>'
        for n, v, d in tiles
    )
    return f'<dl class="tiles">{cells}</dl>' if cells else ""


def _chance(probability: float) -> str:
    """Never certain: ``> 99 %``."""
    if 0.01 <= probability <= 0.99:
        return elements.share(probability)
    return f"{'&gt;' if probability > 0.5 else '&lt;'}{elements.share(0.99 if probability > 0.5 else 0.01)}"


def _name(prediction: Prediction, own: Ownership | None = None) -> str:
    """Where, as plain text."""
    if own is not None and prediction is own.prediction:
        spec = prediction.candidate.accelerator
        return f"your {elements.plain(spec.name)}" if spec else "your GPU"
    return offer_name(prediction)


def _spot(prediction: Prediction, label: str, verdict: Verdict, own: Ownership | None) -> Point:
    mine = own is not None and prediction is own.prediction
    wall, cost = prediction.wall_seconds, prediction.cost_usd
    usd = tuple(max(value, LEAST_USD) for value in (cost.value, cost.low, cost.high))
    return Point(
        label=label,
        style="own" if mine else "gpu" if prediction.candidate.is_gpu else "cpu",
        title=f"{label}. {_name(prediction, own)}: {format_duration(wall.value)}, {cents(cost.value)}",
        seconds=(wall.value, wall.low, wall.high),
        usd=(usd[0], usd[1], usd[2]),
        chosen=prediction is verdict.recommended,
        front=not mine,
    )


def _scatter(verdict: Verdict, own: Ownership | None, energy: Sequence[float] | None, today: date) -> str:
    rows = list(verdict.table)
    spots = [_spot(p, str(i), verdict, own) for i, p in enumerate(rows, 1)]
    possible = own is not None and not own.prediction.infeasible
    if own is not None and possible and own.prediction.cost_usd.value > 0:
        spots.append(_spot(own.prediction, "own", verdict, own))
    here = verdict.here
    table = _candidates(verdict, own if possible else None, energy, today)
    title = "Cost against time"
    per = f"For {elements.text(verdict.unit)}"
    if not spots:
        return elements.section(title, f"{per}: no offer is possible within the limits.", table)
    cheapest = min(rows, key=lambda p: p.cost_usd.value) if rows else None
    fastest = min(rows, key=lambda p: p.wall_seconds.value) if rows else None
    text = "The table below has the numbers."
    if cheapest is not None and fastest is not None:
        text = (
            f"The cheapest is {_name(cheapest)} at {format_usd(cheapest.cost_usd.value)} in"
            f" {format_duration(cheapest.wall_seconds.value)}; the fastest is {_name(fastest)} at"
            f" {format_usd(fastest.cost_usd.value)} in {format_duration(fastest.wall_seconds.value)}. {text}"
        )
    time = format_duration(here.wall_seconds.value)
    picture = elements.both(
        lambda width, height: cost_and_time(
            width,
            height,
            spots,
            here.wall_seconds.value,
            f"this machine: {time}, $0",
            name="Cost against time of each candidate",
            text=text,
        ),
        wide=400,
        narrow=340,
    )
    keys = [
        ("gpu round", "GPU"),
        ("cpu", "CPU"),
        ("ring", "recommended"),
        ("stroke", "80 % interval: slower costs more"),
        ("front", "no other is cheaper and faster"),
        ("dots", "this machine"),
    ]
    keys += [("own diamond", "your GPU, electricity only")] if possible else []
    boot = ", boot included" if verdict.unit == "the whole job" else ""
    return elements.section(
        title,
        f"{per}{boot}. Down and left is better. Both scales are logarithmic. The numbers are those of the table.",
        f"<figure>{picture}{elements.legend(keys)}</figure>{table}",
    )


def _candidates(verdict: Verdict, own: Ownership | None, energy: Sequence[float] | None, today: date) -> str:
    rows = []
    listed: list[tuple[str, Prediction]] = [
        ("", verdict.here),
        *((f"{i}. ", p) for i, p in enumerate(verdict.table, 1)),
    ]
    for number, prediction in listed:
        offer = prediction.candidate.offer
        star = " ★" if prediction is verdict.recommended else ""
        price = "–"
        if offer is not None:
            age = max(0, (today - offer.price_as_of).days)
            price = _two(f"{format_usd(offer.price_usd_per_hour)}/h", f"{elements.count(age, 'day')} old")
        provenance = escape(PROVENANCE_WORDS[prediction.provenance])
        rows.append([f"{number}{_place(prediction)}{star}", *_times(prediction), price, provenance])
    if own is not None:
        provenance = escape(PROVENANCE_WORDS[own.prediction.provenance])
        rows.append([escape(_name(own.prediction, own)), *_times(own.prediction, cost=True), "electricity", provenance])
    head = ["Where", "Time", "Cost", "Price", "Step time is"]
    if energy is not None:
        amounts = [*energy[: len(listed)], *([own.energy_kwh.value] if own is not None else [])]
        for row, words in zip(rows, energies(amounts), strict=True):
            row.append(words)
        head.append("Energy")
    said_ = "★ is the recommendation; below each figure is its 80 % interval. Cost: price × time, disk and address included."
    return f"<p class='soft'>{said_}</p>{elements.table(head, rows, 'Candidates, the fastest first', text=(4,))}"


def _two(first: str, second: str) -> str:
    """Two lines of a cell."""
    return f"{first}<br><span class='soft'>{second}</span>"


def _place(prediction: Prediction) -> str:
    offer = prediction.candidate.offer
    if offer is None:
        return "this machine"
    times = "" if offer.accelerator is None or offer.accelerator.count == 1 else f"{offer.accelerator.count:g}× "
    gpu = f" ({times}{elements.text(offer.accelerator.name)})" if offer.accelerator is not None else ""
    spot = ", spot" if offer.purchase_option.value == "spot" else ""
    return _two(
        f"{elements.text(offer.instance_type)}{gpu}",
        f"{elements.text(offer.provider)} {elements.text(offer.region)}{spot}",
    )


def _times(prediction: Prediction, *, cost: bool = False) -> list[str]:
    wall, usd = prediction.wall_seconds, prediction.cost_usd
    time = _two(format_duration(wall.value), _between(format_duration(wall.low), format_duration(wall.high)))
    if prediction.candidate.offer is None and not cost:
        return [time, "$0"]
    return [time, _two(cents(usd.value), _between(cents(usd.low), cents(usd.high)))]


def _between(low: str, high: str) -> str:
    """An interval that breaks only behind its dash."""
    one, two = (word.replace(" ", "\N{NO-BREAK SPACE}") for word in (low, high))
    return f"{one}\N{NO-BREAK SPACE}– {two}"


def _steps(verdict: Verdict, own: Ownership | None) -> str:
    shown = [("This machine", verdict.here), ("Best CPU offer", verdict.best_cpu), ("Best GPU offer", verdict.best_gpu)]
    if own is not None and not own.prediction.infeasible:
        shown.append(("", own.prediction))
    stacks, rows, used = [], [], set()
    for title, prediction in shown:
        if prediction is None:
            continue
        terms = {k: v for k, v in prediction.terms.items() if v > 0}
        if not terms:
            continue
        name = title if prediction is verdict.here else f"{title}: {_name(prediction, own)}"
        name = name.removeprefix(": ").replace("your ", "Your ", 1) if not title else name
        total = f"{format_duration(prediction.step_seconds)} a step"
        stacks.append(
            Stack(name=elements.plain(name), total=total, parts=[(_style(k), _term(k), v) for k, v in terms.items()])
        )
        whole = sum(terms.values())
        used |= {k for k, v in terms.items() if v >= LEAST_SHARE * whole}
        rows += [
            [elements.text(name) if i == 0 else "", escape(_term(k)), format_duration(v), elements.share(v / whole)]
            for i, (k, v) in enumerate(terms.items())
        ]
        rows += [
            ["", f"in the whole run: {elements.text(k)}", format_duration(v), "–"]
            for k, v in prediction.parts.items()
            if v > 0
        ]
        if prediction.overhead_seconds:
            rows.append(
                ["", "boot and installation (published figures)", format_duration(prediction.overhead_seconds), "–"]
            )
    if not stacks:
        return ""
    said_ = "; ".join(f"{stack.name}: {stack.total}" for stack in stacks)
    picture = elements.both(
        lambda width, _: shares(
            width, stacks, name="What a step's time goes into", text=f"{said_}. The table below has the numbers."
        )
    )
    keys = [(_style(k), escape(_term(k))) for k in [*TERM_PHRASES, *sorted(used - TERM_PHRASES.keys())] if k in used]
    table = elements.table(
        ["Where", "What", "Time", "Of a step"], rows, "A step by cause, and the run by part", text=(1,)
    )
    return elements.section(
        "What a step's time goes into",
        "Each bar is one step of its machine, cut by cause; its length at the right.",
        f"<figure>{picture}{elements.legend(keys)}</figure>{elements.folded('Numbers', table)}",
    )


def _term(name: str) -> str:
    return TERM_PHRASES.get(name, elements.plain(name))


def _style(term: str) -> str:
    return term if term in TERM_STYLES else "other"


def _advice(advice: Sequence[str], notebooks: Sequence[str]) -> str:
    items = "".join(f"<li>{said(line)}</li>" for line in advice)
    body = f"<ol class='steps'>{items}</ol>" if items else "<p>Nothing was found whose saving can be computed here.</p>"
    free = "".join(f"<p>{said(line)}</p>" for line in notebooks)
    said_ = "Each saving is computed from this profile; the largest first." if items else ""
    return elements.section("What would make it cheaper", said_, body + free)


def _own(own: Ownership | None, unit: str) -> str:
    if own is None:
        return ""
    body = "".join(f"<p>{said(line)}</p>" for line in own_sentences(own, unit))
    basis = "".join(f"<li>{said(line)}</li>" for line in own_basis(own))
    return elements.section("Rent or own", "", body + (f"<ul class='steps soft'>{basis}</ul>" if basis else ""))


def _prices(verdict: Verdict, today: date) -> str:
    rows = []
    for word, prediction in (
        ("This machine", verdict.here),
        ("Best CPU offer", verdict.best_cpu),
        ("Best GPU offer", verdict.best_gpu),
    ):
        if prediction is None:
            rows.append([escape(word), "–", "no offer is possible", "–"])
            continue
        source = {
            Provenance.MEASURED: "measured there" if prediction.candidate.offer else "measured here",
            Provenance.BENCHMARKED: "table of measured speed-ups",
            Provenance.MODELLED: "four-term model fitted on public measurements"
            if prediction.candidate.is_gpu
            else "scaled from the measurement here by published CPU figures",
        }[prediction.provenance]
        rows.append([escape(word), "a\N{NO-BREAK SPACE}step", escape(source), format_duration(prediction.step_seconds)])
        offer = prediction.candidate.offer
        if offer is None:
            continue
        age = max(0, (today - offer.price_as_of).days)
        when = f"{elements.text(offer.price_source)}, {elements.day(offer.price_as_of)}: {age} days old"
        rows.append(["", "price", when, f"{format_usd(offer.price_usd_per_hour)}/h"])
        if prediction.overhead_seconds:
            rows.append(["", "boot", "published figures", format_duration(prediction.overhead_seconds)])
    table = elements.table(["Where", "What", "Source", "Value"], rows, "Sources", text=(1, 2))
    dates = [p.candidate.offer.price_as_of for p in verdict.table if p.candidate.offer is not None]
    said_ = ""
    if dates:
        oldest, newest = min(dates), max(dates)
        both = elements.day(oldest) if oldest == newest else f"{elements.day(oldest)} to {elements.day(newest)}"
        said_ = f"Prices of {both}: up to {max(0, (today - oldest).days)} days old."
    return elements.section("Prices, and where each number comes from", said_, table)


def _notes(verdict: Verdict, profile: WorkloadProfile) -> str:
    notes = [*profile.notes, *verdict.notes]
    for word, prediction in (("CPU", verdict.best_cpu), ("GPU", verdict.best_gpu)):
        notes += [f"The {word} figure: {note}." for note in (prediction.notes if prediction else ())]
    items = _items(notes)
    return elements.section("What to know", "", f"<ul class='steps'>{items}</ul>") if items else ""


def _items(lines: Iterable[str]) -> str:
    return "".join(f"<li>{said(line)}</li>" for line in dict.fromkeys(lines))


def _footer(profile: WorkloadProfile, today: date, version: str) -> str:
    made = f"Made {elements.day(today)} by costgpu {elements.text(version or profile.costgpu_version)}."
    framework = f"{elements.text(profile.framework.name)} {elements.text(profile.framework.version)}"
    promise = textwrap.dedent("""
        An 80 % interval is one in which the truth lies in eight cases of ten. Costs are what the provider's list price
        comes to, without taxes, discounts, free tiers or traffic.""").strip()
    return f"<footer><p>{made} Measured with {framework}.</p><p>{escape(promise)}</p></footer>"

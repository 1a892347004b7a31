"""Rent or own, and energy, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from costgpu.estimator.throughput import inference_phase
from costgpu.models.prediction import BreakEven, Ownership, Prediction, Range
from costgpu.render.phrases import offer_name, visible, with_article
from costgpu.render.report import Cell, Heading, ItemList, Part, ReportSection, Row, Table
from costgpu.units import format_duration, format_usd

LONGEST_BREAK_EVEN = 10_000_000  # jobs; above it the number says nothing any more
UNIT_WORDS = {"the whole job": ("job", "jobs"), "one epoch": ("epoch", "epochs"), "1,000 steps": ("1,000 steps",) * 2}


COLAB = (
    "Google Colab lends a T4 free of charge for a while, without a promise: this job should fit one of its sessions."
)


def kwh(amount: float) -> str:
    """``0.045 kWh``, ``12 kWh``, ``3.1 Wh``."""
    if amount < 0.01:
        return f"{amount * 1000:.2g} Wh"
    return f"{amount:.2g} kWh" if amount < 10 else f"{amount:,.0f} kWh"


def cents(amount: float) -> str:
    """Dollars; what is less than a millionth says so."""
    return format_usd(amount) if amount == 0 or amount >= 1e-6 else "under $0.000001"


def own_sentences(own: Ownership, unit: str) -> list[str]:
    """Return what there is to say about an own GPU, one paragraph each; `unit` is what the amounts are for."""
    prediction, spec = own.prediction, own.prediction.candidate.accelerator
    name = visible(spec.name) if spec else "the GPU"
    if prediction.infeasible:
        return [f"{name}: it cannot run this: {prediction.infeasible}."]
    one = UNIT_WORDS.get(unit, (unit, unit))[0]
    run = prediction.run_seconds
    span = f"80 %: {format_duration(run.low)} to {format_duration(run.high)}"
    takes = "take" if one[:1].isdigit() else "takes"
    price = f"{format_usd(own.power_usd_per_kwh)}/kWh ({own.power_source})"
    whole = f"{'An own' if own.price_usd is None else 'A bought'} {name} in this machine: {with_article(one)} {takes}"
    used = f"{kwh(own.energy_kwh.value)}: {cents(prediction.cost_usd.value)} of electricity at {price}"
    lines = [f"{whole} {format_duration(run.value)} ({span}) and {used}."]
    lines += [_break_even(found, own, name, unit) for found in own.break_evens]
    if own.price_usd is not None and not own.break_evens:
        lines.append("There is no cloud offer within the limits to compare its price with.")
    if own.amortised_usd is not None:
        total = prediction.cost_usd.value + own.amortised_usd
        lines.append(f"With the price spread over the hours of use: {cents(total)} {with_article(one)}.")
    return lines


def _break_even(found: BreakEven, own: Ownership, name: str, unit: str) -> str:
    rival, price = offer_name(found.against), format_usd(own.price_usd or 0).removesuffix(".00")
    amount = cents(found.against.cost_usd.value)
    kind = "the best GPU offer" if found.against.candidate.is_gpu else "the best CPU offer"
    against = f"{kind} ({rival}: {amount} in {format_duration(found.against.wall_seconds.value)})"
    if math.isinf(found.jobs.value):
        return f"Against {against} buying it never pays: its electricity alone costs as much or more."
    # short ones as a person would say them
    hours = f"{rounded(found.hours)} h" if found.hours >= 10 else format_duration(found.hours * 3600)
    says = (
        f"Against {against} the {name} for {price} has paid for itself after {jobs(found.jobs, unit)},"
        f" {hours} of {'training' if inference_phase(found.against) is None else 'work'}"
    )
    if not found.in_life:
        return f"{says}: not within the five years after which it is written off, even day and night."
    return f"{says}."


def jobs(count: Range, unit: str) -> str:
    """``about 120 jobs (80 %: 90 to 210)``: two digits, which is more than is known."""
    many = UNIT_WORDS.get(unit, (unit, unit))[1]
    many = f"times {many}" if many[:1].isdigit() else many

    def number(value: float) -> str:
        return rounded(math.ceil(value)) if value <= LONGEST_BREAK_EVEN else f"{value:.0e}"

    high = "never" if math.isinf(count.high) else number(count.high)
    word = many if math.ceil(count.value) != 1 else many.removesuffix("s")
    return f"about {number(count.value)} {word} (80 %: {number(count.low)} to {high})"


def rounded(value: float) -> str:
    """``44,000``: two digits."""
    return f"{float(f'{value:.2g}'):,.0f}"


def own_section(own: Ownership | None, unit: str) -> ReportSection:
    """Return what there is to say about an own GPU, and what it rests on; without parts where there is none."""
    if own is None:
        return ReportSection(title="")
    parts: list[Part] = [*own_sentences(own, unit)]
    spec = own.prediction.candidate.accelerator
    if spec is not None and not own.prediction.infeasible:
        price = " Not in it: what that computer costs, resale, your time." if own.price_usd is not None else ""
        watts = (
            f"{own.card_watts:.0f} of the card's {spec.tdp_watts:.0f} W on average, from how busy the model says it is"
        )
        basis = [
            f"Time: modelled for {visible(spec.model)} ({spec.memory_gib:g} GiB), hosted by this machine.",
            f"Power: {watts} (published curve), and {own.host_watts:.0f} W for the rest of the computer (assumed).{price}",
            *(f"{note[:1].upper()}{note[1:]}." for note in own.notes),
        ]
        parts.append(ItemList(basis, "soft"))
    return ReportSection(title="Rent or own", parts=parts)


def own_name(prediction: Prediction) -> str:
    """``your RTX 3090``."""
    spec = prediction.candidate.accelerator
    return f"your {visible(spec.name)}" if spec else "your GPU"


def energy_section(rows: Sequence[tuple[Prediction, float]], own: Ownership | None = None) -> ReportSection:
    """Return the energy of candidates in kWh, in the order given, and of one's own GPU; without parts for no candidate."""
    named = [(offer_name(place), amount) for place, amount in rows]
    named += [(own_name(own.prediction), own.energy_kwh.value)] if own is not None else []
    amounts = energies([amount for _, amount in named])
    cells: list[Row] = [[Cell(name), shown] for (name, _), shown in zip(named, amounts, strict=True)]
    table = Table("", [Heading("", long="where"), Heading("energy", 12)], cells)
    title = "Energy of the machine, without cooling (modelled from published figures)"
    return ReportSection(title=title, parts=[table] if rows else [])


def energies(amounts: Sequence[float]) -> list[str]:
    """Return a column of energies in one unit."""
    if max(amounts, default=0.0) < 0.1:
        return [f"{amount * 1000:.2g} Wh" for amount in amounts]
    return [f"{amount:,.0f} kWh" if amount >= 10 else f"{amount:.2g} kWh" for amount in amounts]

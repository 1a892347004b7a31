"""Rent or own, energy and free notebooks as lines for a terminal of 80 columns, and as JSON values. Result -> str."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from costgpu.models.prediction import BreakEven, FreeNotebook, Ownership, Prediction, Range
from costgpu.render.html.elements import plain
from costgpu.units import format_duration, format_usd

WIDTH = 80
LONGEST_BREAK_EVEN = 10_000_000  # jobs; above it the number says nothing any more
UNIT_WORDS = {"the whole job": ("job", "jobs"), "one epoch": ("epoch", "epochs"), "1,000 steps": ("1,000 steps",) * 2}


def wrapped(text: str, indent: str = "") -> str:
    """A paragraph of 80 columns; what follows the first line is indented as far as `indent` is long."""
    return textwrap.fill(
        text, WIDTH, initial_indent=indent, subsequent_indent=" " * len(indent), break_on_hyphens=False
    )


def cloud_name(prediction: Prediction) -> str:
    """``aws g4dn.xlarge (T4), us-east-1``."""
    offer = prediction.candidate.offer
    if offer is None:
        return "this machine"
    gpu = ""
    if offer.accelerator is not None:
        times = "" if offer.accelerator.count == 1 else f"{offer.accelerator.count:g}x "
        gpu = f" ({times}{plain(offer.accelerator.name)})"
    spot = ", spot" if offer.purchase_option.value == "spot" else ""
    return f"{plain(offer.provider)} {plain(offer.instance_type)}{gpu}, {plain(offer.region)}{spot}"


def kwh(amount: float) -> str:
    """``0.045 kWh``, ``12 kWh``, ``3.1 Wh``."""
    if amount < 0.01:
        return f"{amount * 1000:.2g} Wh"
    return f"{amount:.2g} kWh" if amount < 10 else f"{amount:,.0f} kWh"


def cents(amount: float) -> str:
    """Dollars; what is less than a millionth says so."""
    return format_usd(amount) if amount == 0 or amount >= 1e-6 else "under $0.000001"


def own_sentences(own: Ownership, unit: str) -> list[str]:
    """What there is to say about an own GPU, one paragraph each, the verdict first.

    Args:
        own: The result.
        unit: What the amounts are for, as in the verdict.
    """
    prediction, spec = own.prediction, own.prediction.candidate.accelerator
    name = plain(spec.name) if spec else "the GPU"
    if prediction.infeasible:
        return [f"{name}: it cannot run this: {prediction.infeasible}."]
    one = UNIT_WORDS.get(unit, (unit, unit))[0]
    run = prediction.run_seconds
    span = f"80 %: {format_duration(run.low)} to {format_duration(run.high)}"
    price = f"{format_usd(own.power_usd_per_kwh)}/kWh ({own.power_source})"
    whole = f"{'An own' if own.price_usd is None else 'A bought'} {name} in this machine: {one_of(one)} takes"
    used = f"{kwh(own.energy_kwh.value)}: {cents(prediction.cost_usd.value)} of electricity at {price}"
    lines = [f"{whole} {format_duration(run.value)} ({span}) and {used}."]
    lines += [_break_even(found, own, name, unit) for found in own.break_evens]
    if own.price_usd is not None and not own.break_evens:
        lines.append("There is no cloud offer within the limits to compare its price with.")
    if own.amortised_usd is not None:
        total = prediction.cost_usd.value + own.amortised_usd
        lines.append(f"With the price spread over the hours of use: {cents(total)} {one_of(one)}.")
    return lines


def one_of(word: str) -> str:
    """``a job``, ``an epoch``, ``1,000 steps``."""
    return word if word[:1].isdigit() else f"{'an' if word[:1] in 'aeiou' else 'a'} {word}"


def _break_even(found: BreakEven, own: Ownership, name: str, unit: str) -> str:
    rival, price = cloud_name(found.against), format_usd(own.price_usd or 0).removesuffix(".00")
    amount = cents(found.against.cost_usd.value)
    kind = "the best GPU offer" if found.against.candidate.is_gpu else "the best CPU offer"
    against = f"{kind} ({rival}: {amount} in {format_duration(found.against.wall_seconds.value)})"
    if math.isinf(found.jobs.value):
        return f"Against {against} buying it never pays: its electricity alone costs as much or more."
    says = (
        f"Against {against} the {name} for {price} has paid for itself after {jobs(found.jobs, unit)},"
        f" {hours(found.hours)} of training"
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


def hours(value: float) -> str:
    """``1,500 h``; short ones as a person would say them."""
    return f"{rounded(value)} h" if value >= 10 else format_duration(value * 3600)


def rounded(value: float) -> str:
    """``44,000``: two digits."""
    return f"{float(f'{value:.2g}'):,.0f}"


def own_basis(own: Ownership) -> list[str]:
    """What the figures rest on, one sentence each."""
    spec = own.prediction.candidate.accelerator
    if spec is None or own.prediction.infeasible:
        return []
    price = " Not in it: what that computer costs, resale, your time." if own.price_usd is not None else ""
    watts = f"{own.card_watts:.0f} of the card's {spec.tdp_watts:.0f} W on average, from how busy the model says it is"
    return [
        f"Time: modelled for {plain(spec.model)} ({spec.memory_gib:g} GiB), hosted by this machine.",
        f"Power: {watts} (published curve), and {own.host_watts:.0f} W for the rest of the computer (assumed).{price}",
        *(f"{note[:1].upper()}{note[1:]}." for note in own.notes),
    ]


def own_text(own: Ownership, unit: str) -> str:
    """The block below the verdict's table."""
    lines = ["Rent or own", *(wrapped(line, "  ") for line in own_sentences(own, unit))]
    return "\n".join([*lines, *(wrapped(line, "  - ") for line in own_basis(own))])


def energy_text(rows: Sequence[tuple[str, float]]) -> str:
    """The energy of each candidate.

    Args:
        rows: Name of the candidate and kWh, in the order of the verdict's table.
    """
    lines = ["Energy of the machine, without cooling (modelled from published figures)"]
    for (name, _), shown in zip(rows, energies([amount for _, amount in rows]), strict=True):
        lines.append(f"  {plain(name, 64):64} {shown:>12}")
    return "\n".join(lines)


def energies(amounts: Sequence[float]) -> list[str]:
    """A column of energies in one unit."""
    if max(amounts, default=0.0) < 0.1:
        return [f"{amount * 1000:.2g} Wh" for amount in amounts]
    return [f"{amount:,.0f} kWh" if amount >= 10 else f"{amount:.2g} kWh" for amount in amounts]


def notebook_text(notebooks: Sequence[FreeNotebook]) -> str:
    """The free services that the job would fit; empty if it fits none."""
    return "\n".join(wrapped(line, "- ") for line in notebook_lines(notebooks))


def notebook_lines(notebooks: Sequence[FreeNotebook]) -> list[str]:
    """One sentence for each free service that the job would fit."""
    return [
        f"{found.name} lends a {found.accelerator} free of charge: about {format_duration(found.run_seconds.value)} of"
        f" its {found.session_hours:g} h sessions, if you move the script there yourself. {found.limits[:1].upper()}"
        f"{found.limits[1:]} (as of {found.as_of})."
        for found in notebooks
        if not found.why_not
    ]


def own_document(own: Ownership) -> dict[str, Any]:
    """JSON-ready values; an infinite number of jobs is null."""
    spec = own.prediction.candidate.accelerator
    return {
        "accelerator": spec.name if spec else None,
        "model": spec.model if spec else None,
        "infeasible": own.prediction.infeasible or None,
        "price_usd": str(own.price_usd) if own.price_usd is not None else None,
        "power_usd_per_kwh": own.power_usd_per_kwh,
        "power_source": own.power_source,
        "step_seconds": own.prediction.step_seconds,
        "run_seconds": asdict(own.prediction.run_seconds),
        "terms_seconds": own.prediction.terms,
        "card_watts": own.card_watts,
        "host_watts": own.host_watts,
        "energy_kwh": asdict(own.energy_kwh),
        "energy_cost_usd": asdict(own.prediction.cost_usd),
        "amortised_usd": own.amortised_usd,
        "provenance": own.prediction.provenance.value,
        "break_even": [
            {
                "against": cloud_name(found.against),
                "cost_usd": found.against.cost_usd.value,
                "saving_usd": found.saving_usd,
                "jobs": {name: _finite(value) for name, value in asdict(found.jobs).items()},
                "hours": _finite(found.hours),
                "in_life": found.in_life,
            }
            for found in own.break_evens
        ],
        "notes": list(own.notes),
    }


def notebook_documents(notebooks: Sequence[FreeNotebook]) -> list[dict[str, Any]]:
    """JSON-ready values of all free services, those that the job does not fit with the reason."""
    return [
        {**asdict(found), "as_of": found.as_of.isoformat(), "why_not": found.why_not or None} for found in notebooks
    ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

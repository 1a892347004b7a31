"""A list of offers, as text and as a JSON document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

from costgpu.models.offer import Offer, PurchaseOption
from costgpu.pricing.query import price_is_derived, price_per_accelerator
from costgpu.providers import registry
from costgpu.render.document import document, picked
from costgpu.render.phrases import own_price_notes
from costgpu.render.text.layout import WIDTH, Column, table, wrap
from costgpu.units import currency_note, format_bare_usd, format_free

DERIVED_NOTE = "~ not read itself: computed from another size or region, or estimated."
IMAGE_NOTE = "^ needs your image ({}): no public one has its driver."
MOST_OWN = 5  # remarks on own prices
SLICE_NOTE = "$/GPU of a part of a GPU is scaled up to a whole one."


def offers_table(offers: Sequence[Offer], today: date, *, total: int | None = None) -> str:
    """Aligned columns, at most 80 wide; where they do not fit, two lines for each offer.

    Args:
        offers: The offers to show, in order.
        today: The day from which the age of the prices is counted.
        total: How many offers there are, if `offers` is only the beginning of them.
    """
    if not offers:
        return ""
    lines = _table(offers, today, hardware=True)
    if max(map(len, lines)) > WIDTH:
        heading, *first_lines = _table(offers, today, hardware=False)
        lines = [heading]
        for offer, first_line in zip(offers, first_lines, strict=True):
            parts = [f"{offer.vcpus} vCPUs", f"{offer.memory_gib:g} GiB"]
            if offer.accelerator is not None:
                each = " each" if offer.accelerator.count > 1 else ""
                parts.append(f"{_accelerator(offer)} with {offer.accelerator.memory_gib:g} GiB{each}")
            lines += [first_line, f"    {', '.join(parts)}"]
    return "\n".join([*lines, "", *_notes(offers, len(offers) if total is None else total)])


def offers_json(offers: Sequence[Offer], today: date, *, total: int | None = None) -> str:
    """Return the versioned document; arguments as for `offers_table`."""
    rows = [offer_value(offer, today) for offer in offers]
    return document("costgpu.offers", total=len(offers) if total is None else total, offers=rows)


def offer_value(offer: Offer, today: date) -> dict[str, Any]:
    """Return an offer as a part of a document."""
    per_accelerator = price_per_accelerator(offer)
    return {
        **picked(
            offer, "provider", "region", "zone", "instance_type", "family", "purchase_option", "price_usd_per_hour"
        ),
        "price_usd_per_accelerator_hour": None if per_accelerator is None else f"{per_accelerator:.6f}",
        **picked(offer, "vcpus", "memory_gib", "architecture", "accelerator", "price_source"),
        "price_is_derived": price_is_derived(offer),
        "price_as_of": offer.price_as_of,
        "own_price": offer.own_price,
        "price_age_days": price_age_days(offer, today),
        "needs_own_image": registry.needs_own_image(offer),
    }


def price_age_days(offer: Offer, today: date) -> int:
    """Days since the price was read; 0 where a clock is wrong."""
    return max(0, (today - offer.price_as_of).days)


def _table(offers: Sequence[Offer], today: date, *, hardware: bool) -> list[str]:
    """Return all columns, or those of the first of two lines."""

    def price_per_hour(offer: Offer) -> str:
        sign = "*" if offer.own_price is not None else "~" * price_is_derived(offer)
        return sign + _price(offer.price_usd_per_hour)

    hardware_columns: tuple[Column[Offer], ...] = (
        Column("vCPU", lambda offer: str(offer.vcpus), right=True),
        Column("GiB", lambda offer: f"{offer.memory_gib:g}", right=True),
        Column("GPUS", _accelerator),
    )
    columns: tuple[Column[Offer], ...] = (
        # N1 types carry their attached accelerator in the name; it has its own column.
        Column("TYPE", lambda offer: offer.instance_type.partition("+")[0] + "^" * registry.needs_own_image(offer)),
        Column("INFRA", lambda offer: f"{offer.provider}/{offer.zone or offer.region}"),
        *(hardware_columns if hardware else ()),
        Column("SPOT", lambda offer: "yes" if offer.purchase_option is PurchaseOption.SPOT else "no"),
        Column(f"{format_free()[:-1]}/h", price_per_hour, right=True),
        Column(
            f"{format_free()[:-1]}/GPU",
            lambda offer: "" if (price := price_per_accelerator(offer)) is None else _price(price),
            right=True,
        ),
        Column("AGE", lambda offer: f"{price_age_days(offer, today)} d", right=True),
    )
    return table(columns, offers)


def _notes(offers: Sequence[Offer], total: int) -> list[str]:
    notes = [f"{len(offers)} of {total} offers; --top 0 lists them all."] if total > len(offers) else []
    if any(map(price_is_derived, offers)):
        notes.append(DERIVED_NOTE)
    if any(offer.accelerator and offer.accelerator.count < 1 for offer in offers):
        notes.append(SLICE_NOTE)
    notes += image_notes(offers)
    own = [wrap(note, "* ") for note in own_price_notes(offers)]
    notes += own[:MOST_OWN] + [f"* {len(own) - MOST_OWN} more own prices: costgpu prices list."] * (len(own) > MOST_OWN)
    for provider in sorted({offer.provider for offer in offers}):
        days = [offer.price_as_of for offer in offers if offer.provider == provider and offer.own_price is None]
        notes += [f"Prices of {provider} are those of {day_span(days)}."] if days else []
    return notes


def image_notes(offers: Iterable[Offer]) -> list[str]:
    """Return what the mark at machines means that boot no public image, if there are any."""
    settings = sorted({registry.image_setting(one.provider) for one in offers if registry.needs_own_image(one)})
    return [IMAGE_NOTE.format(" or ".join(settings))] if settings else []


def day_span(days: Sequence[date]) -> str:
    """``2026-01-19 to 2026-07-09``, or the one day."""
    first, last = min(days), max(days)
    return f"{first}" if first == last else f"{first} to {last}"


def _accelerator(offer: Offer) -> str:
    return f"{offer.accelerator.name}:{offer.accelerator.count:g}" if offer.accelerator else ""


def _price(price: Decimal) -> str:
    """Cents from one dollar on, else hundredths of cents; in another currency as other amounts."""
    if currency_note():
        return format_bare_usd(price)
    return f"{price:.2f}" if price >= 1 else f"{price:.4f}"

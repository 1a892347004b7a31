"""A list of offers as plain text or as a JSON document. No colour, no terminal, no clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from costgpu.models.offer import Offer, PurchaseOption
from costgpu.pricing.query import price_is_derived, price_per_accelerator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date
    from decimal import Decimal

SCHEMA = "costgpu.offers"
VERSION = 1
WIDTH = 80

_DERIVED_NOTE = "~ not read itself: computed from another size or region, or estimated."
_SLICE_NOTE = "$/GPU of a part of a GPU is scaled up to a whole one."


def offers_table(offers: Sequence[Offer], today: date, *, total: int | None = None) -> str:
    """Aligned columns, at most 80 wide; where they do not fit, two lines for each offer.

    Args:
        offers: The offers to show, in order.
        today: From which the age of the prices is counted.
        total: How many offers there are, if `offers` is only the beginning of them.

    Returns:
        Text without a final line end.
    """
    if not offers:
        return ""
    lines = _aligned(offers, _columns(today, hardware=True))
    if max(map(len, lines)) > WIDTH:
        lines = _two_lines_each(offers, today)
    return "\n".join([*lines, "", *_notes(offers, len(offers) if total is None else total)])


def offers_json(offers: Sequence[Offer], today: date, *, total: int | None = None) -> str:
    """The versioned document: prices are strings, so that no digit of them is lost.

    Args:
        offers: The offers to list, in order.
        today: From which the age of the prices is counted.
        total: How many offers there are, if `offers` is only the beginning of them.
    """
    import json  # noqa: PLC0415  (the table does not pay for it)

    document = {
        "schema": SCHEMA,
        "version": VERSION,
        "total": len(offers) if total is None else total,
        "offers": [_document(offer, today) for offer in offers],
    }
    return json.dumps(document, indent=2)


def _document(offer: Offer, today: date) -> dict[str, Any]:
    accelerator = offer.accelerator
    per_accelerator = price_per_accelerator(offer)
    return {
        "provider": offer.provider,
        "region": offer.region,
        "zone": offer.zone,
        "instance_type": offer.instance_type,
        "family": offer.family,
        "purchase_option": offer.purchase_option.value,
        "price_usd_per_hour": f"{offer.price_usd_per_hour:f}",
        "price_usd_per_accelerator_hour": None if per_accelerator is None else f"{per_accelerator:.6f}",
        "vcpus": offer.vcpus,
        "memory_gib": offer.memory_gib,
        "architecture": offer.architecture,
        "accelerator": accelerator
        and {"name": accelerator.name, "count": accelerator.count, "memory_gib": accelerator.memory_gib},
        "price_source": offer.price_source,
        "price_is_derived": price_is_derived(offer),
        "price_as_of": offer.price_as_of.isoformat(),
        "price_age_days": _age(offer, today),
    }


class _Column:
    """A heading and how its cells are made; numbers stand on the right."""

    def __init__(self, heading: str, cell: Callable[[Offer], str], number: bool = False) -> None:
        self.heading, self.cell, self.number = heading, cell, number

    def align(self, text: str, width: int) -> str:
        return text.rjust(width) if self.number else text.ljust(width)


def _columns(today: date, *, hardware: bool) -> list[_Column]:
    """The columns of the table; without those of the hardware it is the first of two lines."""
    return [
        # N1 types carry their attached accelerator in the name; it has its own column.
        _Column("TYPE", lambda offer: offer.instance_type.partition("+")[0]),
        _Column("INFRA", lambda offer: f"{offer.provider}/{offer.zone or offer.region}"),
        *(_HARDWARE if hardware else ()),
        _Column("SPOT", lambda offer: "yes" if offer.purchase_option is PurchaseOption.SPOT else "no"),
        _Column("$/h", lambda offer: "~" * price_is_derived(offer) + _price(offer.price_usd_per_hour), True),
        _Column("$/GPU", _per_accelerator, True),
        _Column("AGE", lambda offer: f"{_age(offer, today)} d", True),
    ]


def _aligned(offers: Sequence[Offer], columns: Sequence[_Column]) -> list[str]:
    """A heading and one line for each offer; a column with nothing in it is left out."""
    rows = [[column.cell(offer) for column in columns] for offer in offers]
    used = [index for index in range(len(columns)) if any(row[index] for row in rows)]
    chosen = [columns[index] for index in used]
    table = [[column.heading for column in chosen], *([row[index] for index in used] for row in rows)]
    widths = [max(map(len, texts)) for texts in zip(*table, strict=True)]
    return [" ".join(map(_Column.align, chosen, row, widths)).rstrip() for row in table]


def _two_lines_each(offers: Sequence[Offer], today: date) -> list[str]:
    heading, *firsts = _aligned(offers, _columns(today, hardware=False))
    lines = [heading]
    for offer, first in zip(offers, firsts, strict=True):
        parts = [f"{offer.vcpus} vCPUs", f"{offer.memory_gib:g} GiB"]
        if offer.accelerator is not None:
            each = " each" * (offer.accelerator.count > 1)
            parts.append(f"{_accelerator(offer)} with {offer.accelerator.memory_gib:g} GiB{each}")
        lines += [first, "    " + ", ".join(parts)]
    return lines


def _notes(offers: Sequence[Offer], total: int) -> list[str]:
    notes = [f"{len(offers)} of {total} offers; --top 0 lists them all."] if total > len(offers) else []
    if any(map(price_is_derived, offers)):
        notes.append(_DERIVED_NOTE)
    if any(offer.accelerator and offer.accelerator.count < 1 for offer in offers):
        notes.append(_SLICE_NOTE)
    for provider in sorted({offer.provider for offer in offers}):
        days = [offer.price_as_of for offer in offers if offer.provider == provider]
        oldest, newest = min(days), max(days)
        span = f"{oldest}" if oldest == newest else f"{oldest} to {newest}"
        notes.append(f"Prices of {provider} are those of {span}.")
    return notes


def _accelerator(offer: Offer) -> str:
    return f"{offer.accelerator.name}:{offer.accelerator.count:g}" if offer.accelerator else ""


def _price(price: Decimal) -> str:
    """Cents from one dollar on, else hundredths of cents."""
    return f"{price:.2f}" if price >= 1 else f"{price:.4f}"


def _per_accelerator(offer: Offer) -> str:
    price = price_per_accelerator(offer)
    return "" if price is None else _price(price)


def _age(offer: Offer, today: date) -> int:
    return max(0, (today - offer.price_as_of).days)


_HARDWARE = (
    _Column("vCPU", lambda offer: str(offer.vcpus), True),
    _Column("GiB", lambda offer: f"{offer.memory_gib:g}", True),
    _Column("GPUS", _accelerator),
)

"""How often spot machines are taken back: the table in `data`, read once.

May import `validated_csv`, `snapshot` and `models`.
"""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from costgpu.models.offer import InterruptionRate, Offer
from costgpu.pricing.snapshot import DATA, columns
from costgpu.pricing.validated_csv import needed, read_rows

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

INTERRUPTION_COLUMNS = columns(
    "provider region instance_type percent_a_month low_per_hour per_hour high_per_hour basis source as_of"
)
INTERRUPTIONS_FILE = "interruptions.csv"
ANY = "any"  # region or provider of a row for what has none of its own; its type is then ``gpu`` or ``cpu``


def interruption_rate(offer: Offer) -> InterruptionRate:
    """Return how often a spot machine of this offer is taken back; assumed where nothing is published about its type."""
    kind = "cpu" if offer.accelerator is None else "gpu"
    places = ((offer.provider, offer.region, offer.instance_type), (offer.provider, ANY, kind), (ANY, ANY, kind))
    rates = interruption_rates()
    return next(rates[place] for place in places if place in rates)


@cache
def interruption_rates(data: Path = DATA) -> Mapping[tuple[str, str, str], InterruptionRate]:
    """Return every row, by (provider, region, instance type).

    Raises:
        ConfigError: A row is wrong: with line and column.
    """
    rates = {}
    for row in read_rows(data / INTERRUPTIONS_FILE, INTERRUPTION_COLUMNS):
        rate = row.record(
            InterruptionRate,
            percent_a_month=row.text("percent_a_month", empty=True),
            low_per_hour=needed(row, "low_per_hour", row.number("low_per_hour", open_end=False)),
        )
        rates[row.text("provider"), row.text("region"), row.text("instance_type")] = rate
    return MappingProxyType(rates)

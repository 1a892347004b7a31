"""How often spot machines are taken back: the table in `data`, read once.

May import `snapshot` and `models`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from costgpu.models.offer import InterruptionRate, Offer
from costgpu.pricing.snapshot import DATA, read_records

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
        ConfigError: The file is missing or damaged.
    """
    rows = read_records(data / INTERRUPTIONS_FILE, InterruptionRate)
    return MappingProxyType({(at["provider"], at["region"], at["instance_type"]): rate for at, rate in rows})

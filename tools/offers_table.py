"""The offers of a snapshot, from the collected price lists aws_prices.csv and gcp_prices.csv."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path

from costgpu.errors import ConfigError
from costgpu.models.offer import Accelerator, Offer, PurchaseOption
from costgpu.providers import registry
from tools.checked_csv import Row, needed, read_rows

COLLECTED = "2026-11-25"
"""The day on which the price lists were last put together, which names the snapshot. Prices are older: each row has the
day of its own."""
PRICE_LISTS = ("aws_prices.csv", "gcp_prices.csv")
PRICE_HEADER = (
    "provider,region,instance_type,arch,vcpus,memory_gib,gpu,gpu_count,gpu_memory_gib,"
    "usd_per_hour,usd_per_hour_spot,source,as_of"
)
MEMORY_TOLERANCE = 0.01  # price lists say 268 GiB for the B300, its data sheet 270
PRICE_LIST_NAMES = {
    "RTXPRO6000": ("RTX-PRO-6000", 1.0),
    "RTX-PRO-6000-1/2": ("RTX-PRO-6000", 0.5),
    "RTX-PRO-6000-1/4": ("RTX-PRO-6000", 0.25),
    "RTX-PRO-6000-1/8": ("RTX-PRO-6000", 0.125),
}
"""Names of price lists that are not ours: our name, and the share of one accelerator."""
DERIVED_MARKS = (
    "uplift",  # a surcharge was added to the price that was read
    "same Americas SKUs",  # read for another region that shares the price list entry
    "us-central1 host",  # the host's part was read for another region
    "16.11/GPU",  # number of accelerators x price per accelerator; the provider's page lists no price
    "spot estimated",
)
"""Texts in a price's source that say it was computed, beside the word ``derived`` itself."""
_PRICE_COLUMN = {PurchaseOption.ON_DEMAND: "usd_per_hour", PurchaseOption.SPOT: "usd_per_hour_spot"}


def newest_date(facts: Path) -> str:
    """Return the newest day of any price, ISO 8601.

    Raises:
        ConfigError: There are no prices, or a date is malformed.
    """
    days = [row.day("as_of") for name in PRICE_LISTS for row in read_rows(facts / name, PRICE_HEADER.split(","))]
    if not days:
        raise ConfigError(f"There are no prices in {facts}.")
    return max(days).isoformat()


def offers(facts: Path, memory_gib: Mapping[str, float], families: set[tuple[str, str]]) -> list[Offer]:
    """Every price of the price lists, also those at which nothing is sold: see `is_sold`.

    Args:
        facts: Folder of the price lists.
        memory_gib: Memory of each accelerator, by canonical name.
        families: (provider, instance family) of every CPU that is known.

    Raises:
        ConfigError: A line cannot be right, an offer has two prices, or its CPU or accelerator is not known.
    """
    found: dict[tuple[str, str, str, PurchaseOption], Offer] = {}
    for name in PRICE_LISTS:
        for row in read_rows(facts / name, PRICE_HEADER.split(",")):
            for offer in _offers_of_line(row, memory_gib):
                key = offer.provider, offer.region, offer.instance_type, offer.purchase_option
                if key in found:
                    raise row.wrong("instance_type", f"{offer.instance_type} has two prices there ({key[3]})")
                if (offer.provider, offer.family) not in families:
                    raise row.wrong("instance_type", f"no CPU is known for the family {offer.family!r}")
                found[key] = offer
    return list(found.values())


def is_sold(offer: Offer) -> bool:
    """Return whether a machine can be started at that price: a list price alone makes no offer."""
    return registry.spec(offer.provider).is_sold(offer)


def price_source(source: str, option: PurchaseOption) -> str:
    """Return the source of one of the two prices on a line, with ``derived`` in it if it was computed.

    A part that starts with ``spot`` is about the spot price alone; the other parts of such a line are about
    the on-demand price, unless the spot part says that it was estimated from that one.
    """
    parts = source.split("; ")
    spot_parts = [part for part in parts if part.startswith("spot ")]
    rest = [part for part in parts if part not in spot_parts]
    if option is PurchaseOption.SPOT and spot_parts:
        chosen = spot_parts if "spot estimated" not in spot_parts else [*rest, *spot_parts]
        text = "; ".join(chosen).removeprefix("spot ")
    else:
        text = "; ".join(rest)
    if "derived" not in text and any(mark in text for mark in DERIVED_MARKS):
        text = f"derived: {text}"
    return text


def _offers_of_line(row: Row, memory_gib: Mapping[str, float]) -> Iterable[Offer]:
    """Yield the on-demand and the spot offer of one line of a price list, as far as it has their prices."""
    options = [option for option, column in _PRICE_COLUMN.items() if row.cells[column]]
    if not options:
        raise row.wrong("usd_per_hour", "there is no price")
    instance_type = row.text("instance_type")
    for option in options:
        row.number(_PRICE_COLUMN[option])
        yield Offer(
            provider=row.text("provider"),
            instance_type=instance_type,
            family=re.split(r"\." if "." in instance_type else "-", instance_type)[0],
            region=row.text("region"),
            zone=None,
            purchase_option=option,
            price_usd_per_hour=Decimal(row.text(_PRICE_COLUMN[option])),
            vcpus=needed(row, "vcpus", row.whole("vcpus")),
            memory_gib=needed(row, "memory_gib", row.number("memory_gib")),
            architecture=row.text("arch", among=("x86_64", "arm64")),
            accelerator=_accelerator(row, memory_gib),
            price_source=price_source(row.text("source"), option),
            price_as_of=row.day("as_of"),
        )


def _accelerator(row: Row, memory_gib: Mapping[str, float]) -> Accelerator | None:
    listed_name = row.text("gpu", empty=True)
    if not listed_name:
        if row.text("gpu_count", empty=True) not in {"", "0"}:
            raise row.wrong("gpu_count", "there are accelerators without a name")
        return None
    name, share = PRICE_LIST_NAMES.get(listed_name, (listed_name, 1.0))
    if name not in memory_gib:
        raise row.wrong("gpu", f"{name!r} is not a name in gpu_specs.csv, nor in PRICE_LIST_NAMES")
    count = needed(row, "gpu_count", row.number("gpu_count")) * share
    listed = needed(row, "gpu_memory_gib", row.number("gpu_memory_gib"))
    # AWS lists a slice as a part of one accelerator with its whole memory, Google as one with the slice's.
    memory = listed * count if count < 1 and share == 1 else listed
    if abs(memory / (memory_gib[name] * min(count, 1.0)) - 1) > MEMORY_TOLERANCE:
        raise row.wrong("gpu_memory_gib", f"{name}:{count:g} with {memory:g} GiB each is not {memory_gib[name]:g} GiB")
    return Accelerator(name=name, count=count, memory_gib=memory)

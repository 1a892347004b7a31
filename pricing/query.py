"""What can be asked of a catalog, and whether one offer is it. Pure.

May import `hardware` (for the spelling of names), `models` and `units`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING

from costgpu.models.offer import Offer, PurchaseOption
from costgpu.pricing.hardware import accelerator_key

if TYPE_CHECKING:
    from costgpu.units import AcceleratorRequest, NumberRange

NOMINAL_TOLERANCE = 0.07
"""How far usable memory lies below the nominal size: 268 of 288 GB (B300), 180 of 192 GB (B200)."""


class SortKey(StrEnum):
    """The order of a list of offers; equals are in order of price, then of name."""

    PRICE = "price"
    GPU_PRICE = "gpu-price"
    MEMORY = "memory"
    NAME = "name"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferQuery:
    """What is asked for; a field that is None or empty asks nothing."""

    accelerator: AcceleratorRequest | None = None  # name or least memory, and number; or none at all
    cpus: NumberRange | None = None  # virtual CPUs
    memory: NumberRange | None = None  # main memory, GiB
    infra: tuple[str, ...] = ()  # places, any of them: ``aws``, ``aws/us-east-1``, ``us-east-1``
    purchase_options: tuple[PurchaseOption, ...] = ()  # any of them
    instance_type: str | None = None
    max_price_usd_per_hour: Decimal | None = None  # of the whole instance, inclusive
    architecture: str | None = None  # ``x86_64`` or ``arm64``
    # price and name ascending, main memory descending; CPU offers last under ``gpu-price``
    sort: SortKey = SortKey.PRICE
    limit: int | None = None  # at most so many offers; None for all


Predicate = Callable[[Offer], bool]


def matches(offer: Offer, query: OfferQuery) -> bool:
    """Return whether an offer is what the query asks for. Accelerator names are compared by `accelerator_key`."""
    return all(predicate(offer) for predicate in predicates(query))


def price_per_accelerator(offer: Offer) -> Decimal | None:
    """USD per hour and accelerator with its host; a slice is scaled up to a whole one; None for a CPU."""
    if offer.accelerator is None:
        return None
    return offer.price_usd_per_hour / Decimal(offer.accelerator.count)


def price_is_derived(offer: Offer) -> bool:
    """Return whether the price was computed from one that was read."""
    return "derived" in offer.price_source


def predicates(query: OfferQuery) -> Iterator[Predicate]:
    """Yield one test for each thing asked."""
    yield from _accelerator_predicates(query.accelerator)
    if query.infra:
        names = {place.lower() for place in query.infra if "/" not in place}
        pairs = {tuple(place.lower().split("/", 1)) for place in query.infra if "/" in place}
        yield (
            lambda offer: (
                offer.region in names
                or offer.provider in names
                or (bool(pairs) and (offer.provider, offer.region) in pairs)
            )
        )
    if query.purchase_options:
        options = query.purchase_options
        yield lambda offer: offer.purchase_option in options
    if query.instance_type is not None:
        type_name = query.instance_type.lower()
        yield lambda offer: offer.instance_type.lower() == type_name
    if query.architecture is not None:
        architecture = query.architecture
        yield lambda offer: offer.architecture == architecture
    if query.cpus is not None:
        fewest, most = _bounds(query.cpus)
        yield lambda offer: fewest <= offer.vcpus <= most
    if query.memory is not None:
        smallest, largest = _bounds(query.memory)
        yield lambda offer: smallest <= offer.memory_gib <= largest
    if query.max_price_usd_per_hour is not None:
        max_price = query.max_price_usd_per_hour
        yield lambda offer: offer.price_usd_per_hour <= max_price


def _accelerator_predicates(request: AcceleratorRequest | None) -> Iterator[Predicate]:
    if request is None:
        return
    if request.others:
        ways = [tuple(_accelerator_predicates(each)) for each in request.alternatives]
        yield lambda offer: any(all(predicate(offer) for predicate in way) for way in ways)
        return
    if request.none:
        yield lambda offer: offer.accelerator is None
        return
    yield lambda offer: offer.accelerator is not None
    if request.name is not None:
        key, key_of = accelerator_key(request.name), cache(accelerator_key)
        yield lambda offer: offer.accelerator is not None and key_of(offer.accelerator.name) == key
    if request.memory_gib is not None:
        least = request.memory_gib * (1 - NOMINAL_TOLERANCE)
        yield lambda offer: offer.accelerator is not None and offer.accelerator.memory_gib >= least
    if request.count is not None:
        low, high = _bounds(request.count)
        yield lambda offer: offer.accelerator is not None and low <= offer.accelerator.count <= high


def _bounds(wanted: NumberRange) -> tuple[float, float]:
    return wanted.low, math.inf if wanted.high is None else wanted.high


def loosened(query: OfferQuery) -> Iterator[tuple[str, OfferQuery]]:
    """Yield the query with one filter less, and that filter's name in the user's words; the accelerator last."""
    if query.infra:
        yield f"--infra {' '.join(query.infra)}", replace(query, infra=())
    if query.purchase_options:
        flags = " or ".join(f"--{option.replace('_', '-')}" for option in query.purchase_options)
        yield flags, replace(query, purchase_options=())
    if query.instance_type is not None:
        yield f"-t {query.instance_type}", replace(query, instance_type=None)
    if query.cpus is not None:
        yield f"--cpus {_range_text(query.cpus)}", replace(query, cpus=None)
    if query.memory is not None:
        yield f"--memory {_range_text(query.memory)}", replace(query, memory=None)
    if query.max_price_usd_per_hour is not None:
        yield f"--max-price {query.max_price_usd_per_hour:f}", replace(query, max_price_usd_per_hour=None)
    if query.architecture is not None:
        yield f"architecture {query.architecture}", replace(query, architecture=None)
    request = query.accelerator
    if request is not None:
        if request.count is not None and not request.others:
            any_count = replace(query, accelerator=replace(request, count=None))
            yield f"the count in --gpus {_request_text(request)}", any_count
        yield f"--gpus {_request_text(request)}", replace(query, accelerator=None)


def in_words(query: OfferQuery) -> str:
    """Return what is asked, as the options of the command line."""
    words = [words for words, _ in loosened(query) if not words.startswith("the count in")]
    return ", ".join(words) or "an empty catalog"


def _request_text(request: AcceleratorRequest) -> str:
    if request.others:
        return ",".join(_request_text(each) for each in request.alternatives)
    what = "none" if request.none else request.name or f"{request.memory_gib:g}GB"
    return f"{what}:{_range_text(request.count)}" if request.count else what


def _range_text(wanted: NumberRange) -> str:
    if wanted.high is None:
        return f"{wanted.low:g}+"
    return f"{wanted.low:g}" if wanted.low == wanted.high else f"{wanted.low:g}..{wanted.high:g}"

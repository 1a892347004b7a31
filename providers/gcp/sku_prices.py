"""Google's price list: SKU documents -> rates of components -> prices of machines. Pure.

Google sells vCPUs, memory, accelerators and local SSDs one by one. Which SKU is the rate of which component, and what a
machine type is made of, is data: ``skus.json``. A SKU counts only if its whole description is one that the data
name: those for sole tenancy, commitments, reservations, calendar mode, custom and extended machines have longer ones.

Source: Cloud Billing API, ``services.skus.list`` (2026-11). Two traps of the list itself: a SKU's ``usageType`` is
``OnDemand`` for some spot SKUs (A4, local SSD), so that the description decides; and a price is ``units`` + ``nanos``.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from costgpu.models.offer import MOST_USD_PER_HOUR, Offer, PurchaseOption
from costgpu.models.price_update import DIGITS, MissingPrice, PriceUpdate, key_of
from costgpu.providers.common import part
from costgpu.providers.gcp.facts import is_sold

SOURCE = "Google Cloud Billing Catalog"
MAPPING = Path(__file__).with_name("skus.json")
USAGE = {PurchaseOption.ON_DEMAND: ("OnDemand",), PurchaseOption.SPOT: ("Preemptible", "OnDemand")}
_DESCRIPTION = re.compile(
    r"(?P<spot>Spot Preemptible )?(?P<name>.+?)(?P<attached> attached to Spot Preemptible VMs?)?"
    r"(?: running)?(?: in (?P<place>.+))?"
)
_NOT_A_PLACE = re.compile(r"\b(?:in|for|mode)\b", re.IGNORECASE)
_ANY_SIZE = r"[0-9]+g?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """What has a rate of its own."""

    name: str
    kind: str  # ``cpu``, ``ram``, ``gpu`` or ``local_ssd``
    groups: frozenset[str]  # resource groups that its SKUs may be in
    # factor from the price for one of Google's units to the rate (an hour of one vCPU, GiB or accelerator)
    units: Mapping[str, Fraction]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """``times`` of a component for each vCPU, GiB or accelerator of a machine."""

    component: Component
    of: str
    times: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class SkuMapping:
    """The data file."""

    service: str
    names: Mapping[str, Component]  # component by its SKUs' name, in lower case
    # pattern of machine types, and their parts; the first match counts
    machines: Sequence[tuple[re.Pattern[str], tuple[Part, ...]]]
    attached: Mapping[str, Component]  # component of each accelerator that is attached to a machine

    def parts(self, offer: Offer) -> tuple[Part, ...]:
        """Return what the machine of an offer is made of.

        Raises:
            LookupError: The data do not say, or say nothing of its accelerators.
        """
        machine, _, extra = offer.instance_type.partition("+")
        found = next((parts for pattern, parts in self.machines if pattern.fullmatch(machine)), None)
        if found is None:
            raise LookupError(f"what {machine} is made of is not known")
        if extra:
            accelerator = extra.partition(":")[0]
            if accelerator not in self.attached:
                raise LookupError(f"no SKU is known for an attached {accelerator}")
            found = (*found, Part(component=self.attached[accelerator], of="accelerators", times=Fraction(1)))
        if (offer.accelerator is not None) != any(part.component.kind == "gpu" for part in found):
            raise LookupError(f"the parts of {machine} and its accelerators do not fit together")
        return found


@dataclass(frozen=True, slots=True)
class Rate:
    """USD an hour for one of a component, from one SKU; or why that SKU has none."""

    sku: str
    usd: Fraction
    trouble: str = ""


Rates = Mapping[tuple[str, str, PurchaseOption], Sequence[Rate]]
"""By component, region and purchase option; more than one is a contradiction, unless all say the same."""


@cache
def read_mapping() -> SkuMapping:
    """Return the data file."""
    document = json.loads(MAPPING.read_text(encoding="utf-8"))
    kinds = {
        kind: (frozenset(row["groups"]), {unit: Fraction(times) for unit, times in row["units"].items()})
        for kind, row in document["kinds"].items()
    }
    components: dict[str, Component] = {}
    names: dict[str, Component] = {}
    for name, row in document["components"].items():
        groups, units = kinds[row["kind"]]
        components[name] = Component(name=name, kind=row["kind"], groups=groups, units=units)
        names |= {text.lower(): components[name] for text in row["names"]}
    machines = [
        (re.compile(re.escape(kind).replace(r"\*", _ANY_SIZE)), _parts(row, components))
        for row in document["machines"]
        for kind in row["types"]
    ]
    attached = {name: components[component] for name, component in document["attached"].items()}
    return SkuMapping(service=document["service"], names=names, machines=machines, attached=attached)


def _parts(row: Mapping[str, Any], components: Mapping[str, Component]) -> tuple[Part, ...]:
    return tuple(
        Part(component=components[part["component"]], of=part["of"], times=Fraction(part["times"]))
        for part in row["parts"]
    )


def rates_in(documents: Iterable[Any], mapping: SkuMapping) -> tuple[Rates, int]:
    """Return the rates that SKU documents tell, and how many documents there were.

    Args:
        documents: As the API has them in JSON: ``skuId``, ``description``, ``category``, ``serviceRegions``,
            ``pricingInfo``.
    """
    rates: dict[tuple[str, str, PurchaseOption], list[Rate]] = {}
    count = 0
    for document in documents:
        count += 1
        meant = _meaning(document, mapping) if isinstance(document, Mapping) else None
        if meant is None:
            continue
        component, option = meant
        rate = _rate(document, component)
        regions = document.get("serviceRegions", ())
        for region in regions if isinstance(regions, list) else ():
            rates.setdefault((component.name, str(region), option), []).append(rate)
    return rates, count


def _meaning(document: Mapping[str, Any], mapping: SkuMapping) -> tuple[Component, PurchaseOption] | None:
    """Return the component and purchase option of a SKU; None for those of no interest."""
    found = _DESCRIPTION.fullmatch(" ".join(str(document.get("description", "")).split()))
    if found is None or _NOT_A_PLACE.search(found["place"] or ""):
        return None
    component = mapping.names.get(found["name"].lower())
    if component is None:
        return None
    category = part(document, "category")
    option = PurchaseOption.SPOT if found["spot"] or found["attached"] else PurchaseOption.ON_DEMAND
    if (
        str(category.get("resourceGroup")) not in component.groups
        or str(category.get("usageType")) not in USAGE[option]
    ):
        return None
    return component, option


def _rate(document: Mapping[str, Any], component: Component) -> Rate:
    sku = str(document.get("skuId", "?"))
    try:
        expression = document["pricingInfo"][-1]["pricingExpression"]  # the list is in order of time
        unit = str(expression["usageUnit"])
        tiers = [_usd(tier["unitPrice"]) for tier in expression["tieredRates"]]
    except (KeyError, IndexError, TypeError, ValueError, OverflowError, AttributeError) as error:
        return Rate(sku, Fraction(0), f"SKU {sku} has no price that can be read ({type(error).__name__}: {error})")
    if unit not in component.units:
        return Rate(sku, Fraction(0), f"SKU {sku} is priced per {unit!r}, which is not known for {component.name}")
    paid = list(itertools.dropwhile(lambda usd: not usd, tiers))  # the first hours may be free of charge
    if not paid:
        return Rate(sku, Fraction(0), f"SKU {sku} of {component.name} costs nothing, which cannot be")
    if len(set(paid)) > 1:
        return Rate(sku, Fraction(0), f"the price of SKU {sku} of {component.name} depends on the amount that is used")
    return Rate(sku, paid[0] * component.units[unit])


def _usd(price: Mapping[str, Any]) -> Fraction:
    """``units`` (a text in JSON) and ``nanos``; either may be left out if it is 0."""
    currency = price.get("currencyCode", "USD")
    if currency != "USD":
        raise ValueError(f"it is in {currency}")
    usd = Fraction(int(price.get("units", 0))) + Fraction(int(price.get("nanos", 0)), 10**9)
    if not 0 <= usd <= MOST_USD_PER_HOUR:
        raise ValueError("it is below zero, or beyond all prices")
    return usd


def compose(offer: Offer, rates: Rates, mapping: SkuMapping) -> Decimal:
    """Return the price of an offer's machine, USD per hour: all of its parts, or none.

    Raises:
        LookupError: The rate of a part is missing, contradicts itself, or is no rate.
    """
    accelerators = Fraction(str(offer.accelerator.count)) if offer.accelerator else Fraction(0)
    amounts = {
        "vcpus": Fraction(offer.vcpus),
        "memory_gib": Fraction(str(offer.memory_gib)),
        "accelerators": accelerators,
    }
    total = Fraction(0)
    for one in mapping.parts(offer):
        total += _one(one.component, offer, rates) * one.times * amounts[one.of]
    return (Decimal(total.numerator) / Decimal(total.denominator)).quantize(DIGITS)


def _one(component: Component, offer: Offer, rates: Rates) -> Fraction:
    found = rates.get((component.name, offer.region, offer.purchase_option), ())
    spot = " (spot)" if offer.purchase_option is PurchaseOption.SPOT else ""
    if not found:
        raise LookupError(f"no SKU is the rate of {component.name}{spot} in {offer.region}")
    troubles = [rate.trouble for rate in found if rate.trouble]
    if troubles:
        raise LookupError(troubles[0])
    if len({rate.usd for rate in found}) > 1:
        skus = ", ".join(sorted(rate.sku for rate in found))
        raise LookupError(f"several SKUs with different prices are {component.name}{spot} in {offer.region}: {skus}")
    return found[0].usd


def price_update(
    documents: Iterable[Mapping[str, Any]],
    known: Iterable[Offer],
    regions: Sequence[str],
    *,
    today: date,
) -> PriceUpdate:
    """Return new prices for the known offers of some regions.

    A SKU says what something costs in a region, not that machines of that type are there: no offer is added. Nor is it
    said that they are sold that way: what is not (`is_sold`) gets no price.

    Args:
        known: Offers; those of other providers and regions are passed over.
    """
    mapping = read_mapping()
    rates, count = rates_in(documents, mapping)
    priced, failures = [], []
    for offer in known:
        if offer.provider != "gcp" or offer.region not in regions or not is_sold(offer):
            continue
        try:
            usd = compose(offer, rates, mapping)
        except LookupError as error:
            failures.append(MissingPrice(key=key_of(offer), reason=str(error.args[0])))
        else:
            priced.append(replace(offer, price_usd_per_hour=usd, price_source=SOURCE, price_as_of=today))
    return PriceUpdate(
        provider="gcp",
        regions=tuple(regions),
        offers=tuple(priced),
        failures=tuple(failures),
        unknown=(),
        documents=count,
    )

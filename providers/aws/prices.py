"""AWS's public prices: on demand from the Price List API, spot from EC2. Asking is free of charge.

Source: AWS Price List Query API, ``GetProducts`` (service ``AmazonEC2``), and EC2 API, ``DescribeSpotPriceHistory``
(2026-11). A product counts only if all its attributes are those of a shared Linux machine without software that is paid
extra; the filters of the request ask for the same, and are not relied on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from costgpu.errors import ProviderError
from costgpu.files import parse_json
from costgpu.models.offer import Offer, PurchaseOption
from costgpu.models.price_update import DIGITS, Key, MissingPrice, PriceUpdate, key_of, read_price
from costgpu.providers.aws.sdk import Clients
from costgpu.providers.common import number_in, part

PRICE_LIST_REGION = "us-east-1"  # the API is in three regions only, and each knows the prices of all
PAGE = 100  # the most that GetProducts gives at once
ON_DEMAND_SOURCE = "AWS Price List"
SPOT_SOURCE = "AWS spot price history, cheapest zone"
PLAIN = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "capacitystatus": "Used",
    "preInstalledSw": "NA",
    "operation": "RunInstances",
}
"""Attributes of a product that is nothing but the machine."""
LINUX = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")  # the second is how old accounts have it
HOURS = ("Hrs", "hrs", "Hours")
_MEMORY = re.compile(r"([\d,.]+) GiB", re.IGNORECASE)
MEMORY_TOLERANCE = 0.01


class PriceList:
    """The `PriceSource` of AWS."""

    by_region = True
    note = ""

    def __init__(self) -> None:
        self._clients = Clients()

    def read(self, regions: Sequence[str], known: Sequence[Offer], now: datetime) -> PriceUpdate:
        """Return new prices in one region."""
        (region,) = regions
        products = self.on_demand(region, PLAIN)
        return price_update(products, self.spot(region, LINUX, now), known, region, today=now.date())

    def on_demand(self, region: str, attributes: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        """Yield the products in a region as JSON documents.

        Args:
            attributes: That products must have, such as ``operatingSystem``.

        Raises:
            InvalidRequest: There is no such region.
            AuthError: There are no credentials, or not the permission ``pricing:GetProducts``.
            ProviderError: Any other refusal, or an answer that is no price list.
        """
        self._clients.require(region)
        filters = [
            {"Type": "TERM_MATCH", "Field": name, "Value": value}
            for name, value in {**attributes, "regionCode": region}.items()
        ]
        question = {"ServiceCode": "AmazonEC2", "FormatVersion": "aws_v1", "Filters": filters, "MaxResults": PAGE}
        doing = f"read AWS's price list of {region}"
        for text in self._rows(doing, "pricing", PRICE_LIST_REGION, "get_products", "PriceList", question):
            try:
                document = parse_json(text)
                if not isinstance(document, Mapping):
                    raise TypeError("it is no object")
            except (ValueError, TypeError) as exc:
                raise ProviderError(f"Could not {doing}: an entry is no JSON document: {str(text)[:60]!r}") from exc
            yield document

    def spot(self, region: str, products: Sequence[str], now: datetime) -> Iterator[Mapping[str, Any]]:
        """Yield the spot prices that hold now, by instance type and zone.

        Args:
            now: Earlier prices are of no interest.

        Raises:
            AuthError: There are no credentials, or not the permission ``ec2:DescribeSpotPriceHistory``.
            ProviderError: Any other refusal.
        """
        self._clients.require(region)
        question = {"ProductDescriptions": list(products), "StartTime": now, "EndTime": now}
        yield from self._rows(
            f"read the spot prices of {region}",
            "ec2",
            region,
            "describe_spot_price_history",
            "SpotPriceHistory",
            question,
        )

    def _rows(
        self, doing: str, service: str, region: str, method: str, field: str, question: Mapping[str, Any]
    ) -> Iterator[Any]:
        client = self._clients.client(service, region, max_attempts=5)
        pages = iter(client.get_paginator(method).paginate(**question))
        while True:
            with self._clients.speaking(doing):
                page = next(pages, None)
            if page is None:
                return
            yield from page.get(field, ())


class _Contradiction(LookupError):
    """A price list entry that cannot be used, with the reason."""


def price_update(
    products: Iterable[Mapping[str, Any]],
    spots: Iterable[Mapping[str, Any]],
    known: Sequence[Offer],
    region: str,
    *,
    today: date,
    spot_source: str = SPOT_SOURCE,
    spot_day: date | None = None,
    no_spot: str = "",
) -> PriceUpdate:
    """Return new prices in one region: of known offers, and of types whose hardware is known from other regions.

    Args:
        products: Entries of ``PriceList``, each a JSON document.
        spot_source: What the spot prices are from.
        spot_day: The day on which they held; None for today.
        no_spot: Why there are no spot prices at all; empty if there are.
    """
    hardware = {offer.instance_type: offer for offer in known if offer.provider == "aws"}
    prices: dict[Key, Decimal] = {}
    troubles: dict[Key, str] = {}
    seen: set[str] = set()
    count = 0
    for product in products:
        count += 1
        instance_type = _plain_type(product, region)
        if instance_type is None:
            continue
        seen.add(instance_type)
        if instance_type in hardware:
            key = ("aws", region, instance_type, PurchaseOption.ON_DEMAND)
            try:
                usd = _on_demand(product, hardware[instance_type])
                if prices.setdefault(key, usd) != usd:
                    troubles[key] = f"the Price List has two prices for it: {prices[key]} and {usd} USD/h"
            except _Contradiction as error:
                troubles[key] = str(error)
    for instance_type, usd_or_trouble, rows in _cheapest(spots, region):
        count += rows
        seen.add(instance_type)
        if instance_type in hardware:
            key = ("aws", region, instance_type, PurchaseOption.SPOT)
            if isinstance(usd_or_trouble, str):
                troubles[key] = usd_or_trouble
            else:
                prices[key] = usd_or_trouble
    failures = [MissingPrice(key=key, reason=reason) for key, reason in troubles.items()]
    here = [offer for offer in known if offer.provider == "aws" and offer.region == region]
    for offer in here:
        key = key_of(offer)
        if key not in prices and key not in troubles:
            failures.append(MissingPrice(key=key, reason=_absent(offer, region, no_spot)))
    offers = [
        replace(
            hardware[key[2]],
            region=region,
            zone=None,
            purchase_option=key[3],
            price_usd_per_hour=usd.quantize(DIGITS),
            price_source=spot_source if key[3] is PurchaseOption.SPOT else ON_DEMAND_SOURCE,
            price_as_of=(spot_day or today) if key[3] is PurchaseOption.SPOT else today,
        )
        for key, usd in prices.items()
        if key not in troubles
    ]
    return PriceUpdate(
        provider="aws",
        regions=(region,),
        offers=tuple(offers),
        failures=tuple(failures),
        unknown=tuple(sorted(seen - set(hardware))),
        documents=count,
    )


def _absent(offer: Offer, region: str, no_spot: str) -> str:
    if offer.purchase_option is PurchaseOption.SPOT:
        return no_spot or f"no availability zone of {region} has a spot price for it"
    return f"the Price List has no such machine in {region}"


def _plain_type(product: Mapping[str, Any], region: str) -> str | None:
    """Return the instance type of a product that is nothing but the machine, in that region; None for others."""
    attributes = part(product, "product", "attributes")
    plain = all(attributes.get(name) == value for name, value in PLAIN.items())
    on_demand = attributes.get("marketoption", "OnDemand") == "OnDemand"
    if not plain or not on_demand or attributes.get("regionCode") != region:
        return None
    return str(attributes["instanceType"]) if attributes.get("instanceType") else None


def _on_demand(product: Mapping[str, Any], offer: Offer) -> Decimal:
    attributes = part(product, "product", "attributes")
    sku = part(product, "product").get("sku", "?")
    vcpus, memory = attributes.get("vcpu"), _MEMORY.fullmatch(str(attributes.get("memory", "")))
    gib = number_in(memory[1].replace(",", "")) if memory else None
    if str(vcpus) != str(offer.vcpus) or gib is None or abs(gib / offer.memory_gib - 1) > MEMORY_TOLERANCE:
        raise _Contradiction(
            f"SKU {sku} is a machine of {vcpus} vCPUs and {attributes.get('memory')}, not of {offer.vcpus} vCPUs and "
            f"{offer.memory_gib:g} GiB"
        )
    dimensions = [
        dimension
        for term in part(product, "terms", "OnDemand").values()
        for dimension in part(term, "priceDimensions").values()
    ]
    if len(dimensions) != 1:
        raise _Contradiction(f"SKU {sku} has {len(dimensions)} on-demand prices, not one")
    unit, per_unit = part({"": dimensions[0]}, "").get("unit"), part(dimensions[0], "pricePerUnit")
    if unit not in HOURS:
        raise _Contradiction(f"SKU {sku} is priced per {unit!r}, not per hour")
    if "USD" not in per_unit:
        raise _Contradiction(f"SKU {sku} is priced in {', '.join(per_unit) or 'nothing'}, not in USD")
    return _price(per_unit["USD"], f"SKU {sku}")


def _price(text: object, what: str) -> Decimal:
    usd = read_price(text)
    if usd is None:
        raise _Contradiction(f"{what} says {text!r}, which cannot be a price")
    return usd


def _cheapest(spots: Iterable[Any], region: str) -> list[tuple[str, Decimal | str, int]]:
    """By instance type: the lowest of its zones' latest prices, or what is wrong with them; and the number of rows.

    The lowest, because a run goes to the cheapest zone first and the shipped prices mean the same. Local and Wavelength
    zones (``us-east-1-atl-2a``) do not count: machines are not put there.
    """
    latest: dict[tuple[str, str], Mapping[str, Any]] = {}
    rows: dict[str, int] = {}
    zone_of_region = re.compile(re.escape(region) + "[a-z]")
    for row in spots:
        if not isinstance(row, Mapping) or not isinstance(row.get("Timestamp"), datetime):
            continue
        instance_type, zone = str(row.get("InstanceType", "")), str(row.get("AvailabilityZone", ""))
        if row.get("ProductDescription") not in LINUX or not zone_of_region.fullmatch(zone) or not instance_type:
            continue
        rows[instance_type] = rows.get(instance_type, 0) + 1
        kept = latest.get((instance_type, zone))
        if kept is None or row["Timestamp"] > kept["Timestamp"]:
            latest[instance_type, zone] = row
    found: dict[str, list[Decimal]] = {}
    troubles: dict[str, str] = {}
    for (instance_type, zone), row in latest.items():
        try:
            found.setdefault(instance_type, []).append(_price(row.get("SpotPrice"), f"the spot price in {zone}"))
        except _Contradiction as error:
            troubles[instance_type] = str(error)
    return [(name, troubles.get(name) or min(found[name]), number) for name, number in sorted(rows.items())]

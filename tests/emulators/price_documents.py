"""Price list documents in the providers' own shapes, made from known prices, with the look-alikes that the real lists have.

Google: SKUs as ``services.skus.list`` has them, from ``data/gcp_rates.csv`` (rates of components, by region).
AWS: entries of ``GetProducts`` and rows of ``DescribeSpotPriceHistory``, from a list of offers.
Shapes and descriptions: the two APIs' references, and price lists that users have published (2026-11).
"""

import csv
import hashlib
import io
import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from string import Template
from typing import Any

from costgpu.models.offer import Offer, PurchaseOption

DATA = Path(__file__).parent / "data"
FACTS = DATA / "gcp_rates.csv"
Document = dict[str, Any]

_WORDS: dict[str, Any] = tomllib.loads((DATA / "gcp_sku_words.toml").read_text())
_PRODUCT = Template((DATA / "aws_product.json").read_text())
HOURS_A_MONTH = 730


def sku(
    description: str,
    group: str,
    usd: Decimal | str,
    *regions: str,
    usage: str = "OnDemand",
    unit: str = "h",
    family: str = "Ec2Instances",
    free_until: float | None = None,
) -> Document:
    """One SKU; so much of it as `free_until` says is free of charge."""
    price = Decimal(usd)
    nanos = int(((price - int(price)) * 10**9).to_integral_value())
    name = hashlib.sha256(f"{description}/{usage}/{','.join(regions)}/{usd}".encode()).hexdigest()[:12].upper()
    sku_id = "-".join(name[i : i + 4] for i in (0, 4, 8))
    tiers: list[Document] = [
        {
            "startUsageAmount": free_until or 0,
            "unitPrice": {"currencyCode": "USD", "units": str(int(price)), "nanos": nanos},
        }
    ]
    if free_until is not None:
        tiers.insert(0, {"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": "0", "nanos": 0}})
    return {
        "name": f"services/6F81-5844-456A/skus/{sku_id}",
        "skuId": sku_id,
        "description": description,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": family,
            "resourceGroup": group,
            "usageType": usage,
        },
        "serviceRegions": list(regions),
        "pricingInfo": [
            {
                "effectiveTime": "2026-11-20T14:03:11.240Z",
                "summary": "",
                "pricingExpression": {
                    "usageUnit": unit,
                    "displayQuantity": 1,
                    "tieredRates": tiers,
                    "usageUnitDescription": "",
                    "baseUnit": "s",
                    "baseUnitDescription": "second",
                    "baseUnitConversionFactor": 3600,
                },
                "currencyConversionRate": 1,
            }
        ],
        "serviceProviderName": "Google",
        "geoTaxonomy": {"type": "REGIONAL" if len(regions) == 1 else "MULTI_REGIONAL", "regions": list(regions)},
    }


def google_skus(facts: Path = FACTS) -> list[Document]:
    """What Google would list if its rates were those of the facts."""
    with facts.open(encoding="utf-8", newline="") as stream:
        return [document for row in csv.DictReader(stream) for document in _skus_of(row)]


def _skus_of(row: dict[str, str]) -> Iterator[Document]:
    family, component, region = row["family"], row["component"], row["region"]
    usd, spot_usd = (Decimal(row[f"usd_per_hour_per_unit{kind}"]) for kind in ("", "_spot"))
    place = _WORDS["places"][region]
    kind, _, accelerator = component.partition(":")
    if kind == "local_ssd_gb":
        for words, rate in (("", usd), (" attached to Spot Preemptible VMs", spot_usd)):
            # Google lists the spot one as OnDemand, too.
            yield sku(
                f"SSD backed Local Storage{words} in {place}",
                "LocalSSD",
                rate * HOURS_A_MONTH,
                region,
                unit="GiBy.mo",
                family="Storage",
            )
        return
    if kind == "gpu":
        name = _WORDS["accelerators"][family][accelerator]
        yield sku(f"{name} running in {place}", "GPU", usd, region)
        if family == "a4":
            yield sku(f"Spot Preemptible {name} running in {place}", "GPU", spot_usd, region)
        else:
            yield sku(
                f"{name} attached to Spot Preemptible VMs running in {place}",
                "GPU",
                spot_usd,
                region,
                usage="Preemptible",
            )
        yield from google_look_alikes(name, place, region, usd)
        return
    name = f"{_WORDS['hosts'][family]} {'Core' if kind == 'cpu' else 'Ram'}"
    group = "N1Standard" if family == "n1" else "CPU" if kind == "cpu" else "RAM"
    unit = "h" if kind == "cpu" else "GiBy.h"
    yield sku(f"{name} running in {place}", group, usd, region, unit=unit)
    yield sku(f"Spot Preemptible {name} running in {place}", group, spot_usd, region, usage="Preemptible", unit=unit)
    yield from host_look_alikes(name, group, unit, place, region, usd)


def google_look_alikes(name: str, place: str, region: str, usd: Decimal) -> Iterator[Document]:
    """SKUs about the same accelerator in the same region that are not its price."""
    yield sku(
        f"Commitment v1: {name} running in {place} for 1 Year", "GPU", usd * Decimal("0.63"), region, usage="Commit1Yr"
    )
    yield sku(f"Commitment v1: {name} running in {place} for 3 Years", "GPU", usd / 2, region, usage="Commit3Yr")
    yield sku(f"{name} attached to DWS Defined Duration VMs running in {place}", "GPU", usd / 2, region)
    yield sku(f"Reserved {name} in {place}", "GPU", "0", region)
    yield sku(f"Reserved {name} in {place} in Calendar Mode", "GPU", usd * Decimal("0.7"), region)
    yield sku(f"{name} attached to Sole Tenancy VMs running in {place}", "GPU", usd, region)
    yield sku(f"{name.removesuffix(' GPU')} Virtual Workstation GPU running in {place}", "GPU", usd + 2, region)


def host_look_alikes(name: str, group: str, unit: str, place: str, region: str, usd: Decimal) -> Iterator[Document]:
    """SKUs about the same family's vCPUs or memory in the same region that are not their price."""
    family, _, part = name.rpartition(" ")
    family = family.removesuffix(" Instance").removesuffix(" Predefined")
    for words, share, usage in (
        (f"{family} Custom Instance {part} running in {place}", "1.05", "OnDemand"),
        (f"{family} Custom Extended Instance {part} running in {place}", "2.2", "OnDemand"),
        (f"{family} Sole Tenancy Instance {part} running in {place}", "1.1", "OnDemand"),
        (f"Sole Tenancy Premium for {family} Instance {part} running in {place}", "0.1", "OnDemand"),
        (f"{name} Premium running in {place}", "0.1", "OnDemand"),
        (f"Commitment v1: {family} {'Cpu' if part == 'Core' else 'Ram'} in {place} for 1 Year", "0.63", "Commit1Yr"),
        (f"DWS Defined Duration {family} {part} running in {place}", "0.5", "OnDemand"),
        (f"Reserved {family} {part} in {place}", "0", "OnDemand"),
        (f"Spot Preemptible {family} Custom Instance {part} running in {place}", "0.4", "Preemptible"),
    ):
        yield sku(words, group, usd * Decimal(share), region, usage=usage, unit=unit)


def aws_product(offer: Offer, **attributes: str) -> Document:
    """One product of the Price List; attributes as given differ from those of a plain Linux machine."""
    sku_id = hashlib.sha256(f"{offer.instance_type}{offer.region}{attributes}".encode()).hexdigest()[:16].upper()
    values = {
        "SKU": sku_id,
        "TYPE": offer.instance_type,
        "VCPUS": str(offer.vcpus),
        "MEMORY": f"{offer.memory_gib:,g} GiB",
        "REGION": offer.region,
        "USD": f"{offer.price_usd_per_hour:.10f}",
    }
    product: Document = json.loads(_PRODUCT.substitute(values))
    product["product"]["attributes"].update(attributes)
    return product


def aws_products(offers: Iterable[Offer]) -> list[Document]:
    """What AWS would list if its on-demand prices were those of the offers."""
    found: list[Document] = []
    for offer in offers:
        if offer.provider != "aws" or offer.purchase_option is PurchaseOption.SPOT:
            continue
        found += [
            aws_product(offer),
            aws_product(offer, operatingSystem="Windows", operation="RunInstances:0002"),
            aws_product(offer, tenancy="Dedicated"),
            aws_product(offer, capacitystatus="UnusedCapacityReservation"),
            aws_product(offer, preInstalledSw="SQL Std", operation="RunInstances:0004"),
            aws_product(offer, marketoption="CapacityBlock", operation="RunInstances:CB"),
        ]
    return found


def aws_bulk_list(products: Iterable[Document]) -> bytes:
    """The bulk list of those products: their on-demand and reserved terms, and what else such a file has."""
    attributes = {
        "serviceCode": "servicecode",
        "Location Type": "",
        "Instance Type": "instanceType",
        "vCPU": "vcpu",
        "Memory": "memory",
        "Tenancy": "tenancy",
        "Operating System": "operatingSystem",
        "License Model": "licenseModel",
        "usageType": "usagetype",
        "operation": "operation",
        "CapacityStatus": "capacitystatus",
        "MarketOption": "marketoption",
        "Pre Installed S/W": "preInstalledSw",
        "Region Code": "regionCode",
    }
    lines: list[list[str]] = [
        ["FormatVersion", "v1.0"],
        ["Disclaimer", "This pricing list is for informational purposes only, it says, and has a comma."],
        ["Publication Date", "2026-11-20T18:43:11Z"],
        ["Version", "20261120184311"],
        ["OfferCode", "AmazonEC2"],
        ["SKU", "OfferTermCode", "TermType", "PriceDescription", "Unit", "PricePerUnit", "Currency", *attributes],
    ]
    for product in products:
        values = product["product"]["attributes"]
        for kind, terms in product["terms"].items():
            for term in terms.values():
                for price in term["priceDimensions"].values():
                    ((currency, usd),) = price["pricePerUnit"].items()
                    words = [product["product"]["sku"], "", kind, price.get("description", ""), price["unit"]]
                    lines.append([*words, usd, currency, *(values.get(name, "") for name in attributes.values())])
    stream = io.StringIO()
    csv.writer(stream, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(lines)
    return stream.getvalue().encode()


def aws_spot_page(rows: Iterable[Document]) -> Document:
    """What AWS's page of spot prices reads, if it shows the lowest price of each region."""
    lowest: dict[str, dict[str, Decimal]] = {}
    for row in rows:
        zone = re.fullmatch(r"([a-z]+-[a-z]+-\d)[a-z]", row["AvailabilityZone"])
        if zone and row["ProductDescription"] == "Linux/UNIX":
            sizes = lowest.setdefault(zone[1], {})
            usd = Decimal(row["SpotPrice"])
            sizes[row["InstanceType"]] = min(usd, sizes.get(row["InstanceType"], usd))

    def size(name: str, usd: str) -> Document:
        columns = [{"name": "linux", "prices": {"USD": usd}}, {"name": "mswin", "prices": {"USD": "0.01"}}]
        return {"size": name, "valueColumns": columns}

    regions = [
        {
            "region": {"us-east-1": "us-east"}.get(region, region),
            "instanceTypes": [
                {"type": "all", "sizes": [size(name, f"{usd:f}") for name, usd in sizes.items()]},
                {"type": "none of them here", "sizes": [size("m1.small", "N/A*"), size("r8i.metal", "0")]},
            ],
        }
        for region, sizes in lowest.items()
    ]
    return {"vers": 0.01, "config": {"rate": "perhr", "currencies": ["USD"], "regions": regions}}


def aws_spot_rows(offers: Iterable[Offer], zones: str = "abc") -> list[Document]:
    """What AWS would say if its lowest spot prices were those of the offers: dearer in all zones but one."""
    found: list[Document] = []
    for offer in offers:
        if offer.provider != "aws" or offer.purchase_option is not PurchaseOption.SPOT:
            continue
        for index, zone in enumerate(zones):
            usd = offer.price_usd_per_hour * (1 + Decimal(index) / 20)
            found.append(spot_row(offer.instance_type, f"{offer.region}{zone}", usd))
        found.append(spot_row(offer.instance_type, f"{offer.region}-lax-1a", offer.price_usd_per_hour / 3))
        found.append(spot_row(offer.instance_type, f"{offer.region}a", offer.price_usd_per_hour / 4, product="Windows"))
    return found


def spot_row(
    instance_type: str,
    zone: str,
    usd: Decimal | str,
    *,
    product: str = "Linux/UNIX",
    at: datetime = datetime(2026, 11, 21, 9, 0, tzinfo=UTC),
) -> Document:
    return {
        "AvailabilityZone": zone,
        "InstanceType": instance_type,
        "ProductDescription": product,
        "SpotPrice": f"{Decimal(usd):.6f}",
        "Timestamp": at,
    }

"""Google's SKUs to prices: every known machine, no look-alike, and never a partial sum."""

import importlib
import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from decimal import Decimal
from functools import cache
from typing import Any

import pytest

from costgpu.models.offer import Offer, PurchaseOption
from costgpu.models.price_update import PriceUpdate, by_key, key_of
from costgpu.pricing import snapshot
from costgpu.providers.gcp import facts, sku_prices
from costgpu.providers.gcp.facts import is_sold
from costgpu.providers.gcp.sku_catalog import counted
from tests.emulators.price_documents import Document, google_skus, sku

TODAY = date(2026, 11, 21)
REGION = "us-central1"
SPOT, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.ON_DEMAND
HOST_RATES_OF_ANOTHER_MACHINE = {("a3-megagpu-8g", SPOT), ("a3-ultragpu-8g", SPOT)}
"""The facts have no spot rates of their own for these hosts, so that their sums are not the shipped prices."""


@cache
def shipped() -> list[Offer]:
    return [offer for offer in snapshot.read_offers(snapshot.newest()) if offer.provider == "gcp"]


@cache
def documents() -> list[Document]:
    return google_skus()


def offer(instance_type: str, option: PurchaseOption = ON_DEMAND, region: str = REGION) -> Offer:
    """A shipped offer, or what it would be if the machine were sold that way."""
    known = by_key(shipped())
    return replace(
        known.get(("gcp", region, instance_type, option)) or known["gcp", region, instance_type, SPOT],
        purchase_option=option,
    )


def harvest(skus: Iterable[Document], offers: Iterable[Offer], *regions: str) -> PriceUpdate:
    return sku_prices.price_update(skus, offers, regions or (REGION,), today=TODAY)


def unpriced(one: Offer) -> Offer:
    return replace(one, price_usd_per_hour=Decimal(1), price_source="", price_as_of=TODAY)


def price(skus: Iterable[Document], one: Offer) -> Decimal:
    found = harvest(skus, [one], one.region)
    assert not found.failures
    return found.offers[0].price_usd_per_hour


def reason(skus: Iterable[Document], one: Offer) -> str:
    found = harvest(skus, [one], one.region)
    assert not found.offers
    (failure,) = found.failures
    assert failure.key == key_of(one)
    return failure.reason


def rates_and_mapping() -> tuple[sku_prices.Rates, sku_prices.SkuMapping]:
    mapping = sku_prices.read_mapping()
    return sku_prices.rates_in(documents(), mapping)[0], mapping


def without(*words: str) -> list[Document]:
    return [document for document in _of(REGION) if not any(document["description"].startswith(word) for word in words)]


def test_every_known_machine_is_composed_and_costs_what_is_known_within_1_percent() -> None:
    found = harvest(documents(), shipped(), *sorted({one.region for one in shipped()}))
    assert not found.failures
    assert len(found.offers) == len(shipped()) == 3029
    before = by_key(shipped())
    for new in found.offers:
        old = before[key_of(new)]
        assert unpriced(new) == unpriced(old)
        if (new.instance_type, new.purchase_option) not in HOST_RATES_OF_ANOTHER_MACHINE:
            assert abs(new.price_usd_per_hour / old.price_usd_per_hour - 1) < Decimal("0.01"), new
    assert {(new.price_source, new.price_as_of) for new in found.offers} == {(sku_prices.SOURCE, TODAY)}
    assert found.documents == len(documents())


def test_other_providers_and_regions_are_passed_over() -> None:
    assert not harvest(_of(REGION), shipped(), "mars-north1").offers
    assert {new.region for new in harvest(documents(), shipped(), "us-east4").offers} == {"us-east4"}


PARTS = {
    "a2-highgpu-1g": ("Nvidia Tesla A100 GPU", "A2 Instance Ram"),
    "a2-ultragpu-1g": ("Nvidia Tesla A100 80GB GPU", "SSD backed Local Storage"),
    "a3-highgpu-8g": ("Nvidia H100 80GB GPU",),
    "a3-megagpu-8g": ("Nvidia H100 80GB Plus GPU",),
    "a3-ultragpu-8g": ("H200 141GB GPU",),
    "g2-standard-4": ("Nvidia L4 GPU", "G2 Instance Core"),
    "g4-standard-48": ("RTX 6000 96GB",),
    "n1-standard-8+T4:1": ("Nvidia Tesla T4 GPU",),
    "a4-highgpu-8g": ("Spot Preemptible A4 Nvidia B200",),
    "g4-standard-6": ("1/8 vGPU",),
    "n2-standard-8": ("N2 Instance Ram",),
}


@pytest.mark.parametrize(("instance_type", "missing"), [(name, part) for name in PARTS for part in PARTS[name]])
def test_a_machine_without_one_of_its_parts_has_no_price(instance_type: str, missing: str) -> None:
    one = offer(instance_type)
    one = one if is_sold(one) else offer(instance_type, SPOT)
    assert price(_of(REGION), one) > 0
    assert "no SKU is the rate of" in reason(without(missing), one)


@cache
def _of(region: str) -> list[Document]:
    return [document for document in documents() if region in document["serviceRegions"]]


def test_a_spot_price_is_made_of_spot_rates_alone() -> None:
    spot = offer("g2-standard-4", SPOT)
    assert "(spot)" in reason(without("Nvidia L4 GPU attached to Spot"), spot)
    assert price(_of(REGION), spot) < price(_of(REGION), offer("g2-standard-4"))


def test_spot_rates_that_google_lists_as_on_demand_are_spot_rates() -> None:
    """The A4 slice and the local SSD: taken by their usage type they would be the on-demand rate, at a third of it."""
    spot = [document for document in _of(REGION) if "Spot Preemptible A4" in document["description"]]
    assert {document["category"]["usageType"] for document in spot} == {"OnDemand"}
    assert sku_prices.compose(offer("a4-highgpu-8g"), *rates_and_mapping()) == Decimal("128.88")
    assert price(_of(REGION), offer("a4-highgpu-8g", SPOT)) == Decimal("37.7464")


@pytest.mark.parametrize(
    "description",
    [
        "Commitment v1: {} running in Americas for 1 Year",
        "{} running in Americas for 1 Year",
        "Reserved {} in Americas",
        "{} attached to DWS Defined Duration VMs running in Americas",
        "Reserved {} in Americas in Calendar Mode",
        "{} in Americas in Calendar Mode",
        "{} attached to Sole Tenancy VMs running in Americas",
        "{} Premium in Americas",
        "Nvidia L4 Virtual Workstation GPU running in Americas",
        "DWS Flex Start {} running in Americas",
        "Nvidia L40 GPU running in Americas",
        "Nvidia Tesla A100 80GB GPU running in Americas",
        "Capacity Optimized {} running in Americas",
        "Custom {} running in Americas",
        "{} Extended running in Americas",
    ],
)
def test_a_look_alike_is_no_rate(description: str) -> None:
    impostor = sku(description.format("Nvidia L4 GPU"), "GPU", "0.01", REGION)
    one = offer("g2-standard-4")
    assert price([*_of(REGION), impostor], one) == price(_of(REGION), one)
    assert "L4" in reason([*without("Nvidia L4 GPU running"), impostor], one)


@pytest.mark.parametrize(
    ("field", "value"), [("usageType", "Commit1Yr"), ("usageType", "Preemptible"), ("resourceGroup", "CPU")]
)
def test_a_sku_that_contradicts_its_description_is_no_rate(field: str, value: str) -> None:
    impostor = sku("Nvidia L4 GPU running in Americas", "GPU", "0.01", REGION)
    impostor["category"][field] = value
    assert price([impostor, *_of(REGION)], offer("g2-standard-4")) == price(_of(REGION), offer("g2-standard-4"))


def test_two_skus_that_disagree_are_no_price() -> None:
    second = sku("Nvidia L4 GPU running in Iowa", "GPU", "0.01", REGION)
    told = reason([*_of(REGION), second], offer("g2-standard-4"))
    assert "several SKUs with different prices" in told
    assert second["skuId"] in told


def test_two_skus_that_agree_are_one_rate() -> None:
    same = [sku(f"Nvidia L4 GPU running in {place}", "GPU", "0.56004", REGION) for place in ("Iowa", "Americas")]
    assert price([*without("Nvidia L4 GPU running"), *same], offer("g2-standard-4")) > Decimal("0.7")


def _l4(usd: str = "0.5", unit: str = "h", free_until: float | None = None) -> Document:
    return sku("Nvidia L4 GPU running in Iowa", "GPU", usd, REGION, unit=unit, free_until=free_until)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (_l4(usd="0"), "costs nothing"),
        (_l4(unit="GiBy.h"), "priced per 'GiBy.h'"),
        (_l4(unit="d"), "priced per 'd'"),
        (_l4() | {"pricingInfo": []}, "no price that can be read"),
        (_l4() | {"pricingInfo": None}, "no price that can be read"),
        (_l4() | {"pricingInfo": [{}]}, "no price that can be read"),
    ],
)
def test_a_sku_without_a_usable_price_is_named(made: Document, words: str) -> None:
    told = reason([*without("Nvidia L4 GPU running"), made], offer("g2-standard-4"))
    assert words in told
    assert made["skuId"] in told


ODD_PRICES: list[Document] = [{"units": "x"}, {"units": "-1"}, {"units": "1", "currencyCode": "EUR"}]


@pytest.mark.parametrize("tiers", [[], *([{"unitPrice": odd}] for odd in ODD_PRICES)])
def test_tiers_that_are_no_price(tiers: list[Document]) -> None:
    made = _l4() | {"pricingInfo": [{"pricingExpression": {"usageUnit": "h", "tieredRates": tiers}}]}
    assert made["skuId"] in reason([*without("Nvidia L4 GPU running"), made], offer("g2-standard-4"))


def test_hours_that_are_free_at_first_do_not_count() -> None:
    rest = without("Nvidia L4 GPU running")
    assert price([*rest, _l4(free_until=10)], offer("g2-standard-4")) == price([*rest, _l4()], offer("g2-standard-4"))


def test_a_price_that_depends_on_the_amount_is_no_rate() -> None:
    made = _l4(usd="0.5", free_until=10)
    made["pricingInfo"][0]["pricingExpression"]["tieredRates"][0]["unitPrice"]["nanos"] = 900_000_000
    assert "depends on the amount" in reason([*without("Nvidia L4 GPU running"), made], offer("g2-standard-4"))
    tiers = made["pricingInfo"][0]["pricingExpression"]["tieredRates"]
    tiers.append({"startUsageAmount": 99, "unitPrice": {"currencyCode": "USD", "nanos": 0}})
    assert "depends on the amount" in reason([*without("Nvidia L4 GPU running"), made], offer("g2-standard-4"))


def test_documents_of_any_other_shape_are_passed_over() -> None:
    odd: list[Document] = [{}, *({"description": text} for text in ("", "Nvidia L4 GPU running in Iowa", None))]
    assert price([*odd, *_of(REGION)], offer("g2-standard-4")) > 0


def test_memory_by_decimal_gigabytes_is_converted() -> None:
    rest = without("N2 Instance Ram")
    decimal = sku("N2 Instance Ram running in Iowa", "RAM", "0.004", REGION, unit="GBy.h")
    binary = sku("N2 Instance Ram running in Iowa", "RAM", "0.004294967", REGION, unit="GiBy.h")
    one = offer("n2-standard-8")
    assert abs(price([*rest, decimal], one) - price([*rest, binary], one)) <= Decimal("0.000001")


def test_a_machine_that_the_data_do_not_know_has_no_price() -> None:
    for name in ("c3-standard-8-lssd", "z3-standard-8", "n1-standard-8+K80:1", "c2-highmem-8"):
        told = reason(_of(REGION), replace(offer("c3-standard-8"), instance_type=name))
        assert "not known" in told or "no SKU is known" in told or "do not fit" in told
    for name, accelerator in (("n2-standard-8", offer("g2-standard-4").accelerator), ("g2-standard-4", None)):
        assert "do not fit" in reason(_of(REGION), replace(offer(name), accelerator=accelerator))


def test_the_data_know_every_shipped_machine_and_name_each_sku_once() -> None:
    mapping = sku_prices.read_mapping()
    used = {part.component.name for one in shipped() for part in mapping.parts(one)}
    assert used == {component.name for component in mapping.names.values()}
    components = json.loads(sku_prices.MAPPING.read_text(encoding="utf-8"))["components"]
    assert len(mapping.names) == sum(len(row["names"]) for row in components.values())
    assert {part.of for _, parts in mapping.machines for part in parts} == {"vcpus", "memory_gib", "accelerators"}


def test_requests_of_a_person_count_against_the_configured_project() -> None:
    person: Any = importlib.import_module("google.oauth2.credentials")  # untyped
    service_account: Any = importlib.import_module("google.oauth2.service_account")
    own = person.Credentials(token="x")
    assert counted(own, "research-42").quota_project_id == "research-42"
    assert counted(own, None) is own
    chosen = person.Credentials(token="x", quota_project_id="billing-7")
    assert counted(chosen, "research-42").quota_project_id == "billing-7"
    robot = service_account.Credentials(None, "robot@x.iam.gserviceaccount.com", "https://oauth2.googleapis.com/token")
    assert counted(robot, "research-42") is robot


def test_a_machine_that_is_not_sold_on_demand_gets_no_price_on_demand() -> None:
    """Its SKUs are in the list. Google's page on accelerator-optimized machines; dstackai/gpuhunt#176."""
    for name in ("a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g", "a3-ultragpu-8g", "a4-highgpu-8g"):
        known = [offer(name), offer(name, SPOT)]
        assert sku_prices.compose(known[0], *rates_and_mapping()) > 0
        found = harvest(documents(), known)
        assert [key_of(one)[3] for one in found.offers] == [SPOT], name
        assert not found.failures, "nothing is missing"
    found = harvest(documents(), [offer("a3-highgpu-8g"), offer("a3-highgpu-8g", SPOT)])
    assert {one.purchase_option for one in found.offers} == {SPOT, ON_DEMAND}


def test_the_ways_in_which_machines_are_sold_are_read_from_their_table() -> None:
    table = json.loads(facts.OPTIONS_FILE.read_text())
    assert facts.consumption_options()["a4x-highgpu-4g"] == {"reservation"}
    assert len(facts.consumption_options()) == sum(len(row["types"]) for row in table["machines"])
    assert all(set(row["sold"]) <= set(table["options"]) for row in table["machines"])

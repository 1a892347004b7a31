"""AWS's price lists to prices: plain Linux machines only, the cheapest real zone, and nothing that contradicts itself."""

import copy
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache

import pytest

from costgpu.models.offer import Offer, PurchaseOption
from costgpu.models.price_update import PriceUpdate, by_key, key_of
from costgpu.pricing import snapshot
from costgpu.providers.aws import prices
from tests.emulators.price_documents import Document, aws_product, aws_products, aws_spot_rows, spot_row

TODAY = date(2026, 11, 21)
REGION = "us-east-1"
SPOT, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.ON_DEMAND


@cache
def shipped() -> list[Offer]:
    return [offer for offer in snapshot.read_offers(snapshot.newest()) if offer.provider == "aws"]


def here(region: str = REGION) -> list[Offer]:
    return [offer for offer in shipped() if offer.region == region]


def offer(instance_type: str, option: PurchaseOption = ON_DEMAND, region: str = REGION) -> Offer:
    return by_key(shipped())["aws", region, instance_type, option]


def harvest(
    products: Iterable[Document], spots: Iterable[Document] = (), known: list[Offer] | None = None, region: str = REGION
) -> PriceUpdate:
    return prices.price_update(products, spots, shipped() if known is None else known, region, today=TODAY)


def reason(products: Iterable[Document], one: Offer, spots: Iterable[Document] = ()) -> str:
    found = harvest(products, spots, [one])
    assert not found.offers
    (failure,) = found.failures
    assert failure.key == key_of(one)
    return failure.reason


@pytest.mark.parametrize("region", sorted({one.region for one in shipped()}))
def test_the_lists_of_known_prices_give_the_known_prices(region: str) -> None:
    found = harvest(aws_products(here(region)), aws_spot_rows(here(region)), region=region)
    assert not found.failures
    assert not found.unknown
    before = by_key(here(region))
    assert {key_of(new) for new in found.offers} == set(before)
    for new in found.offers:
        old = before[key_of(new)]
        assert abs(new.price_usd_per_hour - old.price_usd_per_hour) <= Decimal("0.000001")
        same = {"price_usd_per_hour": old.price_usd_per_hour, "price_source": "", "price_as_of": TODAY}
        assert replace(new, **same) == replace(old, **same)  # type: ignore[arg-type]
    assert {(new.price_source, new.price_as_of, new.purchase_option) for new in found.offers} == {
        (prices.ON_DEMAND_SOURCE, TODAY, ON_DEMAND),
        (prices.SPOT_SOURCE, TODAY, SPOT),
    }


def test_the_plain_machine_is_told_from_all_others_at_whatever_price() -> None:
    one = offer("g5.xlarge")
    cheap = replace(one, price_usd_per_hour=Decimal("0.01"))
    look_alikes = {
        "operatingSystem": ("Windows", "RHEL"),
        "tenancy": ("Dedicated", "Host"),
        "capacitystatus": ("AllocatedCapacityReservation", "UnusedCapacityReservation"),
        "preInstalledSw": ("SQL Web",),
        "operation": ("RunInstances:0002", "RunInstances:CB"),
        "marketoption": ("CapacityBlock",),
        "regionCode": ("us-east-2",),
    }
    others = [aws_product(cheap, **{key: value}) for key, values in look_alikes.items() for value in values]
    for products in ([*others, aws_product(one)], [aws_product(one), *others]):
        (new,) = harvest(products, known=[one]).offers
        assert new.price_usd_per_hour == one.price_usd_per_hour
    assert "has no such machine" in reason(others, one)


def test_two_prices_for_one_machine_are_none() -> None:
    one = offer("g5.xlarge")
    dearer = aws_product(replace(one, price_usd_per_hour=Decimal(2)), licenseModel="another")
    assert "two prices" in reason([aws_product(one), dearer], one)
    same = aws_product(one, licenseModel="another")
    assert len(harvest([aws_product(one), same], known=[one]).offers) == 1


def _dimension(product: Document) -> Document:
    (term,) = product["terms"]["OnDemand"].values()
    (dimension,) = term["priceDimensions"].values()
    found: Document = dimension
    return found


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"unit": "Quantity"}, "not per hour"),
        ({"pricePerUnit": {"CNY": "3"}}, "not in USD"),
        ({"pricePerUnit": {}}, "not in USD"),
        ({"pricePerUnit": {"USD": "0.0000000000"}}, "cannot be a price"),
        ({"pricePerUnit": {"USD": "-1"}}, "cannot be"),
        ({"pricePerUnit": {"USD": "NaN"}}, "cannot be"),
        ({"pricePerUnit": {"USD": "much"}}, "cannot be a price"),
    ],
)
def test_a_price_that_cannot_be_is_named(change: Document, words: str) -> None:
    product = aws_product(offer("g5.xlarge"))
    _dimension(product).update(change)
    assert words in reason([product], offer("g5.xlarge"))


def test_a_reserved_price_is_none_and_a_tiered_price_is_none() -> None:
    product = aws_product(offer("g5.xlarge"))
    (term,) = product["terms"]["OnDemand"].values()
    term["priceDimensions"]["second"] = copy.deepcopy(_dimension(aws_product(offer("g5.xlarge"))))
    assert "2 on-demand prices" in reason([product], offer("g5.xlarge"))
    del product["terms"]["OnDemand"]
    assert "0 on-demand prices" in reason([product], offer("g5.xlarge"))


@pytest.mark.parametrize("attributes", [{"vcpu": "8"}, {"memory": "32 GiB"}, {"memory": "NA"}])
def test_a_machine_of_another_size_is_not_the_one_that_is_known(attributes: dict[str, str]) -> None:
    assert "not of 4 vCPUs and 16 GiB" in reason([aws_product(offer("g5.xlarge"), **attributes)], offer("g5.xlarge"))


def test_memory_with_a_thousands_comma_is_read() -> None:
    one = offer("p4d.24xlarge")
    product = aws_product(one)
    assert product["product"]["attributes"]["memory"] == "1,152 GiB"
    assert len(harvest([product], known=[one]).offers) == 1


def test_types_of_unknown_hardware_are_counted_and_not_offered() -> None:
    one = offer("g5.xlarge")
    strange = replace(one, instance_type="z99.mega")
    found = harvest([aws_product(one), aws_product(strange)], [spot_row("y1.tiny", "us-east-1a", "0.1")], known=[one])
    assert [new.instance_type for new in found.offers] == ["g5.xlarge"]
    assert found.unknown == ("y1.tiny", "z99.mega")


def test_a_known_type_in_another_region_is_a_new_offer() -> None:
    far = replace(offer("g5.xlarge"), region="eu-north-1", price_usd_per_hour=Decimal("1.2"))
    found = harvest([aws_product(far)], [spot_row("g5.xlarge", "eu-north-1b", "0.4")], region="eu-north-1")
    assert {(new.region, new.purchase_option, str(new.price_usd_per_hour)) for new in found.offers} == {
        ("eu-north-1", ON_DEMAND, "1.200000"),
        ("eu-north-1", SPOT, "0.400000"),
    }
    assert not found.failures


def test_spot_is_the_cheapest_of_the_regions_own_zones_as_it_is_now() -> None:
    early, late = datetime(2026, 11, 20, tzinfo=UTC), datetime(2026, 11, 21, tzinfo=UTC)
    rows = [
        spot_row("g5.xlarge", "us-east-1a", "0.10", at=early),
        spot_row("g5.xlarge", "us-east-1a", "0.50", at=late),
        spot_row("g5.xlarge", "us-east-1b", "0.45", product="Linux/UNIX (Amazon VPC)", at=late),
        spot_row("g5.xlarge", "us-east-1b", "0.20", at=early),
        spot_row("g5.xlarge", "us-east-1-atl-2a", "0.05", at=late),
        spot_row("g5.xlarge", "us-east-1-wl1-bos-wlz-1", "0.05", at=late),
        spot_row("g5.xlarge", "us-east-2a", "0.05", at=late),
        spot_row("g5.xlarge", "us-east-1c", "0.05", product="Windows", at=late),
    ]
    for order in (rows, rows[::-1]):
        (new,) = harvest([], order, [offer("g5.xlarge", SPOT)]).offers
        assert new.price_usd_per_hour == Decimal("0.45")


@pytest.mark.parametrize("usd", ["0", "-1", "0.0000001"])
def test_a_spot_price_that_cannot_be_is_named(usd: str) -> None:
    rows = [spot_row("g5.xlarge", "us-east-1a", "0.5"), spot_row("g5.xlarge", "us-east-1b", "0.5") | {"SpotPrice": usd}]
    assert "us-east-1b" in reason([], offer("g5.xlarge", SPOT), rows)


def test_offers_that_the_lists_lack_are_named() -> None:
    assert "has no such machine in us-east-1" in reason([], offer("g5.xlarge"))
    assert "no availability zone of us-east-1" in reason([], offer("g5.xlarge", SPOT))


def test_documents_of_any_other_shape_are_passed_over() -> None:
    found = harvest([{}, {"product": {}}, {"product": {"attributes": {}}}], [{}], known=[offer("g5.xlarge")])
    assert len(found.failures) == 1
    assert found.documents == 3

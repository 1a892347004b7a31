"""Queries: what each filter leaves, in the order asked for, or an error that helps."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from costgpu.errors import PriceNotFound, UsageError
from costgpu.models.offer import Offer, PurchaseOption
from costgpu.pricing import snapshot
from costgpu.pricing.catalog import Catalog, OfferQuery, SortKey
from costgpu.units import AcceleratorRequest, NumberRange, parse_accelerator
from tests.unit.estimator import builders

ACCELERATORS = {"A100": 40.0, "A100-80GB": 80.0, "L4": 24.0, "B300": 268.0}


def offer(
    instance_type: str = "m",
    *,
    price: str | Decimal = "1",
    accelerator: tuple[str, float] | None = None,
    option: PurchaseOption = PurchaseOption.ON_DEMAND,
    **changes: Any,
) -> Offer:
    name, count = accelerator or ("", 1)
    memory = ACCELERATORS[name] * min(count, 1) if name else 0
    made = builders.offer(str(price), gpu=name, count=count, gpu_memory_gib=memory, **{"vcpus": 4, **changes})
    return replace(made, instance_type=instance_type, purchase_option=option)


CATALOG = Catalog(
    [
        offer("cpu", price="0.1"),
        offer("cpu", price="0.04", option=PurchaseOption.SPOT),
        offer("slice", price="0.3", accelerator=("L4", 0.5)),
        offer("l4", price="0.8", accelerator=("L4", 1)),
        offer("a100", price="22", accelerator=("A100", 8), vcpus=96, memory_gib=1152),
        offer("a2", provider="gcp", region="us-central1", price="4", accelerator=("A100", 1), memory_gib=85),
        offer("a2-ultra", provider="gcp", region="us-central1", price="6", accelerator=("A100-80GB", 1)),
        offer("b300", provider="gcp", region="us-central1", price="142", accelerator=("B300", 8)),
    ]
)


def found(**query: object) -> list[str]:
    return [offer.instance_type for offer in CATALOG.query(OfferQuery(**query))]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("request_text", "types"),
    [
        ("A100", ["a2", "a100"]),
        ("nvidia-tesla-a100", ["a2", "a100"]),
        ("A100-40GB", ["a2", "a100"]),
        ("A100-SXM4-80GB", ["a2-ultra"]),
        ("A100:1", ["a2"]),
        ("A100:2+", ["a100"]),
        ("L4", ["slice", "l4"]),
        ("L4:1", ["l4"]),
        ("L4:0.5", ["slice"]),
        ("none", ["cpu", "cpu"]),
        ("24GB", ["l4", "a2", "a2-ultra", "a100", "b300"]),
        ("24GB:1..2", ["l4", "a2", "a2-ultra"]),
        ("80GB", ["a2-ultra", "b300"]),
        ("288GB", ["b300"]),
        ("12GB", ["slice", "l4", "a2", "a2-ultra", "a100", "b300"]),
    ],
)
def test_accelerator_requests(request_text: str, types: list[str]) -> None:
    assert found(accelerator=parse_accelerator(request_text)) == types


@pytest.mark.parametrize(
    ("infra", "count"),
    [
        (("aws",), 5),
        (("gcp",), 3),
        (("us-central1",), 3),
        (("AWS/us-east-1", "gcp"), 8),
        (("gcp/us-central1",), 3),
    ],
)
def test_places(infra: tuple[str, ...], count: int) -> None:
    assert len(found(infra=infra)) == count


def test_orders() -> None:
    accelerated = parse_accelerator("12GB")
    by_gpu_price = ["slice", "l4", "a100", "a2", "a2-ultra", "b300"]
    assert found(accelerator=accelerated, sort=SortKey.GPU_PRICE) == by_gpu_price
    assert found(sort=SortKey.MEMORY)[:3] == ["a100", "a2", "cpu"]
    assert found(sort=SortKey.NAME, limit=3) == ["a100", "a2", "a2-ultra"]
    assert found(sort=SortKey.GPU_PRICE)[-2:] == ["cpu", "cpu"]


@pytest.mark.parametrize("sort", SortKey)
def test_the_order_in_which_offers_come_does_not_matter(sort: SortKey) -> None:
    offers = snapshot.read_offers(snapshot.newest())
    query = OfferQuery(sort=sort)
    assert Catalog(offers).query(query) == Catalog(offers[::-1]).query(query)


def test_other_filters() -> None:
    assert found(purchase_options=(PurchaseOption.SPOT,)) == ["cpu"]
    assert found(cpus=NumberRange(8, None)) == ["a100"]
    assert found(memory=NumberRange(80, 100)) == ["a2"]
    assert found(max_price_usd_per_hour=Decimal("0.3")) == ["cpu", "cpu", "slice"]
    assert found(architecture="x86_64", limit=1) == ["cpu"]


@pytest.mark.parametrize(
    ("query", "message", "hint"),
    [
        (
            OfferQuery(accelerator=AcceleratorRequest(name="A1000")),
            "accelerator named 'A1000'",
            "A100, A100-80GB",
        ),
        (OfferQuery(infra=("azzure",)), "provider or region named 'azzure'", "aws"),
        (OfferQuery(infra=("us-esat-1",)), "provider or region named 'us-esat-1'", "us-east-1"),
        (OfferQuery(infra=("asw/us-east-1",)), "provider named 'asw'", "aws"),
        (OfferQuery(infra=("aws/us-central1",)), "aws region named 'us-central1'", "us-east-1"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(query: OfferQuery, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        CATALOG.query(query)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert "`costgpu offers --sort name --top 0` lists all" in caught.value.hint


def test_an_instance_type_is_found_in_any_case_and_an_unknown_one_answered_with_the_nearest() -> None:
    name = CATALOG.offers[0].instance_type
    found = CATALOG.query(OfferQuery(instance_type=name.upper()))
    assert {offer.instance_type for offer in found} == {name}
    with pytest.raises(PriceNotFound) as caught:
        CATALOG.query(OfferQuery(instance_type=f"{name}x"))
    assert name in caught.value.hint


def test_nothing_found_says_what_to_loosen() -> None:
    query = OfferQuery(
        accelerator=parse_accelerator("A100:1"), infra=("aws",), purchase_options=(PurchaseOption.ON_DEMAND,)
    )
    with pytest.raises(PriceNotFound) as caught:
        CATALOG.query(query)
    assert caught.value.message == "No offer matches --infra aws, --on-demand, --gpus A100:1."
    assert caught.value.hint == (
        "Without --infra aws: 1 offer from $4.00/h. "
        "Without the count in --gpus A100:1: 1 offer from $22.00/h. "
        "Without --gpus A100:1: 4 offers from $0.10/h."
    )


def test_nothing_found_for_two_reasons() -> None:
    query = OfferQuery(
        cpus=NumberRange(100, None),
        memory=NumberRange(5000, 6000),
        max_price_usd_per_hour=Decimal("0.01"),
        architecture="arm64",
    )
    with pytest.raises(PriceNotFound, match=r"--cpus 100\+, --memory 5000\.\.6000, --max-price 0\.01") as caught:
        CATALOG.query(query)
    assert "two or more" in caught.value.hint


def test_an_accelerator_that_nobody_rents() -> None:
    with pytest.raises(PriceNotFound, match="has the accelerator RTX 4090") as caught:
        CATALOG.query(OfferQuery(accelerator=parse_accelerator("rtx4090")))
    assert caught.value.hint == "Those with offers: A100, A100-80GB, B300, L4."


def test_an_empty_catalog_has_no_price() -> None:
    with pytest.raises(PriceNotFound, match="an empty catalog"):
        Catalog([]).query(OfferQuery())


def test_machines_that_boot_no_public_image_are_found_only_with_an_image_of_the_users() -> None:
    """AWS's Deep Learning image has no driver for P3, and Google publishes none for a part of a GPU."""
    v100, slices = OfferQuery(accelerator=AcceleratorRequest(name="V100")), OfferQuery(instance_type="g4-standard-6")

    def of_aws(provider: str) -> bool:
        return provider == "aws"

    assert {one.provider for one in Catalog.current().query(v100)} == {"gcp"}
    assert {one.provider for one in Catalog.current(has_image=of_aws).query(v100)} == {"aws", "gcp"}
    with pytest.raises(PriceNotFound) as caught:
        Catalog.current(has_image=of_aws).query(slices)
    assert caught.value.message == "Only machines that boot no public image match -t g4-standard-6: g4-standard-6."
    assert "gcp_image" in caught.value.hint
    assert Catalog.current(has_image=lambda provider: provider == "gcp").query(slices)


def test_every_type_that_an_adapter_refuses_for_want_of_an_image_is_set_apart() -> None:
    """AWS p2, p3, g3, g4ad, g6f, gr6f, and Google's parts of a GPU."""
    shipped = snapshot.read_offers(snapshot.newest())
    apart = {one.family for one in shipped} - {one.family for one in Catalog.current().offers}
    assert apart == {"p2", "p3", "p3dn", "g3", "g3s", "g4ad", "g6f", "gr6f"}
    types = {one.instance_type for one in Catalog.current().offers}
    assert "g4-standard-48" in types
    assert not types & {"g4-standard-6", "g4-standard-12", "g4-standard-24"}

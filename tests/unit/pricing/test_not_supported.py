"""Lists of accelerators, names that are known and not supported, and zones, which nobody needs to name."""

import contextlib

import pytest

from costgpu.errors import PriceNotFound, UsageError
from costgpu.models.offer import Offer
from costgpu.pricing import snapshot
from costgpu.pricing.catalog import Catalog
from costgpu.pricing.hardware import accelerators
from costgpu.pricing.query import OfferQuery, in_words, matches
from costgpu.units import parse_accelerator
from costgpu.workflows.offers import OfferRequest
from costgpu.workflows.runs.request import RunRequest

CATALOG = Catalog(snapshot.read_offers(snapshot.newest()))


def found(gpus: str) -> list[Offer]:
    query = OfferRequest(gpus=gpus).query
    offers = CATALOG.query(query)
    assert all(matches(offer, query) for offer in offers)
    return offers


@pytest.mark.parametrize(
    "text", ["T4:1,L4:2", "t4:1, l4:2", " L4:2 ,T4:1", "T4:1,,L4:2,T4:1", "nvidia-tesla-t4:1,L4:2,"]
)
def test_a_list_is_any_of_them(text: str) -> None:
    offers = found(text)
    assert sorted(map(str, offers)) == sorted(map(str, [*found("T4:1"), *found("L4:2")]))
    prices = [offer.price_usd_per_hour for offer in offers]
    assert prices == sorted(prices)


def test_memory_and_names_in_one_list() -> None:
    assert len(found("80GB:8,T4:1")) == len(found("80GB:8")) + len(found("T4:1"))


@pytest.mark.parametrize(("text", "named"), [("T4,Foo", "'Foo'"), ("Foo,T4", "'Foo'"), ("T4,L4:x", "'x'")])
def test_the_element_that_is_not_known_is_named(text: str, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        found(text)


@pytest.mark.parametrize("text", [",", " , ", ""])
def test_an_empty_list(text: str) -> None:
    with pytest.raises(UsageError):
        parse_accelerator(text)


def test_none_stands_alone() -> None:
    with pytest.raises(UsageError, match="none stands alone"):
        parse_accelerator("T4,none")


def test_what_is_asked_in_words() -> None:
    assert in_words(OfferQuery(accelerator=parse_accelerator("T4:1,L4"))) == "--gpus T4:1,L4"
    with pytest.raises(PriceNotFound, match="RTX 3080 or RTX 3090"):
        found("RTX 3080,RTX 3090")


def test_the_option_given_several_times() -> None:
    assert RunRequest(gpus=["T4", "L4:2"]).gpus == "T4,L4:2"
    assert OfferRequest(gpus=["T4", "L4:2"]).query == OfferRequest(gpus="T4,L4:2").query
    for empty in ([""], "", []):
        with pytest.raises(UsageError, match="--gpus is empty"):
            RunRequest(gpus=empty)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "tpu-v5e",
            "TPU",
            "tpu_v6e:8",
            "v5litepod-8",
            "v5e-8",
            "v6e",
            "v5p-16",
            "mi300x",
            "AMD MI300X:8",
            "mi210",
            "MI100",
        ),
        *("trainium", "Trn1", "trn1n", "Inferentia2", "gaudi-2"),
    ],
)
def test_an_accelerator_that_is_not_supported(name: str) -> None:
    with pytest.raises(UsageError, match="is known, and not supported") as caught:
        found(name)
    assert "NVIDIA" in caught.value.hint
    with pytest.raises(UsageError, match="is known, and not supported"):
        found(f"T4,{name}")


def test_no_nvidia_gpu_is_called_unsupported() -> None:
    for name, spec in accelerators().items():
        if spec.vendor == "NVIDIA":
            with contextlib.suppress(PriceNotFound):  # no cloud rents it
                found(name)


@pytest.mark.parametrize("place", ["azure", "Azure/westeurope", "lambda", "lambda-labs", "runpod", "vast.ai", "oci"])
def test_a_cloud_that_is_not_supported(place: str) -> None:
    with pytest.raises(UsageError, match="is known, and not supported") as caught:
        CATALOG.query(OfferQuery(infra=(place,)))
    assert "costgpu knows aws, " in caught.value.hint


@pytest.mark.parametrize(
    ("zone", "region"),
    [
        ("gcp/us-central1-a", "gcp/us-central1"),
        ("us-central1-f", "gcp/us-central1"),
        ("GCP/us-central1/us-central1-b", "gcp/us-central1"),
        ("aws/us-east-1a", "aws/us-east-1"),
        ("us-east-1b", "aws/us-east-1"),
    ],
)
def test_a_zone(zone: str, region: str) -> None:
    with pytest.raises(UsageError, match="Zones are chosen by costgpu") as caught:
        CATALOG.query(OfferQuery(infra=(zone,)))
    assert caught.value.hint == f"Name the region: --infra {region}."


@pytest.mark.parametrize("place", ["aws/us-central1-a", "gcp/us-centrall", "mars"])
def test_any_other_name_is_answered_with_the_nearest(place: str) -> None:
    with pytest.raises(UsageError, match="There is no"):
        CATALOG.query(OfferQuery(infra=(place,)))

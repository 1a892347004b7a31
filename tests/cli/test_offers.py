"""`costgpu offers` on a small catalog of its own: what they print, what their options mean."""

import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from costgpu.errors import PriceNotFound, UsageError
from costgpu.models.offer import PurchaseOption
from costgpu.pricing import snapshot
from costgpu.pricing.catalog import Catalog, OfferQuery, SortKey
from costgpu.render.text.offers import offers_json, offers_table
from costgpu.units import AcceleratorRequest, NumberRange
from costgpu.workflows.offers import OfferRequest, candidates
from costgpu.workflows.reporter import LogReporter
from tests.cli.here import told

HERE = Path(__file__).parent
TODAY = date(2026, 11, 21)
SPOT, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.ON_DEMAND
CATALOG = Catalog(snapshot.read_offers(HERE / "offers.csv"))


def printed(*, top: int | None = 20, as_json: bool = False, **options: object) -> str:
    found = CATALOG.query(OfferRequest(**options).query)  # type: ignore[arg-type]
    return (offers_json if as_json else offers_table)(found[:top], TODAY, total=len(found))


@pytest.mark.parametrize(
    ("file", "options"),
    [
        ("offers_a100.txt", {"gpus": "A100"}),
        ("offers_aws.txt", {"infra": ["aws"], "top": 5}),
        ("offers_cpu.txt", {"gpus": "none"}),  # no column for accelerators
        ("offers_wide.txt", {"gpus": "12GB", "infra": ["gcp"]}),  # rows that are too wide become two lines
        ("offers_l4.json", {"gpus": "L4", "top": 1, "as_json": True}),
    ],
)
def test_what_is_printed(file: str, options: dict[str, Any]) -> None:
    assert printed(**options) + "\n" == (HERE / "expected" / file).read_text()


@pytest.mark.parametrize("options", [{}, {"gpus": "A100-80GB"}, {"gpus": "8GB"}, {"sort": "memory"}])
@pytest.mark.parametrize("top", [1, 3, 20, None])
def test_no_line_is_wider_than_80_columns(options: dict[str, object], top: int | None) -> None:
    text = printed(**options, top=top)  # type: ignore[arg-type]
    assert max(map(len, text.splitlines())) <= 80
    assert text.isascii()
    assert text == text.rstrip()


def test_the_document_lists_what_the_table_lists() -> None:
    document = json.loads(printed(top=3, as_json=True))
    assert (document["schema"], document["version"], document["total"]) == ("costgpu.offers", 1, 11)
    assert [o["instance_type"] for o in document["offers"]] == ["t3.nano", "c7i.2xlarge", "g6f.large"]
    assert [o["price_usd_per_hour"] for o in document["offers"]] == ["0.0052", "0.1301", "0.202"]
    assert [o["price_is_derived"] for o in document["offers"]] == [False, False, True]


def test_an_empty_table_is_only_a_heading() -> None:
    assert offers_table([], TODAY) == ""


def test_options_make_the_query() -> None:
    assert OfferRequest().query == OfferQuery()
    assert OfferRequest(
        gpus="A100:1",
        cpus="8+",
        memory="64GB..128GiB",
        infra=["aws", "us-west1"],
        spot=True,
        max_price="$5",
        sort="gpu-price",
    ).query == OfferQuery(
        accelerator=AcceleratorRequest(name="A100", count=NumberRange(1, 1)),
        cpus=NumberRange(8, None),
        memory=NumberRange(64, 128),
        infra=("aws", "us-west1"),
        purchase_options=(SPOT,),
        max_price_usd_per_hour=Decimal(5),
        sort=SortKey.GPU_PRICE,
    )
    assert OfferRequest(spot=False).query.purchase_options == (ON_DEMAND,)
    assert OfferRequest(sort="Memory").query.sort is SortKey.MEMORY


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gpus": "A100:"}, "not an accelerator request"),
        ({"cpus": "many"}, "for --cpus"),
        ({"memory": "64TB"}, "for --memory"),
        ({"max_price": "0"}, "positive amount"),
        ({"sort": "colour"}, "--sort 'colour'"),
    ],
)
def test_options_that_cannot_be_meant(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        _ = OfferRequest(**options).query  # type: ignore[arg-type]
    assert message in caught.value.message


def test_the_command_on_the_shipped_prices() -> None:
    text = told("offers", "--gpus", "A100", "--top", "3", "-o", "text").check(0, err="").out
    assert text.startswith("TYPE ")
    assert "3 of " in text


@pytest.mark.parametrize("flags", ["--json", "-o JSON", "--json -o table"])
def test_the_command_prints_one_document(flags: str) -> None:
    words = ["--gpus", "none", "--infra", "aws", "--region", "us-central1", "--top", "0"]
    document = json.loads(told("offers", *words, *flags.split()).check(0, err="").out)
    assert document["total"] == len(document["offers"]) > 500
    assert {o["provider"] for o in document["offers"]} == {"aws", "gcp"}
    assert {o["region"] for o in document["offers"] if o["provider"] == "gcp"} == {"us-central1"}


@pytest.mark.parametrize(("flag", "option"), [("--spot", "spot"), ("--use-spot", "spot"), ("--on-demand", "on_demand")])
def test_the_command_s_purchase_options(flag: str, option: str) -> None:
    document = json.loads(told("offers", "--gpus", "T4", flag, "--json").check(0, err="").out)
    assert {o["purchase_option"] for o in document["offers"]} == {option}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("--gpus A1000", 2, "A1000"),
        ("--infra mars", 2, "mars"),
        ("--json -o yaml", 2, "--output 'yaml' is not a format.\nhint: Use text or json."),
        ("--max-price 0.0001", 4, ""),
    ],
)
def test_what_is_not_there_is_a_clear_error(words: str, code: int, said: str) -> None:
    told("offers", *words.split()).check(code, out="", err=[said])


def test_a_machine_that_boots_no_public_image_is_marked_where_the_settings_name_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """AWS p3: see DRIVER_FAMILIES."""
    shown = told("offers", "--gpus", "V100:1", "--top", "0").check(0).out
    assert "p3.2xlarge" not in shown
    said = told("offers", "--gpus", "V100:1", "--infra", "aws").check(4, out="").err
    assert "boot no public image" in said
    assert "aws_image" in said
    monkeypatch.setenv("COSTGPU_AWS_IMAGE", "ami-12345678")
    lines = told("offers", "--gpus", "V100:1", "--infra", "aws").check(0).out.splitlines()
    assert lines[1].startswith("p3.2xlarge^ aws/")
    assert "^ needs your image (aws_image): no public one has its driver." in lines
    document = json.loads(told("offers", "--gpus", "V100:1", "--json").check(0).out)
    marked = {row["provider"]: row["needs_own_image"] for row in document["offers"]}
    assert marked == {"aws": True, "gcp": False}


def test_candidates_are_machines_that_a_run_can_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `estimate` may recommend, and where `run` may go."""

    def found(**options: Any) -> set[str]:
        places = candidates("L4", ("aws",), spot=False, reporter=LogReporter(), **options)
        return {place.offer.family for place in places if place.offer and place.offer.accelerator}

    assert found() == {"g6", "gr6"}
    with pytest.raises(PriceNotFound, match=r"boot no public image match .*: g6f\.large") as caught:
        found(instance_types=["g6f.large"])
    assert "aws_image" in caught.value.hint
    monkeypatch.setenv("COSTGPU_AWS_IMAGE", "ami-12345678")
    assert found(instance_types=["g6f.large"]) == {"g6", "gr6", "g6f", "gr6f"}


def test_what_a_spot_machine_costs_at_most_is_known_where_none_is_sold_on_demand() -> None:
    """A run with a limit of cost counts on that price: the list's, at which Google starts no machine."""
    places = candidates("H100:1", ("gcp/us-central1",), spot=True, reporter=LogReporter())
    (found,) = {p.on_demand_usd_per_hour for p in places if p.offer and p.offer.instance_type == "a3-highgpu-1g"}
    assert found == Decimal("11.06125")
    with pytest.raises(PriceNotFound):
        candidates("H100:1", ("gcp",), spot=False, reporter=LogReporter())

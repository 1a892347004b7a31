"""`costgpu offers` on a small catalog of its own: exactly what it prints, and what its options mean."""

import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from costgpu.cli.options import wants_json
from costgpu.cli.prices import offers
from costgpu.errors import PriceNotFound, UsageError
from costgpu.models.offer import Accelerator, Offer, PurchaseOption
from costgpu.pricing.catalog import Catalog, OfferQuery, SortKey
from costgpu.render.text.offers import offers_json, offers_table
from costgpu.units import AcceleratorRequest, NumberRange
from costgpu.workflows.offers import offer_query

EXPECTED = Path(__file__).parent / "expected"
TODAY = date(2026, 11, 21)
SPOT, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.ON_DEMAND


def offer(
    place: str,
    instance_type: str,
    option: PurchaseOption,
    price: str,
    vcpus: int,
    memory_gib: float,
    accelerator: Accelerator | None = None,
    source: str = "a price list",
    as_of: date = date(2026, 7, 9),
) -> Offer:
    provider, region = place.split("/")
    return Offer(
        provider=provider,
        instance_type=instance_type,
        family=instance_type.replace("-", ".").partition(".")[0],
        region=region,
        zone=None,
        purchase_option=option,
        price_usd_per_hour=Decimal(price),
        vcpus=vcpus,
        memory_gib=memory_gib,
        architecture="x86_64",
        accelerator=accelerator,
        price_source=source,
        price_as_of=as_of,
    )


def gpu(name: str, count: float, memory_gib: float) -> Accelerator:
    return Accelerator(name=name, count=count, memory_gib=memory_gib)


OLD, NEW = date(2026, 1, 19), date(2026, 9, 17)
RTX = gpu("RTX-PRO-6000", 0.125, 12)
CATALOG = Catalog(
    [
        offer("aws/us-east-1", "t3.nano", ON_DEMAND, "0.0052", 2, 0.5, as_of=OLD),
        offer("aws/us-east-1", "c7i.2xlarge", ON_DEMAND, "0.357", 8, 16, as_of=OLD),
        offer("aws/us-east-1", "c7i.2xlarge", SPOT, "0.1301", 8, 16),
        offer("aws/us-east-1", "g6f.large", ON_DEMAND, "0.202", 2, 8, gpu("L4", 0.125, 3), "derived-linear"),
        offer("aws/us-east-1", "g6.xlarge", ON_DEMAND, "0.8048", 4, 16, gpu("L4", 1, 24)),
        offer("aws/us-east-1", "p4d.24xlarge", ON_DEMAND, "21.957642", 96, 1152, gpu("A100", 8, 40)),
        offer("aws/us-east-1", "p4d.24xlarge", SPOT, "6.5323", 96, 1152, gpu("A100", 8, 40)),
        offer("gcp/us-central1", "n1-standard-8+T4:2", ON_DEMAND, "1.079998", 8, 30, gpu("T4", 2, 16), as_of=NEW),
        offer("gcp/us-central1", "a2-highgpu-1g", SPOT, "1.93", 12, 85, gpu("A100", 1, 40), as_of=NEW),
        offer("gcp/asia-northeast1", "a2-ultragpu-1g", ON_DEMAND, "5.0688", 12, 170, gpu("A100-80GB", 1, 80)),
        offer("gcp/asia-northeast1", "g4-standard-6", SPOT, "0.31", 6, 22, RTX, "derived: estimated", as_of=NEW),
    ]
)


def printed(*, top: int | None = 20, as_json: bool = False, **options: object) -> str:
    found = CATALOG.query(offer_query(**options))  # type: ignore[arg-type]
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
    assert printed(**options) + "\n" == (EXPECTED / file).read_text()


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
    assert offer_query() == OfferQuery()
    assert offer_query(
        gpus="A100:1",
        cpus="8+",
        memory="64GB..128GiB",
        infra=["aws", "us-west1"],
        spot=True,
        max_price="$5",
        sort="gpu-price",
    ) == OfferQuery(
        accelerator=AcceleratorRequest(name="A100", count=NumberRange(1, 1)),
        cpus=NumberRange(8, None),
        memory=NumberRange(64, 128),
        infra=("aws", "us-west1"),
        purchase_options=(SPOT,),
        max_price_usd_per_hour=Decimal(5),
        sort=SortKey.GPU_PRICE,
    )
    assert offer_query(spot=False).purchase_options == (ON_DEMAND,)
    assert offer_query(sort="Memory").sort is SortKey.MEMORY


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
        offer_query(**options)  # type: ignore[arg-type]
    assert message in caught.value.message


def test_output_formats() -> None:
    assert wants_json(json=False, output="JSON")
    assert wants_json(json=True, output="table")
    assert not wants_json(json=False, output="text")
    with pytest.raises(UsageError, match="--output 'yaml'"):
        wants_json(json=True, output="yaml")


@pytest.fixture
def run() -> CliRunner:
    return CliRunner()


app = typer.Typer(add_completion=False)
app.command()(offers)


def test_the_command_on_the_shipped_prices(run: CliRunner) -> None:
    result = run.invoke(app, ["--gpus", "A100", "--top", "3"])
    assert result.exit_code == 0
    assert result.stdout.startswith("TYPE ")
    assert "3 of " in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize("flags", [["--json"], ["-o", "json"]])
def test_the_command_prints_one_document(run: CliRunner, flags: list[str]) -> None:
    result = run.invoke(app, ["--gpus", "none", "--infra", "aws", "--region", "us-central1", "--top", "0", *flags])
    document = json.loads(result.stdout)
    assert document["total"] == len(document["offers"]) > 500
    assert {o["provider"] for o in document["offers"]} == {"aws", "gcp"}
    assert {o["region"] for o in document["offers"] if o["provider"] == "gcp"} == {"us-central1"}


@pytest.mark.parametrize(("flag", "option"), [("--spot", "spot"), ("--use-spot", "spot"), ("--on-demand", "on_demand")])
def test_the_command_s_purchase_options(run: CliRunner, flag: str, option: str) -> None:
    result = run.invoke(app, ["--gpus", "T4", flag, "--json"])
    assert {o["purchase_option"] for o in json.loads(result.stdout)["offers"]} == {option}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--gpus", "A1000"], UsageError),
        (["--infra", "mars"], UsageError),
        (["-o", "yaml"], UsageError),
        (["--max-price", "0.0001"], PriceNotFound),
    ],
)
def test_the_command_raises_its_errors_for_app(run: CliRunner, arguments: list[str], error: type[Exception]) -> None:
    result = run.invoke(app, arguments)
    assert isinstance(result.exception, error)
    assert result.stdout == ""

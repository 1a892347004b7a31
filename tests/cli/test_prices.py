"""`costgpu prices` as people meet it: the real clients against price lists on a port of this machine."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache

import pytest
from pytest_socket import enable_socket

from costgpu.models.offer import Offer, PurchaseOption
from costgpu.models.price_update import by_key
from costgpu.pricing import price_store, snapshot
from costgpu.pricing.catalog import Catalog
from costgpu.providers.gcp import sku_catalog as gcp_client
from costgpu.workflows.offers import candidates
from costgpu.workflows.reporter import LogReporter
from tests.cli.here import Result, told
from tests.emulators.price_documents import Document, aws_products, aws_spot_rows, google_skus
from tests.emulators.price_server import PriceServer, aws_refusal, ec2_refusal, google_refusal

SPOT, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.ON_DEMAND
REGION = "us-central1"


@cache
def shipped() -> list[Offer]:
    return snapshot.read_offers(snapshot.newest())


@cache
def google() -> str:
    """Google's list for one region: what most tests need."""
    return json.dumps([document for document in google_skus() if REGION in document["serviceRegions"]])


@cache
def amazon() -> tuple[str, tuple[Document, ...]]:
    known = [one for one in shipped() if one.provider == "aws" and one.region in ("us-east-1", "us-east-2")]
    return json.dumps(aws_products(known)), tuple(aws_spot_rows(known))


@pytest.fixture(scope="module")
def running() -> Iterator[PriceServer]:
    enable_socket()
    server = PriceServer()
    yield server
    server.close()


@pytest.fixture
def server(running: PriceServer, nothing_of_the_users: None, monkeypatch: pytest.MonkeyPatch) -> PriceServer:
    enable_socket()
    running.skus = json.loads(google())
    running.products, running.spots = json.loads(amazon()[0]), list(amazon()[1])
    running.requests, running.refusals, running.page = [], {}, 5000
    for name, value in running.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(gcp_client, "WAIT_SECONDS", 0.01)
    return running


def now(instance_type: str, option: PurchaseOption = ON_DEMAND, place: str = f"gcp/{REGION}") -> Offer:
    provider, _, region = place.partition("/")
    return by_key(Catalog.current().offers)[provider, region, instance_type, option]


def before(instance_type: str, option: PurchaseOption = ON_DEMAND, place: str = f"gcp/{REGION}") -> Offer:
    provider, _, region = place.partition("/")
    return by_key(shipped())[provider, region, instance_type, option]


def today() -> date:
    return datetime.now(UTC).date()


def change(server: PriceServer, begins: str, times: str) -> None:
    """Another price for the SKUs whose descriptions begin so."""
    changed = 0
    for document in server.skus:
        if document["description"].startswith(begins):
            price = document["pricingInfo"][0]["pricingExpression"]["tieredRates"][0]["unitPrice"]
            nanos = int((int(price["units"]) * 10**9 + price["nanos"]) * Decimal(times))
            price["units"], price["nanos"] = str(nanos // 10**9), nanos % 10**9
            changed += 1
    assert changed == 1


def refresh(*words: str) -> Result:
    return told("prices", "refresh", *words)


def test_without_a_refresh_everything_is_as_it_was_shipped() -> None:
    shown = told("prices").check(0, err="").out
    lines = shown.splitlines()
    assert lines[0] == "INFRA               OFFERS AGE ON DEMAND AGE OF SPOT  REFRESHED"
    july_20, july_9, september = [(today() - date(2026, month, day)).days for month, day in ((7, 20), (7, 9), (9, 17))]
    assert f"aws/us-east-1          318 {july_20} d         {july_9} d        no" in lines
    assert f"gcp/us-central1        483 {september} to {july_9} d" in shown
    assert all(len(line) <= 80 for line in lines)
    assert "None were refreshed: they came with this version." in lines
    assert "  653 of aws: skypilot-catalog-v9 (2026-07-09)" in lines


def test_a_refresh_of_google_makes_offers_new(server: PriceServer) -> None:
    server.page = 100
    code, shown, said = refresh("--infra", f"gcp/{REGION}")
    assert (code, said.count("\n")) == (0, 1)
    assert "free of charge" in said
    assert shown.startswith(
        f"gcp: 483 prices of {today()} (0 new offers), from {len(server.skus)} price list entries.\n"
    )
    assert len(server.requests) == -(-len(server.skus) // 100)
    assert now("a2-highgpu-1g").price_as_of == today()
    assert now("a2-highgpu-1g").price_usd_per_hour == before("a2-highgpu-1g").price_usd_per_hour
    assert now("a2-highgpu-1g", place="gcp/us-east1") == before("a2-highgpu-1g", place="gcp/us-east1")
    listed = told("offers", "--gpus", "A100:1", "--infra", f"gcp/{REGION}")[1]
    assert f"Prices of gcp are those of {today()}." in listed
    assert {
        place.offer.price_as_of
        for place in candidates("A100:1", (f"gcp/{REGION}",), spot=False, reporter=LogReporter())
        if place.offer
    } == {today()}
    shown = told("prices")[1]
    assert "Google Cloud Billing Catalog" in shown
    assert str(price_store.cache_folder()) in shown


def test_a_refresh_of_aws_makes_offers_new(server: PriceServer) -> None:
    shown = refresh("--infra", "aws/us-east-1", "--region", "us-east-2").check(0).out
    assert shown.startswith(f"aws: {318 + 158} prices of {today()}")
    assert set(server.requests) == {"GetProducts", "DescribeSpotPriceHistory"}
    assert server.requests.count("GetProducts") == 3 + 2  # pages of 100: only plain Linux machines were asked for
    for option in PurchaseOption:
        new = now("g5.xlarge", option, "aws/us-east-1")
        assert new.price_usd_per_hour == before("g5.xlarge", option, "aws/us-east-1").price_usd_per_hour
        assert new.price_as_of == today()
    assert now("g5.xlarge", place="aws/us-west-2") == before("g5.xlarge", place="aws/us-west-2")


def test_without_infra_everybody_with_credentials_is_asked(server: PriceServer) -> None:
    refresh()  # only the two regions are in these lists
    assert "ListSkus" not in server.requests
    assert price_store.stored_prices("gcp") is None
    kept = price_store.stored_prices("aws")
    assert kept is not None
    assert set(kept.regions) == {"us-east-1", "us-east-2"}  # the others have no new price: they were not refreshed


def test_without_credentials_nobody_is_asked(server: PriceServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    refresh().check(41, out="", err="no credentials for AWS or Google Cloud")
    assert not server.requests


def test_a_gpu_that_is_missing_is_an_error_and_never_a_price_without_it(server: PriceServer) -> None:
    server.skus = [one for one in server.skus if not one["description"].startswith("Nvidia Tesla A100 GPU running")]
    _, shown, said = refresh("--infra", f"gcp/{REGION}").check(
        4, out="Without a new price (5); price and age stay as they were:"
    )
    assert "no SKU is the rate of A100 in us-central1" in " ".join(shown.split())
    assert "5 offers have no new price" in said
    assert now("a2-highgpu-1g") == before("a2-highgpu-1g")
    assert now("a2-highgpu-1g", SPOT).price_as_of == today()
    assert now("a2-ultragpu-1g").price_as_of == today()


def test_a_list_price_that_moves_far_is_kept_apart_until_it_is_accepted(server: PriceServer) -> None:
    change(server, "Nvidia L4 GPU running", "0.6")
    code, shown, said = refresh("--infra", f"gcp/{REGION}")
    words = " ".join(shown.split())
    assert (code, said.count("\n")) == (0, 1)
    assert "Moved by more than 30 %, kept apart; --accept takes them" in words
    assert "gcp/us-central1 g2-standard-4: 0.706832 -> 0.482816 USD/h (-32%)" in words
    assert now("g2-standard-4") == before("g2-standard-4")
    assert now("n2-standard-8").price_as_of == today()
    shown = refresh("--infra", f"gcp/{REGION}", "--accept").check(0).out
    assert "Moved by more than 30 %, taken" in " ".join(shown.split())
    assert now("g2-standard-4").price_usd_per_hour == Decimal("0.482816")


def test_the_document_has_everything_that_the_text_has(server: PriceServer) -> None:
    change(server, "Nvidia L4 GPU running", "0.6")
    server.skus = [one for one in server.skus if not one["description"].startswith("Nvidia Tesla T4 GPU running")]
    code, shown, _ = refresh("--infra", f"gcp/{REGION}", "--json")
    document = json.loads(shown)
    assert code == 4
    assert (document["schema"], document["version"]) == ("costgpu.prices-refresh", 1)
    (result,) = document["providers"]
    t4 = [
        one
        for one in shipped()
        if one.region == REGION and "+T4" in one.instance_type and one.purchase_option is ON_DEMAND
    ]
    assert len(result["without_price"]) == len(t4)
    assert {row["instance_type"] for row in result["without_price"]} == {one.instance_type for one in t4}
    moved = {row["instance_type"]: row for row in result["moved"]}
    assert moved["g2-standard-4"]["old_usd_per_hour"] == "0.706832"
    assert moved["g2-standard-4"]["new_usd_per_hour"] == "0.482816"
    assert moved["g2-standard-4"]["taken"] is False
    assert result["taken"] == 483 - len(t4) - len(moved)
    status = json.loads(told("prices", "--json")[1])
    (place,) = [row for row in status["places"] if row["region"] == REGION]
    assert (place["newest_age_days"], place["refreshed_at"]) == (0, document["at"])
    assert place["oldest_as_of"] == "2026-07-09"
    assert {option: row["newest_as_of"] for option, row in place["by_purchase_option"].items()} == dict.fromkeys(
        PurchaseOption, str(today())
    )


Refusal = tuple[int, bytes]


NOT_ENABLED = google_refusal(
    403,
    "SERVICE_DISABLED",
    "Cloud Billing API has not been used in project 12 before.",
    service="cloudbilling.googleapis.com",
    consumer="projects/research-42",
)
NO_LOGIN = google_refusal(401, "CREDENTIALS_MISSING", "Request had invalid authentication credentials.")
NOT_ALLOWED = "User: arn:aws:iam::1:user/u is not authorized to perform: "


@pytest.mark.parametrize(
    ("refusal", "code", "words"),
    [
        (NOT_ENABLED, 41, "gcloud services enable cloudbilling.googleapis.com --project research-42"),
        (NO_LOGIN, 41, "gcloud auth application-default login"),
        (google_refusal(404, "NOT_FOUND", "There is no such service."), 44, "There is no such service"),
        ((200, b"{not json"), 46, "No usable answer"),
    ],
)
def test_a_refusal_leaves_the_old_prices_and_says_so(
    server: PriceServer, refusal: Refusal, code: int, words: str
) -> None:
    assert refresh("--infra", f"gcp/{REGION}")[0] == 0
    kept = price_store.stored_prices("gcp")
    server.refusals["ListSkus"] = [refusal] * 9
    said = refresh("--infra", "gcp").check(code, out="", err=words).err
    assert "prices that it missed stay 0 to 128 days old" in said.replace(
        f"{(today() - date(2026, 7, 9)).days} days", "128 days"
    )
    assert price_store.stored_prices("gcp") == kept
    assert "The refresh of gcp at" in told("prices")[1]
    server.refusals.clear()
    assert refresh("--infra", f"gcp/{REGION}")[0] == 0
    assert "has failed" not in told("prices")[1]


@pytest.mark.parametrize(
    "refusal", [google_refusal(503, "UNAVAILABLE", "x"), google_refusal(429, "RATE_LIMIT_EXCEEDED", "x")]
)
def test_a_passing_trouble_is_waited_out(server: PriceServer, refusal: Refusal) -> None:
    server.page = 400
    server.refusals["ListSkus"] = [refusal] * 3
    assert refresh("--infra", f"gcp/{REGION}")[0] == 0
    assert now("a2-highgpu-1g").price_as_of == today()


def test_a_list_whose_pages_go_round_in_circles_ends(server: PriceServer) -> None:
    server.refusals["ListSkus"] = [(200, json.dumps({"skus": [], "nextPageToken": "1"}).encode())] * 9
    refresh("--infra", f"gcp/{REGION}").check(46, err="circles")


def test_an_empty_list_is_no_refresh(server: PriceServer) -> None:
    server.skus = []
    refresh("--infra", f"gcp/{REGION}").check(
        4, err="Not one price of Google Cloud could be made from 0 price list entries"
    )
    assert price_store.stored_prices("gcp") is None


@pytest.mark.parametrize(
    ("refusal", "permission"),
    [
        (
            aws_refusal(
                "AccessDeniedException", f"{NOT_ALLOWED}pricing:GetProducts because no identity-based policy allows it"
            ),
            "pricing:GetProducts",
        ),
        (
            ec2_refusal("UnauthorizedOperation", f"You are not authorized. {NOT_ALLOWED}ec2:DescribeSpotPriceHistory"),
            "ec2:DescribeSpotPriceHistory",
        ),
    ],
)
def test_a_permission_that_is_missing_is_named(server: PriceServer, refusal: Refusal, permission: str) -> None:
    question = permission.partition(":")[2]
    server.refusals[question] = [refusal] * 9
    refresh("--infra", "aws").check(41, err=f"hint: Allow {permission}")
    assert server.requests.count(question) == 1  # the other regions would say the same
    assert now("g5.xlarge", place="aws/us-east-1") == before("g5.xlarge", place="aws/us-east-1")


def test_a_price_list_entry_that_is_no_document_is_an_error(server: PriceServer) -> None:
    server.refusals["GetProducts"] = [(200, json.dumps({"PriceList": ["{"]}).encode())]
    refresh("--infra", "aws/us-east-1").check(40, err="no JSON document")


def test_one_provider_that_fails_does_not_keep_the_other_from_being_refreshed(server: PriceServer) -> None:
    server.refusals["ListSkus"] = [google_refusal(401, "CREDENTIALS_MISSING", "no")] * 9
    _, shown, said = refresh("--infra", "gcp", "--infra", "aws/us-east-1").check(41)
    assert shown.startswith("aws: 318 prices")
    assert "The refresh of Google Cloud has failed" in said
    assert now("g5.xlarge", place="aws/us-east-1").price_as_of == today()


def test_types_of_unknown_hardware_are_counted(server: PriceServer) -> None:
    stranger = json.loads(json.dumps(server.products[0]))
    stranger["product"]["attributes"]["instanceType"] = "z99.mega"
    stranger["product"]["attributes"]["regionCode"] = "us-east-1"
    server.products.append(stranger)
    refresh("--infra", "aws/us-east-1").check(0, out="1 instance type whose hardware costgpu does not know left out.")
    assert "z99.mega" not in told("offers", "--top", "0")[1]


@pytest.mark.parametrize(
    ("infra", "code", "words"),
    [
        ("gpc", 2, "gcp"),
        ("local", 2, "price list"),
        ("gcp/us-centrall", 2, "us-central1"),
        ("us-est-1", 2, "us-east-1"),
        ("azure/eastus", 2, "is known, and not supported"),
        ("aws/us-eats-1", 44, "us-east-1"),
    ],
)
def test_a_place_that_is_none(server: PriceServer, infra: str, code: int, words: str) -> None:
    server.refusals["DescribeRegions"] = [_regions("us-east-1")]
    refresh("--infra", infra).check(code, out="", err=words)


def _regions(*names: str) -> Refusal:
    items = "".join(f"<item><regionName>{name}</regionName></item>" for name in names)
    return 200, f"<DescribeRegionsResponse><regionInfo>{items}</regionInfo></DescribeRegionsResponse>".encode()


def test_a_damaged_file_costs_one_line_and_no_command(server: PriceServer) -> None:
    refresh("--infra", f"gcp/{REGION}")
    path = price_store.cache_folder() / "offers-gcp.csv"
    path.write_bytes(path.read_bytes()[:-40])
    for words in (("offers", "--gpus", "A100"), ("prices",), ("offers", "--infra", "aws", "--json")):
        _, shown, said = told(*words).check(0)
        assert shown
        assert said.startswith("costgpu: The refreshed prices of gcp are not used, the shipped ones are: ")
        assert said.count("\n") == 1
    assert refresh("--infra", f"gcp/{REGION}")[0] == 0
    assert told("offers", "--gpus", "A100")[2] == ""


def test_a_cache_that_cannot_be_written_is_an_error(server: PriceServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(price_store, "_write", full)
    refresh("--infra", f"gcp/{REGION}").check(3, err="No space left on device")


def test_an_unencrypted_address_elsewhere_is_refused(server: PriceServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gcp_client.ENDPOINT, "http://192.0.2.7:80")
    refresh("--infra", "gcp").check(44, err="without https")


def test_help_says_that_it_is_free_of_charge() -> None:
    assert "free of charge" in " ".join(told("prices", "refresh", "--help")[1].split())

"""`costgpu prices refresh --public`: AWS's public files, from a server on a port of this machine; nobody has credentials."""

import json
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
from pytest_socket import enable_socket

from costgpu.models.offer import PurchaseOption
from costgpu.models.price_update import PriceUpdate
from costgpu.pricing import price_store
from costgpu.providers.aws import public_prices
from tests.cli.test_prices import amazon, before, now, refresh, today
from tests.emulators.price_server import PriceServer

SPOT, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.ON_DEMAND
PUBLIC = ("--public", "--infra", "aws/us-east-1")
WRITTEN = date(2026, 11, 21)


@pytest.fixture
def server(nothing_of_the_users: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[PriceServer]:
    enable_socket()
    running = PriceServer()
    running.products, running.spots = json.loads(amazon()[0]), list(amazon()[1])
    for name, value in running.environment().items():
        if name not in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, value)
    monkeypatch.setattr(public_prices, "WAIT_SECONDS", 0.0)
    monkeypatch.setattr(public_prices, "CHUNK", 10_000)
    yield running
    running.close()


def test_public_lists_need_no_credentials_and_say_who_is_asked(server: PriceServer) -> None:
    _, shown, said = refresh("--public", "--infra", "aws/us-east-1", "--infra", "us-east-2").check(0)
    assert shown.startswith(f"aws: {318 + 158} prices of {today()}")
    words = " ".join(said.split())
    for host in ("pricing.us-east-1.amazonaws.com", "website.spot.ec2.aws.a2z.com"):
        assert host in words
    assert "they learn your IP address and nothing else" in words
    assert sorted(server.requests) == ["BulkList", "BulkList", "SpotPage"]
    for option, day in ((ON_DEMAND, today()), (SPOT, WRITTEN)):
        new = now("g5.xlarge", option, "aws/us-east-1")
        assert new.price_usd_per_hour == before("g5.xlarge", option, "aws/us-east-1").price_usd_per_hour
        assert new.price_as_of == day, "a spot price is as old as the file that it is from"
    assert now("g5.xlarge", SPOT, "aws/us-east-2").price_source == "AWS spot price page"
    assert now("g5.xlarge", place="aws/us-west-2") == before("g5.xlarge", place="aws/us-west-2")


def test_what_is_not_public_keeps_its_age_and_is_named(server: PriceServer) -> None:
    said = refresh("--public").err  # only two regions are in these lists
    assert "No price list of Google Cloud can be read without credentials. Its prices stay" in " ".join(said.split())
    refresh("--public", "--infra", "gcp").check(2, err="No price list of Google Cloud can be read without credentials.")
    assert price_store.stored_prices("gcp") is None
    hint = refresh("--infra", "aws").err
    refresh().check(41, err="costgpu prices refresh --public")
    assert "--public" not in hint


def test_a_connection_that_breaks_goes_on_where_it_broke(server: PriceServer) -> None:
    whole = len(server.bulk_list("us-east-1"))
    server.cut = [30_001, 0, 55_555]
    refresh(*PUBLIC).check(0, out="aws: 318 prices")
    assert server.ranges == ["bytes=30001-", "bytes=30001-", "bytes=85556-"]
    assert whole > 85_556
    assert now("g5.xlarge", place="aws/us-east-1").price_as_of == today()


def test_a_list_that_never_ends_or_changes_is_no_refresh(server: PriceServer) -> None:
    server.cut = [30_001, 0, 0, 0]
    refresh(*PUBLIC).check(46, out="", err="does not answer")
    server.cut = [30_001]
    server.refusals["BulkList"] = []
    keep, server.etag = server.bulk_list, '"1"'

    def changes(region: str) -> bytes:
        server.etag = f'"{len(server.requests)}"'
        return keep(region)

    server.bulk_list = changes  # type: ignore[method-assign]
    refresh(*PUBLIC).check(46, out="", err="has changed while it was being read")
    del server.bulk_list
    assert price_store.stored_prices("aws") is None
    assert now("g5.xlarge", place="aws/us-east-1") == before("g5.xlarge", place="aws/us-east-1")


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        ((403, b"<Error><Code>AccessDenied</Code></Error>"), 44, "is refused: HTTP Error 403"),
        ((200, b"<html>a page</html>"), 40, "lacks the column Instance Type"),
        ((200, b'"SKU","TermType"\n'), 40, "lacks the column Instance Type"),
        ((200, b""), 40, "lacks the column Instance Type"),
        ((200, b"x" * 2_000_000), 40, "a line has no end"),
    ],
)
def test_what_is_no_price_list_is_no_refresh(
    server: PriceServer, answer: tuple[int, bytes], code: int, words: str
) -> None:
    server.refusals["BulkList"] = [answer]
    refresh(*PUBLIC).check(code, out="", err=words)
    assert price_store.stored_prices("aws") is None


def test_a_region_that_fails_does_not_keep_the_others_from_being_refreshed(server: PriceServer) -> None:
    server.refusals["BulkList"] = [(403, b"")]
    refresh("--public", "--infra", "aws/us-east-1", "--infra", "us-east-2").check(44, out="aws: 158 prices")
    assert now("g5.xlarge", place="aws/us-east-1") == before("g5.xlarge", place="aws/us-east-1")
    assert now("g5.xlarge", place="aws/us-east-2").price_as_of == today()


def test_an_interrupted_refresh_keeps_the_regions_that_were_read(
    server: PriceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = public_prices.PublicPrices.read

    def interrupted(self: public_prices.PublicPrices, regions: list[str], *rest: Any) -> PriceUpdate:
        if regions == ["us-east-2"]:
            raise KeyboardInterrupt
        return read(self, regions, *rest)

    monkeypatch.setattr(public_prices.PublicPrices, "read", interrupted)
    refresh("--public", "--infra", "aws/us-east-1", "--infra", "us-east-2")
    kept = price_store.stored_prices("aws")
    assert kept is not None
    assert set(kept.regions) == {"us-east-1"}


@pytest.mark.parametrize("trouble", ["refused", "no day", "no JSON", "endless", "older"])
def test_spot_prices_that_cannot_be_used_keep_their_age(
    server: PriceServer, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    if trouble == "endless":
        monkeypatch.setattr(public_prices, "MOST_SPOT_BYTES", 100)
    if trouble in ("refused", "no JSON"):
        server.refusals["SpotPage"] = [(503, b"") if trouble == "refused" else (200, b"{")]
    server.modified = {"no day": "", "older": "Mon, 13 May 2024 09:00:00 GMT"}.get(trouble, server.modified)
    shown = refresh(*PUBLIC).check(4, out="Without a new price").out
    why = "the one in use is newer" if trouble == "older" else "/spot.json cannot be used:"
    assert why in " ".join(shown.split())
    assert now("g5.xlarge", SPOT, "aws/us-east-1") == before("g5.xlarge", SPOT, "aws/us-east-1")
    assert now("g5.xlarge", place="aws/us-east-1").price_as_of == today()

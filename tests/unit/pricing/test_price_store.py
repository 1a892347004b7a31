"""The prices in use: the shipped ones, and refreshed ones over them for as long as their file is sound."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest

from costgpu.errors import ConfigError
from costgpu.models.offer import Offer
from costgpu.models.price_update import by_key, key_of
from costgpu.pricing import price_store, snapshot
from costgpu.pricing.catalog import Catalog
from costgpu.pricing.query import OfferQuery

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
NEW = NOW.date()


@cache
def shipped() -> list[Offer]:
    return snapshot.read_offers(snapshot.newest())


def dearer(known: Sequence[Offer], region: str = "us-central1") -> list[Offer]:
    """As a refresh of one region would have it."""
    return [
        replace(one, price_usd_per_hour=one.price_usd_per_hour * 2, price_as_of=NEW, price_source="new")
        if one.region == region
        else one
        for one in known
    ]


def keep(provider: str = "gcp", region: str = "us-central1", now: datetime = NOW) -> Path:
    return price_store.store_prices(provider, [region], now, lambda known: dearer(known, region))


def test_without_refreshed_prices_the_shipped_ones_are_in_use() -> None:
    said: list[str] = []
    assert price_store.offers(warn=said.append) == shipped()
    assert (said, price_store.stored_prices("gcp"), price_store.last_failure("gcp")) == ([], None, None)


def test_refreshed_prices_are_in_use_with_their_own_age_and_the_others_stay() -> None:
    keep()
    before = by_key(shipped())
    now = price_store.offers()
    assert len(now) == len(shipped())
    for one in now:
        old = before[key_of(one)]
        if (one.provider, one.region) == ("gcp", "us-central1"):
            assert (one.price_usd_per_hour, one.price_as_of) == (old.price_usd_per_hour * 2, NEW)
        else:
            assert one == old


def test_a_second_refresh_adds_to_the_first() -> None:
    keep()
    later = datetime(2026, 11, 22, tzinfo=UTC)
    keep(region="us-west1", now=later)
    keep("aws", "us-east-1", later)
    found = price_store.stored_prices("gcp")
    assert found is not None
    assert found.regions == {"us-central1": NOW, "us-west1": later}
    fresh = {(one.provider, one.region) for one in price_store.offers() if one.price_as_of == NEW}
    assert fresh == {("gcp", "us-central1"), ("gcp", "us-west1"), ("aws", "us-east-1")}


def test_the_catalog_uses_them() -> None:
    keep()
    for infra in (("gcp/us-central1",), ("aws",)):
        found = Catalog.current().query(OfferQuery(infra=infra))
        assert any(one.price_source == "new" for one in found) == (infra != ("aws",))


def test_a_new_region_can_be_asked_for() -> None:
    price_store.store_prices(
        "aws", ["eu-north-1"], NOW, lambda known: [*known, replace(known[0], region="eu-north-1", price_as_of=NEW)]
    )
    assert len(Catalog.current().query(OfferQuery(infra=("aws/eu-north-1",)))) == 1


def damaged(path: Path) -> dict[str, bytes]:
    whole = path.read_bytes()
    head, _, body = whole.partition(b"\n")
    document = json.loads(head[len(price_store.MARK) :])

    def line(**changes: object) -> bytes:
        return f"{price_store.MARK}{json.dumps(document | changes)}\n".encode()

    return {
        "empty": b"",
        "binary": bytes(range(256)) * 20,
        "cut": whole[: len(whole) // 2],
        "cut line": whole[:-9],
        "one digit": whole[:-300] + whole[-300:].replace(b"0", b"9", 1),
        "no head": body,
        "head alone": head,
        "no json": price_store.MARK.encode() + b"{\n" + body,
        "a list": price_store.MARK.encode() + b"[]\n" + body,
        "newer format": whole.replace(b"live-prices 1", b"live-prices 2", 1),
        "another provider": line(provider="aws") + body,
        "no regions": line(regions=None) + body,
        "no date": line(regions={"us-central1": "soon"}) + body,
        "another snapshot": line(snapshot="offers-2030-01-01.csv") + body,
        "zeros": b"\0" * len(whole),
        "latin": whole.replace(b"new", b"n\xe9w"),
    }


def test_a_damaged_file_is_passed_over_with_one_line() -> None:
    path = keep()
    for kind, content in damaged(path).items():
        path.write_bytes(content)
        said: list[str] = []
        assert price_store.offers(warn=said.append) == shipped(), kind
        (words,) = said
        assert str(path) in words, kind
        assert "costgpu prices refresh --infra gcp" in words
        assert "\n" not in words
        assert price_store.stored_prices("gcp") is None, kind
    keep()  # and the next refresh is upon the shipped prices again
    assert price_store.offers(warn=said.append) != shipped()
    assert len(said) == 1


def test_a_damaged_row_behind_a_sound_checksum_is_no_crash_either() -> None:
    import zlib

    path = keep()
    head, _, body = path.read_bytes().partition(b"\n")
    document = json.loads(head[len(price_store.MARK) :])
    for broken in (
        body.replace(b"2026-11-21", b"2026-13-21"),
        body.replace(b",on_demand,", b",lent,"),
        b"a,b\n",
        body + b"x\n",
        body.replace(b"us-central1,", b"\xff,", 1),
        body.replace(b",x86_64,", b',"x86\0', 1),
    ):
        path.write_bytes(
            f"{price_store.MARK}{json.dumps(document | {'crc32': zlib.crc32(broken)})}\n".encode() + broken
        )
        said: list[str] = []
        assert price_store.offers(warn=said.append) == shipped()
        assert len(said) == 1


def test_a_file_that_cannot_be_read_is_passed_over() -> None:
    (price_store.cache_folder() / "offers-gcp.csv").mkdir(parents=True)
    said: list[str] = []
    assert price_store.offers(warn=said.append) == shipped()
    assert len(said) == 1


def test_a_folder_that_cannot_be_written_is_a_clear_error() -> None:
    price_store.cache_folder().parent.mkdir(parents=True, exist_ok=True)
    price_store.cache_folder().write_text("")
    with pytest.raises(ConfigError) as caught:
        price_store.store_prices("gcp", ["us-central1"], NOW, dearer)
    assert "XDG_CACHE_HOME" in caught.value.hint
    price_store.record_failure(price_store.FailedRefresh(provider="gcp", at=NOW, why="x"))  # no error upon an error


def test_a_refresh_that_fails_in_the_middle_leaves_the_file_as_it_was() -> None:
    path = keep()
    before = path.read_bytes()

    def broken(known: Sequence[Offer]) -> Sequence[Offer]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        price_store.store_prices("gcp", ["us-west1"], NOW, broken)
    assert path.read_bytes() == before
    assert sorted(each.name for each in path.parent.iterdir()) == ["offers-gcp.csv", "offers-gcp.lock"]


def test_a_failed_try_is_remembered_until_one_works() -> None:
    price_store.record_failure(price_store.FailedRefresh(provider="gcp", at=NOW, why="no credentials"))
    found = price_store.last_failure("gcp")
    assert found == price_store.FailedRefresh(provider="gcp", at=NOW, why="no credentials")
    assert price_store.last_failure("aws") is None
    keep()
    assert price_store.last_failure("gcp") is None
    (price_store.cache_folder() / "failed-gcp.json").write_text("[")
    assert price_store.last_failure("gcp") is None


def test_refreshes_at_the_same_time_do_not_lose_each_others_work() -> None:
    regions = sorted({one.region for one in shipped() if one.provider == "gcp"})[:6]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda region: keep(region=region), regions))
    found = price_store.stored_prices("gcp")
    assert found is not None
    assert len(found.regions) == 6
    assert len({one.region for one in price_store.offers() if one.price_as_of == NEW}) == 6


def test_reading_prices_imports_nothing_that_is_slow() -> None:
    keep()
    code = (
        "import sys; from costgpu.pricing.catalog import Catalog; Catalog.current();"
        "slow = ('pydantic', 'boto3', 'google.cloud');"
        "print([name for name in slow if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.strip() == "[]"

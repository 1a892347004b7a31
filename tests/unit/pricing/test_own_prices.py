"""The user's own prices: which offers they are of, on which days, what a cap and a receipt make of them, and damage."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.errors import ConfigError, CostGpuError, UsageError
from costgpu.job.launch import launch
from costgpu.job.plan import OWN_PRICE_SLACK_SECONDS, Limits, lease_for
from costgpu.job.timeouts import POWER_OFF_SECONDS
from costgpu.models.offer import Offer, OwnPrice, PurchaseOption
from costgpu.models.run import LaunchOption
from costgpu.pricing import own_prices, price_store
from costgpu.pricing.catalog import Catalog
from costgpu.pricing.own_prices import StoredPrice, parse_last_day, parse_price, set_price, unset_price, with_own_prices
from costgpu.pricing.query import OfferQuery
from costgpu.render.text.receipt import receipts_text
from costgpu.render.text.run import plan_json, plan_text
from tests.job.examples import option
from tests.job.world import World, plan
from tests.properties import examples

TODAY, LAST = date(2026, 11, 28), date(2027, 3, 31)
NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
SPOT = PurchaseOption.SPOT


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return own_prices.prices_file()


def mine(price: str = "42", **changes: Any) -> StoredPrice:
    wanted = {"provider": "aws", "instance_type": "p5.48xlarge", "until": LAST, "set_on": TODAY, **changes}
    return set_price(StoredPrice(usd_per_hour=Decimal(price), **wanted), price_store.list_offers())


def offers(day: date = TODAY, kind: str = "p5.48xlarge") -> dict[tuple[str, PurchaseOption], Offer]:
    found = with_own_prices(price_store.list_offers(), day)
    return {(o.region, o.purchase_option): o for o in found if (o.provider, o.instance_type) == ("aws", kind)}


class TestWhich:
    def test_a_region_and_a_way_of_paying(self) -> None:
        mine(region="us-east-1")
        found = offers()
        assert found["us-east-1", PurchaseOption.ON_DEMAND].price_usd_per_hour == 42
        assert [key for key, offer in found.items() if offer.own_price] == [("us-east-1", PurchaseOption.ON_DEMAND)]
        mine("7", region="us-east-1", purchase_option=SPOT)
        assert offers()["us-east-1", SPOT].price_usd_per_hour == 7

    def test_the_region_goes_before_all_regions(self) -> None:
        mine("50")
        mine("42", region="us-east-1")
        found = offers()
        assert found["us-east-1", PurchaseOption.ON_DEMAND].price_usd_per_hour == 42
        assert found["us-west-2", PurchaseOption.ON_DEMAND].price_usd_per_hour == 50

    def test_setting_again_replaces_and_unsetting_forgets(self, file: Path) -> None:
        mine("42")
        mine("43")
        assert [price.usd_per_hour for price in own_prices.read_prices()] == [43]
        unset_price("AWS", "P5.48xlarge", None, PurchaseOption.ON_DEMAND)
        assert own_prices.read_prices() == ()
        with pytest.raises(UsageError, match="no such own price"):
            unset_price("aws", "p5.48xlarge", None, PurchaseOption.ON_DEMAND)

    @pytest.mark.parametrize(
        ("changes", "words", "hint"),
        [
            ({"instance_type": "p5.48xlrge"}, "is of the type 'p5.48xlrge'", "p5.48xlarge"),
            ({"region": "us-est-1"}, "in the region 'us-est-1'", "us-east-1"),
            ({"region": "us-east-1a"}, "names a zone", "aws/us-east-1"),
            ({"provider": "azure"}, "is known, and not supported", "aws"),
            ({"provider": "awz"}, "no provider 'awz'", "aws"),
            ({"provider": "local"}, "no provider 'local'", "aws"),
        ],
    )
    def test_a_name_that_is_none(self, file: Path, changes: dict[str, str], words: str, hint: str) -> None:
        with pytest.raises(UsageError, match=words) as caught:
            mine(**changes)
        assert hint in caught.value.hint
        assert not file.exists()


class TestDays:
    @pytest.mark.parametrize(
        ("day", "own"), [(TODAY, True), (LAST, True), (LAST + timedelta(days=1), False), (date(2030, 1, 1), False)]
    )
    def test_the_last_day_is_a_whole_one(self, day: date, own: bool) -> None:
        mine()
        found = offers(day)["us-east-1", PurchaseOption.ON_DEMAND]
        assert (found.own_price is not None, found.price_usd_per_hour == 42) == (own, own)

    @pytest.mark.parametrize("text", ["2026-11-27", "2027-02-30", "tomorrow", "9999-01-01", "", "2027"])
    def test_no_last_day(self, text: str) -> None:
        with pytest.raises(UsageError, match="--until"):
            parse_last_day(text, TODAY)
        assert parse_last_day("2026-11-28", TODAY) == TODAY

    @pytest.mark.parametrize("text", ["-1", "1e3", "nan", "inf", "1,000", "42 EUR", "", "$", "1.2.3", "200000", "٤"])
    def test_no_price(self, text: str) -> None:
        with pytest.raises(UsageError):
            parse_price(text)

    @pytest.mark.parametrize(("text", "price"), [("42.00", "42"), ("$42", "42"), ("0", "0"), (".5", ".5"), ("7.", "7")])
    def test_a_price(self, text: str, price: str) -> None:
        assert parse_price(text) == Decimal(price)


class TestMarks:
    def test_the_cheapest_is_the_cheapest_by_it(self) -> None:
        mine("0", instance_type="p4d.24xlarge", region="us-east-1")
        catalog = Catalog(with_own_prices(price_store.list_offers(), TODAY))
        first = catalog.query(OfferQuery(infra=("aws",)))[0]
        assert (first.instance_type, first.price_usd_per_hour) == ("p4d.24xlarge", Decimal(0))

    def test_a_refresh_starts_from_list_prices(self) -> None:
        mine()
        assert all(offer.own_price is None for offer in price_store.list_offers())


class TestDamage:
    @pytest.mark.parametrize(
        "text",
        [
            "",
            "{}",
            "[1]",
            "not json",
            '[{"provider": "aws"}]',
            '[{"provider":"aws","instance_type":"a","usd_per_hour":"-1","until":"2027-01-01","set_on":"2026-01-01"}]',
            '[{"provider":"aws","instance_type":"a","usd_per_hour":"NaN","until":"2027-01-01","set_on":"2026-01-01"}]',
            '[{"provider":"aws","instance_type":"a","usd_per_hour":"1","until":"2025-01-01","set_on":"2026-01-01"}]',
            '[{"provider":"aws","instance_type":"a","usd_per_hour":"1","until":"2027-01-01","set_on":"2026-01-01","x":1}]',
        ],
    )
    def test_a_damaged_file_is_named(self, file: Path, text: str) -> None:
        file.parent.mkdir()
        file.write_text(text)
        with pytest.raises(ConfigError, match="cannot be read") as caught:
            price_store.offers()
        assert str(file) in caught.value.message
        assert "costgpu prices set" in caught.value.hint

    def test_noise(self, file: Path) -> None:
        mine()
        whole = file.read_bytes()
        for cut in range(0, len(whole), 7):
            file.write_bytes(whole[:cut])
            with pytest.raises(CostGpuError):
                own_prices.read_prices()

    def test_the_file_is_plain_json(self, file: Path) -> None:
        mine("42.00", region="us-east-1")
        (row,) = json.loads(file.read_bytes())
        assert (row["usd_per_hour"], row["until"], row["purchase_option"]) == ("42.00", "2027-03-31", "on_demand")


def own(price: str, listed: str, until: date) -> Offer:
    mark = OwnPrice(
        set_on=TODAY, until=until, list_usd_per_hour=Decimal(listed), list_as_of=TODAY, list_source="a list"
    )
    return replace(option().offer, price_usd_per_hour=Decimal(price), own_price=mark)


class TestCap:
    def test_within_the_last_day_the_own_price_counts(self) -> None:
        lease = lease_for(own("1", "10", LAST), Limits(max_cost_usd=Decimal(20), now=NOW))
        plain = lease_for(replace(option().offer, price_usd_per_hour=Decimal(1)), Limits(max_cost_usd=Decimal(20)))
        assert lease == plain

    def test_a_cap_that_reaches_beyond_it_counts_the_list_price_from_then_on(self) -> None:
        offer = own("1", "10", TODAY)  # 12 h are left, less the slack
        held = 12 - OWN_PRICE_SLACK_SECONDS / 3600
        lease = lease_for(offer, Limits(max_cost_usd=Decimal(31), now=NOW))
        assert lease.lifetime_seconds + POWER_OFF_SECONDS == pytest.approx((held + (31 - held) / 10) * 3600, abs=1)
        assert lease.worst_cost_usd <= 31
        long = lease_for(offer, Limits(max_duration_seconds=36 * 3600.0, now=NOW))
        assert long.worst_cost_usd > 36 - held

    @pytest.mark.parametrize("now", [NOW, None])
    def test_what_is_free_does_not_live_for_ever(self, now: datetime | None) -> None:
        lease = lease_for(own("0", "10", LAST), Limits(max_cost_usd=Decimal(20), now=now))
        assert lease.lifetime_seconds < 2 * 3600
        assert lease.limited_by == "--max-cost $20.00"

    def test_who_begins_nobody_knows_when_gets_the_list_price(self) -> None:
        lease = lease_for(own("1", "10", LAST), Limits(max_cost_usd=Decimal(20)))
        assert lease.lifetime_seconds < 2 * 3600

    @given(
        st.decimals("0", "50", places=2),
        st.decimals("0.01", "50", places=2),
        st.integers(0, 5),
        st.integers(5, 500),
        st.integers(0, 86399),
    )
    @examples(200)
    def test_no_receipt_is_above_the_cap(
        self, price: Decimal, listed: Decimal, days: int, cap: int, second: int
    ) -> None:
        start = datetime(2026, 11, 28, tzinfo=UTC) + timedelta(seconds=second)
        offer = own(str(price), str(listed), TODAY + timedelta(days=days))
        lease = lease_for(offer, Limits(max_cost_usd=Decimal(cap), now=start))
        place = LaunchOption(offer=offer, lease=lease, disk_gib=50)
        lived = Decimal(str(round(lease.lifetime_seconds + POWER_OFF_SECONDS, 1)))
        for late in (0, OWN_PRICE_SLACK_SECONDS):
            assert place.cost_usd(start + timedelta(seconds=late), lived) <= lease.worst_cost_usd + Decimal("0.000001")
        assert lease.worst_cost_usd <= cap + Decimal("0.000001")

    def test_a_receipt_counts_each_hour_at_its_price(self) -> None:
        place = LaunchOption(
            offer=own("1", "10", TODAY), lease=option().lease, disk_gib=50, extras_usd_per_hour=Decimal("0.5")
        )
        assert place.cost_usd(NOW, Decimal(12 * 3600)) == Decimal(18)
        assert place.cost_usd(NOW, Decimal(14 * 3600)) == Decimal(18 + 21)
        assert place.cost_usd(NOW + timedelta(days=1), Decimal(3600)) == Decimal("10.5")


def test_plan_and_receipt_say_so(tmp_path: Path) -> None:
    world = World(tmp_path)
    today = world.clock.now().date()
    mark = OwnPrice(
        set_on=today, until=today, list_usd_per_hour=Decimal(4), list_as_of=today, list_source="a list", note="credits"
    )
    planned = plan(world.work)
    cheap = tuple(
        replace(one, offer=replace(one.offer, price_usd_per_hour=Decimal("0.50"), own_price=mark))
        for one in planned.options
    )
    planned = replace(planned, options=cheap)
    words = f"own price of {today} (credits), until {today}; list $4.00 of {today}"
    assert words in " ".join(plan_text(planned, world.clock.now()).split())
    shown = json.loads(plan_json(planned, world.clock.now()))["plan"]["options"][0]["offer"]
    assert (shown["own_price"]["list_usd_per_hour"], shown["own_price"]["until"]) == ("4", str(today))
    driver = launch(planned, world.book, world.tools, world.who, owner="me", environment={"TOKEN": "x"}, run_id="abc")
    receipt = driver.view.receipt
    assert receipt is not None
    hours = Decimal(str(receipt.metered_seconds)) / 3600
    assert abs(receipt.metered_cost_usd - hours / 2) < Decimal("0.001")
    assert words in " ".join(receipts_text([driver.view]).split())

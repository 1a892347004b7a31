import math
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.errors import CapTooSmall, UsageError
from costgpu.job.plan import (
    LaunchPlace,
    Limits,
    boot_seconds,
    extras_usd_per_hour,
    larger_options,
    lease_for,
    options_for,
)
from costgpu.job.timeouts import POWER_OFF_SECONDS
from costgpu.models.offer import Accelerator, Offer, PurchaseOption
from costgpu.models.run import Lease
from costgpu.models.storage import StorageNeed
from costgpu.providers.local import own_offer

GPU = Offer(
    provider="aws",
    instance_type="g5.xlarge",
    family="g5",
    region="us-east-1",
    zone=None,
    purchase_option=PurchaseOption.ON_DEMAND,
    price_usd_per_hour=Decimal("1.006"),
    vcpus=4,
    memory_gib=16.0,
    architecture="x86_64",
    accelerator=Accelerator(name="A10G", count=1, memory_gib=24.0),
    price_source="test",
    price_as_of=date(2026, 9, 17),
)
CPU = replace(GPU, instance_type="c7a.2xlarge", family="c7a", accelerator=None, price_usd_per_hour=Decimal("0.41"))
HERE = own_offer(Decimal(0), date(2026, 9, 17))


def lease(
    offer: Offer = GPU, *, estimated: float | None = None, on_demand: Decimal | None = None, **limits: Any
) -> Lease:
    asked = Limits(**{"longest_seconds": math.inf, **limits})
    return lease_for(offer, asked, on_demand_usd_per_hour=on_demand, estimated_seconds=estimated)


@given(
    cents=st.integers(min_value=20, max_value=10_000_00),
    price=st.decimals(min_value="0.01", max_value="100", places=4),
    on_demand=st.none() | st.decimals(min_value="0.01", max_value="200", places=4),
)
def test_what_a_lease_costs_at_worst_is_within_the_cap_and_at_most_a_minute_below(
    cents: int, price: Decimal, on_demand: Decimal | None
) -> None:
    cap = Decimal(cents) / 100
    offer = replace(GPU, price_usd_per_hour=price)
    try:
        found = lease(offer, on_demand=on_demand, max_cost_usd=cap)
    except CapTooSmall:
        rate = max(price, on_demand or price) + extras_usd_per_hour(offer)
        assert cap * 3600 / rate < Decimal(boot_seconds(offer) + 60 + POWER_OFF_SECONDS) + 1
        return
    assert found.worst_cost_usd <= cap + Decimal("0.0001")
    assert found.usd_per_hour == max(price, on_demand or price) + extras_usd_per_hour(offer)
    assert (Decimal(found.lifetime_seconds) + 61) * found.usd_per_hour / 3600 > cap - Decimal(
        "0.0001"
    ) * found.usd_per_hour


def test_a_spot_machine_is_capped_at_its_price_on_demand() -> None:
    spot = replace(GPU, purchase_option=PurchaseOption.SPOT, price_usd_per_hour=Decimal("0.30"))
    capped = lease(spot, on_demand=Decimal("1.006"), max_cost_usd=Decimal(5))
    assert capped == lease(GPU, max_cost_usd=Decimal(5))


def test_the_tightest_limit_counts() -> None:
    both = lease(max_cost_usd=Decimal(100), max_duration_seconds=3600.0)
    assert both.limited_by.startswith("--max-duration")
    assert 3600 < both.lifetime_seconds < 3600 + 2000
    assert lease(max_cost_usd=Decimal(1), max_duration_seconds=36000.0).limited_by == "--max-cost $1.00"


def test_without_limits_it_is_three_times_the_estimate_but_never_too_short_to_install_anything() -> None:
    assert lease(estimated=7200.0).lifetime_seconds == 21600
    assert lease(estimated=30.0).lifetime_seconds == 1800
    assert lease(estimated=7200.0).limited_by == "3x the estimate"


def test_a_run_that_nothing_limits_is_refused() -> None:
    with pytest.raises(UsageError, match="Nothing says when") as caught:
        lease()
    assert "--max-cost" in caught.value.hint
    with pytest.raises(UsageError):
        lease(estimated=float("inf"))


def test_a_cap_too_small_to_boot_is_refused_and_says_what_would_do() -> None:
    with pytest.raises(CapTooSmall, match="before the job starts") as caught:
        lease(CPU, max_cost_usd=Decimal("0.02"))
    least = Decimal(caught.value.hint.split("$")[1].split(",")[0])
    assert lease(CPU, max_cost_usd=least).lifetime_seconds >= boot_seconds(CPU) + 60


def test_a_lease_of_more_than_a_week_is_refused() -> None:
    with pytest.raises(UsageError, match="longer than"):
        lease(lease_seconds=8 * 86400.0, longest_seconds=7 * 86400.0)
    assert lease(lease_seconds=86400.0, longest_seconds=7 * 86400.0).lifetime_seconds == 86400


def test_this_machine_is_free_and_still_ends() -> None:
    free = lease(HERE)
    assert free.worst_cost_usd == 0
    assert free.lifetime_seconds == 7 * 86400
    assert lease(HERE, max_duration_seconds=60.0).lifetime_seconds < 2000


def test_places_that_cost_far_more_than_the_first_are_no_replacement() -> None:
    prices = ["1.006", "1.2", "1.5", "1.6", "9.9"]
    places = [
        LaunchPlace(offer=replace(GPU, region=f"r{i}", price_usd_per_hour=Decimal(p))) for i, p in enumerate(prices)
    ]
    options = options_for(places, Limits(max_cost_usd=Decimal(5)))
    assert [o.offer.region for o in options] == ["r0", "r1", "r2"]
    assert all(o.lease.worst_cost_usd <= 5 for o in options)
    assert all(o.disk_gib == 100 for o in options)


def test_the_first_place_must_be_affordable_and_others_are_dropped() -> None:
    places = [LaunchPlace(offer=CPU), LaunchPlace(offer=replace(CPU, region="far", price_usd_per_hour=Decimal("0.6")))]
    with pytest.raises(CapTooSmall):
        options_for(places, Limits(max_cost_usd=Decimal("0.02")))
    tight = Limits(max_cost_usd=Decimal("0.045"))
    assert [o.offer.region for o in options_for(places, tight)] == ["us-east-1"]
    with pytest.raises(UsageError, match="No offer"):
        options_for([], Limits())


def test_larger_machines_have_more_memory_of_each_kind_and_as_many_gpus() -> None:
    def place(kind: str, gib: float, count: float, main: float, price: str = "2") -> LaunchPlace:
        card = Accelerator(name="X", count=count, memory_gib=gib)
        return LaunchPlace(
            offer=replace(GPU, instance_type=kind, accelerator=card, memory_gib=main, price_usd_per_hour=Decimal(price))
        )

    limits = Limits(max_cost_usd=Decimal(5))
    places = [
        place("same", 24, 1, 64),
        place("l40s", 48, 1, 64),
        place("two", 80, 2, 170),
        place("narrow", 80, 1, 16),  # as little main memory as the first
        place("arm", 80, 1, 170),
        place("a100", 40, 1, 85),
        place("third", 48, 1, 128),  # a third place of its size
        place("h100", 80, 1, 256),
        place("dear", 141, 1, 2048, "900"),  # the cap does not boot it
        place("b200", 180, 1, 2048, "40"),
    ]
    places[4] = replace(places[4], offer=replace(places[4].offer, architecture="arm64"))
    found = larger_options(places, options_for([LaunchPlace(offer=GPU)], limits), limits)
    assert [(each.size, each.offer.instance_type) for each in found] == [
        (1, "l40s"),
        (1, "a100"),
        (2, "h100"),
        (3, "b200"),
    ]
    assert all(each.lease.worst_cost_usd <= 5 for each in found)


def test_the_default_disk_grows_with_what_a_job_stores_and_is_paid() -> None:
    need = StorageNeed(download_bytes=16 * 10**9, checkpoint_bytes=10**10, saves=2, kept=2)
    (small,) = options_for([LaunchPlace(offer=GPU)], Limits(max_cost_usd=Decimal(5)))
    (large,) = options_for([LaunchPlace(offer=GPU)], Limits(max_cost_usd=Decimal(5), storage=need))
    (given,) = options_for([LaunchPlace(offer=GPU)], Limits(max_cost_usd=Decimal(5), storage=need, disk_gib=60))
    assert (small.disk_gib, large.disk_gib, given.disk_gib) == (100, 130, 60), (
        "39.6 GB, 10 of which the default has left"
    )
    assert large.extras_usd_per_hour == extras_usd_per_hour(GPU, 130)
    assert large.lease.usd_per_hour - small.lease.usd_per_hour == large.extras_usd_per_hour - small.extras_usd_per_hour
    assert large.lease.lifetime_seconds < small.lease.lifetime_seconds, "the cap holds the disk, too"

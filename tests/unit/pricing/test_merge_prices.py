"""New prices against known ones: what is taken, what is reported, what is kept apart."""

from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.models.offer import Offer, PurchaseOption
from costgpu.models.price_update import MissingPrice, PriceUpdate, by_key, key_of
from costgpu.pricing import snapshot
from costgpu.pricing.merge_prices import LARGE_CHANGE, RefreshResult, merge_prices
from tests.unit.estimator import builders

OLD, NEW = date(2026, 7, 9), date(2026, 11, 21)
SPOT, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.ON_DEMAND


def offer(price: str | Decimal, option: PurchaseOption = ON_DEMAND, name: str = "m1", day: date = OLD) -> Offer:
    return builders.offer(str(price), spot=option is SPOT, instance_type=name, region="r", price_as_of=day)


def refresh(
    known: list[Offer], new: list[Offer], *, accept: bool = False, failures: tuple[MissingPrice, ...] = ()
) -> RefreshResult:
    harvest = PriceUpdate(
        provider="aws",
        regions=("r",),
        offers=tuple(replace(one, price_as_of=NEW) for one in new),
        failures=failures,
        unknown=("b", "a"),
        documents=7,
    )
    return merge_prices(known, [harvest], accept=accept)


@pytest.mark.parametrize("price", ["1.300001", "0.699999", "9", "0.01"])
def test_an_on_demand_price_that_moves_far_is_kept_apart_until_it_is_accepted(price: str) -> None:
    result = refresh([offer("1")], [offer(price)])
    assert result.offers == (offer("1"),)  # old price, old age
    (move,) = result.moves
    assert (move.taken, move.old, move.new, result.taken) == (False, offer("1"), offer(price, day=NEW), 0)
    accepted = refresh([offer("1")], [offer(price)], accept=True)
    assert accepted.offers == (offer(price, day=NEW),)
    assert [one.taken for one in accepted.moves] == [True]


@pytest.mark.parametrize("accept", [False, True])
def test_a_spot_price_above_the_on_demand_price_is_never_taken(accept: bool) -> None:
    for new in (
        [offer("1.01", SPOT)],
        [offer("1.01", SPOT), offer("1")],
        [offer("0.85", SPOT), offer("0.8")],
        [offer("1.01", SPOT), offer("1.5")] if not accept else [offer("1.51", SPOT), offer("1.5")],
    ):
        result = refresh([offer("1"), offer("0.5", SPOT)], new, accept=accept)
        assert by_key(result.offers)["aws", "r", "m1", SPOT] == offer("0.5", SPOT)
        (failure,) = result.failures
        assert "above the on-demand price" in failure.reason
    assert refresh([offer("1")], [offer("1", SPOT)]).taken == 1


def test_a_list_price_at_which_nothing_is_sold_is_the_most_for_spot_machines() -> None:
    unsold = snapshot.read_offers(snapshot.DATA / snapshot.NOT_SOLD_FILE)[0]
    for factor, taken in ((2, 0), (Decimal("0.5"), 1)):
        spot = replace(unsold, purchase_option=SPOT, price_usd_per_hour=unsold.price_usd_per_hour * factor)
        update = PriceUpdate(
            provider=unsold.provider, regions=(unsold.region,), offers=(spot,), failures=(), unknown=(), documents=1
        )
        assert merge_prices([], [update]).taken == taken


def test_an_offer_without_a_new_price_keeps_price_and_age() -> None:
    known = [offer("1"), offer("2", name="m2")]
    failed = MissingPrice(key=key_of(known[1]), reason="why")
    result = refresh(known, [offer("1.1")], failures=(failed,))
    assert result.offers == (offer("1.1", day=NEW), offer("2", name="m2"))
    assert result.failures == (failed,)
    assert (result.unknown, result.documents, result.regions) == (("a", "b"), 7, ("r",))


def test_a_new_offer_is_added_and_other_providers_are_left_alone() -> None:
    elsewhere = replace(offer("5"), provider="gcp")
    result = refresh([elsewhere], [offer("1")])
    assert result.offers == (offer("1", day=NEW),)
    assert (result.taken, result.added) == (1, 1)


def test_what_is_kept_apart_comes_first_then_the_largest_moves() -> None:
    known = [offer("1", name=name) for name in "abc"] + [offer("9", SPOT, "c")]
    result = refresh(known, [offer("2", name="a"), offer("4", name="b"), offer("0.5", SPOT, "c")])
    assert [(move.new.instance_type, move.taken) for move in result.moves] == [("b", False), ("a", False), ("c", True)]


prices = st.decimals(min_value="0.001", max_value="100", places=3)


@given(old=prices, new=prices, option=st.sampled_from([SPOT, ON_DEMAND]), accept=st.booleans())
def test_every_far_move_is_reported_and_nothing_is_lost(
    old: Decimal, new: Decimal, option: PurchaseOption, accept: bool
) -> None:
    result = refresh([offer(old, option)], [offer(new, option)], accept=accept)
    (now,) = result.offers
    far = abs(new / old - 1) > LARGE_CHANGE
    assert len(result.moves) == far
    taken = not far or accept or option is SPOT
    assert now == offer(new if taken else old, option, day=NEW if taken else OLD)
    assert result.taken == taken


def test_a_price_older_than_the_known_one_is_not_taken() -> None:
    """A public list may stand still: AWS's former file of spot prices did."""
    result = refresh([offer("1", SPOT, day=date(2026, 11, 22))], [offer("0.9", SPOT)])
    assert result.offers == (offer("1", SPOT, day=date(2026, 11, 22)),)
    assert (result.taken, result.moves) == (0, ())
    (failure,) = result.failures
    assert failure.reason == "the new price is of 2026-11-21, and the one in use is newer (2026-11-22)"
    assert refresh([offer("1", SPOT, day=NEW)], [offer("0.9", SPOT)]).taken == 1

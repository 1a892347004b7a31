"""How often spot machines are taken back: every spot offer has a rate, and what is not published says so."""

from dataclasses import replace

from costgpu.models.offer import PurchaseOption
from costgpu.pricing import snapshot
from costgpu.pricing.interruptions import interruption_rate, interruption_rates

SPOT = [one for one in snapshot.read_offers(snapshot.newest()) if one.purchase_option is PurchaseOption.SPOT]
STEPS = ("<5", "5-10", "10-15", "15-20", ">20")


def test_every_spot_offer_has_a_rate() -> None:
    rates = {(one.provider, interruption_rate(one).basis) for one in SPOT}
    assert rates == {("aws", "published"), ("aws", "assumed"), ("gcp", "assumed")}
    assert all(0.0005 < interruption_rate(one).per_hour < 0.2 for one in SPOT)


def test_a_higher_step_is_a_higher_rate() -> None:
    of_step = {rate.percent_a_month: rate for rate in interruption_rates().values() if rate.percent_a_month}
    assert set(of_step) == set(STEPS)
    for name in ("low_per_hour", "per_hour", "high_per_hour"):
        found = [getattr(of_step[step], name) for step in STEPS]
        assert found == sorted(found)


def test_what_has_no_row_is_assumed() -> None:
    gpu = next(one for one in SPOT if one.accelerator is not None)
    elsewhere = replace(gpu, provider="another", region="moon")
    assert interruption_rate(elsewhere) is interruption_rates()["any", "any", "gpu"]
    assert interruption_rate(replace(elsewhere, accelerator=None)) is interruption_rates()["any", "any", "cpu"]


def test_what_is_published_or_assumed_lies_in_its_interval() -> None:
    for rate in interruption_rates().values():
        assert rate.basis in ("published", "assumed")
        assert 0 <= rate.low_per_hour < rate.per_hour < rate.high_per_hour

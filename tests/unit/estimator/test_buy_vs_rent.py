"""Rent or own, and energy: the arithmetic, the names, and what is said of them."""

import json
import math
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.errors import UsageError
from costgpu.estimator.buy_vs_rent import (
    COLAB_GPU,
    HOURS_PER_YEAR,
    LIFE_YEARS,
    POWER_USD_PER_KWH,
    OwnershipTerms,
    break_even,
    find_gpu,
    fits_colab,
    ownership,
    predict_on_own_gpu,
)
from costgpu.estimator.cost import (
    AWAKE,
    HOST_WATTS,
    POWER_SUPPLY,
    card_watts,
    energy_kwh,
    gpu_load,
    own_watts,
    power_share,
)
from costgpu.estimator.gpu import HOST_GHZ
from costgpu.estimator.predict import predict
from costgpu.models.prediction import Candidate, Ownership, Range
from costgpu.pricing.hardware import accelerators
from costgpu.render.document import json_value
from costgpu.render.estimate.documents import own_value
from costgpu.render.estimate.own_gpu import energies, own_section
from costgpu.render.text.sections import section_text
from tests.unit.estimator.verdicts import OFFERS, candidate, offer, profile, verdict, workload

CARDS = accelerators()
POWER = 0.30


def owned(terms: OwnershipTerms | None = None, *, card: str = "RTX 3090", **of: object) -> Ownership:
    work, scope = workload(profile(**of))  # type: ignore[arg-type]
    return ownership(work, find_gpu(card, CARDS), terms or OwnershipTerms(), verdict(work, scope))


# -- names


SPELLINGS = {
    "RTX 3090": "rtx 3090,RTX3090,rtx-3090,3090,NVIDIA GeForce RTX 3090,RTX 3090 24GB",
    "RTX A6000": "a6000",
    "RTX 6000 Ada": "6000 ada",
    "Quadro RTX 6000": "quadro rtx-6000",
    "Titan RTX": "titan rtx",
    "GTX 1080 Ti": "1080 ti",
    "T4": "tesla t4",
    "A100": "A100-SXM4-40GB,a100",
    "A100-80GB": "A100 80GB",
    "V100": "v100",
}


@pytest.mark.parametrize(("name", "card"), [(name, card) for card in SPELLINGS for name in SPELLINGS[card].split(",")])
def test_a_users_spelling_means_one_card(name: str, card: str) -> None:
    assert find_gpu(name, CARDS).name == card


@pytest.mark.parametrize("name", sorted(CARDS))
def test_every_canonical_name_means_itself(name: str) -> None:
    assert find_gpu(name, CARDS).name == name
    assert find_gpu(name.lower().replace(" ", ""), CARDS).name == name


@pytest.mark.parametrize("name", ["1080", "RTX 3090 Ti", "309", "foo", "", "rtx", "2x RTX 3090", "nvidia"])
def test_nothing_is_guessed(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_gpu(name, CARDS)
    assert any(known in caught.value.hint for known in CARDS)


def test_the_near_names_are_near() -> None:
    with pytest.raises(UsageError) as caught:
        find_gpu("RTX 3090 Ti", CARDS)
    assert "RTX 3090" in caught.value.hint
    with pytest.raises(UsageError, match="no figures"):
        find_gpu("3090", {})


# -- power and energy


def test_the_power_curve_goes_through_its_points_and_stops_at_the_cap() -> None:
    assert power_share(0) == 0.12
    assert power_share(0.1) == pytest.approx(0.32)
    assert power_share(0.5) == pytest.approx(0.75)
    assert power_share(0.3) == pytest.approx((0.32 + 0.75) / 2)
    assert power_share(1) == 1.0
    assert power_share(7) == 1.0
    assert power_share(-1) == 0.12


@given(st.floats(0, 1), st.floats(0, 1))
def test_more_load_never_takes_less_power(one: float, other: float) -> None:
    assert power_share(min(one, other)) <= power_share(max(one, other))


def test_load_is_the_share_of_the_step_in_which_the_gpu_works() -> None:
    assert gpu_load({"compute": 1.0, "on-chip": 1.0, "memory": 1.0}) == 1
    assert gpu_load({"launch": 1.0, "loading": 3.0}) == pytest.approx(AWAKE)
    assert gpu_load({"compute": 1.0, "launch": 1.0}) == pytest.approx((1 + AWAKE) / 2)
    assert gpu_load({"run": 3.0}) == 1  # as measured: what it goes into is not known
    assert gpu_load({}) == 1


def test_energy_of_an_own_card_by_hand() -> None:
    found = owned(OwnershipTerms(power_usd_per_kwh=POWER))
    prediction = found.prediction
    run = prediction.run_seconds.value
    setup = prediction.parts["set-up"] / sum(prediction.parts.values())
    watts = 350 * ((1 - setup) * power_share(gpu_load(prediction.terms)) + setup * 0.12)
    assert found.card_watts == pytest.approx(watts)
    assert found.energy_kwh.value == pytest.approx((watts / POWER_SUPPLY + HOST_WATTS) * run / 3.6e6)
    assert prediction.cost_usd.value == pytest.approx(found.energy_kwh.value * POWER)
    assert prediction.cost_usd.high / prediction.cost_usd.value == pytest.approx(prediction.run_seconds.high / run)
    assert 0.12 * 350 < found.card_watts <= 350


def test_energy_of_offers() -> None:
    of = profile()
    work, _ = workload(of)
    one = predict(work, candidate(offer("0.81", gpu="L4")))
    boot = (8 * (0.74 + 2.76 / 2) + 72 * 0.12) * 90
    run = (8 * (0.74 + 2.76 / 2) + card_watts(one)) * one.run_seconds.value
    assert energy_kwh(one, of.machine) == pytest.approx((boot + run) / 3.6e6)
    four = predict(work, candidate(offer("3.00", gpu="L4", count=4)))
    assert energy_kwh(four, of.machine) > energy_kwh(one, of.machine)  # three rest, and resting is not free
    cpu = predict(work, candidate(offer("0.41")))
    assert energy_kwh(cpu, of.machine) == pytest.approx(
        (8 * 3.5 * cpu.run_seconds.value + 8 * (0.74 + 2.76 / 2) * 175) / 3.6e6
    )
    here = predict(work, Candidate(offer=None))
    assert energy_kwh(here, of.machine) == pytest.approx(4 * 3.5 * here.run_seconds.value / 3.6e6)
    mine = predict_on_own_gpu(work, CARDS["RTX 3090"], POWER)
    assert energy_kwh(mine, of.machine) == pytest.approx(own_watts(mine) * mine.run_seconds.value / 3.6e6)


# -- own


def test_an_own_card_boots_nothing_and_rents_nothing() -> None:
    found = owned()
    assert found.prediction.candidate.offer is None
    assert found.prediction.overhead_seconds == 0
    assert found.prediction.wall_seconds == found.prediction.run_seconds
    assert found.break_evens == ()
    assert found.amortised_usd is None
    assert found.power_usd_per_kwh == POWER_USD_PER_KWH
    assert "assumed" in found.power_source


def test_its_time_is_that_of_the_same_card_in_the_cloud_but_for_the_boot() -> None:
    work, _ = workload(profile())
    rented = candidate(offer("0.81", gpu="L4"))
    assert rented.cpu is not None
    cloud = predict(work, replace(rented, cpu=replace(rented.cpu, all_core_ghz=HOST_GHZ)))
    mine = predict_on_own_gpu(work, CARDS["L4"], POWER)
    assert mine.step_seconds == pytest.approx(cloud.step_seconds)
    assert mine.run_seconds.value == pytest.approx(cloud.run_seconds.value)


def test_the_loader_runs_on_this_machines_cores() -> None:
    waits = {
        cores: predict_on_own_gpu(
            workload(replace(of, machine=replace(of.machine, cores=cores)))[0], CARDS["RTX 4090"], POWER
        ).terms["loading"]
        for of in [profile(workers=8, fetch=0.1)]
        for cores in (1, 4)
    }
    assert waits[1] > 2 * waits[4] > 0


def test_when_buying_has_paid_by_hand() -> None:
    work, scope = workload(profile(steps=2_000_000))
    mine = predict_on_own_gpu(work, CARDS["RTX 3090"], POWER)
    rival = predict(work, candidate(offer("0.81", gpu="L4")))
    found = break_even(mine, 700.0, rival)
    assert found.saving_usd == pytest.approx(rival.cost_usd.value - mine.cost_usd.value)
    assert found.jobs.value == pytest.approx(700 / found.saving_usd)
    assert found.jobs.low <= found.jobs.value <= found.jobs.high
    assert found.hours == pytest.approx(found.jobs.value * mine.run_seconds.value / 3600)
    assert found.in_life == (found.hours <= LIFE_YEARS * HOURS_PER_YEAR)
    both = ownership(
        work, CARDS["RTX 3090"], OwnershipTerms(price_usd=Decimal(700), power_usd_per_kwh=POWER), verdict(work, scope)
    )
    costs = [b.against.cost_usd.value for b in both.break_evens]
    assert costs == sorted(costs)
    assert both.break_evens[-1].against.candidate.is_gpu


def test_buying_never_pays_when_the_energy_alone_costs_more() -> None:
    work, scope = workload(profile())
    giveaway = verdict(work, scope, [offer("0.0001", gpu="L4", provider="gift"), offer("0.0001", provider="gift")])
    found = ownership(work, CARDS["RTX 3090"], OwnershipTerms(price_usd=Decimal(700), power_usd_per_kwh=5.0), giveaway)
    assert all(math.isinf(b.jobs.value) and not b.in_life for b in found.break_evens)
    assert found.break_evens
    assert "never pays" in section_text(own_section(found, "the whole job"))
    document = json_value(own_value(found))
    assert document["break_even"][0]["jobs"]["value"] is None
    json.dumps(document, allow_nan=False)


@given(st.decimals("1", "50000", places=2), st.floats(0, 2))
def test_a_dearer_card_or_dearer_power_never_pays_sooner(price: Decimal, power: float) -> None:
    work, _ = workload(profile())
    rival = predict(work, candidate(OFFERS[2]))
    low = break_even(predict_on_own_gpu(work, CARDS["RTX 3090"], power), float(price), rival)
    dearer = break_even(predict_on_own_gpu(work, CARDS["RTX 3090"], power), float(price) * 2, rival)
    power_up = break_even(predict_on_own_gpu(work, CARDS["RTX 3090"], power + 0.1), float(price), rival)
    assert dearer.jobs.value >= low.jobs.value
    assert power_up.jobs.value >= low.jobs.value
    assert low.jobs.low <= low.jobs.value <= low.jobs.high


def test_amortisation_spreads_the_price_over_the_hours_of_use() -> None:
    found = owned(OwnershipTerms(price_usd=Decimal(1000), hours_per_year=1000))
    assert found.amortised_usd is not None
    assert found.amortised_usd == pytest.approx(1000 / 5000 * found.prediction.run_seconds.value / 3600, rel=1e-9)
    assert "spread over the hours of use" in section_text(own_section(found, "the whole job"))


def test_a_card_that_cannot_run_it_says_why_and_no_more() -> None:
    found = owned(OwnershipTerms(price_usd=Decimal(100)), card="GTX 1050", size=16384)
    assert found.break_evens == ()
    text = section_text(own_section(found, "the whole job"))
    assert "cannot run this: needs" in text
    assert "electricity" not in text
    assert own_value(found)["infeasible"]


@pytest.mark.parametrize(
    "terms",
    [
        {"price_usd": Decimal(0)},
        {"price_usd": Decimal(-1)},
        {"price_usd": Decimal("NaN")},
        {"power_usd_per_kwh": -0.1},
        {"power_usd_per_kwh": 30.0},
        {"power_usd_per_kwh": math.nan},
        {"hours_per_year": 0.0},
        {"hours_per_year": 9000.0},
    ],
)
def test_terms_that_cannot_be_meant_are_refused(terms: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        OwnershipTerms(**terms)  # type: ignore[arg-type]


def test_the_text_fits_a_terminal_and_the_document_is_json() -> None:
    found = owned(OwnershipTerms(price_usd=Decimal(699), power_usd_per_kwh=POWER, hours_per_year=500))
    for unit in ("the whole job", "one epoch", "1,000 steps"):
        text = section_text(own_section(found, unit))
        assert max(map(len, text.splitlines())) <= 80
        assert "$699" in text
        assert "(assumed)" in text  # what is not measured says so
    again = json.loads(json.dumps(json_value(own_value(found)), allow_nan=False))
    assert again["accelerator"] == "RTX 3090"
    assert again["break_even"]


def test_energy_is_a_column_in_one_unit() -> None:
    assert energies([0.05, 0.002]) == ["50 Wh", "2 Wh"]
    assert energies([1234.0, 0.5]) == ["1,234 kWh", "0.5 kWh"]
    assert energies([]) == []


@pytest.mark.parametrize(
    ("of", "fits"),
    [({"steps": 20_000}, True), ({"steps": 1e9}, False), ({"steps": None}, False), ({"size": 50_000}, False)],
)
def test_a_short_job_that_fits_its_memory_fits_colab(of: dict[str, object], fits: bool) -> None:
    work, _ = workload(profile(**of))  # type: ignore[arg-type]
    assert fits_colab(work, CARDS[COLAB_GPU]) is fits


def test_a_range_of_jobs_is_said_with_two_digits() -> None:
    found = owned(OwnershipTerms(price_usd=Decimal(699), power_usd_per_kwh=0.0))
    one = found.break_evens[0]
    exact = replace(one, jobs=Range(value=43_558.2, low=1.2, high=math.inf))
    text = section_text(own_section(replace(found, break_evens=(exact,)), "the whole job"))
    assert "44,000 jobs (80 %: 2 to never)" in " ".join(text.split())

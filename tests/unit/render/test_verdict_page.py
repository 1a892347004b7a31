"""A verdict's page: its figures are the verdict's, its texts are harmless, and it needs nothing else."""

import re
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.estimator.buy_vs_rent import OwnershipTerms, ownership
from costgpu.estimator.cost import energy_kwh
from costgpu.models.prediction import Choice, Ownership, Prediction, Provenance, Range, Verdict
from costgpu.models.workload import Extra, ExtraKind, LaterPhase, Rhythm, WorkloadProfile
from costgpu.pricing.hardware import accelerators
from costgpu.render.html.charts import Point, Stack, cost_and_time, shares
from costgpu.render.html.svg import log_scale, time_ticks, usd_ticks
from costgpu.render.html.verdict_page import verdict_html
from costgpu.render.phrases import extra_phrase
from costgpu.render.text.estimate import prediction_value, verdict_text
from tests.properties import examples
from tests.unit.estimator.verdicts import OFFERS, TODAY, offer, profile, verdict, workload
from tests.unit.render.html_page import EVIL, Page, harmless

LOOPS = ["train.py:12 for … in range(40): 40", "train.py:13 for … in loader: 391"]
WORK, AMOUNT = workload(profile(loops=LOOPS))
BASE = verdict(WORK, AMOUNT)


def page_of(of: Verdict = BASE, whose: WorkloadProfile | None = None, **more: Any) -> Page:
    return harmless(verdict_html(of, whose or WORK.profile, more.pop("advice", ()), TODAY, **more))


def owned(**terms: Any) -> Ownership:
    terms = {"price_usd": Decimal(699), "power_usd_per_kwh": 0.3, **terms}
    return ownership(WORK, accelerators()["RTX 3090"], OwnershipTerms(**terms), BASE)


def test_the_page_has_everything_that_was_asked_of_it() -> None:
    energy = [energy_kwh(p, WORK.profile.machine) for p in (BASE.here, *BASE.table)]
    page = page_of(advice=["Use mixed precision: saves $0.10."], own=owned(), energy=energy, notebooks=["Colab fits."])
    for words in (
        BASE.sentence,
        "Cost against time",
        "What a step's time goes into",
        "What would make it cheaper",
        "Rent or own",
        "How long the script runs, and how that was found",
        "Prices, and where each number comes from",
        "Use mixed precision: saves $0.10.",
        "Colab fits.",
        "the loop says so",
        "65 days old",  # prices of 17 September
        "modelled",
        "measured",
        "Wh",
    ):
        assert words in page.text


def test_each_offer_is_in_picture_and_table() -> None:
    html = verdict_html(BASE, WORK.profile, (), TODAY)
    for number, prediction in enumerate(BASE.table, 1):
        assert prediction.candidate.offer is not None
        assert html.count(f"<title>{number}. ") == 2  # wide and narrow
        assert f"{number}. <bdi>{prediction.candidate.offer.instance_type}</bdi>" in html
    assert html.count('class="interval') == 2 * len(BASE.table)
    assert html.count('class="chosen"') == 2 * (BASE.recommended is not BASE.here)
    assert html.count('class="front"') >= 2
    assert html.count('class="here"') == 2


def test_a_machine_that_boots_no_public_image_is_marked_in_page_text_and_document() -> None:
    """AWS's P3: its Deep Learning image has a driver for G6, and none for P3."""
    offers = [
        replace(offer("0.41"), family="c7a"),
        replace(offer("0.81", gpu="L4"), family="g6"),
        replace(offer("0.36", gpu="V100", name="p3.2xlarge"), family="p3"),
    ]
    found = verdict(WORK, AMOUNT, offers)
    rows = [prediction_value(one, TODAY) or {} for one in found.table]
    marked = {row["offer"]["instance_type"]: row["offer"]["needs_own_image"] for row in rows}
    assert marked["p3.2xlarge"]
    assert not marked["c7a.2xlarge"]
    text = verdict_text(found, WORK.profile, TODAY)
    assert "p3.2xlarge 1xV100^ " in text
    assert "1xL4^" not in text
    assert "  ^ needs your image (aws_image): no public one has its driver." in text
    assert page_of(found).text.count("(needs your image)") == 1
    without = verdict(WORK, AMOUNT, offers[:2])
    assert "needs your image" not in verdict_text(without, WORK.profile, TODAY) + page_of(without).text


def test_the_terms_of_a_step_are_drawn_in_their_shares() -> None:
    parts = [("compute", "x", 3.0), ("memory", "y", 1.0), ("host", "z", 0.0)]
    svg = "".join(shares(400, [Stack(name="a", total="1 s", parts=parts)]))
    widths = [float(w) for w in re.findall(r'<rect class="part [a-z-]+" x="[\d.]+" y="\d+" width="([\d.]+)"', svg)]
    assert widths == [300.0, 100.0]
    assert "75%" in svg


def test_loops_are_nested_outermost_first() -> None:
    page = page_of()
    at = [page.words.index(loop) for loop in LOOPS]
    assert at == sorted(at)
    assert page.count("ol") == 3


def test_without_advice_own_or_offers_the_page_is_still_whole() -> None:
    nowhere = replace(
        BASE,
        table=(),
        best_cpu=None,
        best_gpu=None,
        recommended=None,
        choice=Choice.NOWHERE,
        speedup_range=None,
        premium=None,
        break_even=None,
        probability_gpu_cheaper=None,
        sentence="No offer meets the deadline.",
    )
    page = page_of(nowhere)
    assert "no offer is possible" in page.text
    assert "Nothing was found" in page.text
    assert "Rent or own" not in page.text


def test_a_probability_is_never_certain() -> None:
    assert "> 99" in page_of(replace(BASE, probability_gpu_cheaper=1.0)).text.replace(">99", "> 99")
    assert "<1" in page_of(replace(BASE, probability_gpu_cheaper=0.0)).text


def test_hostile_texts_are_shown_and_do_nothing() -> None:
    evil = offer("0.81", gpu="L4", name=EVIL, region=EVIL, provider=EVIL)
    found = verdict(
        WORK, AMOUNT, [*OFFERS, evil, replace(evil, price_source=EVIL, price_usd_per_hour=Decimal("0.001"))]
    )
    found = replace(found, sentence=EVIL, notes=(EVIL,), unit=EVIL)
    whose = profile(script=EVIL, loops=[EVIL], notes=[EVIL])
    phase = replace(
        whose.phases[0],
        gpu_reason=EVIL,
        unit=replace(whose.phases[0].unit, name=EVIL),
        label=EVIL,
        total=replace(whose.phases[0].total, how=EVIL),
        extras=[Extra(kind=ExtraKind.VALIDATION, seconds_each=1, rhythm=Rhythm.EPOCH, note=EVIL)],
    )
    whose = replace(
        whose,
        phases=[phase, phase],
        arguments=[EVIL],
        created=EVIL,
        costgpu_version=EVIL,
        machine=replace(whose.machine, cpu_model=EVIL),
        framework=replace(whose.framework, version=EVIL, name=EVIL),
        later_phases=[LaterPhase(label=EVIL, source=EVIL, steps=None)],
    )
    mine = replace(owned(), power_source=EVIL, notes=(EVIL,))
    html = verdict_html(found, whose, [EVIL], TODAY, own=mine, notebooks=[EVIL])
    assert "alert(1)" in harmless(html).text


def test_a_price_from_the_future_is_not_negatively_old() -> None:
    ahead = verdict(WORK, AMOUNT, [replace(each, price_as_of=TODAY + timedelta(days=3)) for each in OFFERS])
    assert "-3 day" not in page_of(ahead).text


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"kind": ExtraKind.VALIDATION, "rhythm": Rhythm.EPOCH}, "validation 2 s every epoch"),
        ({"kind": ExtraKind.CHECKPOINT, "every": 500, "measured": False}, "checkpoint 2 s every 500 steps (inferred)"),
        ({"rhythm": Rhythm.RUN}, "other 2 s once"),
        ({"rhythm": Rhythm.EPOCH, "every": 2}, "other 2 s every 2 epochs"),
    ],
)
def test_extras_in_words(facts: dict[str, Any], words: str) -> None:
    other = Extra(kind=ExtraKind.OTHER, seconds_each=2.0, rhythm=Rhythm.STEPS)
    assert extra_phrase(replace(other, **facts)) == words


@given(st.floats(1e-6, 1e10), st.floats(1.0, 1e8), st.integers(260, 1200))
def test_ticks_are_inside_apart_and_rising(least: float, times: float, width: int) -> None:
    scale = log_scale([least, least * times], 56.0, float(width))
    for ticks, room in ((time_ticks(scale), 58), (usd_ticks(scale), 26)):
        assert [t for t, _ in ticks] == sorted({t for t, _ in ticks})
        places = [scale.at(t) for t, _ in ticks]
        assert all(b - a >= room for a, b in pairwise(places))
        assert all(56 <= p <= width for p in places)
    if least >= 1e-3 and least * times < 1e9:
        assert usd_ticks(scale)


def test_marks_of_the_picture_are_where_the_scales_say() -> None:
    cheap = Point(label="1", title="a", style="cpu", seconds=(100.0, 90.0, 110.0), usd=(1.0, 0.9, 1.1))
    dear = Point(label="2", title="b", style="gpu", seconds=(10.0, 9.0, 11.0), usd=(5.0, 4.0, 6.0), chosen=True)
    beaten = Point(label="3", title="c", style="gpu", seconds=(120.0, 110.0, 130.0), usd=(6.0, 5.0, 7.0))
    svg = "".join(cost_and_time(800, 400, [cheap, dear, beaten], 1000.0, "here"))
    [(cx, cy)] = re.findall(r'<circle class="chosen" cx="([\d.]+)" cy="([\d.]+)"', svg)
    [(x, y)] = re.findall(r'<rect class="dot cpu" x="([\d.]+)" y="([\d.]+)"', svg)
    assert float(cx) < float(x)  # faster is left
    assert float(cy) < float(y)  # dearer is up
    [line] = re.findall(r'<polyline class="front" points="([^"]+)"', svg)
    assert len(line.split()) == 3  # the beaten one is not part of it


AMOUNTS = st.tuples(st.floats(1e-6, 1e9), st.floats(1.0, 50.0), st.floats(1.0, 50.0)).map(
    lambda t: Range(value=t[0] * t[1], low=t[0], high=t[0] * t[1] * t[2])
)
TEXT = st.text(max_size=30)


@st.composite
def predictions(draw: st.DrawFn, *, here: bool = False) -> Prediction:
    base = BASE.here if here else draw(st.sampled_from(BASE.table))
    where = base.candidate.offer
    candidate = base.candidate
    if where is not None:
        where = replace(where, instance_type=draw(TEXT), region=draw(TEXT), price_source=draw(TEXT))
        candidate = replace(candidate, offer=where)
    terms = draw(
        st.dictionaries(
            st.sampled_from(["compute", "memory", "launch", "measured", "<i>", "run"]), st.floats(0, 1e6), max_size=4
        )
    )
    return replace(
        base,
        candidate=candidate,
        wall_seconds=draw(AMOUNTS),
        run_seconds=draw(AMOUNTS),
        cost_usd=Range(value=0.0, low=0.0, high=0.0) if here else draw(AMOUNTS),
        terms=terms,
        parts=draw(st.dictionaries(TEXT, st.floats(0, 1e6), max_size=3)),
        notes=tuple(draw(st.lists(TEXT, max_size=2))),
        provenance=draw(st.sampled_from(Provenance)),
        step_seconds=draw(st.floats(1e-7, 1e5)),
    )


@st.composite
def verdicts(draw: st.DrawFn) -> Verdict:
    here = draw(predictions(here=True))
    table = tuple(draw(st.lists(predictions(), max_size=6)))
    some = st.sampled_from(table) if table else st.none()
    known = bool(table) and draw(st.booleans())
    return replace(
        BASE,
        here=here,
        table=table,
        best_cpu=draw(st.none() | some),
        best_gpu=draw(st.none() | some),
        recommended=draw(st.none() | st.just(here) | some),
        sentence=draw(TEXT),
        notes=tuple(draw(st.lists(TEXT, max_size=2))),
        speedup_range=draw(AMOUNTS) if known else None,
        premium=draw(st.floats(0.01, 1e4)) if known else None,
        break_even=draw(st.sampled_from([0.5, 30.0, float("inf")])) if known else None,
        probability_gpu_cheaper=draw(st.floats(0, 1)) if known else None,
        unit=draw(st.sampled_from(["the whole job", "one epoch", "1,000 steps"])),
    )


@examples(60)
@given(verdicts(), st.lists(TEXT, max_size=3), st.booleans(), st.booleans())
def test_any_verdict_makes_a_whole_harmless_page(
    found: Verdict, advice: list[str], with_own: bool, with_energy: bool
) -> None:
    energy = [0.5] * (1 + len(found.table)) if with_energy else None
    html = verdict_html(found, WORK.profile, advice, TODAY, own=owned() if with_own else None, energy=energy)
    Page(html)
    assert html.count('class="interval') == 2 * (len(found.table) + (with_own and bool(found.table or with_own)))
    numbers = re.findall(r' (?:x|y|x1|y1|x2|y2|cx|cy|width|height)="([^"]*)"', html)
    assert all(abs(float(number)) < 1e5 for number in numbers)

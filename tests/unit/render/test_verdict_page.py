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
from costgpu.models.estimate import Estimate
from costgpu.models.prediction import Ownership, Prediction, Provenance, Range, Verdict
from costgpu.models.workload import Extra, ExtraKind, LaterPhase, Rhythm, WorkloadProfile
from costgpu.pricing.hardware import accelerators
from costgpu.render.html.charts import Point, Stack, cost_and_time, shares
from costgpu.render.html.svg import log_scale, time_ticks, usd_ticks
from tests.properties import examples
from tests.unit.estimator import advisable, inferring
from tests.unit.estimator.verdicts import OFFERS, TODAY, offer, profile, verdict, workload
from tests.unit.render.html_page import EVIL, Page, harmless
from tests.unit.render.screens import answer, page

WORK, AMOUNT = workload(profile())
BASE = verdict(WORK, AMOUNT)


def page_of(of: Verdict = BASE, whose: WorkloadProfile | None = None, **more: Any) -> str:
    return page(Estimate(verdict=of, profile=whose or WORK.profile, today=TODAY, **more))


def owned(**terms: Any) -> Ownership:
    terms = {"price_usd": Decimal(699), "power_usd_per_kwh": 0.3, **terms}
    return ownership(WORK, accelerators()["RTX 3090"], OwnershipTerms(**terms), BASE)


def test_the_terms_of_a_step_are_drawn_in_their_shares() -> None:
    parts = [("compute", "x", 3.0), ("memory", "y", 1.0), ("host", "z", 0.0)]
    svg = "".join(shares(400, 0, [Stack(name="a", total="1 s", parts=parts)]))
    widths = [float(w) for w in re.findall(r'<rect class="part [a-z-]+" x="[\d.]+" y="\d+" width="([\d.]+)"', svg)]
    assert widths == [300.0, 100.0]
    assert "75%" in svg


def test_a_probability_is_never_certain() -> None:
    for chance, words in ((1.0, ">99 %"), (0.5, "50 %"), (0.0, "<1 %")):
        assert f"GPU is cheaper{words}" in harmless(page_of(replace(BASE, probability_gpu_cheaper=chance))).text


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
    assert "alert(1)" in harmless(page_of(found, whose, own=mine)).text


@pytest.mark.parametrize("rate", [None, 3.0])
def test_hostile_names_of_what_is_inferred_do_nothing(rate: float | None) -> None:
    scoring = inferring.scoring()
    evil = replace(scoring, label=EVIL, unit=replace(scoring.unit, item=EVIL))
    training = replace(advisable.phase(advisable.product(512, 1)), label=EVIL)
    found = answer(inferring.profile(training, evil, script=EVIL), rate=rate)
    advised = tuple(replace(one, action=EVIL, notes=(EVIL,)) for one in found.advice)
    harmless(page(replace(found, advice=advised)))


def test_a_price_from_the_future_is_not_negatively_old() -> None:
    ahead = verdict(WORK, AMOUNT, [replace(each, price_as_of=TODAY + timedelta(days=3)) for each in OFFERS])
    assert "-3 day" not in page_of(ahead)


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
@given(verdicts(), st.booleans(), st.booleans())
def test_any_verdict_makes_a_whole_harmless_page(found: Verdict, with_own: bool, with_energy: bool) -> None:
    energy = tuple((one, 0.5) for one in (found.here, *found.table)) if with_energy else None
    html = page_of(found, own=owned() if with_own else None, energy=energy)
    Page(html)
    assert html.count('class="interval') == 2 * (len(found.table) + with_own)
    numbers = re.findall(r' (?:x|y|x1|y1|x2|y2|cx|cy|width|height)="([^"]*)"', html)
    assert all(abs(float(number)) < 1e5 for number in numbers)

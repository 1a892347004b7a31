"""Bars in a terminal: aligned, in proportion, readable without colour and without block characters."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costgpu.models.prediction import Prediction, Range, Verdict
from costgpu.render.text.text_chart import ASCII, UNICODE, bars
from tests.unit.estimator.verdicts import OFFERS, offer, profile, verdict, workload


def answer(*more: str, steps: float = 20_000) -> Verdict:
    work, amount = workload(profile(steps=steps))
    return verdict(work, amount, [*OFFERS, *(offer("1.5", gpu="L4", name=name) for name in more)])


def timed(prediction: Prediction, low: float, value: float, high: float) -> Prediction:
    return replace(
        prediction,
        wall_seconds=Range(value=value, low=low, high=high),
        cost_usd=Range(value=value / 3600, low=low / 3600, high=high / 3600),
    )


def made(*seconds: tuple[float, float, float]) -> Verdict:
    """A verdict whose table takes so long; this machine as the first."""
    found = answer()
    rows = [timed(found.table[0], *each) for each in seconds]
    here = replace(timed(found.here, *seconds[0]), cost_usd=Range(value=0, low=0, high=0))
    return replace(found, here=here, table=tuple(rows[1:]), recommended=rows[-1])


def test_every_candidate_has_a_bar_a_time_and_a_cost() -> None:
    found = answer()
    lines = bars(found).splitlines()
    assert len(lines) == 3 + len(found.table)
    assert lines[2].strip().startswith("this machine")
    assert lines[2].endswith("$0")
    assert all("$" in line for line in lines[2:])
    assert sum(line.startswith("*") for line in lines) == 1
    assert max(map(len, lines)) <= 80


def test_lengths_are_in_proportion_and_the_marks_in_order() -> None:
    text = bars(made((80.0, 100.0, 120.0), (40.0, 50.0, 60.0)))
    one, two = text.splitlines()[2:]
    room = 80 - 2 - 31 - 2 - len("100 s $0.014")
    assert one.count(UNICODE.sure) == round(room * 80 / 120)
    assert one.count(UNICODE.likely) == round(room * 100 / 120) - one.count(UNICODE.sure)
    assert one.count(UNICODE.sure) + one.count(UNICODE.likely) + one.count(UNICODE.maybe) + 1 == room
    assert two.count(UNICODE.sure) == round(room * 40 / 120)
    assert one.index(UNICODE.sure) < one.index(UNICODE.likely) < one.index(UNICODE.maybe) < one.index(UNICODE.end)
    assert "ogarithmic" not in text


def test_very_different_times_take_a_logarithmic_scale_that_says_so() -> None:
    text = bars(made((90_000.0, 100_000.0, 110_000.0), (90.0, 100.0, 110.0), (900.0, 1000.0, 1100.0)))
    assert "logarithmic scale" in text
    lengths = [sum(line.count(c) for c in "█▓─┤") for line in text.splitlines()[2:]]
    assert 0 < lengths[1] < lengths[2] < lengths[0]
    assert lengths[0] - lengths[2] == pytest.approx(2 * (lengths[2] - lengths[1]), abs=2)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "no-such-encoding"])
def test_a_terminal_without_block_characters_gets_ascii(encoding: str) -> None:
    found = answer()
    text = bars(found, encoding=encoding)
    assert ASCII.sure in text
    assert not set("█▓─┤▏") & set(text)
    text.encode("ascii" if encoding == "no-such-encoding" else encoding)
    assert max(map(len, text.splitlines())) <= 80


def test_microseconds_do_not_break_ascii() -> None:
    text = bars(made((4e-5, 5e-5, 6e-5), (4e-5, 5e-5, 6e-5)), encoding="ascii")
    assert "50 us" in text


def test_cost_leaves_out_the_machine_that_costs_nothing_and_may_have_nothing_to_draw() -> None:
    text = bars(answer(), cost=True)
    assert text.startswith("Cost for the whole job")
    assert "this machine" not in text
    assert "nothing to draw" in bars(replace(answer(), table=()), cost=True)


def test_long_and_hostile_names_keep_the_columns_and_bring_no_colour() -> None:
    text = bars(answer("x" * 70, "a\nb\x1b[31m\u202ec"))
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert "\u202e" not in text


SPANS = st.tuples(st.floats(1e-6, 1e9), st.floats(1.0, 100.0), st.floats(1.0, 100.0)).map(
    lambda t: (t[0], t[0] * t[1], t[0] * t[1] * t[2])
)
BASE = answer()


@settings(deadline=None)
@given(st.lists(SPANS, min_size=1, max_size=8), st.integers(1, 200), st.booleans(), st.sampled_from(["utf-8", "ascii"]))
def test_any_verdict_fits_its_width(
    spans: list[tuple[float, float, float]], width: int, cost: bool, encoding: str
) -> None:
    rows = [timed(BASE.table[0], *span) for span in spans]
    found = replace(BASE, here=timed(BASE.here, *spans[0]), table=tuple(rows))
    text = bars(found, width, cost=cost, encoding=encoding)
    assert len(text.splitlines()) == len(rows) + 2 + (not cost)
    assert max(map(len, text.splitlines())) <= max(width, 76)
    marks = UNICODE if encoding == "utf-8" else ASCII
    for line in text.splitlines()[2:]:
        assert any(mark in line for mark in (marks.sure, marks.likely, marks.end, marks.dot))

"""The first screen of `estimate`: eight of them as they are, and 80 columns by 40 rows whatever is in one."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from html import unescape
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.estimator.verdict import Preferences
from costgpu.models.prediction import Doubt, Objective
from costgpu.models.workload import TotalKind
from costgpu.render.html.verdict_page import verdict_html
from costgpu.render.safe_text import escaped
from costgpu.render.text.blocks import ROWS, asked_for
from costgpu.render.text.estimate import verdict_json
from costgpu.render.text.layout import WIDTH, columns, cut, fold, wrap
from tests.properties import examples
from tests.unit.estimator import inferring
from tests.unit.estimator.advisable import gpu, host, phase, product, profile
from tests.unit.render import screens
from tests.unit.render.screens import PLACES, SPOTS, Answer, answer, total, training

TYPES = tuple(f"asked-{n}.{'x' * 3 * n}large" for n in range(9))
NAMED = tuple(gpu("T4", 0.5 + n, type_=name) for n, name in enumerate(TYPES))
MORE: dict[str, Callable[[], Answer]] = {
    "spot": lambda: answer(training(4096, 40), SPOTS),
    "deadline": lambda: answer(training(4096, 40), PLACES, Preferences(deadline_seconds=60.0)),
    "nowhere": lambda: answer(training(4096, 40), (), Preferences(deadline_seconds=1.0)),
    "here": lambda: answer(training(64, 1, steps=100)),
    "asked": lambda: answer(
        training(2048, 40), (*PLACES, *NAMED), Preferences(instance_types=TYPES)
    ),
    "asked as a service": lambda: answer(
        inferring.profile(inferring.scoring(8, None)),
        (*PLACES, *NAMED),
        Preferences(instance_types=TYPES),
        rate=1e6,
    ),
    "ten phases": lambda: answer(profile(*[phase(product(512, 5), label=f"train.py:{n}") for n in range(10)])),
    "trains and infers": lambda: answer(
        profile(phase(product(2048, 20), label="score.py:3"), inferring.scoring(), script="score.py")
    ),
    "dear": lambda: answer(inferring.profile(inferring.scoring(1)), (gpu("T4", 99_999.0), host(50_000.0))),
    "endless": lambda: answer(inferring.profile(inferring.chat(4, None))),
    "at most": lambda: answer(training(512, 5, total=total(TotalKind.UPPER_BOUND, 1e6, 1e3))),
    "balanced": lambda: answer(training(512, 5), PLACES, Preferences(objective=Objective.BALANCED, rows=200)),
}  # fmt: skip
ALL = screens.EXAMPLES | MORE
WIDE = st.text(st.sampled_from("aé漢字🙂\u0301\x1b\u202e \t\n-_/.%0"), min_size=1, max_size=300)


@cache
def found(name: str) -> Answer:
    return ALL[name]()


def fits(text: str) -> None:
    lines = escaped(text).split("\n")
    assert len(lines) <= ROWS, text
    assert max(map(columns, lines)) <= WIDTH, text


@pytest.mark.parametrize("name", screens.EXAMPLES)
def test_the_first_screens_are_what_they_were(name: str) -> None:
    """After a change that is meant: python -m tests.unit.render.screens."""
    assert f"{found(name).text(log=screens.LOG)}\n" == (screens.FOLDER / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", ALL)
def test_every_answer_fits_and_what_is_cut_is_in_the_explanation(name: str) -> None:
    one = found(name)
    fits(one.text(log=screens.LOG))
    words = " ".join(one.text(explain=True, log=screens.LOG).split())
    assert one.verdict.sentence in words
    for advice in one.advice:
        assert " ".join(advice.action.split()) in words
    for note in one.verdict.notes:
        assert " ".join(note.split()) in words


@given(name=st.sampled_from(sorted(ALL)), said=WIDE, notes=st.lists(WIDE, max_size=12), extra=st.integers(0, 60))
@examples(400)
def test_any_answer_fits(name: str, said: str, notes: list[str], extra: int) -> None:
    one = found(name)
    last = one.profile.phases[-1]
    changed: dict[str, Any] = {"total": replace(last.total, how=said), "label": f"{said}:41"}
    one = replace(
        one,
        profile=replace(
            one.profile, script=said, notes=notes, phases=[*one.profile.phases[:-1], replace(last, **changed)]
        ),
        verdict=replace(
            one.verdict,
            sentence=f"{one.verdict.sentence} {said}",
            doubts=(*one.verdict.doubts, *(Doubt(words=note, weight=1.0, turns=note * (extra % 2)) for note in notes)),
        ),
        advice=tuple(replace(advice, action=f"{said} {advice.action}") for advice in one.advice) * 3,
    )
    chart = asked_for("\n".join([said.replace("\n", " ")] * extra))
    fits(one.text(chart, chart, log=f"/home/{said}/output.log"))


def test_a_busy_machine_is_said_once() -> None:
    one = found("too_close")
    assert "69%" in one.verdict.sentence
    text = one.text()
    assert text.replace(" %", "%").count("69%") == 1
    assert "Unless CPU figures are really 3.2 times these (other programs took 69 %" in " ".join(text.split())
    assert "This machine was busy" in one.text(explain=True)


def test_document_and_page_have_the_doubts_that_the_screen_tells() -> None:
    one = found("too_close")
    document = json.loads(verdict_json(one.verdict, one.profile, screens.TODAY))
    [doubt] = document["verdict"]["doubts"]
    assert doubt["words"] == "busy machine: 69 %, CPU figures x0.66-3.2"
    assert doubt["turns"] in " ".join(one.text().split())
    shown = unescape(verdict_html(one.verdict, one.profile, (), screens.TODAY))
    assert f" {doubt['turns']}</p></header>" in shown
    assert f"Doubts: {doubt['words']}." in shown


def test_advice_is_at_most_three_lines_of_two_rows_and_keeps_its_saving() -> None:
    one = found("inference")
    assert len(one.advice) > 3
    lines = one.text().splitlines()
    start = lines.index("What would make it cheaper")
    shown = lines[start : lines.index("", start)]
    assert sum(line.startswith("- ") for line in shown) == 3
    assert len(shown) <= 8
    assert shown[-1].endswith(f"{len(one.advice) - 3} more: --explain.")
    long = replace(one, advice=tuple(replace(each, action=each.action * 9) for each in one.advice))
    assert "saves at most $23.87 of" in " ".join(long.text().split())


def test_rows_that_were_asked_for_stay_in_a_cut_table() -> None:
    one = found("asked")
    text = one.text(asked_for("\n".join(["bar"] * 40)))
    fits(text)
    assert "more: --explain" in text
    assert any(line.startswith("* ") for line in text.splitlines())
    assert all(name in one.text() for name in ("asked-0.large", "this machine"))


def test_a_chart_that_was_asked_for_is_whole_and_advice_gives_way() -> None:
    one = found("gpu")
    text = one.text(asked_for("\n".join(f"bar {number}" for number in range(9))))
    fits(text)
    assert "bar 8" in text
    assert any(line.startswith("* ") for line in text.splitlines())


def test_advice_keeps_its_place_and_leaves_out_what_is_in_brackets_first() -> None:
    text = " ".join(found("inference").text().split())
    assert "Batches of 256 prompts instead of 4: saves at most $23.87" in text
    assert "on aws l40s-1-8 (L40S), us-east-1." in text


def test_a_doubt_longer_than_a_row_is_cut_and_not_left_out() -> None:
    one = found("gpu")
    long = Doubt(words="a reason " * 20, weight=1.0)
    text = replace(one, verdict=replace(one.verdict, doubts=(long,))).text()
    fits(text)
    assert "\nDoubts: a reason" in text


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("漢字漢字", 8, "漢字漢字"),
        ("漢字漢字", 7, "漢字漢…"),
        ("漢字漢字", 6, "漢字…"),
        ("abc", 2, "a…"),
        ("é", 1, "é"),
    ],
)
def test_a_cut_text_takes_no_more_columns(text: str, width: int, shown: str) -> None:
    assert cut(text, width) == shown
    assert columns(shown) <= width


def test_wide_words_end_their_row_sooner() -> None:
    assert [columns(line) for line in wrap("漢字漢 " * 20).splitlines()] == [76, 62]
    rows = fold("漢" * 100, 9, "- ")
    assert [columns(row) for row in rows] == [80, 80, 46]
    assert "".join(row[2:] for row in rows) == "漢" * 100
    assert fold("a " * 100, 2)[-1] == "a " * 39 + "a…"
    assert fold("\x1b[31m" * 50, 9) == fold("\\x1b[31m" * 50, 9)
    assert fold("some words", 0) == []

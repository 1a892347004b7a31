"""The answers of `estimate`: twelve of them as they are, and 80 columns by 40 rows whatever is in a first screen."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.estimator.unit_notes import WITHOUT_WEIGHTS
from costgpu.estimator.verdict import Preferences
from costgpu.models.estimate import Estimate
from costgpu.models.prediction import Doubt, Objective
from costgpu.models.workload import TotalKind
from costgpu.render.estimate.first_screen import ROWS, estimate_text
from costgpu.render.estimate.memory import memory_line
from costgpu.render.html.page import report_html
from costgpu.render.report import ReportSection
from costgpu.render.safe_text import escaped
from costgpu.render.text.layout import WIDTH, columns, cut, fold, wrap
from tests.properties import examples
from tests.unit.estimator import inferring
from tests.unit.estimator.advisable import gpu, host, phase, product, profile
from tests.unit.render import screens
from tests.unit.render.html_page import harmless
from tests.unit.render.screens import HOSTS, PLACES, answer, page, shown, total, training, without_weights

TYPES = tuple(f"asked-{n}.{'x' * 3 * n}large" for n in range(9))
NAMED = tuple(gpu("T4", 0.5 + n, type_=name) for n, name in enumerate(TYPES))
MORE: dict[str, Callable[[], Estimate]] = {
    "deadline": lambda: answer(training(4096, 40), PLACES, Preferences(deadline_seconds=60.0)),
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
    "dear": lambda: answer(inferring.profile(inferring.scoring(1)), (gpu("T4", 99_999.0), host(50_000.0))),
    "endless": lambda: answer(inferring.profile(inferring.chat(4, None))),
    "at most": lambda: answer(training(512, 5, total=total(TotalKind.UPPER_BOUND, 1e6, 1e3))),
    "no GPU is large enough": lambda: answer(without_weights(), (*HOSTS, gpu("T4", 0.5))),
    "no machine at all": lambda: answer(without_weights(), ()),
    "balanced": lambda: answer(training(512, 5), PLACES, Preferences(objective=Objective.BALANCED, rows=200)),
}  # fmt: skip
SERVED = {
    "scoring": inferring.profile(inferring.scoring()),
    "chat": inferring.profile(inferring.chat(4, 50_000), script="chat.py"),
    "without an end": inferring.profile(inferring.scoring(8, None)),
    "mixed": profile(phase(product(2048, 20), label="score.py:3"), inferring.scoring(), script="score.py"),
}
MORE |= {
    f"batches of {batch} at {price} an hour": partial(
        answer, inferring.profile(inferring.scoring(batch)), (gpu("T4", price),)
    )
    for batch in (1, 64)
    for price in (1e-6, 0.5, 99_999.0)
}
MORE |= {
    f"{name} at {rate} a second": partial(answer, served, PLACES, rate=rate)
    for name, served in SERVED.items()
    for rate in (None, 3.0, 1e9)
}
ALL = screens.EXAMPLES | MORE
WIDE = st.text(st.sampled_from("aé漢字🙂\u0301\x1b\u202e \t\n-_/.%0"), min_size=1, max_size=300)


@cache
def found(name: str) -> Estimate:
    return ALL[name]()


def told(of: Estimate, *besides: ReportSection) -> str:
    """The first screen, which has room for it."""
    text = estimate_text(of, besides=besides)
    lines = escaped(text).split("\n")
    assert len(lines) <= ROWS, text
    assert max(map(columns, lines)) <= WIDTH, text
    return text


def besides(*rows: str) -> ReportSection:
    return ReportSection(title="", parts=rows)


@pytest.mark.parametrize("name", screens.EXAMPLES)
def test_what_is_told_is_what_it_was(name: str) -> None:
    """After a change that is meant: python -m tests.unit.render.screens."""
    for ending, text in shown(found(name)).items():
        assert text == (screens.FOLDER / f"{name}.{ending}").read_text(), ending


@pytest.mark.parametrize("name", screens.PAGES)
def test_other_pages_are_what_they_were(name: str) -> None:
    html = report_html(screens.PAGES[name]())
    harmless(html)
    assert screens.without_style(html) == (screens.FOLDER / f"{name}.html").read_text()


@pytest.mark.parametrize("name", ALL)
def test_every_answer_fits_and_what_is_cut_is_in_the_explanation_and_on_the_page(name: str) -> None:
    one = found(name)
    told(replace(one, log=screens.LOG))
    explained = estimate_text(one, explain=True)
    assert max(map(columns, explained.splitlines())) <= WIDTH
    for text in (explained, harmless(page(one)).text):
        words = " ".join(text.split())
        for part in (one.verdict.sentence, *one.verdict.notes, *(advice.action for advice in one.advice)):
            assert " ".join(part.split()) in words


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
    chart = besides(*[said.replace("\n", " ")] * extra)
    told(replace(one, log=f"/home/{said}/output.log"), chart, chart)


def test_a_long_name_leaves_the_table_of_energies_in_80_columns() -> None:
    one = answer(training(2048, 40), (gpu("T4", 0.5, type_="x" * 90),))
    text = told(replace(one, energy=((one.verdict.here, 0.5), (one.verdict.table[0], 12.0))))
    assert "12 kWh" in text


def test_a_busy_machine_is_said_once() -> None:
    assert "69%" in found("too_close").verdict.sentence
    assert told(found("too_close")).replace(" %", "%").count("69%") == 1


def test_the_memory_of_a_gpu_and_which_fits() -> None:
    """The recommended one, else the smallest; of several, with their number; none, if none does."""

    def line(of: Estimate) -> str:
        return memory_line(of).replace("\N{NO-BREAK SPACE}", " ")

    one = found("without_weights")
    assert line(one) == ("Memory: 20.1 GiB on a GPU (measured without weights): fits L40S (>99 %), not A10G (86 %).")
    measured = replace(one, profile=replace(one.profile, without_weights=False))
    assert "(measured): fits" in line(measured)
    elsewhere = replace(one, verdict=replace(one.verdict, recommended=one.verdict.best_cpu))
    assert "fits A100 (>99 %)" in line(elsewhere)
    (tight, *_) = several = [replace(fit, gpus=8) for fit in one.fits if not fit.enough]
    assert line(replace(one, fits=tuple(several))).endswith(
        "on each of 8 GPUs (measured without weights): fits none that was looked at, not 8x A10G (86 %)."
    )
    assert line(replace(one, fits=(tight,))).endswith(", not 8x T4.")
    assert line(replace(one, fits=())) == ""
    assert one.verdict.notes.count(WITHOUT_WEIGHTS) == 1
    assert any(note.startswith("This machine will not do: it needs 22.2 GiB") for note in one.verdict.notes)


def test_a_long_piece_of_advice_keeps_its_saving() -> None:
    one = found("inference")
    long = replace(one, advice=tuple(replace(each, action=each.action * 9) for each in one.advice))
    assert "saves at most $23.87 of" in " ".join(told(long).split())


def test_rows_that_were_asked_for_stay_in_a_cut_table() -> None:
    text = told(found("asked"), besides(*["bar"] * 40))
    assert "more: --explain" in text
    assert any(line.startswith("* ") for line in text.splitlines())
    assert all(name in told(found("asked")) for name in ("asked-0.large", "this machine"))


def test_what_was_asked_for_is_whole_and_advice_gives_way() -> None:
    text = told(found("gpu"), besides(*(f"bar {number}" for number in range(9))))
    assert "bar 8" in text
    assert any(line.startswith("* ") for line in text.splitlines())


def test_a_doubt_longer_than_a_row_is_cut_and_not_left_out() -> None:
    one = found("gpu")
    long = Doubt(words="a reason " * 20, weight=1.0)
    assert "\nDoubts: a reason" in told(replace(one, verdict=replace(one.verdict, doubts=(long,))))


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

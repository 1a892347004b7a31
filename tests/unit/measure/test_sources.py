"""What is told of loops as they are written in projects, against the steps that they make: the table is sources.toml."""

import random
import tomllib
from pathlib import Path
from typing import Any

import pytest

from costgpu.measure.profile.total_steps import total_steps
from costgpu.models.workload import Total, TotalKind
from tests.unit.measure.live_stack import found, run, told, whole
from tests.unit.measure.records import phase

SECTIONS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("sources.toml").read_text())
KINDS = {kind.name.lower().replace("_", " "): kind for kind in TotalKind}
CASES = {
    f"{name}, {kind}, {row}": (name, kind, texts if isinstance(texts, str) else row)
    for name, section in SECTIONS.items()
    for kind in section.keys() & KINDS.keys()
    for row in section[kind]
    for texts in [section[kind][row] if isinstance(section[kind], dict) else None]
}
CLOCKS = SECTIONS["clocks"]


def script_of(name: str, text: str) -> str:
    """The whole script of a row: a text, or ``d = made(loader)|head(d)``, which is put into the setup."""
    section = SECTIONS[name]
    setup = section.get("setup", "") + SECTIONS.get(section.get("like", ""), {}).get("setup", "")
    if "HEAD" not in setup:
        return whole(text, setup)
    made, _, head = text.rpartition("|")
    return str(setup).replace("MADE", made or "pass").replace("HEAD", head)


@pytest.mark.parametrize("case", sorted(CASES))
def test_what_is_told_of_loops(case: str, tmp_path: Path) -> None:
    name, kind, text = CASES[case]
    section, says = SECTIONS[name], told(text)
    if "needs" in section:
        pytest.importorskip(section["needs"], exc_type=ImportError)
    for share in section["shares"]:
        names = {"random": random.Random(3)}
        steps, total = found(script_of(name, text), tmp_path, names, says.get("items", 7), share)
        assert total.kind is KINDS[kind], total
        assert says.get("each", total.steps_per_epoch) == total.steps_per_epoch
        assert section.get("says", "") in total.how
        if "bound" in says:
            assert total.steps == says["bound"]
            assert "bad" in total.how
        if total.kind is TotalKind.UNKNOWN:
            assert total.steps is None
            continue
        assert total.steps is not None
        if total.kind is TotalKind.UPPER_BOUND and "off" not in says:
            assert total.steps >= steps
        else:
            assert total.steps == pytest.approx(steps, rel=says.get("off", 0.0)), total


@pytest.mark.parametrize("test", ["x == 3", "x > 1"])
def test_a_generator_that_goes_on_after_errors_is_not_counted(test: str, tmp_path: Path) -> None:
    text = f"""
def given():
    for x in range(7):
        try:
            if {test}:
                raise ValueError
            yield x
        except ValueError:
            yield x
            yield -x
def train(step, loader, state):
    for epoch in range(5):
        for x in given():
            step(0)
"""
    (_, early), (_, late) = (found(whole(text, ""), tmp_path, {}, 7, share) for share in (0.05, 0.9))
    assert early.kind is TotalKind.UNKNOWN
    assert late.kind is not TotalKind.EXACT


def test_a_loop_without_an_end_is_unbounded(tmp_path: Path) -> None:
    text = whole("for _ in itertools.count():\n    step(0)\n", SECTIONS["written"]["setup"])
    _, shots = run(text, tmp_path, {}, 7, 6, cut=CutError)
    assert total_steps(phase(*shots), ended=False).kind is TotalKind.UNBOUNDED


class CutError(Exception):
    """The measurement is over."""


def by_clock(text: str, folder: Path) -> Total:
    """What is told of loops that watch a clock, after six steps."""
    _, shots = run(script_of("clocks", text), folder, {}, 7, 6, cut=CutError)
    return total_steps(phase(*shots), ended=False)


@pytest.mark.parametrize("name", CLOCKS["read"])
def test_a_clock_ends_a_loop(name: str, tmp_path: Path) -> None:
    says, total = told(CLOCKS["read"][name]), by_clock(CLOCKS["read"][name], tmp_path)
    steps = says.get("steps")
    assert total.seconds == pytest.approx(says["seconds"])
    assert (total.kind, total.steps) == (TotalKind.UPPER_BOUND if steps else TotalKind.TIMED, steps)
    assert "by its clock" in total.how
    assert name != "fold" or "5 × 60 min by its clock" in total.how


@pytest.mark.parametrize("name", CLOCKS["unread"])
def test_a_clock_that_cannot_be_read_is_only_named(name: str, tmp_path: Path) -> None:
    total = by_clock(CLOCKS["unread"][name], tmp_path)
    assert total.seconds is None
    assert total.kind in (TotalKind.UNKNOWN, TotalKind.UPPER_BOUND, TotalKind.UNBOUNDED)


def test_another_test_makes_it_at_most(tmp_path: Path) -> None:
    text = "\nloss = [1.0]\n" + CLOCKS["read"]["while"].replace("2 * 3600:", "2 * 3600 and loss[-1] > 0.1:")
    assert by_clock(text, tmp_path).how.startswith("it runs for at most 2.0 h by its clock")


def test_a_counter_that_adds_up_a_clock_says_no_steps(tmp_path: Path) -> None:
    """Though it grows evenly: another machine takes other steps."""
    text = CLOCKS["unread"]["accumulated"].replace("time.time() - tic", "1 + 0 * (time.time() - tic)")
    assert by_clock(text, tmp_path).steps is None


def test_what_is_known_beside_a_loop_without_a_length_is_told(tmp_path: Path) -> None:
    text = "for item in filter(None, [1, 1]):\n  for epoch in range(30):\n    for x in range(20):\n      step(0)\n"
    _, total = found(whole(text, SECTIONS["written"]["setup"]), tmp_path, {}, 7, 0.3)
    assert (total.kind, total.steps_per_epoch) == (TotalKind.UNKNOWN, 20)
    for words in ("30 (", "× 20 (", "for each item of the loop at"):
        assert words in total.how

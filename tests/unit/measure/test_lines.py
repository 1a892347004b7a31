"""Bytes into lines, lines into readings, and the user's own pattern."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.errors import UsageError
from costgpu.measure.log.counters import ProgressLog
from costgpu.measure.log.lines import LINE_BYTES, Line, LineSplitter, Progress, read_line, user_pattern
from costgpu.measure.log.patterns import PATTERNS, Tier
from costgpu.measure.log.series import read_record
from tests.unit.measure.records import build

EXAMPLES: dict[str, Any] = json.loads(Path(__file__).with_name("example_lines.json").read_text(encoding="utf-8"))


def first(text: str) -> Progress:
    """What the most specific pattern sees."""
    found = read_line(Line(text, 0.0))
    assert found, text
    return min(found, key=lambda progress: progress.pattern.tier)


def split(*chunks: bytes) -> list[str]:
    splitter = LineSplitter()
    lines = [line for at, chunk in enumerate(chunks) for line in splitter.feed(chunk, float(at))]
    return [line.text for line in [*lines, *splitter.close()]]


def test_newlines_carriage_returns_and_backspaces_end_a_line() -> None:
    assert split(b"one\ntwo\r\nthree\rfour\b\b\bfive") == ["one", "two", "three", "four", "five"]
    assert split(b"\n\n \r\t\n") == []


def test_a_line_has_the_time_of_its_first_byte() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"step ", 1.0) == []
    assert splitter.feed(b"7", 2.0) == []
    assert splitter.feed(b"\nstep 8", 3.0) == [Line("step 7", 1.0)]
    assert splitter.close() == [Line("step 8", 3.0)]


def test_colours_are_taken_out_and_broken_bytes_do_no_harm() -> None:
    assert split(b"\x1b[1m 12/34\x1b[0m \x1b[32mx\x1b[0m\x1b]0;title\x07\n") == [" 12/34 x"]
    assert split(b"\xff\xfe step 3\n") == ["\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} step 3"]
    assert split("━".encode()[:2], "━".encode()[2:] + b"\n") == ["━"]


def test_a_huge_line_is_cut_and_the_next_one_is_whole() -> None:
    chunks = [b"x" * 1000] * 5000 + [b"\nstep 1/2\n"]
    lines = split(*chunks)
    assert [len(line) for line in lines] == [LINE_BYTES, 8]


@given(st.binary(max_size=600), st.lists(st.integers(0, 600), max_size=8))
def test_any_bytes_give_the_same_lines_however_they_are_split(data: bytes, cuts: list[int]) -> None:
    whole = LineSplitter()
    expected = [*whole.feed(data, 1.0), *whole.close()]
    parts = LineSplitter()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    lines = [line for a, b in pairwise(edges) for line in parts.feed(data[a:b], 1.0)]
    assert [*lines, *parts.close()] == expected
    log = ProgressLog()
    for line in expected:
        log.read(line)
    assert log.lines == len(expected)


WORDS = st.sampled_from(EXAMPLES["words"])


@given(st.lists(WORDS, max_size=60).map("".join), st.lists(st.floats(0, 3), min_size=60, max_size=60), st.booleans())
def test_no_text_breaks_the_reading(text: str, gaps: list[float], ended: bool) -> None:
    log, splitter, at = ProgressLog(), LineSplitter(), 0.0
    for number, piece in enumerate(text.splitlines(keepends=True)):
        at += gaps[number % len(gaps)]
        for line in splitter.feed(piece.encode(), at):
            log.read(line)
    reading = read_record(log, ended=ended)
    if reading is not None:
        profile = build(reading[0])
        (phase,) = profile.phases
        assert phase.step.mean_seconds > 0
        assert profile.setup_seconds >= 0
        assert phase.steps_observed >= 1
        assert phase.total.steps is None or phase.total.steps >= 1


def test_names_of_patterns_are_unique() -> None:
    names = [pattern.name for pattern in PATTERNS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("text", "name", "step", "total"), EXAMPLES["formats"])
def test_formats(text: str, name: str, step: float, total: float | None) -> None:
    found = first(text)
    assert (found.pattern.name, found.step, found.total) == (name, step, total)


@pytest.mark.parametrize("text", EXAMPLES["no_progress"])
def test_what_is_no_progress(text: str) -> None:
    assert read_line(Line(text, 0.0)) == []


def test_validation_is_told_from_training() -> None:
    assert first("Test: [ 10/391] Time 0.1").evaluating
    assert first("validation: 12%|# | 123/1000 [00:12<01:20, 10.9it/s]").evaluating
    assert not first("train: 12%|# | 123/1000 [00:12<01:20, 10.9it/s]").evaluating
    assert not first("latest: step 3/5").evaluating


@pytest.mark.parametrize(
    ("pattern", "text", "step", "total", "unit"),
    [
        (r"tick (?P<step>\d+) of (?P<total>\d+)", "tick 3 of 7 at 4/s", 3, 7, "step"),
        (r"done: (\d+) \(of (\d+)\)", "done: 42 (of 99)", 42, None, "step"),  # the first group
        (r"round (?P<epoch>\d+) / (?P<epochs>\d+)", "round 2 / 9", 2, 9, "epoch"),
    ],
)
def test_a_users_pattern(pattern: str, text: str, step: float, total: float | None, unit: str) -> None:
    only = (user_pattern(pattern),)
    (found,) = read_line(Line(text, 1.0), only)
    assert (found.step, found.total) == (step, total)
    assert (found.pattern.unit, found.pattern.tier) == (unit, Tier.USER)
    assert read_line(Line("tock 3", 1.0), only) == []


def test_a_users_pattern_without_groups_counts_lines() -> None:
    log = ProgressLog((user_pattern("one more"),))
    for at in range(4):
        log.read(Line("one more", float(at)))
        log.read(Line("other", float(at)))
    best = log.best()
    assert [sample.step for sample in best.samples] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(", "not a regular expression"),
        ("a{99999999999}", "not a regular expression"),
        (r"(?P<stop>\d+)", "a group named 'stop'"),
        (r"(?P<total>\d+)", "neither step nor epoch"),
        ("", "matches every line"),
        ("x*", "matches every line"),
    ],
)
def test_a_users_pattern_that_cannot_be_meant(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        user_pattern(text)
    assert caught.value.hint


@given(st.text(max_size=40))
def test_any_text_is_a_pattern_or_a_usage_error(text: str) -> None:
    try:
        pattern = user_pattern(text)
    except UsageError:
        return
    read_line(Line("step 1/2", 0.0), (pattern,))

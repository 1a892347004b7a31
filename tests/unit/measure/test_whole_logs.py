"""Whole logs: which counter was chosen, the time of a step, the total, and what is said about them.

The logs of tests/logs were written in the formats of the programs; before each line stands when it came, in seconds.
"""

import tomllib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from costgpu.measure.log import counters
from costgpu.measure.log.counters import ProgressLog
from costgpu.measure.log.lines import Line, LineSplitter, user_pattern
from costgpu.measure.log.series import UNKNOWN_WORK, read_record
from costgpu.models.workload import ExtraKind, GpuPath, Rhythm, TotalKind, WorkloadProfile
from tests.unit.measure.records import build

LOGS = Path(__file__).resolve().parents[2] / "logs"


def profile_of(log: ProgressLog, *, ended: bool = False, kind: str = "") -> WorkloadProfile:
    reading = read_record(log, ended=ended, kind=kind)
    assert reading is not None
    record, notes = reading
    profile = build(record)
    return replace(profile, notes=notes + profile.notes)


def replay(name: str, *, ended: bool = False, kind: str = "", end: bytes = b"\n") -> WorkloadProfile:
    """Reads a recorded log."""
    log, splitter = ProgressLog(), LineSplitter()
    for row in (LOGS / f"{name}.log").read_bytes().removesuffix(b"\n").split(b"\n"):
        at, _, text = row.removeprefix(b"@").partition(b" ")
        for line in splitter.feed(text + end, float(at)):
            log.read(line)
    return profile_of(log, ended=ended, kind=kind)


def logged(lines: Iterable[tuple[float, str]], pattern: str = "") -> ProgressLog:
    """Lines with their times, read by the built-in patterns or by the user's."""
    log = ProgressLog((user_pattern(pattern),)) if pattern else ProgressLog()
    for at, text in lines:
        log.read(Line(text, at))
    return log


def read(lines: Iterable[tuple[float, str]], *, pattern: str = "", ended: bool = False) -> WorkloadProfile:
    return profile_of(logged(lines, pattern), ended=ended)


CASES: dict[str, Any] = tomllib.loads((LOGS / "expected.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", CASES)
def test_recorded_logs(name: str) -> None:
    reading, case = replay(name), CASES[name]
    (phase,) = reading.phases
    total = phase.total
    assert phase.step.seconds == pytest.approx(case["seconds"], rel=0.03)
    assert (reading.framework.name, phase.unit.name) == (case.get("framework", "log lines"), case.get("unit", "step"))
    assert (total.steps, total.steps_per_epoch) == (case.get("steps"), case.get("each"))
    assert total.kind is (TotalKind.EXACT if "steps" in case else TotalKind.UNKNOWN)
    assert total.how
    assert case.get("how", "") in total.how
    if "setup" in case:
        assert reading.setup_seconds == pytest.approx(case["setup"], abs=0.15)
    assert phase.kind == case.get("kind", "")
    assert phase.gpu is (GpuPath.TABLE if phase.kind else GpuPath.NONE)
    assert phase.gpu_reason
    assert [extra.rhythm for extra in phase.extras] == ([Rhythm.EPOCH] if "extra" in case else [])
    if "extra" in case:
        assert phase.extras[0].seconds_each == pytest.approx(case["extra"], rel=0.1)
    assert "such as: " in reading.notes[0]


@pytest.mark.parametrize("name", CASES)
def test_bars_that_overwrite_one_another_read_the_same(name: str) -> None:
    assert replay(name, end=b"\r") == replay(name)


def test_every_recorded_log_has_its_case() -> None:
    assert {path.stem for path in LOGS.glob("*.log")} == set(CASES)


def test_what_it_computes_is_never_guessed() -> None:
    assert replay("darknet").phases[0].gpu_reason == UNKNOWN_WORK
    assert "no GPU implementation" in replay("fasttext").phases[0].gpu_reason
    named = replay("darknet", kind="resnet50").phases[0]
    assert (named.gpu, named.kind) == (GpuPath.TABLE, "resnet50")
    assert "--like" in named.gpu_reason


def test_where_only_one_line_an_epoch_comes_that_is_said() -> None:
    assert any("once an epoch" in note for note in replay("theano").notes)


EXACT, UNKNOWN, UPPER = TotalKind.EXACT, TotalKind.UNKNOWN, TotalKind.UPPER_BOUND
EIGHTEEN = [(float(n), f"step {n}/18") for n in range(1, 9)]
GOES_ON = [(0.0, "Epoch 1/3"), *EIGHTEEN[:6], (6.5, "Epoch 2/3"), *EIGHTEEN[6:]]
BESIDE = [(0.0, "Epoch 1/3"), *[(1.0 + n, f"step {n}/300 loss 0.1") for n in range(6)]]
AGAIN = [(0.0, "Epoch 1/3"), *[(1.0 + n, f"step {n}/6") for n in range(1, 7)], (7.0, "Epoch 2/3")]
AGAIN += [(9.0 + n, f"step {n}/6") for n in range(1, 5)]
BAR = [(1.0 + n, f"{n * 10:3d}%|{'#' * n:<10}| {n}/10 [00:0{n}<00:09, 1.00it/s]") for n in range(7)]
RESUMED = [(0.1 + n, f"step {n * 5 + 50}/90") for n in range(8)]


Case = tuple[list[tuple[float, str]], TotalKind, float | None, float | None, str]  # of an epoch, and words
TOTALS: dict[str, Case] = {
    "a counter beside epochs may be of either": (BESIDE, UNKNOWN, None, None, "an epoch or the whole"),
    "one that starts again is an epoch's": (AGAIN, EXACT, 18, 6, ""),
    "one that goes on over epochs is the whole's": (GOES_ON, EXACT, 18, 6, ""),
    "a bar that was opened inside an epoch is the epoch's": ([(0.5, "Epoch 1/5"), *BAR], EXACT, 50, 10, ""),
    "a bar from before it": ([*BAR[:1], (1.1, "Epoch 1/5"), *BAR[1:]], UNKNOWN, None, None, ""),
    "one that prints ahead": ([(0.1 + n, f"step {n * 5 + 5}/90") for n in range(8)], EXACT, 90, None, ""),
    "one that goes on where an earlier run has ended": (RESUMED, EXACT, 40, None, "goes on from 50"),
    "one that may stop": (
        [(0.0, "EarlyStopping monitors val_loss"), *BESIDE[1:]],
        UPPER,
        300,
        None,
        "may stop early",
    ),
}


@pytest.mark.parametrize("name", TOTALS)
def test_the_total(name: str) -> None:
    lines, kind, steps, each, words = TOTALS[name]
    total = read(lines).phases[0].total
    assert (total.kind, total.steps, total.steps_per_epoch) == (kind, steps, each)
    assert words in total.how


def test_a_validation_bar_is_not_the_training() -> None:
    lines = [(n * 1.0, f"train: 1%|# | {n}/100 [00:00<00:00, 1.0it/s]") for n in range(8)]
    lines += [(8 + n * 0.01, f"validation: 1%|# | {n}/1000 [00:00<00:00, 99it/s]") for n in range(100)]
    assert read(lines).phases[0].step.seconds == pytest.approx(1.0)


TOKENIZE = [(n * 0.1, f"tokenize: 1%|# | {n}/40 [00:00<00:00, 10it/s]") for n in range(41)]
PRINTED = [(n * 2.0, f"Iteration {n * 10} (50 iter/s, 0.2s/10 iters), loss = 1") for n in range(8)]
BLOCKS = [(float(block), f"step {block * 50 + n}/10000") for block in range(1, 9) for n in range(50)]
MIXED = [(float(n), text) for n in range(8) for text in (f"step {n}/90", f"seen {n * 100}")]

Timed = tuple[list[tuple[float, str]], str, float, tuple[str, ...]]  # lines, pattern, seconds, words of one note
NOTED: dict[str, Timed] = {
    "what runs after the preparations": (
        [*TOKENIZE, *[(5.0 + n, f"iter {n} loss") for n in range(8)]],
        "",
        1,
        ("iter 0",),
    ),
    "a printed speed is not read": (PRINTED, "", 0.2, ("Caffe",)),
    "blocks of buffered lines still give the rate": (BLOCKS, "", 1 / 50, ("blocks",)),
    "a user's pattern is the only one": (MIXED, r"seen (?P<step>\d+)", 0.01, ("--step-pattern",)),
    "counted lines are called so": ([(n * 0.5, "saved") for n in range(8)], "saved", 0.5, ("counted as steps",)),
}


@pytest.mark.parametrize("name", NOTED)
def test_what_a_reader_is_told(name: str) -> None:
    lines, pattern, seconds, words = NOTED[name]
    reading = read(lines, pattern=pattern)
    assert reading.phases[0].step.seconds == pytest.approx(seconds)
    assert reading.phases[0].extras == []
    assert any(all(word in note for word in words) for note in reading.notes)


def test_a_bar_at_the_end_of_its_first_epoch_is_still_the_training() -> None:
    lines = [(0.0, "Epoch 1/9"), *[(1.0 + n, f"{n:3d}/10 [==>.......] - ETA: 1s - loss: 1") for n in range(1, 11)]]
    lines += [(12.0, "Epoch 2/9")]
    phase = read(lines).phases[0]
    assert (phase.unit.name, phase.total.steps) == ("step", 90)
    assert phase.step.seconds == pytest.approx(1.0)


def test_a_single_pause_is_counted_as_often_as_it_was_seen() -> None:
    phase = read([(n * 0.1 + (4.0 if n > 12 else 0.0), f"iter {n}") for n in range(20)]).phases[0]
    assert phase.step.seconds == pytest.approx(0.1)
    assert [extra.seconds_each for extra in phase.extras] == pytest.approx([4.0])
    assert "1 steps of" in phase.extras[0].note


def test_other_counters_are_named() -> None:
    lines = []
    for n in range(8):
        lines += [(n * 1.0, f"[{n}]\ttrain-auc:0.5"), (n + 0.5, f"step {n * 7}/900")]
    reading = read(lines)
    assert reading.framework.name == "xgboost"
    assert "Other lines count, too" in reading.notes[0]
    assert "step 0/900" in reading.notes[0]


def test_pauses_with_a_rhythm_are_work_beside_the_steps() -> None:
    at, lines = 0.0, []
    for n in range(41):
        at += 5.0 if n and n % 10 == 0 else 0.1
        lines.append((at, f"iter {n}"))
    phase = read(lines).phases[0]
    assert phase.step.seconds == pytest.approx(0.1)
    (extra,) = phase.extras
    assert (extra.kind, extra.rhythm) == (ExtraKind.OTHER, Rhythm.STEPS)
    assert extra.every == pytest.approx(10, rel=0.1)
    assert extra.seconds_each == pytest.approx(4.9)


@pytest.mark.parametrize(
    ("lines", "steps"),
    [
        ([(n * 1.0, f"step {n}/6") for n in range(1, 7)], 6),
        ([(n * 1.0, f"iter {n * 10}") for n in range(1, 7)], 60),
        ([(n * 1.0, f"Epoch {n}") for n in range(6)], 6),
        ([(n * 1.0, f"Epoch {n // 3}/2, step {n % 3 + 1}/3") for n in range(6)], 6),
        ([(n * 1.0, f"step {n * 100}/1099") for n in range(1, 11)], 1099),
        ([(n * 1.0, f"{n * 25}% done") for n in range(5)], 100),
    ],
)
def test_a_program_that_ended_is_known(lines: list[tuple[float, str]], steps: float) -> None:
    total = read(lines, ended=True).phases[0].total
    assert (total.kind, total.steps) == (TotalKind.EXACT, steps)


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [(1.0, "step 1/5")],
        [(float(n), "step 1/5") for n in range(9)],
        [(float(n), f"step {9 - n}/9") for n in range(9)],
        [(float(n), f"value {n}") for n in range(9)],
    ],
)
def test_what_does_not_count_is_not_read(lines: list[tuple[float, str]]) -> None:
    assert read_record(logged(lines), ended=False) is None


def test_memory_is_bounded_and_the_rate_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "MOST_SAMPLES", 400)
    log = logged((n * 0.01, f"[{n}]\ttrain-auc:0.5") for n in range(1000))
    best = log.best()
    assert len(best.samples) <= 400
    assert profile_of(log).phases[0].step.seconds == pytest.approx(0.01)

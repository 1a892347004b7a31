"""Whole logs: which counter was chosen, the time of a step, the total, and what is said about them.

The logs of tests/logs were written in the formats of the programs; before each line stands when it came, in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from costgpu.measure.log.counters import ProgressLog
from costgpu.measure.log.lines import Line, LineSplitter, user_pattern
from costgpu.measure.log.phase import UNKNOWN_WORK, LogReading, read_phase
from costgpu.models.workload import ExtraKind, GpuPath, Rhythm, TotalKind

LOGS = Path(__file__).resolve().parents[2] / "logs"


def replay(name: str, *, ended: bool = False, kind: str = "", end: bytes = b"\n") -> LogReading:
    """Reads a recorded log."""
    log, splitter = ProgressLog(), LineSplitter()
    for row in (LOGS / f"{name}.log").read_bytes().removesuffix(b"\n").split(b"\n"):
        at, _, text = row.removeprefix(b"@").partition(b" ")
        for line in splitter.feed(text + end, float(at)):
            log.read(line)
    reading = read_phase(log, started_at=0.0, ended=ended, kind=kind)
    assert reading is not None
    return reading


def read(lines: list[tuple[float, str]], *, ended: bool = False) -> LogReading:
    """Reads lines with their times."""
    log = ProgressLog()
    for at, text in lines:
        log.read(Line(text, at))
    reading = read_phase(log, started_at=0.0, ended=ended)
    assert reading is not None
    return reading


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a log holds, by how it was made."""

    log: str
    seconds: float
    framework: str = "log lines"
    unit: str = "step"
    steps: float | None = None
    each: float | None = None
    how: str = ""
    setup: float | None = None
    kind: str = ""
    extra: float | None = None
    total_kind: TotalKind = field(default=TotalKind.EXACT)


CASES = [
    Case(
        log="caffe",
        seconds=0.0352,
        framework="caffe",
        unit="iteration",
        steps=10000,
        how="max_iter",
        setup=2.86,
        kind="small-cnn",
    ),
    Case(log="caffe_old", seconds=0.77, framework="caffe", unit="iteration", steps=250000, how="goes on from 200,000"),
    Case(
        log="mxnet",
        seconds=0.0052,
        framework="mxnet",
        steps=18760,
        each=938,
        how="num_epochs=20",
        setup=3.0,
        kind="mlp",
        extra=0.61,
    ),
    Case(log="gluonnlp", seconds=0.0302, framework="mxnet", each=8164, how="does not tell how many epochs"),
    Case(log="cntk", seconds=0.0084, framework="cntk", steps=46890, each=1563, how="30 epochs", extra=0.9),
    Case(log="cntk_python", seconds=0.012, framework="cntk", steps=75040, each=469, how="160 epochs", extra=0.4),
    Case(
        log="keras2", seconds=0.006, framework="keras", steps=168750, each=1875, how="90 epochs", setup=3.3, extra=1.4
    ),
    Case(log="keras3", seconds=0.0121, framework="keras", steps=15630, each=1563, how="10 epochs"),
    Case(log="tqdm_nested", seconds=0.02, steps=6000, each=200, how="30 of the bar around it", extra=0.25),
    Case(log="lightning", seconds=0.31, each=938, how="does not tell how many epochs"),
    Case(log="theano", seconds=3.5 / 2500, framework="theano", each=2500, setup=9.0),
    Case(log="lasagne", seconds=1.86, framework="theano", unit="epoch", steps=500, each=1, setup=6.0),
    Case(log="xgboost", seconds=0.21, framework="xgboost", unit="round", kind="gradient-boosted-trees"),
    Case(log="lightgbm", seconds=0.08, framework="lightgbm", unit="round", kind="gradient-boosted-trees"),
    Case(log="lightgbm_cli", seconds=4.6, framework="lightgbm", unit="round", kind="gradient-boosted-trees"),
    Case(log="catboost", seconds=0.06, framework="catboost", unit="round", kind="gradient-boosted-trees"),
    Case(log="fasttext", seconds=5.0, framework="fasttext", unit="percent", steps=100, setup=31.0),
    Case(log="word2vec", seconds=6.0, framework="word2vec", unit="percent", steps=100),
    Case(log="gensim", seconds=2.0 / 1.7, framework="gensim", unit="percent", each=100),
    Case(log="darknet", seconds=3.31, framework="darknet", unit="iteration", setup=2.0),
    Case(log="gromacs", seconds=0.004, framework="gromacs", steps=50000, setup=1.0),
    Case(log="tf_estimator", seconds=0.032, framework="tensorflow", setup=8.0),
    Case(log="imagenet", seconds=3.1, each=5005),
    Case(log="tutorial", seconds=0.015, steps=3000, each=600, how="5 epochs"),
    Case(log="mnist_example", seconds=0.4 / 2560, unit="sample", each=60000, extra=1.2),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.log)
def test_recorded_logs(case: Case) -> None:
    reading = replay(case.log)
    phase = reading.phase
    assert phase.step.mean_seconds == pytest.approx(case.seconds, rel=0.03)
    assert (reading.framework, phase.unit) == (case.framework, case.unit)
    assert phase.total.steps == case.steps
    assert phase.total.steps_per_epoch == case.each
    assert phase.total.kind is (TotalKind.UNKNOWN if case.steps is None else case.total_kind)
    assert case.how in phase.total.how
    assert phase.total.how
    if case.setup is not None:
        assert reading.setup_seconds == pytest.approx(case.setup, abs=0.15)
    assert phase.kind == case.kind
    assert phase.gpu is (GpuPath.TABLE if case.kind else GpuPath.NONE)
    assert phase.gpu_reason
    assert len(phase.extras) == (case.extra is not None)
    if case.extra is not None:
        assert phase.extras[0].rhythm is Rhythm.EPOCH
        assert phase.extras[0].seconds_each == pytest.approx(case.extra, rel=0.1)
    assert not any("prints a speed" in note for note in reading.notes)
    assert "such as: " in reading.notes[0]


@pytest.mark.parametrize("name", [case.log for case in CASES])
def test_bars_that_overwrite_one_another_read_the_same(name: str) -> None:
    assert replay(name, end=b"\r") == replay(name)


def test_every_recorded_log_has_its_case() -> None:
    assert {path.stem for path in LOGS.glob("*.log")} == {case.log for case in CASES}


def test_what_it_computes_is_never_guessed() -> None:
    assert replay("darknet").phase.gpu_reason == UNKNOWN_WORK
    assert "no GPU implementation" in replay("fasttext").phase.gpu_reason
    named = replay("darknet", kind="resnet50").phase
    assert (named.gpu, named.kind) == (GpuPath.TABLE, "resnet50")
    assert "--like" in named.gpu_reason


def test_where_only_one_line_an_epoch_comes_that_is_said() -> None:
    assert any("once an epoch" in note for note in replay("theano").notes)


def test_a_counter_beside_epochs_may_be_of_either() -> None:
    lines = [(0.0, "Epoch 1/3")] + [(1.0 + n, f"step {n}/300 loss 0.1") for n in range(6)]
    total = read(lines).phase.total
    assert (total.kind, total.steps, total.steps_per_epoch) == (TotalKind.UNKNOWN, None, None)
    assert "an epoch or the whole" in total.how


def test_a_counter_that_starts_again_is_an_epochs() -> None:
    lines = [(0.0, "Epoch 1/3"), *[(1.0 + n, f"step {n}/6") for n in range(1, 7)], (7.0, "Epoch 2/3")]
    lines += [(9.0 + n, f"step {n}/6") for n in range(1, 5)]
    total = read(lines).phase.total
    assert (total.kind, total.steps, total.steps_per_epoch) == (TotalKind.EXACT, 18, 6)


def test_a_counter_that_goes_on_over_epochs_is_the_wholes() -> None:
    lines = [(float(n), f"step {n}/18") for n in range(1, 9)]
    lines.insert(0, (0.0, "Epoch 1/3"))
    lines.insert(7, (6.5, "Epoch 2/3"))
    total = read(lines).phase.total
    assert (total.kind, total.steps, total.steps_per_epoch) == (TotalKind.EXACT, 18, 6)


def test_a_bar_that_was_opened_inside_an_epoch_is_the_epochs() -> None:
    bar = [(1.0 + n, f"{n * 10:3d}%|{'#' * n:<10}| {n}/10 [00:0{n}<00:09, 1.00it/s]") for n in range(7)]
    assert read([(0.5, "Epoch 1/5"), *bar]).phase.total.steps == 50
    undecided = read([*bar[:1], (1.1, "Epoch 1/5"), *bar[1:]]).phase.total
    assert undecided.kind is TotalKind.UNKNOWN


def test_a_validation_bar_is_not_the_training() -> None:
    lines = [(n * 1.0, f"train: 1%|# | {n}/100 [00:00<00:00, 1.0it/s]") for n in range(8)]
    lines += [(8 + n * 0.01, f"validation: 1%|# | {n}/1000 [00:00<00:00, 99it/s]") for n in range(100)]
    assert read(lines).phase.step.mean_seconds == pytest.approx(1.0)


def test_preparations_are_left_for_what_runs_after_them() -> None:
    lines = [(n * 0.1, f"tokenize: 1%|# | {n}/40 [00:00<00:00, 10it/s]") for n in range(41)]
    lines += [(5.0 + n, f"iter {n} loss 0.1") for n in range(8)]
    reading = read(lines)
    assert reading.phase.step.mean_seconds == pytest.approx(1.0)
    assert "iter 0" in reading.notes[0]


def test_a_bar_at_the_end_of_its_first_epoch_is_still_the_training() -> None:
    lines = [(0.0, "Epoch 1/9"), *[(1.0 + n, f"{n:3d}/10 [==>.......] - ETA: 1s - loss: 1") for n in range(1, 11)]]
    lines += [(12.0, "Epoch 2/9")]
    phase = read(lines).phase
    assert (phase.unit, phase.total.steps) == ("step", 90)
    assert phase.step.mean_seconds == pytest.approx(1.0)


def test_other_counters_are_named() -> None:
    lines = []
    for n in range(8):
        lines += [(n * 1.0, f"[{n}]\ttrain-auc:0.5"), (n + 0.5, f"step {n * 7}/900")]
    reading = read(lines)
    assert reading.framework == "xgboost"
    assert "Other lines count, too" in reading.notes[0]
    assert "step 0/900" in reading.notes[0]


def test_a_printed_speed_is_only_compared() -> None:
    lines = [(n * 2.0, f"Iteration {n * 10} (50 iter/s, 0.2s/10 iters), loss = 1") for n in range(8)]
    reading = read(lines)
    assert reading.phase.step.mean_seconds == pytest.approx(0.2)
    assert any("prints a speed of 0.02 s" in note and "0.2 s" in note for note in reading.notes)


def test_blocks_of_buffered_lines_still_give_the_rate() -> None:
    lines = [(float(block), f"step {block * 50 + n}/10000") for block in range(1, 9) for n in range(50)]
    reading = read(lines)
    assert reading.phase.step.mean_seconds == pytest.approx(1 / 50)
    assert any("blocks" in note for note in reading.notes)


def test_pauses_with_a_rhythm_are_work_beside_the_steps() -> None:
    at, lines = 0.0, []
    for n in range(41):
        at += 5.0 if n and n % 10 == 0 else 0.1
        lines.append((at, f"iter {n}"))
    phase = read(lines).phase
    assert phase.step.mean_seconds == pytest.approx(0.1)
    (extra,) = phase.extras
    assert (extra.kind, extra.rhythm) == (ExtraKind.OTHER, Rhythm.STEPS)
    assert extra.every == pytest.approx(10)
    assert extra.seconds_each == pytest.approx(4.9)


def test_a_single_pause_is_said_and_not_counted() -> None:
    lines = [(n * 0.1 + (4.0 if n > 12 else 0.0), f"iter {n}") for n in range(20)]
    reading = read(lines)
    assert reading.phase.extras == []
    assert any("pause of 4 s before 13" in note for note in reading.notes)


def test_one_that_goes_on_is_told_from_one_that_prints_ahead() -> None:
    ahead = [(0.1 + n, f"step {n * 5 + 5}/90") for n in range(8)]
    assert read(ahead).phase.total.steps == 90
    resumed = [(0.1 + n, f"step {n * 5 + 50}/90") for n in range(8)]
    assert read(resumed).phase.total.steps == 40
    assert "goes on from 50" in read(resumed).phase.total.how


def test_a_training_that_may_stop_early_has_an_upper_bound() -> None:
    lines = [(0.0, "EarlyStopping monitors val_loss"), *[(1.0 + n, f"step {n}/300") for n in range(6)]]
    assert read(lines).phase.total.kind is TotalKind.UPPER_BOUND


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
    total = read(lines, ended=True).phase.total
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
    log = ProgressLog()
    for at, text in lines:
        log.read(Line(text, at))
    assert read_phase(log, started_at=0.0, ended=False) is None


def test_a_users_pattern_is_the_only_one() -> None:
    log = ProgressLog((user_pattern(r"seen (?P<step>\d+)"),))
    for n in range(8):
        log.read(Line(f"step {n}/90", float(n)))
        log.read(Line(f"seen {n * 100}", float(n)))
    reading = read_phase(log, started_at=0.0, ended=False)
    assert reading is not None
    assert reading.phase.step.mean_seconds == pytest.approx(0.01)
    assert "--step-pattern" in reading.notes[0]


def test_counted_lines_are_called_so() -> None:
    log = ProgressLog((user_pattern("checkpoint"),))
    for n in range(8):
        log.read(Line("checkpoint saved", n * 0.5))
    reading = read_phase(log, started_at=0.0, ended=False)
    assert reading is not None
    assert reading.phase.step.mean_seconds == pytest.approx(0.5)
    assert "counted as steps" in reading.notes[0]


def test_memory_is_bounded_and_the_rate_stays() -> None:
    log = ProgressLog()
    for n in range(50000):
        log.read(Line(f"[{n}]\ttrain-auc:0.5", n * 0.01))
    best = log.best()
    assert best is not None
    assert len(best.samples) <= 20001
    reading = read_phase(log, started_at=0.0, ended=False)
    assert reading is not None
    assert reading.phase.step.mean_seconds == pytest.approx(0.01)

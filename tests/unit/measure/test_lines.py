"""Bytes into lines, lines into readings, and the user's own pattern."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.errors import UsageError
from costgpu.measure.log.counters import ProgressLog
from costgpu.measure.log.lines import LINE_BYTES, Line, LineSplitter, Progress, read_line, user_pattern
from costgpu.measure.log.patterns import PATTERNS, Tier


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


WORDS = st.sampled_from(
    [
        "step ",
        "Epoch ",
        "12/34",
        " [=>...] - ",
        "3%|",
        "| 5/9 [",
        "it/s",
        "loss = ",
        "Iteration ",
        "[7]\t",
        "train-auc:",
        "0.5",
        "nan",
        "Minibatch[ 1- 10]: ",
        " of ",
        "Speed: ",
        " samples/sec",
        "Namespace(",
        "num_epochs=0",
        "batch_size=0",
        "\r",
        "\n",
        "Finished Epoch[",
        "1",
        "]: x * 5",
        "1e400",
        "Progress: ",
        "% ",
        "max_iter: 0",
        "²",
        "٣",
        "k/2M [",
    ]
)


@given(st.lists(WORDS, max_size=60).map("".join), st.lists(st.floats(0, 3), min_size=60, max_size=60), st.booleans())
def test_no_text_breaks_the_reading(text: str, gaps: list[float], ended: bool) -> None:
    from costgpu.measure.log.phase import read_phase

    log, splitter, at = ProgressLog(), LineSplitter(), 0.0
    for number, piece in enumerate(text.splitlines(keepends=True)):
        at += gaps[number % len(gaps)]
        for line in splitter.feed(piece.encode(), at):
            log.read(line)
    reading = read_phase(log, started_at=0.0, ended=ended)
    if reading is not None:
        assert reading.phase.step.mean_seconds > 0
        assert reading.setup_seconds >= 0
        assert reading.phase.steps_observed >= 1
        assert reading.phase.total.steps is None or reading.phase.total.steps >= 1


def test_names_of_patterns_are_unique() -> None:
    names = [pattern.name for pattern in PATTERNS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("text", "name", "step", "total"),
    [
        ("I1121 1 solver.cpp:239] Iteration 100 (12.3 iter/s, 8.1s/100 iters), loss = 0.2", "caffe", 100, None),
        ("I0425 10:12:49.6 9167 solver.cpp:65] Iteration 180, loss = 6.55607", "caffe", 180, None),
        ("INFO:root:Epoch[0] Batch [20]\tSpeed: 1234.5 samples/sec\taccuracy=0.9", "mxnet", 20, None),
        ("Iter[3] Batch [40]\tSpeed: 99 samples/sec", "mxnet", 40, None),
        ("[Epoch 2][Batch 99], Speed: 12.3 samples/sec, ObjLoss=1.0", "mxnet", 99, None),
        ("Batch [50] Speed: 26130.0133261041 samples/sec Train-accuracy=0.11", "mxnet", 50, None),
        (
            "INFO:gluonnlp:11:22:28 Batch: 4512/7387, Loss=4.1, lr=0.0000065 Thoughput=45.02 samples/s",
            "gluon",
            4512,
            7387,
        ),
        ("[Epoch 0 Batch 100/1043] loss=6.4, ppl=614.9, gnorm=0.70, throughput=39.15K wps", "gluon", 100, 1043),
        (" Minibatch[   1- 100]: loss = 2.3 * 6400, metric = 88% * 6400 1.2s (5333.3 samples/s);", "cntk", 100, None),
        (" Epoch[ 1 of 2]-Minibatch[ 501-1000]: SamplesSeen = 25000; TotalTime = 442.9194s;", "cntk", 1000, None),
        (
            "Finished Epoch[936 of 300]: loss = 0.000055 * 512, metric = 0.00% * 512 0.662s (773.4 samples/s);",
            "cntk-epoch",
            936,
            300,
        ),
        (" 123/1875 [=>............................] - ETA: 12s - loss: 0.3", "keras", 123, 1875),
        ("1875/1875 - 5s - loss: 0.2 - 5s/epoch - 3ms/step", "keras", 1875, 1875),
        ("  13440/Unknown - 2s - loss: 0.8068 - acc: 0.7432", "keras", 13440, None),
        (" 123/1875 ━━━━━━━━━━━━━━━━━━━━ 12s 6ms/step - loss: 1.2", "keras", 123, 1875),
        (" 12%|#2        | 123/1000 [00:12<01:20, 10.9it/s]", "tqdm", 123, 1000),
        ("Epoch 3:  12%|█▏        | 1.2k/10.0k [00:12<01:20, 1.09s/it, loss=0.3]", "tqdm", 1200, 10000),
        ("123it [00:12, 10.9it/s]", "tqdm-open", 123, None),
        ("epoch 1, minibatch 2500/2500, validation error 9.5 %", "theano", 2500, 2500),
        ("Epoch 1 of 500 took 1.858s", "lasagne", 1, 500),
        ("| epoch 010:   2000 / 8223 loss=1.27 (1.50), wps=962", "fairseq", 2000, 8223),
        ("INFO:tensorflow:loss = 0.91, step = 101 (3.2 sec)", "tf-estimator", 101, None),
        ("[12]\ttrain-logloss:0.1\teval-logloss:0.2", "xgboost", 12, None),
        ("[13:37:00] [3]\ttest-error:0.016139", "xgboost", 3, None),
        ("[10]\tvalid_0's auc: 0.93\tvalid_0's binary_logloss: 0.2", "lightgbm", 10, None),
        ("[LightGBM] [Info] 160.109477 seconds elapsed, finished iteration 36", "lightgbm-cli", 36, None),
        ("5:\tlearn: 0.6\ttest: 0.61\tbest: 0.61 (5)\ttotal: 60ms\tremaining: 1m 2s", "catboost", 5, None),
        ("Progress: 12.3% words/sec/thread: 121000 lr: 0.08 avg.loss: 2.1 ETA: 0h 8m", "fasttext", 12.3, 100),
        ("Alpha: 0.0250  Progress: 0.10%  Words/thread/sec: 53.22k", "word2vec", 0.1, 100),
        (" 957: 0.660188, 0.689227 avg loss, 0.000839 rate, 3.315456 seconds, 61248 images", "darknet", 957, None),
        ("9002: 0.211667, nan avg, 0.001000 rate, 3.868000 seconds, 576128 images", "darknet", 9002, None),
        ("step 100, remaining wall clock time:   12 s", "gromacs", 100, None),
        ("Epoch: [0][ 100/5005]\tTime 3.1 ( 3.2)", "epoch-bracket", 100, 5005),
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.2", "epoch-samples", 640, 60000),
        ("Epoch [1/5], Step [100/600], Loss: 0.1", "epoch-and-step", 100, 600),
        ("step 100/5000 loss 0.3", "step-of-total", 100, 5000),
        ("[100/5000] loss 0.3", "bracket", 100, 5000),
        ("iter 100: loss 0.3", "step", 100, None),
        ("Epoch 3/90", "epoch", 3, 90),
        ("epoch 3 of 90", "epoch", 3, 90),
        ("12.5% complete", "percent", 12.5, 100),
        ("[=====>    ] 34%", "percent", 34, 100),
    ],
)
def test_formats(text: str, name: str, step: float, total: float | None) -> None:
    found = first(text)
    assert (found.pattern.name, found.step, found.total) == (name, step, total)


@pytest.mark.parametrize(
    "text",
    [
        "accuracy: 91.2%",
        "loss 0.25",
        "2026-11-21 13:00:00 started",
        "batch_size=64",
        "{'loss': 0.5, 'epoch': 0.53}",
        "steps per second: 12.5",
        "Iteration 0.5",
        "value 3/4",
        "the 3 steps of 5",
        "num_epochs: 90",
        "",
        "step",
    ],
)
def test_what_is_no_progress(text: str) -> None:
    assert read_line(Line(text, 0.0)) == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Iteration 100 (12.5 iter/s, 8s/100 iters), loss = 0.2", 0.08),
        ("Iteration 0 (0 iter/s, 0.03s/100 iters), loss = 2.3", 0.0003),
        (" Epoch[ 1 of 25]-Minibatch[  11-  20]: ce = 8.4 * 2560; time = 0.2s; samplesPerSecond = 1", 0.02),
        (" Minibatch[ 101- 200]: loss = 2.3 * 6400, metric = 88% * 6400 1.5s (4266.7 samples/s);", 0.015),
        ("123/1875 ━━━━ 12s 6ms/step", 0.006),
        ("60000/60000 [======] - 5s 87us/step - loss: 0.3", 87e-6),
        (" 12%|#  | 123/1000 [00:12<01:20, 12.5it/s]", 0.08),
        (" 12%|#  | 123/1000 [00:12<01:20,  1.25s/it, loss=3]", 1.25),
        (" 12%|#  | 123/1000 [00:00<?, ?it/s]", None),
        ("1: 2.3, 2.1 avg, 0.001 rate, 1.25 seconds, 64 images", 1.25),
        ("step 7/9", None),
    ],
)
def test_printed_speeds(text: str, seconds: float | None) -> None:
    printed = first(text).printed_seconds
    assert printed == (pytest.approx(seconds) if seconds is not None else None)


def test_validation_is_told_from_training() -> None:
    assert first("Test: [ 10/391] Time 0.1").evaluating
    assert first("validation: 12%|# | 123/1000 [00:12<01:20, 10.9it/s]").evaluating
    assert not first("train: 12%|# | 123/1000 [00:12<01:20, 10.9it/s]").evaluating
    assert not first("latest: step 3/5").evaluating


def test_a_users_pattern_with_names() -> None:
    pattern = user_pattern(r"tick (?P<step>\d+) of (?P<total>\d+) at (?P<speed>[\d.]+)/s")
    (found,) = read_line(Line("tick 3 of 7 at 4/s", 1.0), (pattern,))
    assert (found.step, found.total, found.printed_seconds) == (3, 7, 0.25)
    assert read_line(Line("tock 3", 1.0), (pattern,)) == []


def test_a_users_pattern_without_names_takes_its_first_group() -> None:
    (found,) = read_line(Line("done: 42 (of 99)", 1.0), (user_pattern(r"done: (\d+) \(of (\d+)\)"),))
    assert (found.step, found.total) == (42, None)


def test_a_users_pattern_of_epochs() -> None:
    (found,) = read_line(Line("round 2 / 9", 1.0), (user_pattern(r"round (?P<epoch>\d+) / (?P<epochs>\d+)"),))
    assert (found.step, found.total, found.pattern.unit, found.pattern.tier) == (2, 9, "epoch", Tier.USER)


def test_a_users_pattern_without_groups_counts_lines() -> None:
    log = ProgressLog((user_pattern("one more"),))
    for at in range(4):
        log.read(Line("one more", float(at)))
        log.read(Line("other", float(at)))
    best = log.best()
    assert best is not None
    assert [sample.step for sample in best.samples] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(", "not a regular expression"),
        ("a{99999999999}", "not a regular expression"),
        (r"(?P<stop>\d+)", "a group named 'stop'"),
        (r"(?P<speed>\d+)", "neither step nor epoch"),
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

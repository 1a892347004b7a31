"""The metric: its pattern, and numbers in what a script prints."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.errors import UsageError
from costgpu.sweep.metric import parse_metric
from costgpu.sweep.tuner.metric import BEYOND, find_value, for_scheduler, is_better, number
from tests.properties import examples

LOSS = re.compile(r"val_loss[=:]\s*(\S+)")


@given(value=st.floats())
@examples(300)
def test_every_number_that_python_prints_is_read_back(value: float) -> None:
    found = find_value(LOSS, f"epoch 3 val_loss={value!r}, done")
    assert found is not None
    assert found == value or (math.isnan(found) and math.isnan(value))


@given(text=st.text(max_size=40))
@examples(300)
def test_nothing_else_is_an_error(text: str) -> None:
    found = number(text)
    assert found is None or isinstance(found, float)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("val_loss=0.25.", 0.25),
        ("val_loss=1.5e-3;", 1.5e-3),
        ("val_loss: -2", -2.0),
        ("val_loss=12%", 12.0),
        ("val_loss=0.5 val_loss=0.4", 0.4),
        ("val_loss=n/a", None),
        ("val_loss=1.2.3", None),
        ("loss=1", None),
    ],
)
def test_the_last_number_of_a_line_counts(line: str, value: float | None) -> None:
    assert find_value(LOSS, line) == value


def test_nan_is_a_value_and_never_the_best() -> None:
    value = find_value(LOSS, "val_loss=nan")
    assert value is not None
    assert math.isnan(value)
    assert not is_better(value, None, "min")
    assert not is_better(math.inf, None, "max")
    assert not is_better(1e30, None, "max")
    assert for_scheduler(value, "min") == BEYOND
    assert for_scheduler(-math.inf, "max") == -BEYOND
    assert is_better(1.0, 2.0, "min")
    assert is_better(2.0, 1.0, "max")


def test_the_name_is_what_stands_before_the_group() -> None:
    assert parse_metric(r"val_loss=([0-9.]+)", "min").name == "val_loss"
    assert parse_metric(r"step \d+ acc/top1: ([0-9.]+)%", "max").name == "acc/top1"
    assert parse_metric(r"([0-9.]+)$", "max").name == "metric"


@pytest.mark.parametrize(
    ("pattern", "mode", "words"),
    [
        (None, "min", "By which number"),
        ("val_loss=", "min", "has no group"),
        ("(a)=([0-9]+)", "min", "has 2 groups"),
        ("val_loss=([0-9", "min", "no regular expression"),
        ("(" * 3000, "min", "--metric"),
        ("(" + "(?:" * 3000 + "x" + ")" * 3000 + ")", "min", "--metric"),
        ("x=(.*)", "lowest", "none of min, max"),
    ],
)
def test_a_pattern_without_exactly_one_group_is_refused(pattern: str | None, mode: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_metric(pattern, mode)


def test_a_number_that_was_cut_off_is_none() -> None:
    assert find_value(LOSS, "val_loss=1 " + "x" * 20 + " val_loss=2", 15) == 1.0
    assert find_value(LOSS, "val_loss=3.25e-05", 13) is None
    assert find_value(LOSS, "val_loss=1 val_loss=3.25e-05", 24) == 1.0
    assert find_value(LOSS, "val_loss=3.25", 13) == 3.25


@pytest.mark.parametrize(
    "pattern", [r"\d+/\d+ .*loss: *([0-9.]+)", r"(?:\w+ )*loss: ([0-9.]+)", r"loss[=:]\s*([-+]?\d+(?:\.\d+)?)"]
)
def test_a_pattern_with_repeats_reads_a_long_line_to_its_end(pattern: str) -> None:
    line = "391/391 [" + "=" * 300 + "] - 12s 31ms/step - accuracy: 0.51 - loss: 0.25"
    assert find_value(re.compile(pattern), line) == 0.25

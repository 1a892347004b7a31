"""Trip counts from source and live variables, without running the user's code."""

from __future__ import annotations

import ast
import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.measure.probe.binding import generator_trips
from costgpu.measure.probe.evaluate import Evaluator, Unknown


class Args:
    epochs = 7

    @property
    def dangerous(self) -> int:
        raise AssertionError("a property must not be run")


def explode() -> list[int]:
    raise AssertionError("the user's function must not be called")


def batches(values: list[int], size: int = 4) -> Any:
    count = len(values)
    for start in range(0, count, size):
        yield values[start : start + size]


NAMES: dict[str, Any] = {
    "args": Args(), "data": list(range(10)), "n": 3, "config": {"epochs": 5, "flag": True}, "explode": explode,
    "itertools": itertools, "endless": itertools.count(), "math": math, "batches": batches,
}  # fmt: skip


def trips(text: str) -> float:
    return float(Evaluator(NAMES, {}).trips(ast.parse(text, mode="eval").body))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("range(args.epochs)", 7),
        ("range(2, 10, 3)", 3),
        ("enumerate(data, 1)", 10),
        ("tqdm(enumerate(data), total=4)", 10),
        ("tqdm(explode(), total=4)", 4),
        ("trange(n * 2, desc='epoch')", 6),
        ("zip(data, range(4))", 4),
        ("itertools.islice(endless, 6)", 6),
        ("itertools.islice(data, 2, None, 3)", 3),
        ("itertools.product(data, [1, 2])", 20),
        ("itertools.count()", math.inf),
        ("itertools.cycle(data)", math.inf),
        ("range(config['epochs'])", 5),
        ("range(math.ceil(len(data) / n))", 4),
        ("data[2:5]", 3),
        ("['train', 'val']", 2),
        ("config.items()", 2),
        ("range(args.epochs if config['flag'] else 0)", 7),
        ("range(10**9)", 10**9),
    ],
)
def test_known_counts(text: str, count: float) -> None:
    assert trips(text) == count


@pytest.mark.parametrize(
    "text",
    [
        "explode()",
        "range(args.dangerous)",
        "range(unknown)",
        "iter(explode())",
        "(x for x in data)",
        "set(data)",
        "random.sample(data, 3)",
        "itertools.product(data, repeat=2)",
    ],
)
def test_unknown_counts_run_nothing(text: str) -> None:
    with pytest.raises(Unknown):
        trips(text)


def test_a_shadowed_builtin_is_not_trusted() -> None:
    with pytest.raises(Unknown):
        Evaluator({"min": explode, "data": [1]}, {}).value(ast.parse("min(data)", mode="eval").body)


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(1, 9))
def test_ranges_are_python_s(low: int, high: int, step: int) -> None:
    assert trips(f"range({low}, {high}, {step})") == len(range(low, high, step))


@pytest.mark.parametrize(
    ("text", "count"), [("batches(data)", 3), ("batches(data, 2)", 5), ("batches(data, size=n)", 4)]
)
def test_a_plain_generator_function_is_counted_without_running_it(text: str, count: int) -> None:
    assert generator_trips(ast.parse(text, mode="eval").body, Evaluator(NAMES, {})) == count

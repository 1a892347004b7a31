"""Trip counts from source and live variables, without running the user's code."""

import ast
import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.measure.probe.loops.call_binding import generator_trips
from costgpu.measure.probe.loops.safe_eval import Evaluator, Unknown


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
    "args": Args(),
    "data": list(range(10)),
    "n": 3,
    "config": {"epochs": 5, "flag": True},
    "explode": explode,
    "itertools": itertools,
    "endless": itertools.count(),
    "math": math,
    "batches": batches,
}


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


class Dataset:
    """As TensorFlow's say how long they are: -1 without end, -2 unknown."""

    def __init__(self, length: int) -> None:
        self.length = length

    def cardinality(self) -> int:
        return self.length

    def take(self, count: int) -> None:
        raise AssertionError("nothing of the user's is called")


Dataset.__module__ = "tensorflow.python.data.ops"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("ds", 1000),
        ("ds.take(30)", 30),
        ("ds.take(-1)", 1000),
        ("ds.shuffle(9).batch(30).prefetch(2)", 34),
        ("ds.batch(30, drop_remainder=True)", 33),
        ("ds.batch(batch_size=n)", 334),
        ("ds.skip(10).take(5000)", 990),
        ("ds.repeat(3)", 3000),
        ("ds.repeat()", math.inf),
        ("endless_ds.batch(2).take(7)", 7),
        ("enumerate(ds.repeat().take(12))", 12),
    ],
)
def test_methods_of_tensorflows_datasets(text: str, count: float) -> None:
    names = NAMES | {"ds": Dataset(1000), "endless_ds": Dataset(-1)}
    assert Evaluator(names, {}).trips(ast.parse(text, mode="eval").body) == count


@pytest.mark.parametrize(
    "text", ["unknown.take(3)", "ds.filter(explode).take(3)", "data.take(3)", "ds.take(explode())"]
)
def test_lengths_of_datasets_that_nobody_knows(text: str) -> None:
    names = NAMES | {"ds": Dataset(1000), "unknown": Dataset(-2)}
    with pytest.raises(Unknown):
        Evaluator(names, {}).trips(ast.parse(text, mode="eval").body)

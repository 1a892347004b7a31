"""The settings that a sweep tries: parsing, number, draws."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.errors import UsageError
from costgpu.sweep.space import Distribution, GridAxis, RandomAxis, Space, parse_space
from tests.properties import examples

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,8}", fullmatch=True)
VALUES = st.lists(st.from_regex(r"[A-Za-z0-9_.+-]{1,6}", fullmatch=True), min_size=1, max_size=4, unique=True)
FLOATS = st.floats(-1e12, 1e12, allow_nan=False)


@given(grid=st.dictionaries(NAMES, VALUES, min_size=1, max_size=3))
@examples(200)
def test_a_grid_is_the_product_of_its_values_as_they_were_written(grid: dict[str, list[str]]) -> None:
    space = parse_space([f"{name}={','.join(values)}" for name, values in grid.items()], [], None, 0)
    settings = list(space.settings())
    assert [tuple(one.values()) for one in settings] == list(itertools.product(*grid.values()))
    assert all(list(one) == list(grid) for one in settings)
    assert space.trials == len(settings)


@given(low=FLOATS, high=FLOATS, seed=st.integers(0, 2**40), kind=st.sampled_from(["uniform", "log"]))
@examples(300)
def test_what_is_drawn_lies_in_the_range_as_the_script_reads_it(low: float, high: float, seed: int, kind: str) -> None:
    low, high = min(low, high), max(low, high)
    if not low < high or (kind == "log" and low <= 0):
        return
    text = f"x={low!r}..{high!r}{':log' if kind == 'log' else ''}"
    space = parse_space([], [text], 5, seed)
    values = [float(one["x"]) for one in space.settings()]
    assert all(low <= value <= high for value in values)
    assert list(space.settings()) == list(space.settings()), "the same seed gives the same settings"


def test_integers_are_drawn_with_both_ends() -> None:
    space = parse_space([], ["layers=2..4"], 200, 7)
    assert space.random[0].distribution is Distribution.INTEGER
    assert {one["layers"] for one in space.settings()} == {"2", "3", "4"}


def test_a_logarithmic_range_draws_as_many_from_each_decade() -> None:
    space = parse_space([], ["lr=1e-6..1e-2:log"], 2000, 1)
    decades = [math.floor(math.log10(float(one["lr"]))) for one in space.settings()]
    assert all(400 < decades.count(decade) < 600 for decade in (-6, -5, -4, -3))


def test_random_draws_come_for_each_point_of_the_grid() -> None:
    space = parse_space(["lr=1e-4,3e-4", "seed=1,2"], ["act=relu|gelu", "dropout=0.0..0.5"], 3, 0)
    settings = list(space.settings())
    assert (space.points, space.trials, len(settings)) == (4, 12, 12)
    assert [(one["lr"], one["seed"]) for one in settings[:4]] == [("1e-4", "1")] * 3 + [("1e-4", "2")]
    assert {one["act"] for one in settings} <= {"relu", "gelu"}
    assert space.names == ("lr", "seed", "act", "dropout")


@pytest.mark.parametrize(
    ("grid", "param", "draws", "words"),
    [
        ([], [], None, "Which settings"),
        (["lr"], [], None, "is not NAME=VALUES"),
        (["1r=1"], [], None, "is not NAME=VALUES"),
        (["lr="], [], None, "has no values"),
        (["lr=1,2,1"], [], None, "the value '1' twice"),
        (["lr=1", "lr=2"], [], None, "lr is given twice"),
        (["lr=1"], ["lr=0..1"], 2, "lr is given twice"),
        (["lr=1"], ["x=0..1"], None, "How often"),
        (["lr=1"], [], 5, "draws values of --param"),
        ([], ["x=0..1"], 0, "not a number of draws"),
        ([], ["x=5"], 2, "neither a range nor a choice"),
        ([], ["x=1..0"], 2, "1 is not below 0"),
        ([], ["x=0..1:log"], 2, "begins above 0"),
        ([], ["x=0.1..1:exp"], 2, "neither a range nor a choice"),
        ([], ["x=nan..1"], 2, "neither a range nor a choice"),
        ([], ["x=-1.7e308..1.7e308"], 2, "as wide as that"),
        ([], ["x=a|a"], 2, "a value twice"),
        (
            ["x=" + ",".join(map(str, range(1000))), "y=" + ",".join(map(str, range(1000)))],
            [],
            None,
            "1,000,000 trials",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_hint(
    grid: list[str], param: list[str], draws: int | None, words: str
) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        parse_space(grid, param, draws, 0)
    assert refused.value.hint or "twice" in words or "draws" in words


def test_ten_thousand_settings_are_no_error() -> None:
    axes = tuple(GridAxis(name=name, values=tuple(map(str, range(100)))) for name in "ab")
    assert Space(grid=axes).trials == 10_000
    assert RandomAxis(name="x", distribution=Distribution.UNIFORM, low=0, high=1).choices == ()

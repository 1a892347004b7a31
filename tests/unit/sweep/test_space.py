"""What a sweep tries: parsing, number, and the words of Ray Tune."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.errors import UsageError
from costgpu.sweep.space import parse_space
from tests.properties import examples

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,8}", fullmatch=True)
VALUES = st.lists(st.from_regex(r"[A-Za-z0-9_.+-]{1,6}", fullmatch=True), min_size=1, max_size=4, unique=True)


@given(grid=st.dictionaries(NAMES, VALUES, min_size=1, max_size=3))
@examples(200)
def test_values_of_a_grid_stay_as_they_were_written(grid: dict[str, list[str]]) -> None:
    space = parse_space([f"{name}={','.join(values)}" for name, values in grid.items()], [], None, 0)
    assert space.domains == {name: ["grid_search", values] for name, values in grid.items()}
    assert space.trials == math.prod(map(len, grid.values()))
    assert space.example == {name: values[0] for name, values in grid.items()}


def test_ranges_are_told_in_the_words_of_tune() -> None:
    space = parse_space(["lr=1,2"], ["layers=2..4", "wd=1e-6..1e-2:log", "act=relu|gelu", "p=0.0..0.5"], 3, 0)
    assert space.domains == {
        "lr": ["grid_search", ["1", "2"]],
        "layers": ["randint", 2, 5],
        "wd": ["loguniform", 1e-6, 1e-2],
        "act": ["choice", ["relu", "gelu"]],
        "p": ["uniform", 0.0, 0.5],
    }
    assert space.example == {"lr": "1", "layers": "3", "wd": "0.0001", "act": "relu", "p": "0.25"}
    assert (space.points, space.draws, space.trials) == (2, 3, 6)


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

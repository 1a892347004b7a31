"""Settings on the command line of a script."""

import pytest

from costgpu.errors import UsageError
from costgpu.sweep.arguments import check_template, setting_words
from costgpu.sweep.tuner.arguments import arguments_of

SETTING = {"lr": "1e-4", "amp": "--amp", "optim.beta": "0.9"}


def test_without_a_template_each_parameter_is_an_option() -> None:
    assert arguments_of({"lr": "1e-4", "seed": "-1"}) == ["--lr", "1e-4", "--seed", "-1"]


def test_a_template_puts_values_anywhere() -> None:
    words = check_template("{amp} --optim.lr {lr} '--set=beta: {optim.beta}'", list(SETTING))
    assert arguments_of(SETTING, words) == ["--amp", "--optim.lr", "1e-4", "--set=beta: 0.9"]
    assert arguments_of({**SETTING, "amp": ""}, words) == ["--optim.lr", "1e-4", "--set=beta: 0.9"]


def test_a_value_is_one_word_whatever_is_in_it() -> None:
    words = check_template("--x={x}", ["x"])
    assert arguments_of({"x": "a b; {y} $(rm)"}, words) == ["--x=a b; {y} $(rm)"]


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("--lr {rate}", r"\{rate\}, which is no parameter"),
        ("--seed 1", r"no \{lr\}: every trial"),
        ("'--lr {lr}", "cannot be read"),
    ],
)
def test_a_template_that_does_not_fit_is_refused(template: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        check_template(template, ["lr"])
    assert refused.value.hint


def test_words_for_people() -> None:
    assert setting_words({"lr": "1e-4", "seed": "2"}) == "lr=1e-4 seed=2"

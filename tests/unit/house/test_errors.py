"""The error tree is part of the interface: its exit codes are unique, documented and never those of a signal."""

from __future__ import annotations

import inspect
import re

import pytest

from costgpu import errors
from costgpu.errors import EXIT_INTERRUPTED, CostGpuError, ScriptError


def tree(top: type[CostGpuError]) -> list[type[CostGpuError]]:
    return [top, *(one for below in top.__subclasses__() for one in tree(below))]


def ours() -> list[type[CostGpuError]]:
    return [one for one in tree(CostGpuError) if one.__module__ == errors.__name__]


def drawn() -> dict[str, int]:
    """Names and codes in the tree of the module's docstring."""
    found = re.findall(r"^[\s│├└─]*(\w+) \((\d+)\)", errors.__doc__ or "", re.MULTILINE)
    return {name: int(code) for name, code in found}


def test_every_class_has_an_exit_code_of_its_own() -> None:
    codes = [one.exit_code for one in ours()]
    assert len(codes) > 15
    assert len(set(codes)) == len(codes)
    assert all("exit_code" in vars(one) for one in ours()), "an inherited exit code is not the class's own"


def test_exit_codes_are_no_ones_elses() -> None:
    """0 is success, 126 and 127 are the shell's, from 128 on they mean signals; a byte holds no more."""
    assert all(0 < one.exit_code < 126 for one in ours())
    assert EXIT_INTERRUPTED == 130


def test_all_trouble_with_the_script_is_a_script_error() -> None:
    for one in ours():
        assert (20 <= one.exit_code < 40) == issubclass(one, ScriptError), one.__name__


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    assert drawn() == {one.__name__: one.exit_code for one in ours()}
    assert str(EXIT_INTERRUPTED) in (errors.__doc__ or "")


@pytest.mark.parametrize("one", ours(), ids=lambda one: one.__name__)
def test_every_class_says_what_it_means(one: type[CostGpuError]) -> None:
    text = vars(one).get("__doc__")
    assert text, "an inherited docstring says nothing about this class"
    assert text.strip().splitlines()[0].endswith(".")


@pytest.mark.parametrize("one", ours(), ids=lambda one: one.__name__)
def test_an_error_carries_message_and_hint(one: type[CostGpuError]) -> None:
    error = one("What happened.", hint="What to do.")
    assert (error.message, error.hint, str(error)) == ("What happened.", "What to do.", "What happened.")
    assert one("Alone.").hint == ""


def test_the_module_defines_nothing_but_its_tree() -> None:
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass) if c.__module__ == errors.__name__]
    assert set(classes) == set(ours())

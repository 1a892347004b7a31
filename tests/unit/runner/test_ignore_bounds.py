"""Ignore rules and folders that are made to take for ever do not: by construction, counted in steps."""

import os
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.errors import SyncRefused
from costgpu.runner.files import select as select_module
from costgpu.runner.files.gitignore import MAX_WILD, RuleFile, read_rules, repository_rules
from costgpu.runner.files.ignore_pattern import translated
from costgpu.runner.files.select import select
from tests.deep_folders import deep_folders
from tests.properties import examples

PARTS = ["*", "**", "?", "a", "b", "/", "[a-c]", "[!x]", "\\*", ".", "**/", "/**", "a*a", "é"]


def ways(regex: str) -> int:
    """How many repeats of a regular expression may be tried again after something behind them has failed."""
    import re._constants as constants  # type: ignore[import-not-found]
    import re._parser as parser  # type: ignore[import-not-found]

    def count(parsed: Any) -> int:
        found = 0
        for op, argument in parsed:
            if op in (constants.MAX_REPEAT, constants.MIN_REPEAT):
                inner = argument[2]
                found += 1 + (10 if count(inner) > 1 else 0)
            elif op is constants.SUBPATTERN:
                found += count(argument[3])
            elif op is constants.BRANCH:
                found += sum(map(count, argument[1]))
            # an atomic group is never entered again, and what is in it is counted by itself
            elif op is constants.ATOMIC_GROUP:
                assert count(argument) <= 2
        return found

    return count(parser.parse(regex))


@examples(2000)
@given(st.lists(st.sampled_from(PARTS), max_size=14).map("".join))
def test_no_pattern_can_be_tried_in_many_ways(pattern: str) -> None:
    regex = translated(pattern.strip("/"))
    if regex is not None:
        assert ways(regex) <= 2


@pytest.mark.parametrize(
    "pattern",
    ["*a" * 60 + "b", "**/a" * 40 + "/b", "a*" * 60 + "!", "**/*a*/" * 20 + "x", "[a]*" * 60 + "c", "?*" * 80 + "z"],
)
def test_patterns_that_used_to_run_for_ever(pattern: str) -> None:
    rules = RuleFile([pattern], "test")
    for path in ("a" * 250, "/".join(["a"] * 2000), "/".join(["a" * 50] * 80)):
        assert rules.decide(path, path.rpartition("/")[2], False) is None


def steps(work: Callable[[], object]) -> int:
    """How many functions are called."""
    called = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal called
        called += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return called


def test_a_hundred_thousand_rules_cost_as_much_as_a_few() -> None:
    def deciding(count: int) -> int:
        lines = (
            [f"name-{n}" for n in range(count)]
            + [f"*.x{n}" for n in range(count)]
            + [f"dir/sub-{n}/" for n in range(count)]
        )
        rules = RuleFile(lines, "test")
        assert rules.decide("a/name-7", "name-7", False) is True
        assert rules.decide("dir/sub-9", "sub-9", True) is True
        return steps(lambda: rules.decide("a/b/plain.txt", "plain.txt", False))

    assert deciding(33_000) <= 2 * deciding(10)


def test_too_many_rules_with_wildcards_are_refused() -> None:
    with pytest.raises(SyncRefused, match="more than 5000 rules"):
        RuleFile([f"a*{n}*b" for n in range(MAX_WILD + 1)], ".gitignore")


@pytest.mark.parametrize("what", ["fifo", "folder", "loop", "nul", "device"])
def test_an_ignore_file_that_is_none(tmp_path: Path, what: str) -> None:
    path = tmp_path / ".gitignore"
    (tmp_path / "kept").write_text("x")
    if what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "loop":
        path.symlink_to(".gitignore")
    elif what == "device":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(b"a\0b\n\0\nkept\0\n")
    assert read_rules(tmp_path / "a\0b", "x") is None
    if what != "loop" and what != "device":
        assert "kept" in [entry.path for entry in select(tmp_path, limit_bytes=1 << 30).files]


@pytest.mark.parametrize("content", [b"gitdir: a\0b", b"\xff" * 100, b"", b"gitdir: " + b"x" * 100_000])
def test_a_damaged_pointer_to_a_repository(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".git").write_bytes(content)
    assert repository_rules(tmp_path) == []


def test_folders_that_are_3000_deep(tmp_path: Path) -> None:
    (tmp_path / "top").write_text("x")
    with deep_folders(tmp_path, 3000):
        chosen = select(tmp_path, limit_bytes=1 << 30)
    assert [entry.path for entry in chosen.files] == ["top"]
    assert chosen.left_out == {"folders that cannot be read": 1}


def test_links_in_cycles_are_links(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "here").symlink_to(".")
    chosen = select(tmp_path, limit_bytes=1 << 30)
    assert chosen.files == ()
    assert chosen.links["here"] == "."


def test_more_files_than_can_be_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select_module, "MAX_SENT", 10)
    for number in range(12):
        (tmp_path / str(number)).touch()
    with pytest.raises(SyncRefused, match="more than 10 files"):
        select(tmp_path, limit_bytes=1 << 30)


def test_the_same_answers_as_one_pattern_tried_after_the_other() -> None:
    """Lookups and combined expressions decide as the last matching line does."""
    rng = random.Random(13)
    for _ in range(300):
        lines = [
            rng.choice(["", "!"])
            + "".join(rng.choice(PARTS) for _ in range(rng.randrange(1, 4)))
            + rng.choice(["", "", "/"])
            for _ in range(rng.randrange(1, 8))
        ]
        rules = RuleFile(lines, "test")
        for path in ("a", "b", "aa", "a/b", "b/a/a", "ab.a", "a/a/a/b"):
            name, expected = path.rpartition("/")[2], None
            for line in lines:
                one = RuleFile([line], "test").decide(path, name, True)
                expected = expected if one is None else one
            assert rules.decide(path, name, True) is expected, lines


def test_regular_expressions_are_valid() -> None:
    for pattern in ("[[:alpha:]]*x", "a/**/b/**/c", "**/a/**", "a**b", "[]-]*", "*[!a]*"):
        regex = translated(pattern)
        assert regex is not None
        re.compile(regex)

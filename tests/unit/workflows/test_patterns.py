"""Paths and patterns of the command line: as the shell gives them, and as .gitignore has them."""

import os
from pathlib import Path

import pytest

from costgpu.errors import UsageError
from costgpu.job.files.select import select_for
from costgpu.workflows.runs.patterns import check_rules, output_pattern, rule_pattern
from tests.unit.workflows.jobs import sending


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder below the current one, and a link to it."""
    work = tmp_path / "work"
    for name in ("train.py", "data/set.pt", "data/deep/set.pt", "run[1].pt", "!odd", "end ", ".env", "old/data/x"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("x")
    (work / ".gitignore").write_text("data\n*.pt\nold/\n")
    (work / "store").symlink_to("data")
    (tmp_path / "link").symlink_to("work")
    (tmp_path / "other.pt").write_text("x")
    monkeypatch.chdir(tmp_path)
    return work


IGNORED = {"data/set.pt", "data/deep/set.pt", "run[1].pt", "old/data/x"}
DATA = {"data/set.pt", "data/deep/set.pt"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("data", {*DATA, "old/data/x"}),
        ("data/", {*DATA, "old/data/x"}),
        ("/data", DATA),
        ("./data/", DATA),
        ("data/set.pt", {"data/set.pt"}),
        ("data//set.pt", {"data/set.pt"}),
        ("./data/./set.pt", {"data/set.pt"}),
        ("data/deep/../set.pt", {"data/set.pt"}),
        ("{folder}/data/set.pt", {"data/set.pt"}),
        ("{folder}/data/*.pt", {"data/set.pt"}),
        ("{link}/data/", DATA),
        ("work/data/deep", {"data/deep/set.pt"}),
        ("work/../work/data/deep/", {"data/deep/set.pt"}),
        ("data/*", DATA),
        ("**/deep/*", {"data/deep/set.pt"}),
        ("set.pt", DATA),
        ("*.pt", {*DATA, "run[1].pt"}),
        ("run[1].pt", {"run[1].pt"}),
        ("run[[]1].pt", {"run[1].pt"}),
        ("work/run[1].pt", {"run[1].pt"}),
        (".", IGNORED),
        ("{folder}", IGNORED),
    ],
)
def test_what_is_included(folder: Path, text: str, expected: set[str]) -> None:
    pattern = rule_pattern("--include", text.format(folder=folder, link=folder.parent / "link"), folder)
    spec = sending(folder, include=(pattern,))
    check_rules(spec)
    assert {entry.path for entry in select_for(spec, 1).files} & IGNORED == expected
    spec = sending(folder, include=("*",), exclude=(pattern,))
    if pattern != "*":
        check_rules(spec)
    assert IGNORED - {entry.path for entry in select_for(spec, 1).files} == expected


@pytest.mark.parametrize("text", ["!odd", "./!odd", "end ", "store", "store/", "work/end "])
def test_odd_names_are_left_out(folder: Path, text: str) -> None:
    spec = sending(folder)
    before = select_for(spec, 1)
    spec = sending(folder, exclude=(rule_pattern("--exclude", text, folder),))
    check_rules(spec)
    after = select_for(spec, 1)
    gone = {one.path for one in before.files} | set(before.links)
    gone -= {one.path for one in after.files} | set(after.links)
    assert gone == {Path(text).name}


@pytest.mark.parametrize("text", ["../other.pt", "other.pt/../../x", "{outside}", "work/../other.pt"])
def test_what_leaves_the_folder(folder: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"leaves the working folder, .*work"):
        rule_pattern("--include", text.format(outside=folder.parent / "other.pt"), folder)


@pytest.mark.parametrize("text", ["", "a\0b", "/a\0b", "\ud800"])
def test_what_no_file_is_called(folder: Path, text: str) -> None:
    for kind in (rule_pattern, output_pattern):
        with pytest.raises(UsageError, match="is no path and no pattern"):
            kind("--include", text, folder)


def test_a_name_that_is_too_long_matches_nothing(folder: Path) -> None:
    for text in ("x" * 300 + "/", "/" + "x" * 5000 + "/", "data[" + "x" * 300):
        rule = rule_pattern("--include", text, folder)
        with pytest.raises(UsageError, match="matches nothing"):
            check_rules(sending(folder, include=(rule,)))


def test_a_rule_cannot_take_back_another(folder: Path) -> None:
    with pytest.raises(UsageError, match="begins with a !"):
        rule_pattern("--exclude", "!*.pt", folder)


@pytest.mark.parametrize(
    ("include", "exclude", "said"),
    [
        (["*.bin"], [], "--include *.bin matches nothing in"),
        (["data/none.pt"], [], "--include data/none.pt matches nothing in"),
        (["train.py/"], [], "--include train.py/ matches nothing in"),
        (["#x"], [], "--include #x matches nothing in"),
        ([], ["*.bin"], "--exclude *.bin matches nothing in"),
        ([], ["none/"], "--exclude none/ matches nothing in"),
        (["data"], ["data"], "data is named by --include and by --exclude"),
        (["data/set.pt"], ["data"], "--include data/set.pt names only what --exclude leaves out"),
        (["data/set.pt"], ["*.pt"], "--include data/set.pt names only what --exclude leaves out"),
        ([".env"], [], "--include .env names only what never travels: secrets: .env*"),
        (["*.env"], [], "--include *.env names only what never travels: secrets: .env*"),
        ([".git/config"], [], "--include .git/config names only what never travels: repositories"),
    ],
)
def test_rules_that_decide_nothing(folder: Path, include: list[str], exclude: list[str], said: str) -> None:
    (folder / ".git").mkdir()
    (folder / ".git/config").write_text("")
    rules = [
        tuple(rule_pattern(option, each, folder) for each in given)
        for option, given in (("--include", include), ("--exclude", exclude))
    ]
    with pytest.raises(UsageError) as error:
        check_rules(sending(folder, include=rules[0], exclude=rules[1]))
    assert error.value.message.startswith(said)
    assert error.value.hint


@pytest.mark.parametrize(
    ("include", "exclude"),
    [
        (["data"], ["*.pt"]),
        (["data"], ["data/deep"]),
        (["*.pt"], ["data"]),
        ([], ["data", "data/deep"]),
        ([], [".env"]),
        ([], [".git"]),
        (["train.py"], []),
        (["store"], []),
    ],
)
def test_rules_that_go_together(folder: Path, include: list[str], exclude: list[str]) -> None:
    (folder / ".git").mkdir()
    check_rules(sending(folder, include=tuple(include), exclude=tuple(exclude)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("out/", "out/"),
        ("*.pt", "*.pt"),
        ("{folder}/log.txt", "log.txt"),
        ("{folder}/out/", "out/"),
        ("{folder}/out/*.pt", "out/*.pt"),
        ("{folder}/../work/new/log.txt", "new/log.txt"),
        ("{link}/log.txt", "log.txt"),
        ("{folder}", "."),
        ("{folder}/", "./"),
    ],
)
def test_outputs_by_absolute_paths(folder: Path, text: str, expected: str) -> None:
    given = text.format(folder=folder, link=folder.parent / "link")
    assert os.path.normpath(output_pattern("--outputs", given, folder)) == os.path.normpath(expected)


@pytest.mark.parametrize("text", ["../x", "/x", "{folder}/../x", "{folder}x/y", "a/../../x"])
def test_outputs_that_leave_the_folder(folder: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"--outputs .* leaves the working folder"):
        output_pattern("--outputs", text.format(folder=folder), folder)

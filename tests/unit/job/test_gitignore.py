"""What is chosen agrees with git: on random trees, with random ignore files, in and below a repository."""

import json
import os
import shutil
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from costgpu.job.files import select as select_module
from costgpu.job.files.gitignore import RuleFile
from costgpu.job.files.select import select
from tests.properties import examples

pytestmark = pytest.mark.skipif(
    shutil.which("git") is None, reason="git is not installed (Debian: apt-get install git)"
)

# Names of files, parts of patterns, and whole ones. No ** after anything but a slash: git below 2.41 reads memory there
# that is not the pattern's.
CASES = json.loads(Path(__file__).with_name("gitignore_cases.json").read_text())
NAMES, PARTS, USUAL, FAULTY_PARTS = CASES["names"], CASES["parts"], CASES["usual"], CASES["faulty_parts"]
ENDS = ["", "", "/", " ", "\\ "]


def rules_of(parts: list[str], ends: list[str]) -> st.SearchStrategy[str]:
    segment = st.one_of(st.lists(st.sampled_from(parts), min_size=1, max_size=3).map("".join), st.just("**"))
    pattern = st.one_of(
        st.sampled_from(USUAL),
        st.tuples(
            st.sampled_from(["", "", "", "!", "/", "!/", "\\"]),
            st.lists(segment, min_size=1, max_size=3).map("/".join),
            st.sampled_from(ends),
        ).map("".join),
    )
    lines = st.lists(pattern, max_size=5).map(lambda lines: "".join(f"{line}\n" for line in lines))
    return lines | st.lists(pattern).map("\r\n".join)


def trees_of(names: list[str], rules: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, object]]:
    leaf = st.one_of(st.just("file"), st.sampled_from(["link a", "link b", "link foo/a", "link nothing"]))
    return st.recursive(
        st.dictionaries(st.sampled_from(names), leaf, max_size=5),
        lambda below: st.dictionaries(
            st.sampled_from([*names, ".gitignore", ".gitignore"]),
            st.one_of(leaf, below, rules.map(lambda text: f"={text}")),
            max_size=6,
        ),
        max_leaves=12,
    )


rules = rules_of([*PARTS, *FAULTY_PARTS], [*ENDS, "\t"])
trees = trees_of([*NAMES, "a\nb"], rules)
plain_rules = rules_of(PARTS, ENDS)  # without what the library reads otherwise than git
plain_trees = trees_of(NAMES, plain_rules)


def build(folder: Path, tree: dict[str, object]) -> None:
    for name, what in tree.items():
        path = folder / name
        if isinstance(what, dict):
            path.mkdir()
            build(path, what)
        elif str(what).startswith("link ") and name != ".gitignore":
            path.symlink_to(str(what)[5:])
        else:
            path.write_bytes(os.fsencode(str(what)[1:] if str(what).startswith("=") else "x"))


def git(folder: Path, *arguments: str) -> bytes:
    environment = {**os.environ, "HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(["git", *arguments], cwd=folder, env=environment, capture_output=True, check=True).stdout


def listed(folder: Path) -> set[bytes]:
    found = git(folder, "ls-files", "-z", "--others", "--cached", "--exclude-standard")
    return {path for path in found.split(b"\0") if path}


def ours(folder: Path) -> set[bytes]:
    selection = select(folder, limit_bytes=1 << 30)
    return {os.fsencode(entry.path) for entry in selection.files} | {os.fsencode(link) for link in selection.links}


def without_git(folder: Path) -> set[bytes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(select_module, "ignored_paths", lambda _: None)
        return ours(folder)


def build_repository(folder: Path, tree: dict[str, object], top: str, exclude: str) -> None:
    build(folder, {one: what for one, what in tree.items() if one != ".gitignore"})
    (folder / ".gitignore").write_bytes(os.fsencode(top))
    git(folder, "init", "-q")
    (folder / ".git/info").mkdir(exist_ok=True)
    (folder / ".git/info/exclude").write_bytes(os.fsencode(exclude))


@examples(60, suppress_health_check=list(HealthCheck))
@given(trees, rules, rules)
def test_git_is_asked(tree: dict[str, object], top: str, exclude: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        build_repository(Path(name), tree, top, exclude)
        assert ours(Path(name)) == listed(Path(name))


@examples(150, suppress_health_check=list(HealthCheck))
@given(plain_trees, plain_rules, plain_rules)
@example({"logs": {"x.log": "file"}}, "*.log\n!logs/\n", "")
@example({"b": {"logs": {"a": "file"}}}, "[a-c][!a]*/logs\n", "")
@example({"a": {"b": "file"}, "A": {"b": "file"}}, "a/**\n!a/b\n", "b")
@example({"a ": "file", "a": "file"}, "a\\ \n", "")
@example({"a": {"a": {"a": "file"}}}, "a/*\n!/**/\n", "")
@example({"a": {"logs": {"b": "file"}}}, "*\n!*/\n!b\n", "")
def test_the_same_files_without_git(tree: dict[str, object], top: str, exclude: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        build_repository(Path(name), tree, top, exclude)
        assert without_git(Path(name)) == listed(Path(name))


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        pytest.param("a", "a\t", id="git keeps all white space at the end but spaces"),
        pytest.param("a", "[\\]a]", id="in git a backslash in a set takes the next character"),
        pytest.param("b", "[[:alpha:]]", id="git knows named sets"),  # repaired by pathspec's pull request 128
        pytest.param("a\nb/c", "**/c", id="in git ** stands for names of several lines, too"),  # and by 139
        pytest.param("abb", "a[/b]b", id="in git a set may have a slash in it"),
    ],
)
@pytest.mark.xfail(strict=version("pathspec") == "1.1.1", reason="pathspec 1.1.1 reads it otherwise than git")
def test_known_faults_of_the_library(tmp_path: Path, name: str, rule: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    build_repository(tmp_path, {}, rule + "\n", "")
    (tmp_path / name).touch()
    assert without_git(tmp_path) == listed(tmp_path)


@examples(60, suppress_health_check=list(HealthCheck))
@given(plain_trees, plain_rules, plain_rules)
def test_the_same_files_below_the_top(tree: dict[str, object], top: str, middle: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "a" / "b"
        folder.mkdir(parents=True)
        build(folder, tree)
        (Path(name) / ".gitignore").write_bytes(os.fsencode(top))
        (Path(name) / "a" / ".gitignore").write_bytes(os.fsencode(middle))
        git(Path(name), "init", "-q")
        (folder / "probe").touch()
        assert ours(folder) == without_git(folder)
        if subprocess.run(["git", "check-ignore", "-q", "."], cwd=folder, check=False).returncode == 1:
            assert ours(folder) == listed(folder)  # else git lists nothing; to us the user's being there says more


@examples(300)
@given(st.text(max_size=12))
def test_no_line_is_too_odd(line: str) -> None:
    rules = RuleFile([line], "test")
    for path in ("a", "a/b", "é\n/\udcff"):
        assert rules.decide(path, False) in (True, False, None)
        rules.may_keep_below(path)

"""Which Python measures and runs a script."""

import os
import sys
from pathlib import Path

import pytest

from costgpu.errors import InterpreterError
from costgpu.measure.interpreter import find_interpreter, find_surroundings, has_inline_metadata
from costgpu.measure.prefixes import split_prefixes


@pytest.fixture
def venv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a link to this Python, as a virtual environment has one."""
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "venv"


@pytest.mark.parametrize(
    ("asked", "environment"),
    [
        ("venv/bin/python", {}),
        ("./venv/bin/python", {}),
        (None, {"VIRTUAL_ENV": "venv"}),
        (None, {"CONDA_PREFIX": "venv"}),
        (None, {"PATH": "venv/bin" + os.pathsep + "/bin"}),
    ],
)
def test_a_relative_path_holds_in_every_folder_and_its_link_stays(
    venv: Path, asked: str | None, environment: dict[str, str]
) -> None:
    assert find_interpreter(asked, environment).path == str(venv / "bin/python")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#!/bin/sh\necho 3.7.17\n", "is Python 3.7.17"),
        ("#!/bin/sh\necho perl\n", "is not a Python"),
        ("nonsense", "does not start"),
    ],
)
def test_what_is_no_usable_python_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "python"
    path.write_text(text)
    path.chmod(0o755)
    with pytest.raises(InterpreterError, match=words) as caught:
        find_interpreter(str(path), {})
    assert str(path) in caught.value.message
    assert "--python" in caught.value.hint


def test_none_at_all() -> None:
    with pytest.raises(InterpreterError, match="no python on PATH"):
        find_interpreter(None, {"PATH": "/no/such/folder"})


# ------------------------------------------------------------------------------------- behind uv, conda, env and others

# As `uv run --with` does: an environment of its own, for as long as the command runs.
UV = """#!/bin/sh
test "$2" != --offline || { echo "error: torch was not found in the cache" >&2; exit 1; }
mkdir -p "$FOLDER/made/bin"; ln -sf "$PYTHON" "$FOLDER/made/bin/python"
"$FOLDER/made/bin/python" -c "$4"; code=$?
rm -r "$FOLDER/made"; exit $code
"""


@pytest.fixture
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name on PATH."""
    path = tmp_path / "uv"
    path.write_text(UV)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FOLDER", str(tmp_path))
    monkeypatch.setenv("PYTHON", sys.executable)
    return path


def test_variables_reach_the_script_and_others_are_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAKEN", "1")
    prefixes, _ = split_prefixes(["A=1 2", "env", "-u", "TAKEN", "B=x=y", "nohup", "python"])
    found = find_surroundings(prefixes, sys.executable, tmp_path)
    assert (found.environment["A"], found.environment["B"]) == ("1 2", "x=y")
    assert "TAKEN" not in found.environment
    assert found.environment["PATH"] == os.environ["PATH"]
    assert Path(found.python).exists()


def test_an_environment_that_ends_with_its_program_is_kept(tmp_path: Path, uv: Path) -> None:
    prefixes, _ = split_prefixes(["env", "A=1", "uv", "run", "train.py"])
    found = find_surroundings(prefixes, "python", tmp_path)
    assert found.python == str(tmp_path / "made/bin/python")
    assert Path(found.python).exists()
    assert find_interpreter(found.python, {}).version.startswith("3.")
    assert found.environment["A"] == "1"


def test_what_uv_says_is_passed_on(tmp_path: Path, uv: Path) -> None:
    prefixes, _ = split_prefixes(["uv", "run", "--offline", "train.py"])
    with pytest.raises(
        InterpreterError, match="uv run --offline python ended with status 1: error: torch was not found"
    ):
        find_surroundings(prefixes, "python", tmp_path)


@pytest.mark.parametrize("line", ["conda-of-nobody run", "A=1 nowhere/uv run"])
def test_a_prefix_that_is_not_there(line: str, tmp_path: Path) -> None:
    prefixes, _ = split_prefixes([*line.replace("conda-of-nobody", "none/conda").split(), "python", "train.py"])
    with pytest.raises(InterpreterError, match="is not on PATH") as caught:
        find_surroundings(prefixes, "python", tmp_path)
    assert "--python" in (caught.value.hint or "")


def test_a_prefix_that_starts_no_python(tmp_path: Path) -> None:
    prefixes, _ = split_prefixes(["A=1", "python"])
    with pytest.raises(InterpreterError, match="started no Python"):
        find_surroundings(prefixes, "true", tmp_path)


def test_a_script_that_names_its_packages() -> None:
    assert has_inline_metadata(b"#!/usr/bin/env -S uv run --script\n# /// script\n# dependencies = []\n# ///\n")
    assert not has_inline_metadata(b"print('# /// script')\n")

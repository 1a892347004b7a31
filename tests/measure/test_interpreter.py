"""Which Python measures and runs a script."""

import os
import sys
from pathlib import Path

import pytest

from costgpu.errors import InterpreterError
from costgpu.measure.interpreter import find_interpreter


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

"""The guard of the user's files in each Python that binds functions of the system in its own way: what pathlib does."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from costgpu.measure.probe.sandbox import file_guard

PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
SCRIPT = """
import importlib.util, os, pathlib, sys
found = importlib.util.spec_from_file_location("file_guard", sys.argv[1])
module = importlib.util.module_from_spec(found)
found.loader.exec_module(module)
os.mkdir("scratch")
module.FileGuard("scratch").install()
mine = pathlib.Path("mine")
mine.chmod(0o600)
mine.touch()
mine.write_text("changed")
assert mine.read_text() == "changed"
os.utime(mine, (1, 1))
new = pathlib.Path("new")
new.write_text("made")
new.chmod(0o600)
link = getattr(pathlib.Path("linked"), "hardlink_to", None)
link(new) if link else new.link_to("linked")
mine.rename("moved")
pathlib.Path("gone").unlink()
"""


def python(version: str) -> str:
    """A Python of that version, of pyenv or on the search path; empty if there is none."""
    made = sorted(PYENV.glob(f"{version}.*/bin/python"))
    return str(made[-1]) if made else shutil.which(f"python{version}") or ""


@pytest.mark.parametrize("version", ["this", "3.8", "3.9", "3.10", "3.12", "3.13"])
def test_what_pathlib_does_leaves_the_users_files(version: str, tmp_path: Path) -> None:
    program = sys.executable if version == "this" else python(version)
    if not program:
        pytest.skip(f"no Python {version} is installed")
    for name in ("mine", "gone"):
        (tmp_path / name).write_text("before")
        os.utime(tmp_path / name, (1000, 1000))
    done = subprocess.run(
        [program, "-I", "-c", SCRIPT, file_guard.__file__], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for name in ("mine", "gone"):
        there = tmp_path / name
        assert (there.read_text(), there.stat().st_mode & 0o777, there.stat().st_mtime) == ("before", 0o644, 1000)
    assert (tmp_path / "linked").read_text() == "made"
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600

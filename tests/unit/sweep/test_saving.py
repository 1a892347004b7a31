"""Which open files mean that a script is saving something."""

import os
import sys
from pathlib import Path

import pytest

from costgpu.sweep.tuner.saving import QUIET_SECONDS, is_saving

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which files a process has open")


def saving(folder: Path, since_change: float = 0.1) -> bool:
    """Whether this process is, so many seconds after the last change of `model.pt`."""
    return is_saving(os.getpgrp(), str(folder), (folder / "model.pt").stat().st_mtime + since_change)


def test_a_file_that_is_open_for_writing_and_has_just_changed(tmp_path: Path) -> None:
    with (tmp_path / "model.pt").open("w"):
        assert saving(tmp_path)
        assert not saving(tmp_path, since_change=QUIET_SECONDS)
        assert not is_saving(os.getpid() + 2**30, str(tmp_path), 0.0), "another group"
    assert not saving(tmp_path)


@pytest.mark.parametrize("how", ["r", "a"])
def test_what_is_read_or_only_appended_to_does_not_count(tmp_path: Path, how: str) -> None:
    (tmp_path / "model.pt").write_text("x")
    with (tmp_path / "model.pt").open(how):
        assert not saving(tmp_path)


def test_other_folders_and_files_without_a_name_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_text("x")
    (tmp_path / "model").mkdir()
    with (tmp_path / "other.pt").open("w"), (tmp_path / "model/gone.pt").open("w"):
        (tmp_path / "model/gone.pt").unlink()
        assert saving(tmp_path)
        assert not is_saving(os.getpgrp(), str(tmp_path / "model"), 0.0)

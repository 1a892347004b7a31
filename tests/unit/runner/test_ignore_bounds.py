"""Ignore files that are none, and links and files without end."""

import os
from pathlib import Path

import pytest

from costgpu.errors import SyncRefused
from costgpu.runner.files import select as select_module
from costgpu.runner.files.gitignore import read_rules
from costgpu.runner.files.select import select


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
    assert read_rules(tmp_path / "a\0b", "x") == []
    if what != "loop" and what != "device":
        assert "kept" in [entry.path for entry in select(tmp_path, limit_bytes=1 << 30).files]


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

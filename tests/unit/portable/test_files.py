"""Files that may be anything, and files that are whole or not there."""

import os
from pathlib import Path

import pytest

from costgpu.portable.files import NotRegular, open_regular, written_whole


def test_only_a_regular_file_is_opened_and_nothing_waits(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("file")
    with open_regular(tmp_path / "file") as file:
        assert file.read() == b"x"
    for name in ("pipe", "folder"):
        with pytest.raises(NotRegular):
            open_regular(tmp_path / name)
    open_regular(tmp_path / "link", follow=True).close()
    for name in ("link", "missing"):
        with pytest.raises(OSError, match=name):
            open_regular(str(tmp_path / name))


def test_a_file_has_its_name_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("before")
    with pytest.raises(TypeError), written_whole(str(target)) as file:
        file.writelines([b"a part of it", target.read_text()])  # type: ignore[list-item]
    assert ([path.name for path in tmp_path.iterdir()], target.read_text()) == (["file"], "before")
    with written_whole(str(target), 0o600) as file:
        file.write(b"after")
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("after", 0o600)
    with pytest.raises(FileExistsError), written_whole(str(target), take_name=os.link) as file:
        file.write(b"again")
    assert ([path.name for path in tmp_path.iterdir()], target.read_text()) == (["file"], "after")

"""Files that may hold anything: bounded in size, depth and time; and files of ours, whole or not at all."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.errors import ConfigError, UsageError
from costgpu.files import (
    FileKind,
    impossible_path,
    parse_json,
    read_bytes,
    read_json,
    read_text,
    write_whole,
)

SMALL = FileKind(most_bytes=100, error=UsageError, hint="Do this.")


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/null", "fifo", "folder", "linked"])
def test_what_is_no_ordinary_file_is_refused_at_once(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "linked").symlink_to("fifo")
    with pytest.raises(UsageError, match=r"not an ordinary file|Is a directory") as caught:
        read_bytes(tmp_path / name, SMALL)
    assert caught.value.hint == "Do this."


@pytest.mark.parametrize("name", ["none", "file/below", "a\0b", "\ud800", "x" * 300])
def test_a_file_that_is_not_there_or_cannot_be(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    if name in ("none", "file/below"):
        assert read_bytes(tmp_path / name, SMALL) is None
    else:
        with pytest.raises(UsageError, match="cannot be read"):
            read_bytes(tmp_path / name, SMALL)


def test_size_and_encoding(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content, words in (
        (b"x" * 101, "more than 100 bytes"),
        (b"a\n\xff", "line 2: not UTF-8"),
        (b"a\0", "zero byte"),
    ):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=words):
            read_text(path, SMALL)
    path.write_bytes(b"\xef\xbb\xbf" + b"x" * 90)
    assert read_text(path, SMALL) == "x" * 90


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "1e999",
        "NaN",
        "-Infinity",
        "",
    ],
)
def test_json_that_nobody_can_use(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_json(text)
    (tmp_path / "file").write_text(text)
    with pytest.raises(ConfigError, match="is not JSON"):
        read_json(tmp_path / "file", FileKind(most_bytes=10**6))


@given(
    st.recursive(
        st.none() | st.integers(-(2**63), 2**63) | st.text(),
        lambda below: st.lists(below) | st.dictionaries(st.text(), below),
    )
)
def test_json_of_usual_size_is_json(value: object) -> None:
    assert parse_json(json.dumps(value)) == value


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250)
    path.write_text("old")

    def broken() -> Iterator[str]:
        yield "new"
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_whole(path, broken(), SMALL)
    assert path.read_text() == "old"
    write_whole(path, ["n\udcffw", b"\xff"], SMALL)
    assert path.read_bytes() == b"n?w\xff"
    with pytest.raises(FileExistsError):
        write_whole(path, [""], SMALL, replace=False)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["x" * 300, "none/x", "\ud800", "folder"])
def test_a_place_that_cannot_be_written(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="cannot be written"):
        write_whole(tmp_path / name, ["x"], SMALL)


@given(st.text(min_size=1, max_size=50))
def test_what_is_no_path_is_said_before_a_file_is_touched(text: str) -> None:
    if not impossible_path(text):
        os.path.lexists(text)
        assert len(os.fsencode(text)) <= 4096

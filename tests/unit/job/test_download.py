"""Outputs come home from a machine."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from costgpu.errors import OutputsDamaged
from costgpu.job.files.download import RemoteFile, fetch_verified
from costgpu.models.job import FileEntry


class Cellar:
    """A machine's files, in memory; counts what is taken."""

    home = "/m"

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.taken: list[str] = []

    def download(self, files: Sequence[RemoteFile]) -> None:
        for file in files:
            self.taken.append(file.path)
            file.target.write_bytes(self.files[file.path])


def _entry(path: str, data: bytes, **changes: object) -> FileEntry:
    values: dict[str, object] = {"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return FileEntry(**(values | changes))  # type: ignore[arg-type]


def _fetch(cellar: Cellar, folder: Path, *entries: FileEntry) -> None:
    fetch_verified(cellar.download, "/m/work", entries, folder)


def test_files_arrive_with_folders_and_modes(tmp_path: Path) -> None:
    cellar = Cellar({"/m/work/a/b.pt": b"weights", "/m/work/run.sh": b"#!"})
    _fetch(cellar, tmp_path, _entry("a/b.pt", b"weights"), _entry("run.sh", b"#!", mode=0o100755))
    assert (tmp_path / "a/b.pt").read_bytes() == b"weights"
    assert (tmp_path / "run.sh").stat().st_mode & 0o7777 == 0o755
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a", "b.pt", "run.sh"]


def test_what_is_there_already_is_not_fetched_again(tmp_path: Path) -> None:
    cellar = Cellar({"/m/work/a": b"1", "/m/work/b": b"2"})
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"x")
    _fetch(cellar, tmp_path, _entry("a", b"1"), _entry("b", b"2"))
    assert cellar.taken == ["/m/work/b"]
    assert (tmp_path / "b").read_bytes() == b"2"


def test_the_same_content_travels_once_and_can_be_read_here(tmp_path: Path) -> None:
    cellar = Cellar({"/m/work/step-10/x": b"weights", "/m/scratch/y": b"1"})
    latest = _entry("latest/x", b"weights", mode=0)
    _fetch(cellar, tmp_path, _entry("step-10/x", b"weights"), latest, _entry("outside/y", b"1", source="/m/scratch/y"))
    assert cellar.taken == ["/m/work/step-10/x", "/m/scratch/y"]
    assert (tmp_path / "latest/x").read_bytes() == b"weights"
    assert (tmp_path / "latest/x").stat().st_mode & 0o777 == 0o400


def test_links_on_the_way_are_refused_and_links_in_place_replaced(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_text("mine")
    target = tmp_path / "target"
    target.mkdir()
    (target / "folder").symlink_to(outside)
    (target / "file").symlink_to(outside / "victim")
    with pytest.raises(OutputsDamaged, match="real folder"):
        _fetch(Cellar({}), target, _entry("folder/x", b"evil"))
    _fetch(Cellar({"/m/work/file": b"output"}), target, _entry("file", b"output"))
    assert (outside / "victim").read_text() == "mine"
    assert (target / "file").read_bytes() == b"output"
    assert not (target / "file").is_symlink()


@pytest.mark.parametrize("arrives", [b"weighty", b"weight", b"weightss"])
def test_damage_is_noticed_and_the_old_file_stays(tmp_path: Path, arrives: bytes) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(OutputsDamaged):
        _fetch(Cellar({"/m/work/a": arrives}), tmp_path, _entry("a", b"weights"))
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_a_folder_in_the_way_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/precious").write_text("x")
    with pytest.raises(OutputsDamaged, match="is a folder"):
        _fetch(Cellar({"/m/work/a": b"1"}), tmp_path, _entry("a", b"1"))
    assert (tmp_path / "a/precious").exists()


def test_a_log_that_still_grows_may_be_longer_but_not_shorter(tmp_path: Path) -> None:
    entry = FileEntry(path="stdout.log", size=3)
    _fetch(Cellar({"/m/work/stdout.log": b"12345"}), tmp_path, entry)
    assert (tmp_path / "stdout.log").read_bytes() == b"12345"
    with pytest.raises(OutputsDamaged):
        _fetch(Cellar({"/m/work/stdout.log": b"12"}), tmp_path, entry)


def test_a_thousand_files(tmp_path: Path) -> None:
    files = {f"d{n % 7}/f{n}": b"%d" % n for n in range(1000)}
    cellar = Cellar({f"/m/work/{path}": data for path, data in files.items()})
    _fetch(cellar, tmp_path, *[_entry(path, data) for path, data in files.items()])
    assert {p.relative_to(tmp_path).as_posix(): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == files

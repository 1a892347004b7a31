"""What a program wrote in its copy-on-write world: told, bounded, and removed whatever it is."""

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from costgpu.measure.isolation import layers as module
from costgpu.measure.isolation.layers import SizeLimit, read_changes, remove_layers

DEEP = 1500


def test_changes_are_told_apart(tmp_path: Path) -> None:
    layers, real = tmp_path / "layers", tmp_path / "real"
    upper = layers / f"upper{real}"
    upper.mkdir(parents=True)
    real.mkdir()
    (real / "old").write_text("1")
    (upper / "old").write_text("2")
    (upper / "new").write_text("3" * 5000)
    if os.geteuid() == 0:
        os.mknod(upper / "gone", stat.S_IFCHR, os.makedev(0, 0))
    found = read_changes(layers)
    assert (found.changed, found.created) == ([str(real / "old")], [str(real / "new")])
    assert found.removed == ([str(real / "gone")] if os.geteuid() == 0 else [])
    assert found.written_bytes >= 8192
    assert found.folder == layers / "upper"


def test_folders_of_any_depth_and_mode_are_removed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "file").write_text("kept")
    layers = tmp_path / "layers"
    layers.mkdir()
    (layers / "closed" / "inner").mkdir(parents=True)
    (layers / "closed" / "inner" / "link").symlink_to(outside)
    (layers / "link").symlink_to(outside)
    (layers / "closed" / "inner").chmod(0)
    (layers / "closed").chmod(0)
    place = os.open(layers, os.O_RDONLY)
    for _ in range(DEEP):
        os.mkdir("a" * 100, dir_fd=place)
        inner = os.open("a" * 100, os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)
    remove_layers(layers)
    assert not layers.exists()
    assert (outside / "file").read_text() == "kept"
    assert stat.S_IMODE(outside.stat().st_mode) == 0o755
    remove_layers(layers)  # nothing there is no error


def test_what_is_written_is_counted_only_where_the_disk_fills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, space = 0.0, SimpleNamespace(f_bavail=1000, f_frsize=4096, f_favail=100)
    monkeypatch.setattr("costgpu.measure.isolation.layers.os.statvfs", lambda path: space)
    (tmp_path / "upper").mkdir()
    limit = SizeLimit(tmp_path, clock=lambda: now)
    assert limit.limit_bytes == 500 * 4096
    assert not limit.exceeded()
    space.f_bavail = 100
    assert not limit.exceeded()  # somebody else has written that
    (tmp_path / "upper" / "checkpoint").write_bytes(b"x" * 600 * 4096)
    assert not limit.exceeded()  # it has just been counted
    now = 6.0
    assert limit.exceeded()
    space.f_bavail, now = 1000, 12.0
    assert not limit.exceeded()
    space.f_favail = 40
    assert limit.exceeded()


def test_what_is_without_end_is_counted_to_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENTRIES", 50)
    for number in range(5):
        folder = tmp_path / "upper" / str(number)
        folder.mkdir(parents=True)
        for name in range(20):
            (folder / str(name)).touch()
    assert 50 <= len(read_changes(tmp_path).created) <= 70

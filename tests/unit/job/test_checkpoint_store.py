"""Checkpoints that are kept on the user's computer."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from costgpu.errors import HostUnreachable
from costgpu.job.files.checkpoint_store import CheckpointStore, newest_path
from costgpu.job.files.download import OutputSource
from costgpu.models.job import Checkpoint, FileEntry


def checkpoint(number: int, **files: str) -> Checkpoint:
    """One with these contents; the later a file is named, the later it was changed."""
    return Checkpoint(
        number=number,
        taken_epoch=float(number),
        files=tuple(
            FileEntry(path=name, size=len(text), sha256=hashlib.sha256(text.encode()).hexdigest(), modified_ns=at)
            for at, (name, text) in enumerate(files.items(), 1)
        ),
    )


def keep(store: CheckpointStore, number: int, /, *, replaces: bool = False, **files: str) -> list[str]:
    """Keeps one; returns what had to be fetched for it."""
    fetched: list[str] = []

    def fetch(_: Sequence[FileEntry], folder: Path) -> None:
        for text in files.values():
            target = folder / hashlib.sha256(text.encode()).hexdigest()
            if not target.exists():
                target.write_text(text)
                fetched.append(text)

    store.keep(checkpoint(number, **files), cast("OutputSource", SimpleNamespace(fetch=fetch)), replaces=replaces)
    return fetched


def test_the_two_newest_are_kept_and_what_is_the_same_only_once(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "kept")
    assert store.newest() is None
    assert keep(store, 1, a="1", b="same") == ["1", "same"]
    assert keep(store, 2, a="2", b="same") == ["2"]
    assert keep(store, 3, a="3", b="same") == ["3"]
    assert store.newest() == checkpoint(3, a="3", b="same")
    assert store.newest(1) == checkpoint(2, a="2", b="same")
    assert store.newest(5) == checkpoint(2, a="2", b="same")  # the oldest that there is
    assert sorted(path.read_text() for path in store.contents.iterdir()) == ["2", "3", "same"]
    keep(store, 1, a="of the next machine")  # which counts from the beginning
    assert store.newest() == checkpoint(1, a="of the next machine")


def test_one_that_did_not_arrive_is_none(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "kept")
    keep(store, 1, a="1")

    def lost(_: Sequence[FileEntry], folder: Path) -> None:
        raise HostUnreachable("gone")

    with pytest.raises(HostUnreachable):
        store.keep(checkpoint(2, a="2"), cast("OutputSource", SimpleNamespace(fetch=lost)))
    assert store.newest() == checkpoint(1, a="1")


def test_a_second_look_at_the_same_moment_leaves_the_one_before(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "kept")
    assert keep(store, 1, replaces=True, a="1") == ["1"]  # there is nothing to replace yet
    keep(store, 2, a="2")
    keep(store, 3, replaces=True, a="2", log="3")
    assert store.newest() == checkpoint(3, a="2", log="3")
    assert store.newest(1) == checkpoint(1, a="1")
    assert sorted(path.read_text() for path in store.contents.iterdir()) == ["1", "2", "3"]


@pytest.mark.parametrize("replaces", [False, True])
def test_the_same_files_are_not_kept_twice(tmp_path: Path, replaces: bool) -> None:
    store = CheckpointStore(tmp_path / "kept")
    keep(store, 1, a="1")
    keep(store, 2, a="2")
    keep(store, 7, replaces=replaces, a="2")
    assert store.newest() == checkpoint(2, a="2")
    assert store.newest(1) == checkpoint(1, a="1")
    next(path for path in store.contents.iterdir() if path.read_text() == "2").unlink()
    assert keep(store, 7, replaces=replaces, a="2") == ["2"]  # but for one that is not whole here any more


@pytest.mark.parametrize("missing", [0, 1])
def test_nothing_is_fetched_without_room_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: int) -> None:
    store = CheckpointStore(tmp_path / "kept")
    keep(store, 1, a="same")
    free = (64 << 20) + len("more") - missing
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    if not missing:
        assert keep(store, 2, a="same", b="more") == ["more"]
        return
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)) as caught:
        keep(store, 2, a="same", b="more")
    assert caught.value.errno == errno.ENOSPC
    assert store.newest() == checkpoint(1, a="same")
    assert [path.read_text() for path in store.contents.iterdir()] == ["same"]


@pytest.mark.parametrize("damage", ["missing", "another size", "another content", "a folder", "the list"])
def test_damaged_checkpoints_are_discarded_and_fetched_again(tmp_path: Path, damage: str) -> None:
    store = CheckpointStore(tmp_path / "kept")
    assert store.discard_damaged() == 0
    keep(store, 1, a="1", b="same")
    keep(store, 2, a="2", b="same")
    assert store.discard_damaged() == 0
    content = next(path for path in store.contents.iterdir() if path.read_text() == "2")
    if damage == "missing":
        content.unlink()
    elif damage == "a folder":
        content.unlink()
        content.mkdir()
    elif damage == "the list":
        max((tmp_path / "kept").glob("*.json")).write_text("{")
    else:
        content.write_text("22" if damage == "another size" else "3")
    assert store.discard_damaged() == 1
    assert store.newest() == checkpoint(1, a="1", b="same")
    assert sorted(path.read_text() for path in store.contents.iterdir()) == ["1", "same"]
    assert keep(store, 2, a="2", b="same") == ["2"]


def test_a_folder_among_the_contents_is_in_nobodys_way(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "kept")
    (store.contents / "sub").mkdir(parents=True)
    (store.contents / "sub/file").write_text("text")
    keep(store, 1, a="1")
    assert [path.read_text() for path in store.contents.iterdir()] == ["1"]


@pytest.mark.parametrize("damage", ["", "{", '{"number": 1}', "[]"])
def test_a_damaged_list_is_passed_over_and_nothing_is_thrown_away(tmp_path: Path, damage: str) -> None:
    store = CheckpointStore(tmp_path / "kept")
    keep(store, 1, a="1")
    keep(store, 2, a="2")
    max((tmp_path / "kept").glob("*.json")).write_text(damage)
    assert store.newest() == checkpoint(1, a="1")
    keep(store, 3, a="3")
    assert store.newest() == checkpoint(3, a="3")


def test_a_checkpoint_comes_out_as_it_went_in(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "kept")
    keep(store, 1, a="text")
    newest = store.newest()
    assert newest is not None
    store.fetch(newest.files, tmp_path / "home")
    assert (tmp_path / "home/a").read_text() == "text"
    store.remove()
    assert store.newest() is None


@pytest.mark.parametrize(
    ("patterns", "paths", "newest"),
    [
        (["checkpoints/**"], ["checkpoints/1.pt", "checkpoints/2.pt", "log"], "checkpoints/2.pt"),
        (["checkpoints"], ["checkpoints/1.pt", "checkpoints/old/2.pt"], "checkpoints/old/2.pt"),
        (["out/checkpoint-*"], ["out/checkpoint-1/a.bin", "out/checkpoint-2/b.bin"], "out/checkpoint-2"),
        (["out/*.ckpt"], ["out/a.ckpt", "out/b.ckpt", "out/c.txt"], "out/b.ckpt"),
        (["*.pt", "out/**"], ["last.pt", "out/x/y"], "out/x/y"),
        (["**/*.pt"], ["a/b/c.pt", "d.pt"], "d.pt"),
        (["none/**"], ["a.pt"], ""),
        ([], ["a.pt"], ""),
    ],
)
def test_what_a_job_goes_on_from(patterns: list[str], paths: list[str], newest: str) -> None:
    assert newest_path(checkpoint(1, **dict.fromkeys(paths, "text")), patterns) == newest

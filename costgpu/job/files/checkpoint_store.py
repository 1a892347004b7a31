"""Checkpoints of one job on this computer: contents by their checksums, and a list of files for each checkpoint."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from costgpu.errors import CostGpuError
from costgpu.job.agent.outputs.find_outputs import matches
from costgpu.job.files.download import OutputSource, copy_files, fetch_verified
from costgpu.ledger.codec import from_json, to_json
from costgpu.models.job import Checkpoint, FileEntry
from costgpu.portable.files import file_sha256, written_whole

KEPT = 2  # the newest, and the one before in case a job cannot go on from the newest
_SPARE_BYTES = 64 << 20  # left free on the disk
_WILD = frozenset("*?[")


class CheckpointStore:
    """The newest checkpoints of a job.

    Args:
        folder: Where they are kept; made when there is the first one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.contents = folder / "contents"  # files, named by their checksums

    def keep(self, checkpoint: Checkpoint, source: OutputSource, *, replaces: bool = False) -> None:
        """Keep one more: its contents first, so that what is listed is whole; older ones go.

        One with exactly the files of the newest one is not kept twice.

        Args:
            source: Has its contents, named by their checksums.
            replaces: Whether it takes the place of the newest one: a second look at the same moment.

        Raises:
            CostGpuError: They cannot be fetched.
            OSError: They cannot be kept here; ENOSPC without room for them, before anything is fetched.
        """
        contents = checkpoint.contents
        checkpoint = replace(checkpoint, files=tuple(replace(entry, source="") for entry in checkpoint.files))
        newest = self.newest()
        if newest is not None and set(newest.files) == set(checkpoint.files) and not self._lacking(newest):
            return
        self.contents.mkdir(parents=True, exist_ok=True, mode=0o700)
        if lacking := self._lacking(checkpoint):
            free = shutil.disk_usage(self.contents).free
            if free - sum(lacking.values()) < _SPARE_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.contents))
        source.fetch(contents, self.contents)
        numbers = self._numbers()
        last = max(numbers, default=0)
        number = last if replaces and last else last + 1
        target = self._list_of(number)
        with written_whole(str(target)) as file:
            file.write(json.dumps(to_json(checkpoint)).encode())
        for old in sorted({*numbers, number}, reverse=True)[KEPT:]:
            self._list_of(old).unlink(missing_ok=True)
        self._forget()

    def discard_damaged(self) -> int:
        """Remove checkpoints that cannot be read, or of which a content is missing, or not what it was.

        Returns:
            How many.
        """
        whole: dict[tuple[str, int], bool] = {}
        discarded = 0
        for number in self._numbers():
            try:
                contents = {(entry.sha256, entry.size) for entry in self._read(number).files}
            except (ValueError, CostGpuError):
                contents = None
            for sha256, size in (contents or set()) - whole.keys():
                there = self._size(sha256) == size
                whole[sha256, size] = there and file_sha256(self.contents / sha256) == sha256
            if contents is None or not all(whole[each] for each in contents):
                self._list_of(number).unlink(missing_ok=True)
                discarded += 1
        for sha256 in {sha256 for (sha256, _), is_whole in whole.items() if not is_whole}:
            _remove(self.contents / sha256)  # it is fetched again
        if discarded and self.contents.is_dir():
            self._forget()
        return discarded

    def newest(self, before: int = 0) -> Checkpoint | None:
        """Return the newest one, or one that is older by so many; the oldest there is; None without any."""
        found: Checkpoint | None = None
        for number in sorted(self._numbers(), reverse=True):
            with contextlib.suppress(OSError, ValueError, CostGpuError):
                found = self._read(number)
                before -= 1
            if found is not None and before < 0:
                break
        return found

    def fetch(self, entries: Sequence[FileEntry], folder: Path) -> None:
        """Copy files of a checkpoint; an `OutputSource`."""
        copies = [replace(entry, source=str(self.contents / entry.sha256)) for entry in entries]
        fetch_verified(copy_files, "", copies, folder)

    def remove(self) -> None:
        """Remove all of them: nobody goes on from them any more."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _numbers(self) -> list[int]:
        return [int(path.stem) for path in self._folder.glob("*.json") if path.stem.isdecimal()]

    def _list_of(self, number: int) -> Path:
        return self._folder / f"{number:06d}.json"

    def _read(self, number: int) -> Checkpoint:
        return from_json(Checkpoint, json.loads(self._list_of(number).read_text()))

    def _forget(self) -> None:
        """Remove contents that no checkpoint needs."""
        needed: set[str] = set()
        for number in self._numbers():
            try:
                needed |= {entry.sha256 for entry in self._read(number).files}
            except (OSError, ValueError, CostGpuError):
                return  # nothing is removed that may be needed
        for path in self.contents.iterdir():
            if path.name not in needed:
                _remove(path)

    def _lacking(self, checkpoint: Checkpoint) -> dict[str, int]:
        """Return the checksums whose contents are not here, and their bytes."""
        return {entry.sha256: entry.size for entry in checkpoint.files if self._size(entry.sha256) != entry.size}

    def _size(self, sha256: str) -> int | None:
        """Return the bytes of a content that is here."""
        try:
            found = (self.contents / sha256).lstat()
        except FileNotFoundError:
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def newest_path(checkpoint: Checkpoint, patterns: Sequence[str]) -> str:
    """Return the file or folder that a job goes on from, relative to the working folder; empty if no pattern names one.

    That is the file that was changed last among those that match. Where a pattern ends in a name with a wildcard, as in
    ``out/checkpoint-*``, and folders have such names, it is the folder.
    """
    found = [(entry.modified_ns, entry.path) for entry in checkpoint.files if _named(entry.path, patterns) is not None]
    return _named(max(found)[1], patterns) or "" if found else ""


def _named(path: str, patterns: Sequence[str]) -> str | None:
    """Return what of a path a pattern names: the path itself or the folder that it is in; None if none does."""
    parts = PurePosixPath(path).parts
    for pattern in patterns:
        wanted = PurePosixPath(pattern).parts
        if not matches(parts, wanted):
            continue
        depth = len(wanted)
        names_folders = "**" not in wanted and bool(_WILD & set(wanted[-1]))
        return "/".join(parts[:depth]) if names_folders and len(parts) > depth else path
    return None

"""Checkpoints of one job on this computer: contents by their checksums, and a list of files for each checkpoint."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from costgpu.errors import CostGpuError
from costgpu.ledger.codec import from_json, to_json
from costgpu.models.job import Checkpoint, FileEntry
from costgpu.runner.agent.outputs.find_outputs import matches

KEPT = 2  # the newest, and the one before in case a job cannot go on from the newest
_WILD = frozenset("*?[")


class CheckpointStore:
    """The newest checkpoints of a job.

    Args:
        folder: Where they are kept; made when there is the first one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.contents = folder / "contents"  # files, named by their checksums

    def keep(self, checkpoint: Checkpoint, fetch: Callable[[Checkpoint, Path], object]) -> None:
        """Keeps one more: its contents first, so that what is listed is whole; older ones go.

        Args:
            fetch: Brings the contents that are not here yet into a folder, verified.

        Raises:
            CostGpuError: They cannot be fetched.
            OSError: They cannot be kept here.
        """
        self.contents.mkdir(parents=True, exist_ok=True, mode=0o700)
        fetch(checkpoint, self.contents)
        numbers = self._numbers()
        target = self._list_of(max(numbers, default=0) + 1)
        fresh = target.with_suffix(".new")
        with fresh.open("w") as file:
            json.dump(to_json(checkpoint), file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(target)
        for number in sorted(numbers, reverse=True)[KEPT - 1 :]:
            self._list_of(number).unlink(missing_ok=True)
        self._forget()

    def newest(self, before: int = 0) -> Checkpoint | None:
        """The newest one, or one that is older by so many; the oldest there is; None without any."""
        found: Checkpoint | None = None
        for number in sorted(self._numbers(), reverse=True):
            with contextlib.suppress(OSError, ValueError, CostGpuError):
                found = from_json(Checkpoint, json.loads(self._list_of(number).read_text()))
                before -= 1
            if found is not None and before < 0:
                break
        return found

    def fetch(self, entries: Sequence[FileEntry], folder: Path) -> None:
        """Copies files of a checkpoint; an `OutputSource`."""
        for entry in entries:
            target = folder / entry.path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.contents / entry.sha256, target)
            target.chmod(entry.mode)
            os.utime(target, ns=(entry.modified_ns, entry.modified_ns))

    def remove(self) -> None:
        """Removes all of them: nobody goes on from them any more."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _numbers(self) -> list[int]:
        return [int(path.stem) for path in self._folder.glob("*.json") if path.stem.isdecimal()]

    def _list_of(self, number: int) -> Path:
        return self._folder / f"{number:06d}.json"

    def _forget(self) -> None:
        """Removes contents that no checkpoint needs."""
        needed: set[str] = set()
        for number in self._numbers():
            try:
                listed = from_json(Checkpoint, json.loads(self._list_of(number).read_text()))
            except (OSError, ValueError, CostGpuError):
                return  # nothing is removed that may be needed
            needed |= {entry.sha256 for entry in listed.files}
        for path in self.contents.iterdir():
            if path.name not in needed:
                path.unlink(missing_ok=True)


def newest_path(checkpoint: Checkpoint, patterns: Sequence[str]) -> str:
    """The file or folder that a job goes on from, relative to the working folder; empty if no pattern names one.

    That is the file that was changed last among those that match. Where a pattern ends in a name with a wildcard, as in
    ``out/checkpoint-*``, and folders have such names, it is the folder.
    """
    found = [(entry.modified_ns, entry.path) for entry in checkpoint.files if _named(entry.path, patterns) is not None]
    return _named(max(found)[1], patterns) or "" if found else ""


def _named(path: str, patterns: Sequence[str]) -> str | None:
    """What of a path a pattern names: the path itself or the folder that it is in; None if none does."""
    parts = PurePosixPath(path).parts
    for pattern in patterns:
        wanted = PurePosixPath(pattern).parts
        if not matches(parts, wanted):
            continue
        depth = len(wanted)
        names_folders = "**" not in wanted and bool(_WILD & set(wanted[-1]))
        return "/".join(parts[:depth]) if names_folders and len(parts) > depth else path
    return None

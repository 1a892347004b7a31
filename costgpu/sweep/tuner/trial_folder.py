"""The folder that one trial runs in: a copy of what was sent, with links to what is large; afterwards only what is new.

A script writes where it always does (``checkpoints/model.pt``), and no trial sees what another one has written. Data
are not copied for every trial: a folder at the top with many or large files, and a large file, is a link to the one that
all trials share.
"""

from __future__ import annotations

import fnmatch
import os
import shutil
import stat
from typing import Dict, Iterator, List, Sequence, Tuple

LARGE_BYTES = 64 * 2**20
MANY_FILES = 1000
NOT_COPIED = (".costgpu", "costgpu-runs")
LOG = "log.txt"

Copied = Dict[str, Tuple[int, int]]
"""Path of a copied file -> size in bytes and time of change in ns."""


class TrialFolder:
    """The folder of one trial.

    Args:
        work: Folder with the files that were sent.
        path: The folder, which `make` makes.
    """

    def __init__(self, work: str, path: str) -> None:
        self.work, self.path = work, path
        self.copied: Copied = {}
        self.folders: List[str] = []
        self.links: List[str] = []

    def make(self) -> None:
        """Make the folder; what an earlier attempt of the trial has left goes."""
        if os.path.lexists(self.path):
            shutil.rmtree(self.path)
        os.makedirs(self.path)
        with os.scandir(self.work) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
        for entry in entries:
            if entry.name in NOT_COPIED:
                continue
            if entry.is_dir(follow_symlinks=False) and _is_large(entry.path):
                self._link(entry.path, entry.name)
            else:
                self._copy(entry, entry.name)

    def _copy(self, entry: "os.DirEntry[str]", path: str) -> None:
        target = os.path.join(self.path, path)
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), target)  # into the folder, where its target is copied, too
            self.links.append(path)
        elif entry.is_dir():
            os.mkdir(target)
            self.folders.append(path)
            with os.scandir(entry.path) as listing:
                for below in list(listing):
                    self._copy(below, os.path.join(path, below.name))
        elif entry.is_file():
            if entry.stat().st_size > LARGE_BYTES:
                self._link(entry.path, path)
                return
            shutil.copy2(entry.path, target)
            made = os.stat(target)
            self.copied[path] = (made.st_size, made.st_mtime_ns)

    def _link(self, source: str, path: str) -> None:
        os.symlink(source, os.path.join(self.path, path))
        self.links.append(path)

    def keep_outputs(self, patterns: Sequence[str]) -> List[str]:
        """Remove what is no output, and return the paths of those that are there.

        Args:
            patterns: Which files are kept, as ``fnmatch`` or names of folders; empty for all that are new or changed.
        """
        for path in self.links:
            full = os.path.join(self.path, path)
            if os.path.islink(full):
                os.unlink(full)
        for path, made in self.copied.items():
            full = os.path.join(self.path, path)
            try:
                found = os.lstat(full)
                if stat.S_ISREG(found.st_mode) and (found.st_size, found.st_mtime_ns) == made:
                    os.unlink(full)
            except OSError:
                pass
        if patterns:
            for path in list(files_below(self.path)):
                if path != LOG and not any(_matches(path, pattern) for pattern in patterns):
                    os.unlink(os.path.join(self.path, path))
        for path in sorted(self.folders, key=len, reverse=True):
            try:
                os.rmdir(os.path.join(self.path, path))
            except OSError:
                pass  # something new is in it, or the script has removed it
        return sorted(files_below(self.path))


def files_below(folder: str, prefix: str = "") -> Iterator[str]:
    """Paths of the regular files below a folder; links are not followed."""
    try:
        with os.scandir(os.path.join(folder, prefix)) as listing:
            entries = list(listing)
    except OSError:
        return
    for entry in entries:
        path = os.path.join(prefix, entry.name)
        if entry.is_dir(follow_symlinks=False):
            if entry.name != "__pycache__":
                yield from files_below(folder, path)
        elif entry.is_file(follow_symlinks=False):
            yield path


def _matches(path: str, pattern: str) -> bool:
    pattern = os.path.normpath(pattern)
    return fnmatch.fnmatchcase(path, pattern) or path.startswith(pattern + os.sep)


def _is_large(folder: str) -> bool:
    """Return whether a copy for each trial would be too much."""
    size = count = 0
    for path in files_below(folder):
        try:
            size += os.lstat(os.path.join(folder, path)).st_size
        except OSError:
            continue
        count += 1
        if size > LARGE_BYTES or count > MANY_FILES:
            return True
    return False

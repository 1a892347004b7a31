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
from itertools import islice
from typing import Dict, Iterator, List, Sequence, Tuple

LARGE_BYTES = 64 * 2**20
MANY_FILES = 1000
NOT_COPIED = (".costgpu", "costgpu-runs")
LOG = "log.txt"


class TrialFolder:
    """The folder of one trial.

    Args:
        work: Folder with the files that were sent.
        path: The folder, which `make` makes.
    """

    def __init__(self, work: str, path: str) -> None:
        self.work, self.path = work, path
        self._made: Dict[str, Tuple[int, int, int]] = {}  # path -> state of a copy, or of a link

    def make(self) -> None:
        """Make the folder; what an earlier attempt of the trial has left goes."""
        if os.path.lexists(self.path):
            shutil.rmtree(self.path)
        os.makedirs(self.path)
        for name in sorted(os.listdir(self.work)):
            source, target = os.path.join(self.work, name), os.path.join(self.path, name)
            if name in NOT_COPIED:
                continue
            if not os.path.isdir(source) or os.path.islink(source):
                _copy_or_link(source, target)
            elif _is_large(source):
                os.symlink(source, target)
            else:
                shutil.copytree(source, target, symlinks=True, copy_function=_copy_or_link)
        self._made = {path: _state(path) for path in _paths_below(self.path)}

    def keep_outputs(self, patterns: Sequence[str]) -> List[str]:
        """Remove what is no output, and return the paths of the files that are left.

        Args:
            patterns: Which files are kept, as ``fnmatch`` or names of folders; empty for all that are new or changed.
        """
        kept = []
        for path in list(_paths_below(self.path)):
            name, state = os.path.relpath(path, self.path), _state(path)
            is_chosen = not patterns or name == LOG or any(_matches(name, pattern) for pattern in patterns)
            if self._made.get(path) == state or not is_chosen or "__pycache__" in name.split(os.sep):
                os.unlink(path)
            elif stat.S_ISREG(state[0]):
                kept.append(name)
        for folder, _, _ in os.walk(self.path, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                pass  # something is in it
        return sorted(kept)


def _paths_below(folder: str) -> Iterator[str]:
    """Yield the files and links below a folder; links are not followed."""
    for place, folders, files in os.walk(folder):
        links = (name for name in folders if os.path.islink(os.path.join(place, name)))
        yield from (os.path.join(place, name) for name in (*files, *links))


def _state(path: str) -> Tuple[int, int, int]:
    found = os.lstat(path)
    return found.st_mode, found.st_size, found.st_mtime_ns


def _copy_or_link(source: str, target: str) -> None:
    if not os.path.islink(source) and os.path.getsize(source) > LARGE_BYTES:
        os.symlink(source, target)
    else:
        shutil.copy2(source, target, follow_symlinks=False)


def _matches(path: str, pattern: str) -> bool:
    pattern = os.path.normpath(pattern)
    return fnmatch.fnmatchcase(path, pattern) or path.startswith(pattern + os.sep)


def _is_large(folder: str) -> bool:
    """Return whether a copy for each trial would be too much."""
    sizes = [os.lstat(path).st_size for path in islice(_paths_below(folder), MANY_FILES + 1)]
    return sum(sizes) > LARGE_BYTES or len(sizes) > MANY_FILES

"""What a program wrote in its copy-on-write world: which files, how much, and its end."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

MAX_BYTES = 64 << 30  # that a program may write while it is measured
FREE_SHARE = 0.5  # of the free space, if that is less
MAX_ENTRIES = 300_000  # that are looked at one by one
KEEP_BYTES = 1 << 30  # more than this is removed with the measurement, not with its folder
WALK_SECONDS = 5.0  # at least, between two times that everything is counted


@dataclass(frozen=True, slots=True)
class Changes:
    """The files that a program changed, as absolute paths; the real ones are as they were."""

    changed: list[str] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)  # in bytes, of the files that it changed and made
    written_bytes: int = 0  # on disk, of what it changed and made; copies of what it changed a little are whole
    folder: Path | None = (
        None  # where the new contents are, each beneath its absolute path; None if they have been removed
    )


def read_changes(layers: Path) -> Changes:
    """Compare the layers with the files that are there."""
    upper, written = layers / "upper", 0
    changed, created, removed = [], [], []
    sizes: dict[str, int] = {}
    for path, found in files_below(upper):
        real = path.removeprefix(str(upper))
        written += found.st_blocks * 512
        if stat.S_ISCHR(found.st_mode) and found.st_rdev == 0:  # how an overlay notes that a file is gone
            removed.append(real)
            continue
        sizes[real] = found.st_size
        if os.path.lexists(real):
            changed.append(real)
        else:
            created.append(real)
    return Changes(sorted(changed), sorted(created), sorted(removed), sizes, written, upper)


def remove_layers(layers: Path) -> None:
    """Remove a folder as far as that is possible, whatever a program has made in it: of any depth, of any mode.

    What is in a folder below is moved up before that is removed, so that no path gets long.
    """
    with contextlib.suppress(OSError):
        layers.chmod(0o700)
        top = os.open(layers, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            numbers = itertools.count()
            while _empty(top, numbers):
                pass
        finally:
            os.close(top)
        layers.rmdir()


def _empty(top: int, numbers: Iterator[int]) -> bool:
    """Remove what is in a folder, and move what is in its folders up into it; whether anything was done."""
    done = False
    for name in os.listdir(top):
        with contextlib.suppress(OSError):
            if not stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
                os.unlink(name, dir_fd=top)
            else:
                os.chmod(name, 0o700, dir_fd=top)
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
                try:
                    for below in os.listdir(inner):  # noqa: PTH208
                        _lift(below, inner, top, numbers)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=top)
            done = True
    return done


def _lift(name: str, inner: int, top: int, numbers: Iterator[int]) -> None:
    """Remove a file, or moves a folder up under a name of its own."""
    if not stat.S_ISDIR(os.lstat(name, dir_fd=inner).st_mode):
        os.unlink(name, dir_fd=inner)
        return
    os.chmod(name, 0o700, dir_fd=inner)  # to be moved, it must be writable itself
    os.rename(name, f"{next(numbers)}-{uuid.uuid4().hex}", src_dir_fd=inner, dst_dir_fd=top)


def files_below(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Everything beneath that is no folder: absolute path and what it is; the first `MAX_ENTRIES`, and no further."""
    folders, seen = [str(folder)], 0
    while folders and seen < MAX_ENTRIES:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                seen += 1
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    yield entry.path, entry.stat(follow_symlinks=False)


class SizeLimit:
    """How much may be written: the free space is looked at, and only where much of it went, everything is counted."""

    def __init__(self, *places: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._places = [(place, *_free_now(place)) for place in places]
        self.limit_bytes = int(min(MAX_BYTES, *(FREE_SHARE * free for _, free, _ in self._places)))
        self._walked_at = -WALK_SECONDS

    def exceeded(self) -> bool:
        """Return whether the program has written more, or left a disk no room for files; others may write there, too."""
        now = [(*_free_now(place), free, files) for place, free, files in self._places]
        if any(files < (1 - FREE_SHARE) * files_before for _, files, _, files_before in now):
            return True
        gone = max(before - free for free, _, before, _ in now)
        if gone <= self.limit_bytes or self._clock() - self._walked_at < WALK_SECONDS:
            return False
        self._walked_at = self._clock()
        found = [status.st_blocks * 512 for place, _, _ in self._places for _, status in files_below(place)]
        return sum(found) > self.limit_bytes or len(found) >= MAX_ENTRIES  # the rest was not counted


def _free_now(place: Path) -> tuple[int, int]:
    space = os.statvfs(place)
    return space.f_bavail * space.f_frsize, space.f_favail

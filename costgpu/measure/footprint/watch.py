"""Which files the processes of a measurement open, as the system tells it: for programs and libraries that are no Python.

Below the working folder, inotify tells of every file that is read or closed after reading, however short it was open.
Elsewhere, the descriptors and mappings of the processes are looked at now and then. There is no thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from costgpu.measure.footprint.paths import SKIPPED_FOLDERS
from costgpu.measure.probe.activity import descendants

IN_ACCESS, IN_CLOSE_NOWRITE, IN_Q_OVERFLOW, IN_ISDIR, IN_ONLYDIR = 0x1, 0x10, 0x4000, 0x40000000, 0x1000000  # inotify.h
MASK = IN_ACCESS | IN_CLOSE_NOWRITE | IN_ONLYDIR
MOST_FOLDERS = 5000
MOST_ENTRIES = 300_000  # that are gone through to find folders
MOST_FILES = 200_000
SHARE = 0.02  # of one core, for looking at processes
TICK_SECONDS = 0.1
GONE = " (deleted)"
WRITTEN = ("w-s", "wxs")  # of a mapping: what is written to it goes to the file
_EVENT = struct.Struct("iIII")


@dataclass(slots=True)
class Opened:
    """Absolute paths, as the processes' own file system names them."""

    held: set[str] = field(default_factory=set)  # that a process had open, or mapped, for more than writing
    notified: set[str] = field(default_factory=set)  # below the working folder, by whomever
    complete: bool = False  # whether `notified` is all that was read there


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What `costgpu.measure.isolation.namespace` is told to watch."""

    descriptor: int
    folders: list[str]
    mask: int
    told: str  # file that gets the numbers of the watches


class FileWatch:
    """Watches one measurement. To be begun before its processes are started, so that nothing can be between the two."""

    def __init__(self, workdir: Path, told: Path) -> None:
        """Hold nothing yet; `told` is a file in which whoever adds the watches may say which is which."""
        self.opened = Opened()
        self._told, self._asked = told, 0  # folders
        self._workdir = os.path.realpath(workdir)
        self._inotify = -1
        self._names: dict[int, str] = {}
        self._due = 0.0

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close what it holds."""
        self._close()

    def begin(self) -> Watched | None:
        """Return what is to be watched, for whoever adds the watches; None where this system cannot."""
        self._close()
        self._names, self.opened = {}, Opened()
        if not sys.platform.startswith("linux"):
            return None
        folders, self.opened.complete = _folders(self._workdir)
        self._inotify = ctypes.CDLL(None).inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._inotify < 0:
            self.opened.complete = False
            return None
        self._asked = len(folders)
        return Watched(descriptor=self._inotify, folders=folders, mask=MASK, told=str(self._told))

    def begin_here(self) -> None:
        """Watch the folders as this process sees them."""
        watched = self.begin()
        if watched is not None:
            add, number = ctypes.CDLL(None).inotify_add_watch, watched.descriptor
            self._name({add(number, os.fsencode(folder), MASK): folder for folder in watched.folders})

    def look(self, pid: int) -> None:
        """Note what is open now."""
        self.drain()
        begun = time.monotonic()
        if begun < self._due or len(self.opened.held) > MOST_FILES:
            return
        for process in [str(pid), *descendants(str(pid))]:
            self.opened.held.update(_held(process))
        now = time.monotonic()
        self._due = now + max(TICK_SECONDS, (now - begun) / SHARE)

    def drain(self) -> None:
        """Note what inotify has told since."""
        if self._inotify < 0:
            return
        if not self._names and self._told.exists():
            self._name({int(number): folder for number, folder in json.loads(self._told.read_text()).items()})
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._inotify, 1 << 16):
                self._note(data)

    def _note(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            number, mask, _, size = _EVENT.unpack_from(data, at)
            at += _EVENT.size
            name = data[at : at + size].rstrip(b"\0")
            at += size
            if mask & IN_Q_OVERFLOW or len(self.opened.notified) > MOST_FILES:
                self.opened.complete = False
            elif name and not mask & IN_ISDIR and number in self._names:
                self.opened.notified.add(f"{self._names[number]}/{os.fsdecode(name)}")

    def _name(self, added: dict[int, str]) -> None:
        self._names = {number: folder for number, folder in added.items() if number >= 0}
        self.opened.complete &= len(self._names) == self._asked

    def _close(self) -> None:
        if self._inotify >= 0:
            os.close(self._inotify)
        self._inotify = -1
        self._told.unlink(missing_ok=True)


def _folders(top: str) -> tuple[list[str], bool]:
    """Return the folders at and below `top`, where links in it lead, too, and whether these are all."""
    found, seen, entries_left = [top], {top}, MOST_ENTRIES
    for folder in found:  # grows meanwhile
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                entries_left -= 1
                if entries_left < 0 or len(found) > MOST_FOLDERS:
                    return found[:MOST_FOLDERS], False
                path = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
                if entry.name not in SKIPPED_FOLDERS and path not in seen and entry.is_dir():
                    if not f"{top}/".startswith(f"{path.rstrip('/')}/") and not _is_environment(path):
                        found.append(path)
                    seen.add(path)
    return found, True


def _is_environment(folder: str) -> bool:
    return os.path.lexists(f"{folder}/pyvenv.cfg") or os.path.lexists(f"{folder}/conda-meta")


def _held(process: str) -> Iterator[str]:
    """Yield the files that a process has open for reading alone, or mapped; who reads and writes reads by inotify."""
    with contextlib.suppress(OSError):
        for number in os.listdir(f"/proc/{process}/fd"):
            with contextlib.suppress(OSError, ValueError, StopIteration):
                path = os.readlink(f"/proc/{process}/fd/{number}")
                if path.startswith("/") and not path.endswith(GONE) and _access(process, number) == os.O_RDONLY:
                    yield path
    with contextlib.suppress(OSError), open(f"/proc/{process}/maps", errors="surrogateescape") as file:
        for line in file:
            at = line.find("/")
            if at > 0 and not line.endswith(f"{GONE}\n") and line.split(" ", 2)[1][1:] not in WRITTEN:
                yield line[at:-1]


def _access(process: str, number: str) -> int:
    with open(f"/proc/{process}/fdinfo/{number}") as file:
        return next(int(line.split()[1], 8) for line in file if line.startswith("flags:")) & 3

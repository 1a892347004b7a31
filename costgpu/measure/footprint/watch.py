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
from pathlib import Path
from typing import Any

import psutil

from costgpu.measure.footprint.paths import SKIPPED_FOLDERS
from costgpu.portable.processes import some_descendants

ACCESS, CLOSE_NOWRITE, OVERFLOW, ONLYDIR, ISDIR = 0x1, 0x10, 0x4000, 0x1000000, 0x40000000  # of linux/inotify.h
MOST_FOLDERS, MOST_SECONDS = 5000, 3.0  # that are watched, and for which they are searched
MOST_FILES = 200_000
SHARE = 0.01  # of one core, for looking at processes
TICK_SECONDS = 0.1
GONE = " (deleted)"
WRITTEN = ("rw-s", "-w-s")  # of a mapping: what is written to it goes to the file
_EVENT = struct.Struct("iIII")


class FileWatch:
    """Watches one measurement; begun before its processes are started, so that nothing can be between the two.

    Attributes:
        held: Absolute paths of files that a process had open for reading, or mapped.
        notified: Of files below the working folder that were read, by whomever.
        alone: Those of them that only the measurement can have read, as they are in its copy of the folder.
        complete: Whether `notified` is all that was read there.
    """

    def __init__(self, workdir: Path, told: Path) -> None:
        """Hold nothing yet; `told` is a file in which whoever adds the watches says which is which."""
        self.workdir, self.since_ns = os.path.realpath(workdir), time.time_ns()
        self.held: set[str] = set()
        self.notified: set[str] = set()
        self.alone: set[str] = set()
        self.complete = False
        self._told, self._inotify, self._due = told, -1, 0.0
        self._names: dict[int, str] = {}
        self._asked = 0  # folders
        self._root = ""

    def close(self) -> None:
        """Close what it holds."""
        if self._inotify >= 0:
            os.close(self._inotify)
        self._inotify = -1

    def begin(self) -> dict[str, Any] | None:
        """Return what is to be watched, for whoever adds the watches; None where this system cannot."""
        self.close()
        self._told.unlink(missing_ok=True)
        if sys.platform.startswith("linux"):
            self._inotify = ctypes.CDLL(None).inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._names, self.complete = {}, False
        if self._inotify < 0:
            return None
        folders, self.complete = _folders(self._root + self.workdir)
        self._asked = len(folders)
        mask = ACCESS | CLOSE_NOWRITE | ONLYDIR
        return {"descriptor": self._inotify, "folders": folders, "mask": mask, "told": str(self._told)}

    def begin_copy(self, root: str) -> None:
        """Watch a copy of the working folder that lies below `root`, and what its links lead to."""
        self._root = root
        if watch := self.begin():
            add = ctypes.CDLL(None).inotify_add_watch
            self._name({add(self._inotify, os.fsencode(path), watch["mask"]): path for path in watch["folders"]})

    def _name(self, added: dict[int, str]) -> None:
        self._names = {number: folder for number, folder in added.items() if number >= 0}
        self.complete &= len(self._names) == self._asked

    def look(self, pid: int) -> None:
        """Note what is open now, and what inotify has told."""
        self.drain()
        begun = time.monotonic()
        if begun < self._due or len(self.held) > MOST_FILES:
            return
        for process in [pid, *some_descendants(pid)]:
            self.held.update(path.removeprefix(self._root) for path in _held(process))
        now = time.monotonic()
        self._due = now + max(TICK_SECONDS, (now - begun) / SHARE)

    def drain(self) -> None:
        """Note what inotify has told."""
        if self._inotify < 0:
            return
        if not self._names and self._told.exists():
            self._name({int(number): folder for number, folder in json.loads(self._told.read_text()).items()})
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._inotify, 1 << 16):
                at = 0
                while at < len(data):
                    number, mask, _, size = _EVENT.unpack_from(data, at)
                    name, at = data[at + _EVENT.size :][:size].rstrip(b"\0"), at + _EVENT.size + size
                    if mask & OVERFLOW or len(self.notified) > MOST_FILES:
                        self.complete = False
                    elif name and not mask & ISDIR and number in self._names:
                        path = f"{self._names[number]}/{os.fsdecode(name)}"
                        self.notified.add(path.removeprefix(self._root))
                        if self._root and path.startswith(self._root):
                            self.alone.add(path.removeprefix(self._root))


def _folders(top: str) -> tuple[list[str], bool]:
    """Return the folders at and below `top`, and those where links in it lead, and whether these are all."""
    found, seen, until = [top], {top}, time.monotonic() + MOST_SECONDS
    for folder in found:  # grows meanwhile
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if len(found) > MOST_FOLDERS or time.monotonic() > until:
                    return found[:MOST_FOLDERS], False
                if entry.name in SKIPPED_FOLDERS or not entry.is_dir():
                    continue
                path = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
                environment = os.path.lexists(f"{path}/pyvenv.cfg") or os.path.lexists(f"{path}/conda-meta")
                if path not in seen and not environment and not f"{top}/".startswith(f"{path.rstrip('/')}/"):
                    found.append(path)
                seen.add(path)
    return found, True


def _held(process: int) -> Iterator[str]:
    """Yield the files that a process has open for reading alone, or mapped."""
    with contextlib.suppress(OSError, psutil.Error):
        yield from (file.path for file in psutil.Process(process).open_files() if file.mode == "r")
    with contextlib.suppress(OSError), open(f"/proc/{process}/maps", errors="surrogateescape") as file:
        for line in file:
            at = line.find("/")
            if at > 0 and not line.endswith(f"{GONE}\n") and line.split(" ", 2)[1] not in WRITTEN:
                yield line[at:-1]

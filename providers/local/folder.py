"""The folder of a local instance: what is written where, once and for all. Standard library only.

- ``instance.json``: what it is (tags, lease, launch), written before anything runs
- ``poweroff``: the power-off button of what runs inside; ``end.lock``: held by who presses it
- ``keeper.lock``: held by the keeper as long as it lives; ``keeper.json``: since when there is one
- ``noted.json``: what belongs to the instance, as the keeper saw it last
- ``console.log``: what the keeper and the agent said
- ``end.json``: somebody asked for the end; ``terminated.json``: it is over, since when and why
- everything else belongs to the agent and the job
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from costgpu.portable.files import written_whole
from costgpu.portable.processes import Process
from costgpu.providers.local import records
from costgpu.providers.local.processes import Noted, end_all, members
from costgpu.providers.local.records import DamagedDocument, EndRecord, Facts

BALLAST = "ballast-of-the-keeper"
_RESERVED_BYTES = 64 * 1024
_FULL = (errno.ENOSPC, errno.EDQUOT)
_LOCK_POLL_SECONDS = 0.01

KEPT = {"instance.json", "terminated.json", "end.json", "console.log", "stdout.log", "stderr.log", "exit.json"}
"""What stays of an instance whose outputs are safe."""


class Folder:
    """One instance's."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def facts(self) -> Facts | None:
        """Return what it is; None if that is not written.

        Raises:
            Damaged: It is written, and cannot be used.
        """
        return records.load(Facts, self.path / "instance.json")

    def ending(self, name: str) -> EndRecord | None:
        """``end.json`` or ``terminated.json``; None if it is not there. One that is damaged says that it was."""
        try:
            return records.load(EndRecord, self.path / name)
        except DamagedDocument as error:
            return EndRecord("unknown", f"the record is damaged: {error}", self._changed(name))

    def agent_record(self, name: str) -> dict[str, object]:
        """Return a document of the agent's; empty if it is missing or damaged."""
        try:
            return records.read(self.path / name) or {}
        except DamagedDocument:
            return {}

    def _changed(self, name: str) -> float:
        """When a file was last changed, Unix time."""
        try:
            return max(0.0, (self.path / name).lstat().st_mtime)
        except OSError:
            return time.time()

    def write_once(self, name: str, content: dict[str, Any]) -> bool:
        """Write a document whole, unless it is there; return whether this call wrote it.

        On a full disk the space that `reserve` has set aside is given up for it.
        """
        try:
            return self._write_once(name, content)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            (self.path / BALLAST).unlink(missing_ok=True)
            return self._write_once(name, content)

    def _write_once(self, name: str, content: dict[str, Any]) -> bool:
        try:
            with written_whole(str(self.path / name), take_name=os.link) as stream:
                stream.write(json.dumps(content).encode())
        except FileExistsError:
            return False
        return True

    def reserve(self) -> None:
        """Set some disk and a name aside, if there is room: the end must be written on a full disk, too."""
        with contextlib.suppress(OSError), (self.path / BALLAST).open("xb") as stream:
            stream.write(bytes(_RESERVED_BYTES))

    def has(self, name: str) -> bool:
        """Return whether something of this name is there."""
        return os.path.lexists(self.path / name)

    def say(self, text: str) -> None:
        """Write a line on the console."""
        with contextlib.suppress(OSError), (self.path / "console.log").open("ab") as console:
            console.write(f"costgpu: {text}\n".encode())

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Write a document whole, over what was there."""
        with written_whole(str(self.path / name)) as stream:
            stream.write(json.dumps(content).encode())

    def members(self) -> list[Process]:
        """Return what lives of the instance, except the caller; its keeper is none of it."""
        return members(self.path, self._noted())

    def end_all(self) -> list[Process]:
        """End that; return what could not be ended."""
        return end_all(self.path, self._noted())

    def _noted(self) -> Noted:
        noted: Any = self.agent_record("noted.json").get("processes", [])
        with contextlib.suppress(TypeError, ValueError):  # a job can write there, too
            return [(int(pid), str(started)) for pid, started in noted]
        return ()


@contextlib.contextmanager
def locked(path: Path, seconds: float) -> Iterator[bool]:
    """Take a lock file, wait so long for it, and yield whether it came. A process that dies lets go of it."""
    with path.open("ab") as stream:
        until = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < until:
                    time.sleep(_LOCK_POLL_SECONDS)
                    continue
                yield False
            else:
                yield True
            return

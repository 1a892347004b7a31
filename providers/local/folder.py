"""The folder of a local instance: what is written where, once and for all. Standard library only.

- ``instance.json``: what it is (tags, lease, launch), written before anything runs
- ``boot.sh``, ``poweroff``: the boot script as it was given, and the power-off button of what runs inside
- ``host.lock``: held by the host process as long as it lives; ``host.json``: which process that is
- ``noted.json``: the host's descendants as it saw them last
- ``booted``: the boot script has ended; ``console.log``: what it said
- ``end.json``: somebody asked for the end; ``terminated.json``: it is over, since when and why
- everything else belongs to the agent and the job
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from costgpu.providers.local.processes import Belonging, Process, end_all, members, process

KEPT = {"instance.json", "terminated.json", "end.json", "console.log", "stdout.log", "stderr.log", "exit.json"}
"""What stays of an instance whose outputs are safe."""


class Folder:
    """One instance's."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str) -> dict[str, Any] | None:
        """A document; None if it is not there, or not whole."""
        try:
            found = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def write_once(self, name: str, content: dict[str, Any]) -> bool:
        """Writes a document whole, unless it is there; returns whether this call wrote it."""
        handle, fresh = tempfile.mkstemp(dir=self.path, prefix=f".{name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                json.dump(content, stream)
                stream.flush()
                os.fsync(stream.fileno())
            os.link(fresh, self.path / name)
        except FileExistsError:
            return False
        finally:
            Path(fresh).unlink(missing_ok=True)
        return True

    def has(self, name: str) -> bool:
        """Whether a file is there."""
        return (self.path / name).exists()

    def say(self, text: str) -> None:
        """A line on the console."""
        with contextlib.suppress(OSError), (self.path / "console.log").open("a", encoding="utf-8") as stream:
            stream.write(f"costgpu: {text}\n")

    @contextlib.contextmanager
    def holding(self) -> Iterator[bool]:
        """The host's lock, if nobody has it: whether nobody had. A process that dies lets go of it."""
        with (self.path / "host.lock").open("a") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
            else:
                yield True

    def host(self) -> Process | None:
        """The host process, if it lives."""
        written = self.read("host.json")
        if written is None:
            return None
        found = process(int(written["pid"]))
        return found if found is not None and found.started == written["started"] else None

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Writes a document whole, over what was there."""
        fresh = self.path / f".{name}.new"
        fresh.write_text(json.dumps(content), encoding="utf-8")
        fresh.replace(self.path / name)

    def members(self) -> list[Process]:
        """What lives of the instance, except its host and the caller."""
        return members(self.path, self._belonging())

    def end_all(self) -> list[Process]:
        """Ends that; returns what could not be ended."""
        return end_all(self.path, self._belonging())

    def _belonging(self) -> Belonging:
        noted = (self.read("noted.json") or {}).get("processes", [])
        return Belonging(host=self.host(), noted=[(int(pid), str(started)) for pid, started in noted])


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Alone among all processes that use this lock file."""
    with path.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield

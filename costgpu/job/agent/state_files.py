"""The home folder: its files, written whole or not at all, even on a full disk. Settings for tests."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from typing import Any

REMOTE_HOME = "/opt/costgpu"
# What costgpu keeps in the home: the agent, the boot script, and a local machine's keeper. All else there is the job's.
_OWN_NAMES = """
    agent agent.lock agent.log ballast ballast-of-the-end ballast-of-the-keeper checkpoint-list.json
    checkpoint-uploaded.json checkpoint.json checkpoint.lock claimed console.log contact deadline end.json end.lock env
    ended_by exit.json hostfile identity incoming.json incoming.part instance.json keeper.json keeper.lock keeper.log life
    limits manifest.json meeting.json noted.json order.json outputs.json poweroff progress.json rank-logs
    state.json status.json stderr.log stdout.log terminated.json venv watchdog.sh
"""
OWN_NAMES = frozenset(_OWN_NAMES.split())
BALLASTS = ("ballast", "ballast-of-the-end")  # become records when the disk is full; the last one only that of the end
RESERVED_BYTES = 4 << 20  # in each


def setting(name: str, default: float) -> float:
    """Return a number from ``COSTGPU_AGENT_<name>``: only tests set these."""
    try:
        return float(os.environ["COSTGPU_AGENT_" + name])
    except (KeyError, ValueError):
        return default


class Home:
    """One machine's folder; `work` in it holds the user's files, `remote` says that the machine is not somebody's own."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self.work = os.path.join(self.path, "work")
        self.remote = self.path == REMOTE_HOME
        self.root = "/"  # of the file system; only tests have another

    def file(self, name: str) -> str:
        """Return the absolute path of a file in the home."""
        return os.path.join(self.path, name)

    def exists(self, name: str) -> bool:
        """Return whether the home has such a file."""
        return os.path.isfile(self.file(name))

    def read(self, name: str) -> dict[str, Any] | None:
        """Return a JSON object; None if it is missing or damaged."""
        try:
            with open(self.file(name), encoding="utf-8") as stream:
                value: dict[str, Any] = json.load(stream)
        except (OSError, ValueError):
            return None
        return value

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Replace a JSON object atomically; durable when this returns."""
        data = json.dumps(value).encode()
        try:
            self._replace(name, data)
        except OSError as error:
            ballast = next(filter(self.size, BALLASTS[::-1] if name == "exit.json" else BALLASTS[:1]), "")
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not ballast:
                raise
            self._replace(name, data, ballast)

    def _replace(self, name: str, data: bytes, ballast: str = "") -> None:
        new = self.file("%s.%d-%d.new" % (name, os.getpid(), threading.get_ident()))
        try:
            if ballast:  # written over rather than deleted: a job that still writes would take what becomes free
                os.rename(self.file(ballast), new)
            with open(new, "r+b" if ballast else "wb") as stream:
                stream.write(data)
                stream.truncate()
                stream.flush()
                os.replace(new, self.file(name))  # seen by everybody at once; the disk may take its time
                os.fsync(stream.fileno())
        except OSError:
            try:
                os.unlink(new)
            except OSError:
                pass
            raise

    def reserve_disk(self) -> None:
        """Set a few MiB of disk aside, if there is room."""
        for name in BALLASTS:
            try:
                with open(self.file(name), "xb") as stream:
                    os.posix_fallocate(stream.fileno(), 0, RESERVED_BYTES)
            except FileExistsError:
                pass
            except OSError:  # a part of it is of no use
                try:
                    os.unlink(self.file(name))
                except OSError:
                    pass

    def record_contact(self, hold_seconds: float | None = None) -> None:
        """Note that a client has called, and for how long it will be busy (fetching) without calling again.

        None, from a client that only looks, does not shorten what another one has said.
        """
        path = self.file("contact")
        if hold_seconds is None and self._contact_until() > time.time():
            return
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o644), "w", encoding="ascii") as stream:
                stream.write(
                    "%-24s" % (hold_seconds or 0.0)
                )  # over the one before, as long as it: a full disk takes it
        except OSError:
            try:
                os.utime(path)
            except OSError:
                pass

    def contact_hold(self) -> float:
        """For how many seconds after the last contact a client said that it would be busy."""
        try:
            with open(self.file("contact"), encoding="ascii") as stream:
                return float(stream.read() or 0.0)
        except (OSError, ValueError):
            return 0.0

    def _contact_until(self) -> float:
        try:
            return os.stat(self.file("contact")).st_mtime + self.contact_hold()
        except OSError:
            return 0.0

    def size(self, name: str) -> int:
        """Return the bytes of a file; 0 if it is missing."""
        try:
            return os.path.getsize(self.file(name))
        except OSError:
            return 0

    def write_console(self, text: str) -> None:
        """Write a line for people to the machine's console."""
        targets = [self.file("console.log")] + (["/dev/console"] if self.remote else [])
        for target in targets:
            try:
                descriptor = os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o644)
                try:
                    os.write(descriptor, ("costgpu: " + text + "\n").encode())
                finally:
                    os.close(descriptor)
            except OSError:
                pass

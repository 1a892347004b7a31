"""The home folder: its files, written whole or not at all, even on a full disk. Settings for tests."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from typing import Any

REMOTE_HOME = "/opt/costgpu"
BALLAST_BYTES = 4 << 20  # given up when the disk is full, so that the last records can still be written


def setting(name: str, default: float) -> float:
    """A number from ``COSTGPU_AGENT_<name>``: only tests set these."""
    try:
        return float(os.environ["COSTGPU_AGENT_" + name])
    except (KeyError, ValueError):
        return default


class Home:
    """One machine's folder.

    Attributes:
        path: Absolute.
        work: The folder of the user's files.
        remote: Whether this is a machine of its own, not a folder of somebody's.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self.work = os.path.join(self.path, "work")
        self.remote = self.path == REMOTE_HOME

    def file(self, name: str) -> str:
        """Absolute path of a file in it."""
        return os.path.join(self.path, name)

    def exists(self, name: str) -> bool:
        """Whether it has such a file."""
        return os.path.exists(self.file(name))

    def read(self, name: str) -> dict[str, Any] | None:
        """A JSON object; None if it is missing or damaged."""
        try:
            with open(self.file(name), encoding="utf-8") as stream:
                value = json.load(stream)
        except (OSError, ValueError):
            return None
        return value if isinstance(value, dict) else None

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Replaces a JSON object atomically; durable when this returns."""
        data = json.dumps(value).encode()
        try:
            self._replace(name, data)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self.drop_ballast()
            self._replace(name, data)

    def _replace(self, name: str, data: bytes) -> None:
        new = self.file("%s.%d-%d.new" % (name, os.getpid(), threading.get_ident()))
        with open(new, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.replace(new, self.file(name))  # seen by everybody at once; the disk may take its time
            os.fsync(stream.fileno())

    def keep_ballast(self) -> None:
        """Sets a few MiB of disk aside, if there is room."""
        try:
            with open(self.file("ballast"), "xb") as stream:
                os.posix_fallocate(stream.fileno(), 0, BALLAST_BYTES)
        except OSError:
            pass

    def drop_ballast(self) -> None:
        """Gives them back."""
        try:
            os.unlink(self.file("ballast"))
        except OSError:
            pass

    def note_contact(self, hold_seconds: float | None = None) -> None:
        """A client has called.

        Args:
            hold_seconds: For how long it will be busy (fetching) without calling again; 0 when it no longer is.
                None, from a client that only looks, does not shorten what another one has said.
        """
        path = self.file("contact")
        if hold_seconds is None and self.held_until() > time.time():
            return
        try:
            with open(path, "w", encoding="ascii") as stream:
                stream.write(str(hold_seconds or 0.0))
        except OSError:
            try:
                os.utime(path)
            except OSError:
                pass

    def held_until(self) -> float:
        """Unix time of the last contact, and what was to be added to it; 0 if there was none."""
        path = self.file("contact")
        try:
            at = os.stat(path).st_mtime
            with open(path, encoding="ascii") as stream:
                return at + float(stream.read() or 0.0)
        except (OSError, ValueError):
            return 0.0

    def size(self, name: str) -> int:
        """Bytes of a file; 0 if it is missing."""
        try:
            return os.stat(self.file(name)).st_size
        except OSError:
            return 0

    def say(self, text: str) -> None:
        """A line for people on the machine's console."""
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

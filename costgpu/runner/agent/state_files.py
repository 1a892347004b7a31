"""The home folder: its files, written whole or not at all, even on a full disk. Settings for tests."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from typing import Any

REMOTE_HOME = "/opt/costgpu"
RESERVED_BYTES = 4 << 20  # given up when the disk is full, so that the last records can still be written


def setting(name: str, default: float) -> float:
    """A number from ``COSTGPU_AGENT_<name>``: only tests set these."""
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

    def file(self, name: str) -> str:
        """Absolute path of a file in the home."""
        return os.path.join(self.path, name)

    def exists(self, name: str) -> bool:
        """Whether the home has such a file."""
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
            self.release_disk()
            self._replace(name, data)

    def _replace(self, name: str, data: bytes) -> None:
        new = self.file("%s.%d-%d.new" % (name, os.getpid(), threading.get_ident()))
        with open(new, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.replace(new, self.file(name))  # seen by everybody at once; the disk may take its time
            os.fsync(stream.fileno())

    def reserve_disk(self) -> None:
        """Sets a few MiB of disk aside, if there is room."""
        try:
            with open(self.file("ballast"), "xb") as stream:
                os.posix_fallocate(stream.fileno(), 0, RESERVED_BYTES)
        except OSError:
            pass

    def release_disk(self) -> None:
        """Gives the reserved disk space back."""
        try:
            os.unlink(self.file("ballast"))
        except OSError:
            pass

    def record_contact(self, hold_seconds: float | None = None) -> None:
        """Notes that a client has called, and for how long it will be busy (fetching) without calling again.

        None, from a client that only looks, does not shorten what another one has said.
        """
        path = self.file("contact")
        if hold_seconds is None and self._contact_until() > time.time():
            return
        try:
            with open(path, "w", encoding="ascii") as stream:
                stream.write(str(hold_seconds or 0.0))
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
        """Bytes of a file; 0 if it is missing."""
        try:
            return os.stat(self.file(name)).st_size
        except OSError:
            return 0

    def write_console(self, text: str) -> None:
        """Writes a line for people to the machine's console."""
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

"""How processes talk: in lines of JSON. To the daemon, on a socket in the home, one line there and one back."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from typing import Any

from ...portable.clock import uptime
from .state_files import Home

SOCKET = "agent.sock"
_REPLY_SECONDS = 30.0
_MAX_LINE_BYTES = 1 << 24


def memory_file(value: dict[str, Any]) -> int:
    """Return a file that is on no disk; only this process and its child can open it."""
    descriptor = os.memfd_create("costgpu")
    data = json.dumps(value).encode()
    while data:
        data = data[os.write(descriptor, data) :]
    return descriptor


def call_daemon(home: Home, request: dict[str, Any], timeout: float = 15.0) -> dict[str, Any]:
    """Send a request to the daemon; wait up to `timeout` seconds for one that is being started again.

    Raises:
        OSError: There is no daemon.
    """
    os.chdir(home.path)
    until = uptime() + timeout
    while True:
        try:
            return _call_once(request)
        except OSError:
            if uptime() >= until:
                raise
            time.sleep(0.05)


def is_answering(home: Home, seconds: float) -> bool:
    """Return True if the daemon answers within this time."""
    try:
        os.chdir(home.path)
        return "pid" in _call_once({"method": "ping"}, seconds)
    except (OSError, ValueError):
        return False


def _call_once(request: dict[str, Any], seconds: float = _REPLY_SECONDS) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(seconds)
        connection.connect(SOCKET)
        line = LineConnection(connection)
        line.write(request, seconds)
        return line.read(seconds)


class LineConnection:
    """A connection with one JSON object a line, both ways."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self._rest = connection, b""

    def write(self, value: Mapping[str, Any], seconds: float) -> None:
        """Send one. Raises OSError if the other side is gone, or does not take it in time."""
        self.connection.settimeout(seconds)
        self.connection.sendall(json.dumps(value).encode() + b"\n")

    def read(self, seconds: float) -> dict[str, Any]:
        """Return the next one. Raises OSError if none comes in time, ValueError if it is no JSON object."""
        until = time.monotonic() + seconds
        while b"\n" not in self._rest:
            left = until - time.monotonic()
            if left <= 0 or len(self._rest) > _MAX_LINE_BYTES:
                raise TimeoutError("no whole line came")
            self.connection.settimeout(left)
            chunk = self.connection.recv(1 << 16)
            if not chunk:
                raise ConnectionResetError("the other side has gone")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        value = json.loads(line.decode())
        if not isinstance(value, dict):
            raise ValueError("no object came")
        return value

    def close(self) -> None:
        """End the connection."""
        self.connection.close()

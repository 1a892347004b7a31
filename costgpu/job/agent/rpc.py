"""How other processes of the machine talk to the daemon: one line of JSON there and one back, on a socket in the home."""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any

from ...portable.clock import uptime
from .state_files import Home

SOCKET = "agent.sock"
_REPLY_SECONDS = 30.0


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
        connection.sendall(json.dumps(request).encode() + b"\n")
        line = read_line(connection, seconds)
    reply: dict[str, Any] = json.loads(line.decode())
    return reply


def read_line(connection: socket.socket, seconds: float) -> bytes:
    """Return a line.

    Raises:
        OSError: The other side is silent for so long, or gone.
    """
    connection.settimeout(seconds)
    with connection.makefile("rb") as stream:
        line = stream.readline()
    if not line.endswith(b"\n"):
        raise ConnectionResetError("no whole line came")
    return line

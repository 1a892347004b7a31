"""How other processes of the machine talk to the daemon: one line of JSON there and one back, on a socket in the home."""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any

from .clock import uptime
from .state_files import Home

SOCKET = "agent.sock"


def memory_file(value: dict[str, Any]) -> int:
    """A file that is on no disk; only this process and its child can open it."""
    descriptor = os.memfd_create("costgpu")
    data = json.dumps(value).encode()
    while data:
        data = data[os.write(descriptor, data) :]
    return descriptor


def call_daemon(home: Home, request: dict[str, Any], timeout: float = 15.0) -> dict[str, Any]:
    """Sends a request to the daemon; waits up to `timeout` seconds for one that is being started again.

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


def _call_once(request: dict[str, Any]) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(30.0)
        connection.connect(SOCKET)
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile("rb") as stream:
            line = stream.readline()
    if not line:
        raise ConnectionResetError("no reply")
    reply: dict[str, Any] = json.loads(line.decode())
    return reply

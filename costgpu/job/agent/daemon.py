"""The daemon: one loop that answers requests and lets the guard look at the job and the machine once a second.

Hashing, uploading and asking for spot notices have threads of their own. Everything that matters is in files, so a
daemon that was killed is followed by one that goes on where it was.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import traceback
from typing import Any

from ...portable.clock import MachineClock
from ...portable.supervise import prefer_for_oom, reap
from .guard import MachineGuard
from .outputs import upload_at_shutdown
from .power import power_off
from .rpc import SOCKET, LineConnection
from .state_files import Home, setting
from .status import LOGS
from .supervisor_process import start_supervisor

_REQUEST_SECONDS = 5.0  # a client that has died keeps the daemon from looking at the job for no longer


class Daemon:
    """The daemon of one machine."""

    def __init__(self, home: Home, program: str, clock: MachineClock) -> None:
        self.home, self.program, self.clock = home, program, clock
        self.tick = setting("TICK_SECONDS", 1.0)
        self.guard = MachineGuard(home, clock, self.tick)
        self.stopping = False
        self.stopped_by_systemd = False

    def run(self) -> None:
        """Work until the machine is off or a newer agent takes over."""
        with open(self.home.file("agent.lock"), "ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return  # another daemon is running
            self._prepare()
            if self.home.remote:
                signal.signal(signal.SIGTERM, self._note_stop)
            listener = self._listen()
            while not self.stopping:
                if self.stopped_by_systemd:
                    upload_at_shutdown.leave(self.guard)
                try:
                    ready, _, _ = select.select([listener], [], [], self.tick)
                    if ready:
                        self._answer(listener)
                    self._check()
                except Exception:
                    traceback.print_exc()
                    self.clock.sleep(0.2)

    def _note_stop(self, *_: object) -> None:
        self.stopped_by_systemd = True

    def _prepare(self) -> None:
        os.chdir(self.home.path)  # the socket's name must be short
        os.makedirs(self.home.work, exist_ok=True)
        for name in ("claimed", *LOGS):
            try:
                open(self.home.file(name), "ab").close()
            except OSError:
                traceback.print_exc()
        self.home.reserve_disk()
        prefer_for_oom(-900)  # the job is to run out of memory before its guard does

    @staticmethod
    def _listen() -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        if os.path.exists(SOCKET):
            os.unlink(SOCKET)
        before = os.umask(0o077)
        listener.bind(SOCKET)
        os.umask(before)
        listener.listen(16)
        return listener

    def _answer(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            line = LineConnection(connection)
            request = line.read(_REQUEST_SECONDS)
            try:
                reply = self._handle(request)
            except Exception as error:
                traceback.print_exc()
                reply = {"error": "%s: %s" % (type(error).__name__, error)}
            line.write(reply, _REQUEST_SECONDS)

    def _handle(self, request: dict[str, Any]) -> dict[str, Any]:
        method = request["method"]
        if method == "ping":
            return {"pid": os.getpid(), "program": self.program}
        if method == "start":
            return self._start(request)
        if method == "cancel":
            self.guard.cancel()
        elif method == "collected":
            self.guard.record_collected()
        elif method == "stop":
            self.stopping = True
        else:
            return {"error": "unknown method %r" % method}
        return {}

    def _start(self, request: dict[str, Any]) -> dict[str, Any]:
        if self.guard.order is not None:
            return {"already": True}
        supervisor, go = start_supervisor(self.program, request["secrets"], request["uploads"])
        try:
            self.guard.accept_order(request["order"], supervisor, request["uploads"])
        finally:
            os.close(go)  # the supervisor goes on, and finds its order or nothing
        return {"already": False}

    def _check(self) -> None:
        reap()
        reason = self.guard.check()
        if reason is not None:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the machine's shutdown need not wait for this
            power_off(self.home, reason, self.clock)
            self.stopping = True

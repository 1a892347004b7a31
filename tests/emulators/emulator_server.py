"""What the servers of the emulated clouds have in common: the way of a request, and the command line.

A server takes ``--port`` (0 for a free one), ``--host`` and ``--machines``; the first line on stdout is ``ready URL``.
It ends with the process whose number is in EMULATOR_STARTER.
"""

import argparse
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from email.utils import format_datetime
from typing import Any

from werkzeug.serving import WSGIRequestHandler, make_server

from tests.emulators.control_side import ControlSide
from tests.emulators.faults import FaultInjector, LostReply
from tests.emulators.machines import Machines
from tests.emulators.wire import ApiCall, Reply

Start = Callable[[str, list[tuple[str, str]]], Any]


class EmulatorServer:
    """One emulated cloud, as a WSGI application. `state` tells the time; `machines` carries the instances."""

    state: Any
    machines: Machines
    faults: FaultInjector
    control: ControlSide

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        path = environ["PATH_INFO"]
        try:
            if path.startswith("/emu/"):
                reply = self.control._answer(path.removeprefix("/emu/"), body)
            else:
                reply = self.serve(environ, body)
        except LostReply:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise
        length = str(len(reply.body))
        if environ["REQUEST_METHOD"] == "HEAD":
            length = next((value for name, value in reply.headers if name.lower() == "content-length"), length)
        headers = [(name, value) for name, value in reply.headers if name.lower() != "content-length"]
        start(reply.status, [*headers, ("Content-Length", length)])
        return [reply.body]

    def serve(self, environ: dict[str, Any], body: bytes) -> Reply:
        """Answers one request to the cloud's own API."""
        raise NotImplementedError

    def exchange(self, call: ApiCall, execute: Callable[[], Reply], recorded: ApiCall | None = None) -> Reply:
        """Records a request and executes it, unless a fault has it otherwise."""
        row = self.faults.record(recorded or call)
        reply, fault = self.faults.before(call)
        if reply is None:
            reply = execute()
        if fault is not None:
            reply = self.faults.after(call, fault, reply)
        row["status"] = reply.code
        return reply


class RequestHandler(WSGIRequestHandler):
    """Says only what goes wrong, and tells the time of the emulated cloud."""

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - its name in werkzeug
        if type != "info":
            print(message % args, file=sys.stderr, flush=True)

    def date_time_string(self, timestamp: float | None = None) -> str:
        app: Any = self.server.app
        return format_datetime(app.state.now(), usegmt=True)


def run_server(description: str, make: Callable[[str], EmulatorServer], handler: type[RequestHandler]) -> None:
    """The command line of a server; `make` takes the name of the machines: ``none`` or ``nspawn``."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--port", type=int, default=0)
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--machines", default="none", help="none, or nspawn: boot a guest for each instance")
    chosen = options.parse_args()
    application = make(chosen.machines)
    server = make_server(chosen.host, chosen.port, application, threaded=True, request_handler=handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    done = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: done.set())
    print(f"ready http://{'127.0.0.1' if chosen.host == '0.0.0.0' else chosen.host}:{server.port}", flush=True)
    starter = os.environ.get("EMULATOR_STARTER")
    while not done.wait(0.5):
        if starter and os.getppid() != int(starter):
            break
    application.machines.close()

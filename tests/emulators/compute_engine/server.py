"""The emulated Compute Engine: the v1 REST API as Google's own client speaks it, and its machines.

    python -m tests.emulators.compute_engine.server --port 8600 [--machines nspawn]

Clients need the environment that `gce_client.RunningGce.environment` names. ``/emu/...`` is the control side (see
`gce_control`). With ``--port 0`` a free port is taken; the first line on stdout says ``ready http://127.0.0.1:PORT``.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from email.utils import format_datetime
from typing import Any

from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from tests.emulators.compute_engine.api import Api
from tests.emulators.compute_engine.control import Control
from tests.emulators.compute_engine.firewalls import Firewalls
from tests.emulators.compute_engine.instances import Instances
from tests.emulators.compute_engine.metadata_server import Metadata
from tests.emulators.compute_engine.operations import Operations
from tests.emulators.compute_engine.project import World
from tests.emulators.compute_engine.vm import Vm
from tests.emulators.compute_engine.wire import GoogleError, parse, recorded, refusal
from tests.emulators.faults import KillOrder, LostReply, Mischief
from tests.emulators.machines import Machines, NoGuests
from tests.emulators.wire import ApiCall, Reply

Start = Callable[[str, list[tuple[str, str]]], Any]


class Gce:
    """One emulated project, as a WSGI application."""

    def __init__(self, machines: Machines, metadata: Metadata) -> None:
        self.world = World()
        self.mischief = Mischief(refusal)
        self.operations = Operations(self.world)
        self.instances = Instances(self.world, self.operations, machines)
        self.firewalls = Firewalls(self.world, self.operations, self.instances)
        self._metadata = metadata
        self._metadata.find = self.instances.at
        self.instances.changed = self._changed
        self._api = Api(self.world, self.operations, self.instances, self.firewalls)
        self._control = Control(self.world, self.mischief, self.instances, self.operations)

    def _changed(self, vm: Vm) -> None:
        self.firewalls.apply(vm)
        self._metadata.changed()

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        """One request."""
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        path = environ["PATH_INFO"]
        if path.startswith("/emu/"):
            reply = self._control.answer(environ["REQUEST_METHOD"], path.removeprefix("/emu/"), body)
        else:
            try:
                reply = self._serve(environ, body)
            except LostReply:
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
                raise
        start(reply.status, [*reply.headers, ("Content-Length", str(len(reply.body)))])
        return [reply.body]

    def _serve(self, environ: dict[str, Any], body: bytes) -> Reply:
        try:
            call = parse(environ, body)
        except (GoogleError, ValueError) as error:
            wrong = error if isinstance(error, GoogleError) else GoogleError(400, "parseError", "Parse Error")
            return wrong.reply()
        row, order = self.mischief.record(
            ApiCall(
                service=call.service,
                action=call.action,
                region=call.region,
                access_key=call.access_key,
                params=recorded(call),
                method=call.method,
                path=call.path,
            )
        )
        self._strike(order, "before")
        reply, fault = self.mischief.before(call)
        if reply is None:
            try:
                reply = self._api.handle(call)
            except GoogleError as error:
                reply = error.reply()
        if fault is not None:
            reply = self.mischief.after(call, fault, reply)
        row["status"] = reply.code
        self._strike(order, "after")
        return reply

    @staticmethod
    def _strike(order: KillOrder | None, when: str) -> None:
        if order is not None and order.when == when:
            order.strike()
            raise LostReply("the client is dead")

    def close(self) -> None:
        """Ends every guest."""
        self.instances.machines.close()


class _Handler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - its name in werkzeug
        """Only trouble."""
        if type != "info":
            print(message % args, file=sys.stderr, flush=True)

    def date_time_string(self, timestamp: float | None = None) -> str:
        """For the header ``Date``: by the world's clock."""
        app: Any = self.server.app
        return format_datetime(app.world.now(), usegmt=True)


def serve(gce: Gce, port: int = 0, host: str = "127.0.0.1") -> BaseWSGIServer:
    """Serves in a thread; `port` 0 takes a free one (``server.port``)."""
    server = make_server(host, port, gce, threaded=True, request_handler=_Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def machines_named(name: str, metadata: Metadata) -> Machines:
    """``none``, or ``nspawn``: the hypervisor, with Google's metadata server and guests."""
    if name == "none":
        return NoGuests()
    made: Machines = importlib.import_module("tests.emulators.guests.compute_engine_guests").make(name, metadata)
    return made


def main() -> None:
    """The command line."""
    options = argparse.ArgumentParser(description="An emulated Compute Engine on this machine.")
    options.add_argument("--port", type=int, default=0)
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--machines", default="none", help="none, or nspawn: boot a guest for each instance")
    chosen = options.parse_args()
    metadata = Metadata()
    gce = Gce(machines_named(chosen.machines, metadata), metadata)
    server = serve(gce, chosen.port, chosen.host)
    done = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: done.set())
    print(f"ready http://{'127.0.0.1' if chosen.host == '0.0.0.0' else chosen.host}:{server.port}", flush=True)
    starter = os.environ.get("EMULATOR_STARTER")
    while not done.wait(0.5):
        if starter and os.getppid() != int(starter):
            break
    gce.close()


if __name__ == "__main__":
    main()

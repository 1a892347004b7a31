"""The emulated cloud: moto's server behind a middleware that makes it behave, and misbehave, as AWS does.

    python -m tests.emulators.ec2.server --port 5000 [--machines nspawn]

Clients need nothing but AWS_ENDPOINT_URL and any credentials. ``/emu/...`` is the control side (see `control`).
With ``--port 0`` a free port is taken; the first line on stdout says ``ready http://127.0.0.1:PORT``.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from email.utils import format_datetime
from typing import Any

os.environ.setdefault("MOTO_ENABLE_AMI_VALIDATION", "1")
os.environ.setdefault("MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION", "1")
os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import BaseWSGIServer, make_server

from tests.emulators.ec2.account import World
from tests.emulators.ec2.control import Control
from tests.emulators.ec2.instances import Compute
from tests.emulators.ec2.permissions import install_simulation
from tests.emulators.ec2.services import (
    Scheduler,
    install_key_pairs,
    install_quotas,
    install_regions,
    install_signatures,
)
from tests.emulators.faults import LostReply, Mischief
from tests.emulators.machines import Machines, NoGuests
from tests.emulators.wire import ApiCall, Reply, parse, settle

Start = Callable[[str, list[tuple[str, str]]], Any]


class Cloud:
    """One emulated account, as a WSGI application. One per process: moto's state is global."""

    def __init__(self, machines: Machines) -> None:
        self.world = World()
        self.mischief = Mischief()
        self.compute = Compute(self.world, machines)
        self.scheduler = Scheduler(self.world)
        self.compute.install()
        self.scheduler.install()
        install_quotas(self.world)
        install_signatures()
        install_key_pairs()
        install_regions()
        install_simulation()
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._control = Control(self.world, self.mischief, self.compute, self.scheduler)

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        """One request."""
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        path = environ["PATH_INFO"]
        if environ["REQUEST_METHOD"] == "PUT" and "form-urlencoded" in environ.get("CONTENT_TYPE", ""):
            environ["CONTENT_TYPE"] = "binary/octet-stream"  # what urllib sends with an upload is no form to S3
        if path.startswith("/emu/"):
            reply = self._control.answer(environ["REQUEST_METHOD"], path.removeprefix("/emu/"), body)
        elif path.startswith("/moto-api/"):
            reply = self._execute(environ)
        else:
            try:
                reply = self._serve(environ, parse(environ, body))
            except LostReply:
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
                raise
        headers = [(name, value) for name, value in reply.headers if name.lower() != "content-length"]
        length = next((v for n, v in reply.headers if n.lower() == "content-length"), str(len(reply.body)))
        if environ["REQUEST_METHOD"] != "HEAD":
            length = str(len(reply.body))
        start(reply.status, [*headers, ("Content-Length", length)])
        return [reply.body]

    def _serve(self, environ: dict[str, Any], call: ApiCall) -> Reply:
        self.world.seed(call.region)
        row, order = self.mischief.record(call)
        if order is not None and order.when == "before":
            order.strike()
            raise LostReply("the client is dead")
        reply, fault = self.mischief.before(call)
        if reply is None:
            reply = settle(call, self._execute(environ))
        if fault is not None:
            reply = self.mischief.after(call, fault, reply)
        row["status"] = reply.code
        if order is not None:
            order.strike()
            raise LostReply("the client is dead")
        return reply

    def _execute(self, environ: dict[str, Any]) -> Reply:
        said: list[Any] = []

        def start(status: str, headers: list[tuple[str, str]], _: Any = None) -> None:
            said[:] = [status, list(headers)]

        try:
            body = b"".join(self._moto(environ, start))
        except NotImplementedError as error:
            return Reply("500 Not Implemented", [("Content-Type", "text/html")], f"<!doctype html>{error}".encode())
        return Reply(said[0], said[1], body)

    def close(self) -> None:
        """Ends every guest."""
        self.compute.machines.close()


class _Handler(MotoRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - its name in werkzeug
        """Only trouble."""
        if type != "info":
            print(message % args, file=sys.stderr, flush=True)

    def date_time_string(self, timestamp: float | None = None) -> str:
        """For the header ``Date``: by the world's clock."""
        app: Any = self.server.app
        return format_datetime(app.world.now(), usegmt=True)


def serve(cloud: Cloud, port: int = 0, host: str = "127.0.0.1") -> BaseWSGIServer:
    """Serves in a thread; `port` 0 takes a free one (``server.port``)."""
    server = make_server(host, port, cloud, threaded=True, request_handler=_Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def machines_named(name: str) -> Machines:
    """``none``, or ``nspawn`` from `tests.emulators.guests.nspawn`."""
    if name == "none":
        return NoGuests()
    hypervisor = importlib.import_module("tests.emulators.guests.nspawn")
    made: Machines = hypervisor.make(name)
    return made


def main() -> None:
    """The command line."""
    options = argparse.ArgumentParser(description="An emulated AWS account on this machine.")
    options.add_argument("--port", type=int, default=0)
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--machines", default="none", help="none, or nspawn: boot a guest for each instance")
    chosen = options.parse_args()
    cloud = Cloud(machines_named(chosen.machines))
    server = serve(cloud, chosen.port, chosen.host)
    done = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: done.set())
    print(f"ready http://{chosen.host}:{server.port}", flush=True)
    starter = os.environ.get("EMULATOR_STARTER")
    while not done.wait(0.5):
        if starter and os.getppid() != int(starter):
            break
    cloud.close()


if __name__ == "__main__":
    main()

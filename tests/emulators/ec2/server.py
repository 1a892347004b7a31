"""The emulated AWS account: moto's server behind a middleware that makes it behave, and misbehave, as AWS does.

    python -m tests.emulators.ec2.server --port 5000 [--machines nspawn]

Clients need nothing but AWS_ENDPOINT_URL and any credentials. ``/emu/...`` is the control side (see `control`).
"""

import importlib
import io
import os
from typing import Any

os.environ.setdefault("MOTO_ENABLE_AMI_VALIDATION", "1")
os.environ.setdefault("MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION", "1")
os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app

from tests.emulators.ec2.account import AccountState
from tests.emulators.ec2.control import Control
from tests.emulators.ec2.instances import Ec2Instances
from tests.emulators.ec2.packet_filter import PacketFilter
from tests.emulators.ec2.permissions import install_simulation
from tests.emulators.ec2.placement_groups import PlacementGroups
from tests.emulators.ec2.services import (
    Scheduler,
    install_disk_keys,
    install_key_pairs,
    install_quotas,
    install_regions,
    install_signatures,
)
from tests.emulators.emulator_server import EmulatorServer, RequestHandler, run_server
from tests.emulators.faults import FaultInjector
from tests.emulators.machines import Machines, NoGuests
from tests.emulators.wire import Reply, parse, settle


class Ec2Server(EmulatorServer):
    """One emulated account. One per process: moto's state is global."""

    def __init__(self, machines: Machines) -> None:
        self.state, self.machines, self.faults = AccountState(), machines, FaultInjector()
        placement, firewall = PlacementGroups(), PacketFilter(machines)
        compute, scheduler = Ec2Instances(self.state, machines, placement, firewall), Scheduler(self.state)
        for part in (placement, firewall, compute):
            part.install()
        scheduler.install()
        install_quotas(self.state)
        install_signatures()
        install_disk_keys()
        install_key_pairs()
        install_regions()
        install_simulation()
        self._moto = DomainDispatcherApplication(create_backend_app)
        self.control = Control(self.state, self.faults, compute, scheduler)

    def serve(self, environ: dict[str, Any], body: bytes) -> Reply:
        """One request to AWS, or to moto's own control side."""
        environ["wsgi.input"] = io.BytesIO(body)
        if environ["REQUEST_METHOD"] == "PUT" and "form-urlencoded" in environ.get("CONTENT_TYPE", ""):
            environ["CONTENT_TYPE"] = "binary/octet-stream"  # what urllib sends with an upload is no form to S3
        if environ["PATH_INFO"].startswith("/moto-api/"):
            return self._execute(environ)
        call = parse(environ, body)
        self.state.seed(call.region)
        return self.exchange(call, lambda: settle(call, self._execute(environ)))

    def _execute(self, environ: dict[str, Any]) -> Reply:
        said: list[Any] = []

        def start(status: str, headers: list[tuple[str, str]], _: Any = None) -> None:
            said[:] = [status, list(headers)]

        try:
            body = b"".join(self._moto(environ, start))
        except NotImplementedError as error:
            return Reply("500 Not Implemented", [("Content-Type", "text/html")], f"<!doctype html>{error}".encode())
        return Reply(said[0], said[1], body)


class _Handler(RequestHandler, MotoRequestHandler):
    """moto's way to read requests."""


def _machines(name: str) -> Machines:
    if name == "none":
        return NoGuests()
    made: Machines = importlib.import_module("tests.emulators.guests.nspawn").make(name)
    return made


if __name__ == "__main__":
    run_server("An emulated AWS account on this machine.", lambda name: Ec2Server(_machines(name)), _Handler)

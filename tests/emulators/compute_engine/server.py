"""The emulated Compute Engine: the v1 REST API as Google's own client speaks it, and its machines.

    python -m tests.emulators.compute_engine.server --port 8600 [--machines nspawn]

Clients need the environment that `RunningComputeEngine.environment` names. ``/emu/...`` is the control side.
"""

import dataclasses
import importlib
from typing import Any

from tests.emulators.compute_engine.api import Api
from tests.emulators.compute_engine.control import Control
from tests.emulators.compute_engine.firewalls import Firewalls
from tests.emulators.compute_engine.instances import Instances
from tests.emulators.compute_engine.metadata_server import Metadata
from tests.emulators.compute_engine.operations import Operations
from tests.emulators.compute_engine.project import ProjectState
from tests.emulators.compute_engine.vm import Vm
from tests.emulators.compute_engine.wire import GoogleError, parse, recorded, refusal
from tests.emulators.emulator_server import EmulatorServer, RequestHandler, run_server
from tests.emulators.faults import FaultInjector
from tests.emulators.machines import Machines, NoGuests
from tests.emulators.wire import ApiCall, Reply


class ComputeEngineServer(EmulatorServer):
    """One emulated project."""

    def __init__(self, machines: Machines, metadata: Metadata) -> None:
        self.state, self.machines, self.faults = ProjectState(), machines, FaultInjector(refusal)
        operations = Operations(self.state)
        instances = Instances(self.state, operations, machines)
        self._firewalls = Firewalls(self.state, operations, instances)
        self._metadata = metadata
        self._metadata.find = instances.at
        instances.changed = self._changed
        self._api = Api(self.state, operations, instances, self._firewalls)
        self.control = Control(self.state, self.faults, instances, operations)

    def _changed(self, vm: Vm) -> None:
        self._firewalls.apply(vm)
        self._firewalls.apply_all()
        self._metadata.changed()

    def serve(self, environ: dict[str, Any], body: bytes) -> Reply:
        """One request to Google."""
        try:
            call = parse(environ, body)
        except GoogleError as error:
            return error.reply()
        except ValueError:
            return GoogleError(400, "parseError", "Parse Error").reply()
        return self.exchange(call, lambda: self._handle(call), dataclasses.replace(call, params=recorded(call)))

    def _handle(self, call: ApiCall) -> Reply:
        try:
            return self._api.handle(call)
        except GoogleError as error:
            return error.reply()


class _Handler(RequestHandler):
    protocol_version = "HTTP/1.1"


def _make(name: str) -> ComputeEngineServer:
    metadata = Metadata()
    machines: Machines = NoGuests()
    if name != "none":  # the hypervisor, with Google's metadata server and guests
        machines = importlib.import_module("tests.emulators.guests.compute_engine_guests").make(name, metadata)
    return ComputeEngineServer(machines, metadata)


if __name__ == "__main__":
    run_server("An emulated Compute Engine on this machine.", _make, _Handler)

"""Google's metadata server of the emulated guests, at the address that every cloud's has: single values, and waiting.

Answers by the address that asks. Source: cloud.google.com/compute/docs/metadata/overview, .../querying-metadata and
.../instances/create-use-spot (2026-11).
"""

import hashlib
import http.server
import threading
import time
import urllib.parse
from collections.abc import Callable
from datetime import datetime

from tests.emulators.compute_engine.vm import Vm
from tests.emulators.compute_engine.wire import PROJECT_NUMBER
from tests.emulators.guests import ec2_metadata_server
from tests.emulators.machines import GuestSpec

_ROOT = "/computeMetadata/v1/"
_LONGEST_WAIT = 600.0


class Metadata:
    """What the server says about each guest; `GuestEnvironment`'s metadata service."""

    def __init__(self) -> None:
        self.find: Callable[[str], Vm | None] = lambda _: None  # the emulated cloud's instances, by address
        self._news = threading.Condition()
        self._count = 0

    def changed(self) -> None:
        """Wakes those that wait for a change."""
        with self._news:
            self._count += 1
            self._news.notify_all()

    def add(self, spec: GuestSpec) -> None:
        """Nothing to be kept: the instances know their addresses."""

    def remove(self, spec: GuestSpec) -> None:
        """Nothing to be forgotten."""

    def interrupt(self, instance_id: str, at: datetime) -> None:
        """Instances know whether they are preempted."""

    def serve(self, address: str, device: str) -> http.server.ThreadingHTTPServer:
        return ec2_metadata_server.serve(type("Handler", (_Handler,), {"metadata": self}), address, device)

    def value(self, address: str, path: str) -> str | None:
        """What is at a path; None if there is nothing."""
        vm = self.find(address)
        if vm is None:
            return None
        project, zone, name = vm.key
        values = {
            "instance/hostname": f"{name}.{zone}.c.{project}.internal",
            "instance/id": vm.row["id"],
            "instance/machine-type": f"projects/{PROJECT_NUMBER}/machineTypes/{vm.kind.name}",
            "instance/maintenance-event": "NONE",
            "instance/name": name,
            "instance/preempted": "TRUE" if vm.preempted else "FALSE",
            "instance/zone": f"projects/{PROJECT_NUMBER}/zones/{zone}",
            "project/project-id": project,
            "project/numeric-project-id": PROJECT_NUMBER,
            **{f"instance/attributes/{key}": text for key, text in vm.metadata.items()},
        }
        return values.get(path)

    def wait(self, address: str, path: str, last_etag: str, seconds: float) -> str | None:
        """The value, when it is another one than it was, or the time is over."""
        deadline = time.monotonic() + min(seconds, _LONGEST_WAIT)
        before = last_etag or etag(self.value(address, path))
        while True:
            count = self._count
            value = self.value(address, path)  # takes the cloud's lock, and who holds that may tell of a change
            if etag(value) != before or time.monotonic() >= deadline:
                return value
            with self._news:
                if self._count == count:
                    self._news.wait(min(1.0, deadline - time.monotonic()))


def etag(value: str | None) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


class _Handler(http.server.BaseHTTPRequestHandler):
    metadata: Metadata
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if self.headers.get("Metadata-Flavor") != "Google":
            return self._reply(403, b"<!DOCTYPE html>Missing Metadata-Flavor:Google header.\n")
        path = urllib.parse.unquote(path.removeprefix(_ROOT))
        asked, address = dict(urllib.parse.parse_qsl(query)), str(self.client_address[0])
        if asked.get("wait_for_change", "").lower() == "true":
            seconds = float(asked.get("timeout_sec") or _LONGEST_WAIT)
            value = self.metadata.wait(address, path, asked.get("last_etag", ""), seconds)
        else:
            value = self.metadata.value(address, path)
        if value is None:
            return self._reply(404)
        return self._reply(200, value.encode(), ETag=etag(value))

    def _reply(self, code: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        length = str(len(body))
        fixed = {"Metadata-Flavor": "Google", "Content-Type": "application/text", "Content-Length": length}
        for name, value in {**fixed, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        return "Metadata Server for VM"

    def log_message(self, *_: object) -> None:
        """Nothing."""

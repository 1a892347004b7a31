"""Google's metadata server of the emulated guests, at the address that every cloud's has.

Answers by the address that asks. Source: cloud.google.com/compute/docs/metadata/overview, .../querying-metadata,
.../manage-guest-attributes and .../instances/create-use-spot (2026-11).
"""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import threading
import time
import urllib.parse
from collections.abc import Callable
from datetime import datetime
from typing import Any

from tests.emulators.compute_engine.catalog import last_part
from tests.emulators.compute_engine.vm import Vm
from tests.emulators.compute_engine.wire import PROJECT_NUMBER
from tests.emulators.guests import ec2_metadata_server
from tests.emulators.machines import GuestSpec

ROOT = "computeMetadata/v1"
_GUEST_KEY = re.compile(r"instance/guest-attributes/([A-Za-z0-9_-]+)/([A-Za-z0-9_-]+)")
_LONGEST_WAIT = 600.0


class Metadata:
    """What the server says about each guest; `House`'s metadata service."""

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

    def node(self, address: str, path: str) -> Any:
        """The directory or the value at a path; None if there is none."""
        vm = self.find(address)
        if vm is None:
            return None
        node: Any = _tree(vm)
        for part in filter(None, path.split("/")):
            if not isinstance(node, dict) or part not in node:
                return None
            node = node[part]
        return node

    def wait(self, address: str, path: str, last_etag: str, seconds: float) -> Any:
        """The node, when it is another one than it was, or the time is over."""
        deadline = time.monotonic() + min(seconds, _LONGEST_WAIT)
        before = last_etag or etag(self.node(address, path))
        while True:
            count = self._count
            node = self.node(address, path)  # takes the cloud's lock, and who holds that may tell of a change
            if etag(node) != before or time.monotonic() >= deadline:
                return node
            with self._news:
                if self._count == count:
                    self._news.wait(min(1.0, deadline - time.monotonic()))


def _tree(vm: Vm) -> dict[str, Any]:
    project, zone, name = vm.key
    network = vm.row["networkInterfaces"][0]
    place = f"projects/{PROJECT_NUMBER}"
    configs = {
        str(n): {"external-ip": each.get("natIP", ""), "type": each["type"]}
        for n, each in enumerate(network.get("accessConfigs", []))
    }
    scheduling = vm.row["scheduling"]
    boot = vm.row["disks"][0]
    instance: dict[str, Any] = {
        "attributes": vm.metadata,
        "cpu-platform": vm.row["cpuPlatform"],
        "description": vm.row.get("description", ""),
        "disks": {
            "0": {
                "device-name": boot["deviceName"],
                "index": "0",
                "interface": "SCSI",
                "mode": "READ_WRITE",
                "type": "PERSISTENT-BALANCED",
            }
        },
        "guest-attributes": _nested(vm.guest_attributes),
        "hostname": f"{name}.{zone}.c.{project}.internal",
        "id": vm.row["id"],
        "image": "",
        "licenses": {},
        "machine-type": f"{place}/machineTypes/{vm.kind.name}",
        "maintenance-event": "NONE",
        "name": name,
        "network-interfaces": {
            "0": {
                "access-configs": configs,
                "ip": network["networkIP"],
                "mac": "42:01:0a:80:00:02",
                "mtu": "1460",
                "network": f"{place}/networks/{last_part(network['network'])}",
                "dns-servers": "169.254.169.254",
            }
        },
        "preempted": "TRUE" if vm.preempted else "FALSE",
        "remaining-cpu-time": "-1",
        "scheduling": {
            "automatic-restart": str(scheduling.get("automaticRestart", True)).upper(),
            "on-host-maintenance": scheduling.get("onHostMaintenance", "MIGRATE"),
            "preemptible": str(bool(scheduling.get("preemptible"))).upper(),
        },
        "service-accounts": {},
        "tags": json.dumps(vm.row["tags"]["items"]),
        "virtual-clock": {"drift-token": "0"},
        "zone": f"{place}/zones/{zone}",
    }
    return {
        "instance": instance,
        "oslogin": {},
        "project": {"attributes": {}, "numeric-project-id": PROJECT_NUMBER, "project-id": project},
    }


def _nested(flat: dict[str, str]) -> dict[str, dict[str, str]]:
    tree: dict[str, dict[str, str]] = {}
    for key, value in flat.items():
        space, _, name = key.partition("/")
        tree.setdefault(space, {})[name] = value
    return tree


def etag(node: Any) -> str:
    return hashlib.sha256(json.dumps(node, sort_keys=True).encode()).hexdigest()[:16]


def _listing(node: dict[str, Any]) -> str:
    return "".join(f"{name}/\n" if isinstance(each, dict) else f"{name}\n" for name, each in node.items())


def _camel(node: Any) -> Any:
    """As ``recursive=true`` shows it: keys without hyphens, but for those that users have chosen."""
    if not isinstance(node, dict):
        return node
    return {
        re.sub(r"-(\w)", lambda m: m[1].upper(), name): each if name.endswith("attributes") else _camel(each)
        for name, each in node.items()
    }


class _Handler(http.server.BaseHTTPRequestHandler):
    metadata: Metadata
    protocol_version = "HTTP/1.1"

    def _path(self) -> tuple[str, dict[str, str]] | None:
        """Below the version, and the query; None if the request has been refused."""
        path, _, query = self.path.partition("?")
        if path == "/":
            self._reply(200, b"0.1/\ncomputeMetadata/\n")
            return None
        if self.headers.get("Metadata-Flavor") != "Google":
            self._reply(
                403, b"<!DOCTYPE html><title>Error 403 (Forbidden)!!1</title>Missing Metadata-Flavor:Google header.\n"
            )
            return None
        if self.headers.get("X-Forwarded-For"):
            self._reply(403, b"<!DOCTYPE html><title>Error 403 (Forbidden)!!1</title>")
            return None
        if not path.startswith(f"/{ROOT}/") and path != f"/{ROOT}":
            self._reply(404)
            return None
        found = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        return urllib.parse.unquote(path.removeprefix(f"/{ROOT}").removeprefix("/")), found

    def do_GET(self) -> None:
        where = self._path()
        if where is None:
            return None
        (path, query), address = where, str(self.client_address[0])
        if query.get("wait_for_change", "").lower() == "true":
            seconds = float(query.get("timeout_sec") or _LONGEST_WAIT)
            node = self.metadata.wait(address, path, query.get("last_etag", ""), seconds)
        else:
            node = self.metadata.node(address, path)
        if node is None:
            return self._reply(404)
        if not isinstance(node, dict):
            text, kind = str(node), "application/text"
            if query.get("alt") == "json":
                text, kind = json.dumps(node), "application/json"
            return self._reply(200, text.encode(), kind, ETag=etag(node))
        if query.get("recursive", "").lower() == "true":
            return self._reply(200, json.dumps(_camel(node)).encode(), "application/json", ETag=etag(node))
        if path and not path.endswith("/"):
            return self._reply(301, Location=f"/{ROOT}/{path}/")
        return self._reply(200, _listing(node).encode(), ETag=etag(node))

    def do_PUT(self) -> None:
        self._write(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def do_DELETE(self) -> None:
        self._write(None)

    def _write(self, value: bytes | None) -> None:
        """Guest attributes: the only thing that a guest can say to the outside."""
        where = self._path()
        if where is None:
            return None
        key, vm = _GUEST_KEY.fullmatch(where[0]), self.metadata.find(str(self.client_address[0]))
        if key is None or vm is None:
            return self._reply(404)
        if vm.metadata.get("enable-guest-attributes", "").upper() != "TRUE":
            return self._reply(403, b"Guest attributes endpoint access is disabled.\n")
        name = f"{key[1]}/{key[2]}"
        if value is None:
            vm.guest_attributes.pop(name, None)
        else:
            vm.guest_attributes[name] = value.decode("utf-8", "replace")
        self.metadata.changed()
        return self._reply(200)

    def _reply(self, code: int, body: bytes = b"", kind: str = "application/text", **headers: str) -> None:
        self.send_response(code)
        everything = {
            "Metadata-Flavor": "Google",
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "X-XSS-Protection": "0",
            "X-Frame-Options": "SAMEORIGIN",
            **headers,
        }
        for name, value in everything.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        return "Metadata Server for VM"

    def log_message(self, *_: object) -> None:
        """Nothing."""

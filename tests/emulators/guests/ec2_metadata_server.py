"""The instance metadata service of the guests, version 2 only, at its usual address.

Answers by the address that asks: user data, identity document, and the metadata that cloud-init and agents read.
"""

import http.server
import json
import secrets
import socket
import threading
import time
from datetime import UTC, datetime
from typing import Any

from tests.emulators.machines import GuestSpec

TTL_HEADER = "X-aws-ec2-metadata-token-ttl-seconds"
TOKEN_HEADER = "X-aws-ec2-metadata-token"
_VERSIONS = ("latest", "2009-04-04", "2016-09-02", "2018-09-24", "2021-03-23")


class Metadata:
    """What the service says about each guest."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._guests: dict[str, GuestSpec] = {}
        self._notices: dict[str, datetime] = {}
        self._tokens: dict[str, tuple[str, float]] = {}

    def add(self, spec: GuestSpec) -> None:
        """From now on its addresses are answered."""
        with self._lock:
            for address in filter(None, (spec.private_ip, spec.public_ip)):
                self._guests[address] = spec

    def remove(self, spec: GuestSpec) -> None:
        """Its addresses may be somebody else's now."""
        with self._lock:
            for address in (spec.private_ip, spec.public_ip):
                self._guests.pop(address, None)
            self._notices.pop(spec.instance_id, None)

    def interrupt(self, instance_id: str, at: datetime) -> None:
        """Shows the spot interruption notice."""
        with self._lock:
            self._notices[instance_id] = at

    def serve(self, address: str, device: str) -> http.server.ThreadingHTTPServer:
        return serve(type("Handler", (_Handler,), {"metadata": self}), address, device)

    def new_token(self, address: str, seconds: int) -> str:
        """For this guest alone."""
        token = secrets.token_urlsafe(40)
        with self._lock:
            self._tokens[token] = (address, time.monotonic() + seconds)
        return token

    def guest(self, address: str, token: str) -> GuestSpec | None:
        """Who asks; None without a token of its own that is still good."""
        with self._lock:
            owner, until = self._tokens.get(token, ("", 0.0))
            return self._guests.get(address) if owner == address and time.monotonic() < until else None

    def knows(self, address: str) -> bool:
        """Whether a guest has this address."""
        with self._lock:
            return address in self._guests

    def answer(self, spec: GuestSpec, path: str) -> bytes | None:
        """The document at a path below the version; None if there is none."""
        if path == "user-data":
            return spec.user_data or None
        if path == "dynamic/instance-identity/document":
            facts = {
                "instanceId": spec.instance_id,
                "region": spec.region,
                "availabilityZone": spec.zone,
                "accountId": "123456789012",
                "instanceType": spec.instance_type,
                "privateIp": spec.private_ip,
                "architecture": "x86_64",
                "version": "2017-09-30",
            }
            return json.dumps(facts).encode()
        tree = {"meta-data": self._tree(spec), "dynamic": {"instance-identity": {"document": ""}}, "user-data": ""}
        node: Any = tree
        for part in filter(None, path.split("/")):
            if not isinstance(node, dict) or part not in node:
                return None
            node = node[part]
        if isinstance(node, dict):
            return "\n".join(f"{name}/" if isinstance(each, dict) else name for name, each in node.items()).encode()
        return str(node).encode()

    def _tree(self, spec: GuestSpec) -> dict[str, Any]:
        host = f"ip-{spec.private_ip.replace('.', '-')}.ec2.internal"
        tree: dict[str, Any] = {
            "ami-id": "ami-0123456789abcdef0",
            "hostname": host,
            "instance-action": "none",
            "instance-id": spec.instance_id,
            "instance-life-cycle": "spot" if spec.spot else "on-demand",
            "instance-type": spec.instance_type,
            "local-hostname": host,
            "local-ipv4": spec.private_ip,
            "mac": "02:00:00:00:00:01",
            "placement": {"availability-zone": spec.zone, "region": spec.region},
            "reservation-id": "r-0123456789abcdef0",
            "security-groups": "default",
            "services": {"domain": "amazonaws.com", "partition": "aws"},
        }
        if spec.public_ip:
            tree["public-ipv4"] = spec.public_ip
        with self._lock:
            notice = self._notices.get(spec.instance_id)
        if notice is not None:
            when = notice.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            tree["spot"] = {
                "instance-action": json.dumps({"action": "terminate", "time": when}),
                "termination-time": when,
            }
        return tree


class _Handler(http.server.BaseHTTPRequestHandler):
    metadata: Metadata
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        address = str(self.client_address[0])
        if self.path.strip("/") != "latest/api/token" or not self.metadata.knows(address):
            return self._reply(404)
        seconds = self.headers.get(TTL_HEADER, "")
        if not seconds.isdigit() or not 1 <= int(seconds) <= 21600:
            return self._reply(400)
        return self._reply(200, self.metadata.new_token(address, int(seconds)).encode(), **{TTL_HEADER: seconds})

    def do_GET(self) -> None:
        spec = self.metadata.guest(str(self.client_address[0]), self.headers.get(TOKEN_HEADER, ""))
        if spec is None:
            return self._reply(401)
        version, _, path = self.path.partition("?")[0].lstrip("/").partition("/")
        found = self.metadata.answer(spec, path.rstrip("/")) if version in _VERSIONS else None
        return self._reply(200, found) if found is not None else self._reply(404)

    def _reply(self, code: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


def serve(
    handler: type[http.server.BaseHTTPRequestHandler], address: str, device: str
) -> http.server.ThreadingHTTPServer:
    """Serves in a thread, at port 80 and for the guests behind one device: the other cloud's are behind another."""
    server = http.server.ThreadingHTTPServer((address, 80), handler, bind_and_activate=False)
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
    server.server_bind()
    server.server_activate()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server

"""Uploads to presigned addresses, and the provider's notice, against a server on the loopback."""

import base64
import contextlib
import hashlib
import http.server
import io
import json
import os
import signal
import tarfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import pytest_socket

from costgpu.job.agent.observe.spot_notice import read_notice
from costgpu.job.agent.outputs.upload import upload_archive
from costgpu.models.job import EndReason, JobPhase
from tests.agent.harness import LISTENS, Machine
from tests.unit.agent.simulation import SimulatedClock
from tests.until import until

pytestmark = pytest.mark.slow


class Server(http.server.ThreadingHTTPServer):
    """A bucket, and the metadata services of two clouds."""

    def __init__(self, address: str) -> None:
        super().__init__((address, 0), Handler)
        self.stored: dict[str, bytes] = {}
        self.refuse: list[int] = []  # statuses for the next requests
        self.answers: dict[str, str] = {}
        self.etags = False  # whether who asks can wait for a change
        self.asked: list[tuple[bool, str | None]] = []  # whether it waited for a change, and what it was told
        self.url = f"http://{address}:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def _reply(self, code: int, body: bytes = b"", etag: str = "") -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        if etag:
            self.send_header("ETag", etag)
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        if self.path == "/latest/api/token":
            ok = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "").isdigit()
            self._reply(200 if ok else 400, b"TOKEN")
            return
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.refuse:
            self._reply(
                self.server.refuse.pop(0), b"<Error><Code>AccessDenied</Code><Signature>s3cret</Signature></Error>"
            )
            return
        if self.headers["Content-MD5"] != base64.b64encode(hashlib.md5(body).digest()).decode():
            self._reply(400, b"<Error><Code>BadDigest</Code></Error>")
            return
        self.server.stored[self.path.partition("?")[0]] = body
        self._reply(200)

    def do_GET(self) -> None:
        aws = self.headers.get("X-aws-ec2-metadata-token") == "TOKEN"
        google = self.headers.get("Metadata-Flavor") == "Google"
        path, _, query = self.path.partition("?")
        asked = dict(urllib.parse.parse_qsl(query))
        if asked.get("wait_for_change") == "true":
            end = time.monotonic() + float(asked["timeout_sec"])
            while _etag(self.server.answers[path]) == asked["last_etag"] and time.monotonic() < end:
                time.sleep(0.02)
        answer = self.server.answers.get(path) if aws or google else None
        etag = _etag(answer) if self.server.etags and answer is not None else ""
        self.server.asked.append((asked.get("wait_for_change") == "true", answer))
        self._reply(404 if answer is None else 200, (answer or "").encode(), etag)


def _etag(answer: str) -> str:
    return f'"{answer}/etag"'


@contextlib.contextmanager
def serving(address: str = "127.0.0.1") -> Iterator[Server]:
    """A server in a thread."""
    made = Server(address)
    thread = threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.shutdown()
        made.server_close()
        thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    pytest_socket.enable_socket()
    with serving() as made:
        yield made


def _uploads(server: Server) -> dict[str, str]:
    return {name: f"{server.url}/{name}?X-Amz-Signature=s3cret" for name in ("outputs", "logs")}


def _unpacked(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


JOB = """
import os
os.makedirs('out', exist_ok=True)
open('out/model.pt', 'wb').write(bytes(range(256)) * 5000)
open('out/ü' + 'x' * 150, 'w').write('long name')
open('empty', 'w').close()
print('trained')
"""


def test_uploaded_outputs_are_complete_and_the_machine_goes(
    new_machine: Callable[..., Machine], server: Server
) -> None:
    machine = new_machine(contact_seconds=0.3, linger_seconds=0.3)
    machine.run(JOB, uploads=_uploads(server))
    assert until(machine.ended_by) == "agent succeeded"
    assert _unpacked(server.stored["/outputs"]) == {
        "out/model.pt": bytes(range(256)) * 5000,
        "out/ü" + "x" * 150: b"long name",
        "empty": b"",
    }
    logs = _unpacked(server.stored["/logs"])
    status = json.loads(logs.pop("status.json"))
    assert logs == {"stdout.log": b"trained\n", "stderr.log": b""}
    assert (status["reason"], status["exit_code"], status["uploaded"]) == ("succeeded", 0, True)


def test_a_busy_store_is_asked_again(server: Server, tmp_path: Path) -> None:
    server.refuse = [503, 500]
    (tmp_path / "model").write_bytes(b"weights")
    clock = SimulatedClock()
    upload_archive(_uploads(server)["outputs"], [("model", str(tmp_path / "model"), 7, 0o644)], lambda: False, clock)
    assert _unpacked(server.stored["/outputs"]) == {"model": b"weights"}
    assert clock.elapsed == 1.0 + 2.0


@pytest.mark.parametrize("kind", ["imdsv2", "computemetadata"])
def test_a_metadata_service_that_does_not_answer_says_nothing(
    server: Server, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSTGPU_AGENT_METADATA_URL", "http://127.0.0.1:1")
    assert read_notice(kind).words == ""


def test_a_refused_upload_leaves_the_outputs_and_shows_no_address(
    new_machine: Callable[..., Machine], server: Server
) -> None:
    machine = new_machine(contact_seconds=0.1, linger_seconds=0.1)
    server.refuse = [403]
    machine.run(JOB, uploads=_uploads(server))
    until(lambda: machine.host.status().detail)
    status = machine.host.status()
    assert "HTTP 403 AccessDenied" in status.detail
    assert not status.uploaded
    assert len(machine.host.outputs().files) == 3
    for path in machine.home.rglob("*"):
        assert not path.is_file() or b"s3cret" not in path.read_bytes(), path


def test_a_daemon_that_was_killed_does_not_lose_the_addresses(
    new_machine: Callable[..., Machine], server: Server
) -> None:
    machine = new_machine(contact_seconds=0.3, linger_seconds=0.3)
    machine.run(
        "import os, time\nopen('up', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)",
        uploads=_uploads(server),
    )
    until((machine.home / "work/up").exists)
    os.kill(machine.daemon(), signal.SIGKILL)
    (machine.home / "work/go").touch()
    until((machine.home / "exit.json").exists)  # perhaps while no daemon is there
    assert until(machine.ended_by) == "agent succeeded"
    assert set(server.stored) == {"/outputs", "/logs"}


def test_amazons_notice_ends_the_job_in_time(new_machine: Callable[..., Machine], server: Server) -> None:
    path = "/latest/meta-data/spot/instance-action"
    machine = new_machine(metadata_url=server.url, notice_seconds=0.1)
    machine.run(LISTENS, spot=True, spot_notice="imdsv2", grace_seconds=30.0)
    until((machine.home / "work/up").exists)
    server.answers[path] = ""
    asked = len(server.asked)
    until(lambda: len(server.asked) > asked + 1)
    assert machine.host.status().reason is None
    server.answers[path] = '{"action": "terminate", "time": "2026-11-21T08:22:00Z"}'
    assert machine.follow().reason is EndReason.PREEMPTED
    assert (machine.home / "work/checkpoint").exists()


def test_googles_notice_comes_while_somebody_waits_for_it(new_machine: Callable[..., Machine], server: Server) -> None:
    path = "/computeMetadata/v1/instance/preempted"
    server.answers[path], server.etags = "FALSE", True
    machine = new_machine(metadata_url=server.url, notice_seconds=5)
    machine.run(LISTENS, spot=True, spot_notice="computemetadata", grace_seconds=30.0)
    until((machine.home / "work/up").exists)
    until(lambda: server.asked)
    assert machine.host.status().reason is None
    server.answers[path] = "TRUE"
    until(lambda: machine.host.status().reason is EndReason.PREEMPTED)
    assert [waited for waited, said in server.asked if said == "TRUE"] == [True]
    until(lambda: machine.host.status().phase is JobPhase.FINISHED)
    assert (machine.home / "work/checkpoint").exists()

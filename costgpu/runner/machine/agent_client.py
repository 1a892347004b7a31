"""A machine with the agent on it, spoken to through any `Transport`. Imports `host`, `job` and `errors`."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from costgpu.errors import HostUnreachable, MachineUnusable, OutputsDamaged, SyncRefused
from costgpu.models.job import EndReason, FileEntry, JobOrder, JobPhase, JobStatus, LogStream, Outputs
from costgpu.runner.agent.log_stream import HEADER, MAGIC, POSITION
from costgpu.runner.agent.main import REPLY
from costgpu.runner.files.download import fetch_verified
from costgpu.runner.files.tar import tar_stream
from costgpu.runner.machine.agent_bundle import agent_file, agent_sha256
from costgpu.runner.machine.host import Completed, LogPosition, Selection, Transport

LOG_NAMES = frozenset({"stdout.log", "stderr.log"})
_NOT_FOUND = 127
_SIGNALLED = 128  # and above: what a shell makes of a command that a signal ended
_SLOWEST_BYTES_PER_SECOND = 50_000.0  # what a transfer may take, before it counts as stuck
_HOLD_SECONDS, _USUAL_BYTES_PER_SECOND = 120.0, 1e6  # after that a client that fetches counts as gone
_MAX_FRAME = 16 << 20
_MAX_NOISE = 1 << 20  # bytes that a login may print before our own stream begins

# Finds a Python 3.8 or newer. $1 is the name to try first. What a shell calls python3 may be a wrapper: its own word
# for itself is used from then on.
_FIND_PYTHON = """
for name in "$1" python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 python3.8; do
    found=$(command -v "$name" 2>/dev/null) || continue
    "$found" -c 'import sys
sys.version_info < (3, 8) and sys.exit(1)
print("costgpu-python", sys.platform, sys.executable)' 2>/dev/null && exit 0
    "$found" -V 2>&1
done
exit 1
"""

# Stores the agent from stdin: verified, whole or not at all. Arguments: home, sha256.
_STORE = """
import hashlib, os, shlex, sys
home, sha256 = sys.argv[1:]
data = sys.stdin.buffer.read()
if hashlib.sha256(data).hexdigest() != sha256:
    sys.exit("the agent arrived damaged")
def put(path, data, mode):
    with open(path + ".new", "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    os.chmod(path + ".new", mode)
    os.replace(path + ".new", path)
os.makedirs(home, exist_ok=True)
name = "agent-%s.pyz" % sha256[:16]
put(os.path.join(home, name), data, 0o644)
text = '#!/bin/sh\\nexec %s -I "${0%%/*}/%s" "$@"\\n' % (shlex.quote(sys.executable), name)
put(os.path.join(home, "agent"), text.encode(), 0o755)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait for what, in seconds.

    Attributes:
        call: For the answer to a question.
        install: For the agent to come up.
        silence: Without a sign of life from a followed machine (it gives one every 5 s) the connection counts as lost.
        checksums: For the machine to read all outputs.
    """

    call: float = 60.0
    install: float = 120.0
    silence: float = 25.0
    checksums: float = 3600.0


class AgentHost:
    """Implements `costgpu.runner.machine.host.Host`.

    Args:
        transport: To the machine. Closed together with this.
        python: The machine's interpreter to try first, for the agent; the job has its own.
        patience: Time limits.
    """

    def __init__(self, transport: Transport, python: str = "python3", patience: Patience | None = None) -> None:
        self._transport = transport
        self._python = python
        self._patience = patience or Patience()
        self._agent = ("/bin/sh", f"{transport.home}/agent")

    def install(self) -> None:
        """Puts the agent there and starts it, if it is not running. Idempotent.

        Raises:
            HostUnreachable: The connection was lost, or the machine ended a command: it may be ending. Call again.
            MachineUnusable: Not Linux, no Python 3.8 or newer, no space, or the agent does not start.
        """
        wanted = f"agent-{agent_sha256()[:16]}.pyz"
        if self._installed(wanted):
            return
        python = self._find_python()
        stored = self._run(
            [python, "-c", _STORE, self._transport.home, agent_sha256()],
            stdin=agent_file(),
            timeout_seconds=self._patience.install,
        )
        if stored.returncode:
            raise _unusable("the agent could not be stored", stored)
        if not self._installed(wanted):
            raise MachineUnusable(
                "The agent does not start on the machine.", hint=f"See {self._transport.home}/agent.log there."
            )

    def _installed(self, wanted: str) -> bool:
        """Whether this very agent runs now; starts it if it is only stored."""
        there = self._run(
            [
                "/bin/sh",
                "-c",
                'test -f "$1" && exec /bin/sh "$2" install',
                "sh",
                f"{self._transport.home}/{wanted}",
                self._agent[1],
            ],
            timeout_seconds=self._patience.install,
        )
        reply = _reply(there)
        if reply is None or "error" in reply:
            if reply is not None and there.returncode == 0:
                raise MachineUnusable(f"The agent does not start on the machine: {reply['error']}")
            return False
        return str(reply["program"]).endswith("/" + wanted)

    def _run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_seconds: float) -> Completed:
        """A command of the installation; one that a signal ended says nothing about the machine's fitness."""
        completed = self._transport.run(argv, stdin=stdin, timeout_seconds=timeout_seconds)
        if _was_ended(completed):
            raise HostUnreachable("The machine ended the command without an answer.")
        return completed

    def _find_python(self) -> str:
        answer = self._run(["/bin/sh", "-c", _FIND_PYTHON, "sh", self._python], timeout_seconds=self._patience.call)
        lines = answer.stdout.decode("utf-8", "replace").splitlines()
        for line in lines:
            if line.startswith("costgpu-python "):
                _, platform, path = line.split(" ", 2)
                if platform != "linux":
                    raise MachineUnusable(f"The agent needs Linux, and this machine runs {platform}.")
                return path
        found = ", ".join(line.strip() for line in lines if line.startswith("Python ")) or "none at all"
        raise MachineUnusable(
            f"The machine has no Python 3.8 or newer (found: {found}).",
            hint="Choose an image with Python 3.8 or newer.",
        )

    def send(self, selection: Selection) -> int:
        """Sends the files that are not there yet, verified on arrival; returns the bytes that travelled.

        Raises:
            SyncRefused: A file changed while it was being sent.
        """
        files = [[entry.path, entry.size, entry.sha256, entry.mode] for entry in selection.files]
        expected = self._call(
            "expect",
            self._transfer_seconds(selection.total_bytes),
            files=files,
            links=dict(selection.links),
            folders=list(selection.folders),
        )
        lacking = set(expected["lacking"])
        if not lacking:
            return 0
        entries = [entry for entry in selection.files if entry.path in lacking]
        travelled = 0

        def counted() -> Iterator[bytes]:
            nonlocal travelled
            for chunk in tar_stream(selection.root, entries):
                travelled += len(chunk)
                yield chunk

        completed = self._transport.run(
            [*self._agent, "receive"],
            stdin=counted(),
            timeout_seconds=self._transfer_seconds(sum(entry.size for entry in entries)),
        )
        self._checked(completed)
        return travelled

    def _transfer_seconds(self, size: int) -> float:
        return self._patience.call + size / _SLOWEST_BYTES_PER_SECOND

    def start(self, order: JobOrder, secrets: Mapping[str, str], uploads: Mapping[str, str]) -> None:
        """Starts the job, once; secrets and addresses travel on standard input."""
        self._call("start", order=asdict(order), secrets=dict(secrets), uploads=dict(uploads))

    def status(self) -> JobStatus:
        """Now."""
        return _status(self._call("status"))

    def cancel(self) -> None:
        """SIGTERM, grace, SIGKILL; returns at once."""
        self._call("cancel")

    def follow(self, position: LogPosition, sink: Callable[[LogStream, bytes], None]) -> JobStatus:
        """Hands every byte from `position` on to `sink`; returns when the job is over.

        Raises:
            HostUnreachable: The stream ended early, or there was no sign of life. Follow again from where `sink` is.
        """
        argv = [*self._agent, "follow", str(position.stdout), str(position.stderr)]
        expected = {LogStream.STDOUT: position.stdout, LogStream.STDERR: position.stderr}
        with self._transport.stream(argv) as chunks:
            for kind, payload in _frames(_watched(chunks, self._patience.silence)):
                if kind == b"s":
                    return _status(json.loads(payload))
                if kind in b"oe":
                    stream = LogStream.STDOUT if kind == b"o" else LogStream.STDERR
                    (at,) = POSITION.unpack_from(payload)
                    data = payload[POSITION.size :]
                    if at != expected[stream]:
                        raise HostUnreachable(f"The job's output is broken: byte {at} came for {expected[stream]}.")
                    expected[stream] += len(data)
                    sink(stream, data)
                else:
                    sink(LogStream.STDOUT, b"")  # a sign of life: whoever watches can look at the clock
        raise HostUnreachable("The connection to the machine ended while the job was running.")

    def outputs(self) -> Outputs:
        """What the job has made, as the machine tells it."""
        answer = self._call("outputs", self._patience.checksums)
        return Outputs(
            files=tuple(_entry(row) for row in answer["files"]),
            missing=tuple(str(pattern) for pattern in answer["missing"]),
            unreadable={str(path): str(why) for path, why in answer.get("unreadable", {}).items()},
        )

    def fetch(self, entries: Sequence[FileEntry], folder: Path) -> None:
        """Brings outputs into `folder`, each verified before it gets its name.

        Raises:
            OutputsDamaged: A checksum does not match, or a path leads out of `folder`.
        """
        self._fetch("work", entries, folder)

    def fetch_logs(self, folder: Path) -> None:
        """Brings both logs into `folder`; verified if the job is over."""
        entries = tuple(_entry(row) for row in self._call("logs", self._patience.checksums)["files"])
        if not {entry.path for entry in entries} <= LOG_NAMES:
            raise OutputsDamaged("The machine names other logs than the job's two.", hint="Nothing was fetched.")
        self._fetch("", entries, folder)

    def collected(self) -> None:
        """Tells the agent that outputs and logs are home and verified: if the client dies now, the machine ends."""
        self._call("collected")

    def _fetch(self, below: str, entries: Sequence[FileEntry], folder: Path) -> None:
        source = f"{self._transport.home}/{below}".rstrip("/")
        fetch_verified(self._transport, source, entries, folder, announce=self._hold)
        self._call("hold", seconds=0.0)

    def _hold(self, size: int) -> None:
        """Tells the agent for how long we may be busy without calling, so that it does not take us for gone."""
        self._call("hold", seconds=_HOLD_SECONDS + size / _USUAL_BYTES_PER_SECOND)

    def close(self) -> None:
        """Lets go of the connection."""
        self._transport.close()

    def _call(self, method: str, timeout: float | None = None, /, **arguments: object) -> dict[str, Any]:
        request = json.dumps({"method": method, **arguments}).encode()
        return self._checked(
            self._transport.run([*self._agent, "call"], stdin=request, timeout_seconds=timeout or self._patience.call)
        )

    def _checked(self, completed: Completed) -> dict[str, Any]:
        reply = _reply(completed)
        if reply is None:
            if completed.returncode == _NOT_FOUND or b"No such file" in completed.stderr:
                raise _unusable("the agent is not on the machine", completed)
            if _was_ended(completed) or completed.returncode == 0:
                raise HostUnreachable("The machine ended the command without an answer.")
            raise _unusable("the agent failed", completed)
        if "error" not in reply:
            return reply
        if reply.get("kind") == "Damaged":
            raise SyncRefused(
                f"The working folder could not be sent: {reply['error'].partition(': ')[2]}",
                hint="Run it again when nothing changes the folder.",
            )
        if reply.get("kind") in {"ConnectionRefusedError", "ConnectionResetError", "FileNotFoundError", "TimeoutError"}:
            raise HostUnreachable(f"The agent on the machine does not answer: {reply['error']}")
        raise MachineUnusable(f"The agent on the machine failed: {reply['error']}")


def _was_ended(completed: Completed) -> bool:
    """Whether a signal ended it, as when its machine is switched off."""
    return completed.returncode < 0 or completed.returncode >= _SIGNALLED


def _unusable(what: str, completed: Completed) -> MachineUnusable:
    words = completed.stderr.decode("utf-8", "replace").strip().splitlines()
    return MachineUnusable(f"The machine cannot be used: {what}" + (f" ({words[-1][:300]})." if words else "."))


def _reply(completed: Completed) -> dict[str, Any] | None:
    for line in reversed(completed.stdout.decode("utf-8", "replace").splitlines()):
        if line.startswith(REPLY):
            try:
                value = json.loads(line.removeprefix(REPLY))
            except ValueError:
                return None
            return value if isinstance(value, dict) else None
    return None


def _entry(row: Sequence[Any]) -> FileEntry:
    try:
        path, size, sha256, mode = row
        return FileEntry(path=str(path), size=int(size), sha256=str(sha256), mode=int(mode))
    except (TypeError, ValueError) as error:
        raise HostUnreachable("The machine's answer cannot be understood.") from error


def _status(values: Mapping[str, Any]) -> JobStatus:
    """Raises `HostUnreachable` for an answer that is none."""
    try:
        return _read_status(values)
    except (KeyError, TypeError, ValueError) as error:
        raise HostUnreachable(f"The machine's answer cannot be understood: {type(error).__name__}.") from error


def _read_status(values: Mapping[str, Any]) -> JobStatus:
    reason = values["reason"]
    return JobStatus(
        phase=JobPhase(values["phase"]),
        reason=None if reason is None else EndReason(reason),
        exit_code=values["exit_code"],
        detail=str(values["detail"]),
        started_epoch=values["started_epoch"],
        job_started_epoch=values.get("job_started_epoch"),  # agents before 2026-11 did not tell
        finished_epoch=values["finished_epoch"],
        stdout_bytes=int(values["stdout_bytes"]),
        stderr_bytes=int(values["stderr_bytes"]),
        uploaded=bool(values["uploaded"]),
    )


def _watched(chunks: Iterator[bytes], silence: float) -> Iterator[bytes]:
    """The same chunks; raises `HostUnreachable` when none came for too long."""
    arrived: queue.Queue[bytes | BaseException | None] = queue.Queue(maxsize=64)
    left = threading.Event()

    def hand_on(item: bytes | BaseException | None) -> None:
        while not left.is_set():
            try:
                arrived.put(item, timeout=1.0)
                return
            except queue.Full:
                continue

    def read() -> None:
        try:
            for chunk in chunks:
                hand_on(chunk)
                if left.is_set():
                    return
            hand_on(None)
        except BaseException as error:  # noqa: BLE001 - handed on to whoever reads
            hand_on(error)

    threading.Thread(target=read, name="costgpu-follow", daemon=True).start()
    try:
        while True:
            try:
                item = arrived.get(timeout=silence)
            except queue.Empty:
                raise HostUnreachable(f"The machine gave no sign of life for {silence:.0f} s.") from None
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        left.set()


def _frames(chunks: Iterator[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Kind and payload of each frame; whatever comes before the stream's beginning is a login's chatter."""
    buffer = bytearray()
    begun = False
    for chunk in chunks:
        buffer += chunk
        if not begun:
            start = buffer.find(MAGIC)
            if start < 0:
                if len(buffer) > _MAX_NOISE:
                    raise HostUnreachable("The machine does not speak to us as its agent would.")
                continue
            del buffer[: start + len(MAGIC)]
            begun = True
        at = 0
        while len(buffer) - at >= HEADER.size:
            kind, length = HEADER.unpack_from(buffer, at)
            if length > _MAX_FRAME:
                raise HostUnreachable("The stream from the machine is broken.")
            end = at + HEADER.size + length
            if len(buffer) < end:
                break
            yield kind, bytes(buffer[at + HEADER.size : end])
            at = end
        del buffer[:at]

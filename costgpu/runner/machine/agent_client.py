"""A machine with the agent on it, spoken to through any `Transport`. Imports `host`, `job` and `errors`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from costgpu.errors import HostUnreachable, LedgerDamaged, MachineUnusable, OutputsDamaged, SyncRefused
from costgpu.ledger.codec import from_json
from costgpu.models.job import FileEntry, JobOrder, JobStatus, LogStream, Outputs
from costgpu.runner.agent.log_stream import POSITION
from costgpu.runner.files.download import fetch_verified
from costgpu.runner.files.tar import tar_stream
from costgpu.runner.machine.agent_reply import parse_reply, read_frames, unusable, was_ended, watch
from costgpu.runner.machine.host import Completed, LogPosition, Selection, Transport
from costgpu.runner.machine.install_agent import install_agent
from costgpu.runner.timeouts import AgentTimeouts

LOG_NAMES = frozenset({"stdout.log", "stderr.log"})
_NOT_FOUND = 127
_SLOWEST_BYTES_PER_SECOND = 50_000.0  # what a transfer may take, before it counts as stuck
_HOLD_SECONDS, _USUAL_BYTES_PER_SECOND = 120.0, 1e6  # after that a client that fetches counts as gone


class AgentHost:
    """Implements `costgpu.runner.machine.host.Host`.

    Args:
        transport: To the machine. Closed together with this.
        python: The machine's interpreter to try first, for the agent; the job has its own.
    """

    def __init__(self, transport: Transport, python: str = "python3", timeouts: AgentTimeouts | None = None) -> None:
        self._transport = transport
        self._python = python
        self._timeouts = timeouts or AgentTimeouts()
        self._agent = ("/bin/sh", f"{transport.home}/agent")

    def install(self) -> None:
        """Puts the agent there and starts it, if it is not running. Idempotent.

        Raises:
            HostUnreachable: The connection was lost, or the machine ended a command: it may be ending. Call again.
            MachineUnusable: Not Linux, no Python 3.8 or newer, no space, or the agent does not start.
        """
        install_agent(self._transport, self._python, self._timeouts)

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
        return self._timeouts.call + size / _SLOWEST_BYTES_PER_SECOND

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
            for kind, payload in read_frames(watch(chunks, self._timeouts.silence)):
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
        answer = self._call("outputs", self._timeouts.checksums)
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
        entries = tuple(_entry(row) for row in self._call("logs", self._timeouts.checksums)["files"])
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
            self._transport.run([*self._agent, "call"], stdin=request, timeout_seconds=timeout or self._timeouts.call)
        )

    def _checked(self, completed: Completed) -> dict[str, Any]:
        reply = parse_reply(completed)
        if reply is None:
            if completed.returncode == _NOT_FOUND or b"No such file" in completed.stderr:
                raise unusable("the agent is not on the machine", completed)
            if was_ended(completed) or completed.returncode == 0:
                raise HostUnreachable("The machine ended the command without an answer.")
            raise unusable("the agent failed", completed)
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


def _entry(row: Sequence[Any]) -> FileEntry:
    try:
        path, size, sha256, mode = row
        return FileEntry(path=str(path), size=int(size), sha256=str(sha256), mode=int(mode))
    except (TypeError, ValueError) as error:
        raise HostUnreachable("The machine's answer cannot be understood.") from error


def _status(values: Mapping[str, Any]) -> JobStatus:
    """Raises `HostUnreachable` for an answer that is none."""
    try:
        return from_json(JobStatus, values)
    except LedgerDamaged as error:
        raise HostUnreachable(f"The machine's answer cannot be understood: {error.message}") from error

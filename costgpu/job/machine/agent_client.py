"""A machine with the agent on it, spoken to through any `Transport`. Imports `host`, `job` and `errors`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeVar

from costgpu.clock import Clock, SystemClock
from costgpu.errors import HostUnreachable, OutputsDamaged
from costgpu.job.agent.outputs.checkpoints import STORE
from costgpu.job.files import agent_report
from costgpu.job.files.download import fetch_verified
from costgpu.job.files.selection import FileSelection
from costgpu.job.files.tar import tar_stream
from costgpu.job.machine import agent_reply
from costgpu.job.machine.agent_reply import Reply, bad_reply, checked_reply
from costgpu.job.machine.host import LogPosition, Transport, transfer_seconds
from costgpu.job.machine.install_agent import install_agent
from costgpu.job.machine.log_frames import SignOfLife, read_frames
from costgpu.job.timeouts import CALL_SECONDS, CHECKSUMS_SECONDS, SILENCE_SECONDS
from costgpu.models.job import Checkpoint, FileEntry, JobOrder, JobStatus, LogStream, Outputs

_HOLD_SECONDS, _USUAL_BYTES_PER_SECOND = 120.0, 1e6  # after that a client that fetches counts as gone

LOG_NAMES = frozenset({"stdout.log", "stderr.log"})
T = TypeVar("T")


class AgentHost:
    """Implements `costgpu.job.machine.host.Host`.

    Args:
        transport: To the machine. Closed together with this.
        python: The machine's interpreter to try first, for the agent; the job has its own.
        clock: Tells how long a frame takes.
    """

    def __init__(self, transport: Transport, python: str = "python3", clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._transport = transport
        self._python = python
        self._agent = ("/bin/sh", f"{transport.home}/agent")

    def install(self) -> None:
        """As `Host.install`."""
        install_agent(self._transport, self._python)

    def driver_trouble(self, gpus: int, seconds: float) -> str:
        """As `Host.driver_trouble`."""
        return self._call(
            "driver",
            lambda reply: agent_reply.value(reply, "trouble", str),
            seconds + CALL_SECONDS,
            gpus=gpus,
            seconds=seconds,
        )

    def send(self, selection: FileSelection) -> int:
        """As `Host.send`."""
        files = [
            [one.path, one.size, one.sha256, one.mode, *([one.modified_ns] if one.modified_ns else [])]
            for one in selection.files
        ]
        lacking = self._call(
            "expect",
            _lacking,
            transfer_seconds(selection.total_bytes),
            files=files,
            links=dict(selection.links),
            folders=list(selection.folders),
        )
        if not lacking:
            return 0
        wanted = [entry for entry in selection.files if entry.path in lacking]
        size, travelled = sum(entry.size for entry in wanted), 0

        def counted() -> Iterator[bytes]:
            nonlocal travelled
            for chunk in tar_stream(selection.root, wanted, selection.added):
                travelled += len(chunk)
                yield chunk

        self.hold(size)
        completed = self._transport.run(
            [*self._agent, "receive"], stdin=counted(), timeout_seconds=transfer_seconds(size)
        )
        checked_reply(completed, "receive")
        self._call("hold", _nothing, seconds=0.0)
        return travelled

    def start(self, order: JobOrder, secrets: Mapping[str, str], uploads: Mapping[str, str]) -> None:
        """As `Host.start`."""
        self._call("start", _nothing, order=asdict(order), secrets=dict(secrets), uploads=dict(uploads))

    def status(self) -> JobStatus:
        """Now."""
        return self._call("status", agent_report.status)

    def cancel(self) -> None:
        """SIGTERM, grace, SIGKILL; returns at once."""
        self._call("cancel", _nothing)

    def follow(self, position: LogPosition, sink: Callable[[LogStream, bytes], None]) -> JobStatus:
        """As `Host.follow`."""
        argv = [*self._agent, "follow", str(position.stdout), str(position.stderr)]
        expected = {LogStream.STDOUT: position.stdout, LogStream.STDERR: position.stderr}
        with self._transport.stream(argv, silence_seconds=SILENCE_SECONDS) as chunks:
            for frame in read_frames(chunks, SILENCE_SECONDS, self._clock.monotonic):
                if isinstance(frame, JobStatus):
                    return frame
                if isinstance(frame, SignOfLife):
                    sink(LogStream.STDOUT, b"")  # whoever watches can look at the clock
                    continue
                if frame.position != expected[frame.stream]:
                    raise HostUnreachable(
                        f"The job's output is broken: byte {frame.position} came for {expected[frame.stream]}."
                    )
                expected[frame.stream] += len(frame.data)
                sink(frame.stream, frame.data)
        raise HostUnreachable("The connection to the machine ended while the job was running.")

    def outputs(self) -> Outputs:
        """Return what the job has made, as the machine tells it."""
        return self._call("outputs", agent_report.outputs, CHECKSUMS_SECONDS)

    def fetch(self, entries: Sequence[FileEntry], folder: Path) -> None:
        """As `Host.fetch`."""
        self._fetch("work", entries, folder)

    def fetch_logs(self, folder: Path) -> None:
        """Bring both logs into `folder`; verified if the job is over."""
        entries = self._call("logs", agent_report.entries, CHECKSUMS_SECONDS)
        if not {entry.path for entry in entries} <= LOG_NAMES:  # beside the logs are the run's keys
            raise OutputsDamaged("The machine names other logs than the job's two.", hint="Nothing was fetched.")
        self._fetch("", entries, folder)

    def checkpoint(self, *, everything: bool = False) -> Checkpoint:
        """As `Host.checkpoint`."""
        found = self._call("checkpoint", agent_report.checkpoint, CHECKSUMS_SECONDS, everything=everything)
        store = f"{self._transport.home}/{STORE}"
        return replace(found, files=tuple(replace(each, source=f"{store}/{each.sha256}") for each in found.files))

    def collected(self) -> None:
        """As `Host.collected`."""
        self._call("collected", _nothing)

    def _fetch(self, below: str, entries: Sequence[FileEntry], folder: Path) -> None:
        source = f"{self._transport.home}/{below}".rstrip("/")
        fetch_verified(self._transport.download, source, entries, folder, announce=self.hold)
        self._call("hold", _nothing, seconds=0.0)

    def hold(self, size: int) -> None:
        """As `Host.hold`."""
        self._call("hold", _nothing, seconds=_HOLD_SECONDS + size / _USUAL_BYTES_PER_SECOND)

    def close(self) -> None:
        """Let go of the connection."""
        self._transport.close()

    def _call(
        self, method: str, parse: Callable[[Reply], T], seconds: float = CALL_SECONDS, /, **arguments: object
    ) -> T:
        request = json.dumps({"method": method, **arguments}).encode()
        completed = self._transport.run([*self._agent, "call"], stdin=request, timeout_seconds=seconds)
        reply = checked_reply(completed, method)
        try:
            return parse(reply)
        except ValueError as error:
            raise bad_reply(method, error) from error


def _lacking(reply: Reply) -> frozenset[str]:
    """Return which of the announced files the machine lacks."""
    return agent_reply.value(reply, "lacking", frozenset[str])


def _nothing(_reply: Reply) -> None:
    """There is nothing in the answer that anybody needs."""

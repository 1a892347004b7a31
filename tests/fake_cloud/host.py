"""A client's connection to a fake machine: the runner's `Host` protocol, structurally."""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from costgpu.errors import HostUnreachable, MachineUnusable, OutputsDamaged
from costgpu.job.agent.outputs.find_outputs import NO_OUTPUTS
from costgpu.models.job import Checkpoint, FileEntry, JobOrder, JobPhase, JobStatus, LogStream, Outputs
from tests.fake_cloud.guest import FakeJob, Guest
from tests.fake_cloud.script import PROGRESS

if TYPE_CHECKING:
    from costgpu.job.files.selection import FileSelection
    from costgpu.job.machine.host import LogPosition
    from tests.fake_cloud.cloud import FakeCloud

T = TypeVar("T")
STEP_SECONDS = 60.0  # a follower looks at least so often
LEAST_STEP_SECONDS = 0.001
COPIES = "checkpoints/"  # in front of a checksum: a content of a checkpoint on the machine


class FakeHost:
    """One connection. It dies with the machine, the network or `close`; the machine does not care."""

    def __init__(self, cloud: FakeCloud, instance_id: str) -> None:
        self._cloud = cloud
        self._instance_id = instance_id
        self._closed = False

    def install(self) -> None:
        """Puts the agent there."""

        def put(guest: Guest) -> None:
            if not guest.machine.python:
                raise MachineUnusable(
                    f"{self._instance_id} has no Python 3.8 or newer.", hint="Choose an image that has one."
                )
            guest.install(self._cloud.time())

        self._call("install", put)

    def driver_trouble(self, gpus: int, seconds: float) -> str:
        """Nothing, once the driver is there."""
        assert gpus > 0
        assert seconds > 0

        def ask(guest: Guest) -> str:
            there = self._cloud.time() >= guest.booted_at + guest.machine.driver_seconds
            return "" if there else "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."

        return self._call("driver", ask)

    def send(self, selection: FileSelection) -> int:
        """Sends what is not there yet."""

        def put(guest: Guest) -> int:
            changed = [entry for entry in selection.files if guest.files.get(entry.path) != entry]
            guest.files = {entry.path: entry for entry in selection.files}
            for entry in selection.files:
                if entry.modified_ns:  # of a checkpoint: the job begins with what was done by then
                    content = selection.added[entry.path].read_bytes()
                    assert hashlib.sha256(content).hexdigest() == entry.sha256
                    guest.restored = float(content) if entry.path == PROGRESS else guest.restored
            guest.links = dict(selection.links)
            return sum(entry.size for entry in changed)

        return self._call("send", put)

    def hold(self, size: int) -> None:
        """Tells the agent that its client is busy elsewhere; transfers take no time here."""
        self._call("hold", lambda _: None)

    def start(self, order: JobOrder, secrets: Mapping[str, str], uploads: Mapping[str, str]) -> None:
        """Starts the job, once."""

        def begin(guest: Guest) -> None:
            self._agent(guest)
            guest.start(self._cloud.time(), order, secrets, uploads)

        self._call("start", begin)

    def status(self) -> JobStatus:
        """Now; it is read from the machine's disk, so that a dead agent hides nothing."""
        return self._call("status", self._status)

    def follow(self, position: LogPosition, sink: Callable[[LogStream, bytes], None]) -> JobStatus:
        """Hands on what the job writes, as the clock goes on, until it is over."""
        seen = {LogStream.STDOUT: position.stdout, LogStream.STDERR: position.stderr}
        guest = self._call("follow", lambda guest: guest)
        with self._cloud.following(guest):
            while True:
                guest = self._reach()
                status = self._status(guest)
                news = list(self._news(guest, seen))
                for stream, data in news or [(LogStream.STDOUT, b"")]:  # nothing now and then: a sign of life
                    sink(stream, data)
                if status.phase is JobPhase.FINISHED:
                    return self._call("follow_end", self._status)
                self._wait(guest)

    def outputs(self) -> Outputs:
        """Those that match the order's patterns, and the patterns that match nothing."""

        def look(guest: Guest) -> Outputs:
            job = self._finished(guest)
            patterns = job.order.outputs
            if list(patterns) == NO_OUTPUTS:
                return Outputs()
            files = tuple(
                FileEntry(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest())
                for path, data in sorted(job.outputs.items())
                if not patterns or any(_matches(path, pattern) for pattern in patterns)
            )
            missing = tuple(each for each in patterns if not any(_matches(path, each) for path in job.outputs))
            return Outputs(files=files, missing=missing, unreadable=job.script.unreadable, trouble=job.trouble)

        return self._call("outputs", look)

    def fetch(self, entries: Sequence[FileEntry], folder: Path) -> None:
        """Writes them into the folder, one after the other; each is a call of its own (``fetch_file``)."""
        for entry in entries:
            self._cloud.call("fetch_file", entry.path, lambda entry=entry: self._fetch(entry, folder))  # type: ignore[misc]
        self._call("fetch", lambda _: None)

    def fetch_logs(self, folder: Path) -> None:
        """Writes ``stdout.log`` and ``stderr.log``."""

        def write(guest: Guest) -> None:
            job = guest.job
            for stream in LogStream:
                data = job.written(stream, self._cloud.time()) if job is not None else b""
                _write(folder / f"{stream}.log", data)

        self._call("fetch_logs", write)

    def checkpoint(self, *, everything: bool = False) -> Checkpoint:
        """The newest one that the job has made, by its script; at its end with all that it has left."""

        def look(guest: Guest) -> Checkpoint:
            self._agent(guest)
            found = checkpoint_of(guest.job, self._cloud.time(), self._cloud.epoch, everything=everything)[0]
            return replace(found, files=tuple(replace(each, source=COPIES + each.sha256) for each in found.files))

        return self._call("checkpoint", look)

    def collected(self) -> None:
        """Tells the agent that outputs and logs are home: if the client dies now, the machine ends."""

        def note(guest: Guest) -> None:
            self._agent(guest)
            job = self._finished(guest)
            job.collected_at = self._cloud.time() if job.collected_at is None else job.collected_at

        self._call("collected", note)

    def cancel(self) -> None:
        """Asks the agent to end the job."""
        self._call("cancel", lambda guest: guest.cancel(self._cloud.time()))

    def close(self) -> None:
        """Lets go."""
        self._closed = True

    def _call(self, method: str, carry_out: Callable[[Guest], T]) -> T:
        return self._cloud.call(method, self._instance_id, lambda: carry_out(self._reach()))

    def _reach(self) -> Guest:
        if self._closed:
            raise HostUnreachable(f"The connection to {self._instance_id} is closed.")
        guest = self._cloud.reach(self._instance_id)
        guest.heard(self._cloud.time())
        return guest

    def _agent(self, guest: Guest) -> None:
        if not guest.agent:
            raise HostUnreachable(f"The agent on {self._instance_id} does not answer.", hint="Install it again.")

    def _finished(self, guest: Guest) -> FakeJob:
        if guest.job is None or guest.job.finished_at is None:
            raise HostUnreachable(f"The job on {self._instance_id} is not over.")
        return guest.job

    def _status(self, guest: Guest) -> JobStatus:
        job, now = guest.job, self._cloud.time()
        if job is None:
            return JobStatus(phase=JobPhase.WAITING)
        finished = job.finished_at
        return JobStatus(
            phase=job.phase,
            reason=job.reason if finished is not None else None,
            exit_code=job.exit_code,
            out_of_memory=job.script.out_of_memory if finished is not None and job.exit_code else "",
            started_epoch=self._cloud.epoch(job.setup_at),
            job_started_epoch=self._cloud.epoch(job.job_at) if job.job_at is not None else None,
            finished_epoch=self._cloud.epoch(finished) if finished is not None else None,
            stdout_bytes=len(job.written(LogStream.STDOUT, now)),
            stderr_bytes=len(job.written(LogStream.STDERR, now)),
            uploaded=job.uploaded_at is not None,
        )

    def _news(self, guest: Guest, seen: dict[LogStream, int]) -> Iterator[tuple[LogStream, bytes]]:
        if guest.job is None:
            return
        now, passed = self._cloud.time(), dict.fromkeys(LogStream, 0)
        due = sorted((chunk for chunk in guest.job.chunks() if chunk[0] <= now), key=lambda chunk: chunk[0])
        for _, stream, data in due:
            fresh = data[max(0, seen[stream] - passed[stream]) :]
            passed[stream] += len(data)
            if fresh:
                seen[stream] += len(fresh)
                yield stream, fresh

    def _wait(self, guest: Guest) -> None:
        now = self._cloud.time()
        chunks = guest.job.chunks() if guest.job is not None else iter(())
        coming = min((at for at, _, _ in chunks if at > now), default=now + STEP_SECONDS)
        until = min(coming, self._cloud.next_event(self._instance_id), now + STEP_SECONDS)
        self._cloud.clock.sleep(max(until - now, LEAST_STEP_SECONDS))

    def _fetch(self, entry: FileEntry, folder: Path) -> None:
        guest, now, epoch = self._reach(), self._cloud.time(), self._cloud.epoch
        there: Mapping[str, bytes]
        if entry.source.startswith(COPIES):
            partly, wholly = (checkpoint_of(guest.job, now, epoch, everything=each)[1] for each in (False, True))
            there = {**partly, **wholly}
        else:
            there = self._finished(guest).outputs
        if entry.path not in there:
            raise OutputsDamaged(f"{entry.path} is not on {self._instance_id} any more.")
        data = there[entry.path]
        if self._cloud.damaged.get(entry.path, 0) > 0:
            self._cloud.damaged[entry.path] -= 1
            raise OutputsDamaged(f"{entry.path} arrived with another checksum.")
        _write(folder / entry.path, data)


def checkpoint_of(
    job: FakeJob | None, now: float, epoch: Callable[[float], float], *, everything: bool
) -> tuple[Checkpoint, dict[str, bytes]]:
    """The newest checkpoint, and its contents by their checksums."""
    number, done = job.saved(now) if job is not None else (0, 0.0)
    if job is None or job.job_at is None or number == 0:
        return Checkpoint(number=0, taken_epoch=0.0, files=()), {}
    files = dict(job.outputs) if everything else {}
    files[PROGRESS] = str(done).encode()
    by_sum = {hashlib.sha256(data).hexdigest(): data for data in files.values()}
    entries = tuple(
        FileEntry(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest(), modified_ns=1)
        for path, data in sorted(files.items())
    )
    taken = epoch(job.job_at + done - job.done_before)
    return Checkpoint(number=number + everything, taken_epoch=taken, files=entries), by_sum


def _matches(path: str, pattern: str) -> bool:
    whole = pattern.removeprefix("./").rstrip("/")
    return whole in ("", ".") or fnmatch.fnmatchcase(path, whole) or path.startswith(whole + "/")


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".part")
    fresh.write_bytes(data)
    fresh.replace(path)

"""What the engine needs of a machine: the Host protocol, and the Transport under it.

A `Transport` runs commands on a machine (over SSH, or right here). `AgentHost` (in `agent_client`) speaks through it
to the agent; the fake cloud implements `Host` by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from costgpu.errors import MachineUnusable
from costgpu.job.files.download import RemoteFile
from costgpu.job.files.selection import FileSelection
from costgpu.models.instance import Instance
from costgpu.models.job import Checkpoint, FileEntry, JobOrder, JobStatus, LogStream, Outputs

MAX_OUTPUT_BYTES = 64 << 20
"""What a command may write to stdout: 200,000 files by name, size and checksum."""

# What a transfer may take, before it counts as stuck.
_LEAST_TRANSFER_SECONDS, _SLOWEST_BYTES_PER_SECOND = 60.0, 50_000.0


def endless_output(command: str) -> MachineUnusable:
    """Return the error for a command that writes more than `MAX_OUTPUT_BYTES`."""
    return MachineUnusable(
        f"`{command}` on the machine has written more than {MAX_OUTPUT_BYTES >> 20} MiB.",
        hint="If the job has left more than a hundred thousand files: pack them into one, or name some with --outputs.",
    )


def transfer_seconds(size: int) -> float:
    """Return how long so many bytes may travel, in seconds."""
    return _LEAST_TRANSFER_SECONDS + size / _SLOWEST_BYTES_PER_SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPosition:
    """How many bytes of each stream have been seen."""

    stdout: int = 0
    stderr: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The one-run keys, as paths in the run's private folder and as text."""

    user_private: Path  # file with the private key to log in with (mode 0600)
    user_public: str  # ``ssh-ed25519 AAAA...``: what the machine lets in
    host_private: str = field(repr=False)  # OpenSSH private key that the machine identifies itself with. Never printed
    host_public: str  # its public half, the only one that is believed


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A command that has ended on the machine."""

    returncode: int
    stdout: bytes
    stderr: bytes


class Transport(Protocol):
    """Commands and files on one machine. Errors: `HostUnreachable`, `HostKeyMismatch`."""

    @property
    def home(self) -> str:
        """Absolute path of costgpu's folder on the machine: ``/opt/costgpu``, or the local instance's folder."""

    def run(
        self, argv: Sequence[str], *, stdin: bytes | Iterable[bytes] = b"", timeout_seconds: float = 60
    ) -> Completed:
        """Run a command to its end.

        Args:
            argv: The command. A missing one is a return code of 127; one killed by a signal, minus its number.
            stdin: All of it, or pieces, which are taken only as fast as they are read.
            timeout_seconds: For the command to take all of stdin, waiting for its pieces not counted; and again from
                its end to the end of the command.

        Raises:
            MachineUnusable: It wrote more than `MAX_OUTPUT_BYTES` to stdout.
        """

    def stream(self, argv: Sequence[str], *, silence_seconds: float) -> AbstractContextManager[Iterator[bytes]]:
        """Run a command without input, and yield its stdout as it comes; leaving the block ends it.

        Args:
            silence_seconds: A command that writes nothing for so long counts as lost.
        """

    def download(self, files: Sequence[RemoteFile]) -> None:
        """Copy files home: SFTP, or a copy. Parents exist already. Holes stay holes.

        Raises:
            OutputsMissing: One is not there (any more), or is no regular file.
            RunError: One cannot be written here.
            HostUnreachable: The connection was lost, or all of it took longer than `transfer_seconds`.
        """

    def close(self) -> None:
        """Idempotent."""


class Host(Protocol):
    """A machine with the agent on it. Errors: `HostUnreachable`, `MachineUnusable`, `SetupFailed`, ..."""

    def install(self) -> None:
        """Put the agent there and start it, if it is not running; it then guards the machine. Idempotent.

        Raises:
            HostUnreachable: The connection was lost, or the machine ended a command: it may be ending. Call again.
            MachineUnusable: Not Linux, no Python 3.8 or newer, no space, or the agent does not start.
        """

    def driver_trouble(self, gpus: int, seconds: float) -> str:
        """Return what NVIDIA's driver says instead of naming so many GPUs; empty if it names them.

        Args:
            seconds: What its answer may take.
        """

    def send(self, selection: FileSelection) -> int:
        """Send the working folder, verified on arrival; return the bytes that travelled. Idempotent.

        Raises:
            SyncRefused: A file changed while it was being sent.
        """

    def hold(self, size: int) -> None:
        """Tell the agent that its client is busy for as long as so many bytes take: it is not to count as gone."""

    def start(self, order: JobOrder, secrets: Mapping[str, str], uploads: Mapping[str, str]) -> None:
        """Start the job, once: a second call with a job already there changes nothing.

        Args:
            secrets: Environment of the job. Travels on standard input, is on no disk and in no argument there.
            uploads: ``outputs`` and ``logs`` -> presigned URL; empty without a bucket.
        """

    def status(self) -> JobStatus:
        """Now. Also tells the agent that a client is there."""

    def follow(self, position: LogPosition, sink: Callable[[LogStream, bytes], None]) -> JobStatus:
        """Hand every byte from `position` on to `sink` as it comes; return when the job is over.

        While the job is silent `sink` gets empty bytes now and then; it may raise to end the call.

        Raises:
            HostUnreachable: The stream ended early, or there was no sign of life. Follow again from where `sink` is.
            MachineUnusable: It is not what an agent sends.
        """

    def outputs(self) -> Outputs:
        """Return what the finished job has made."""

    def fetch(self, entries: Sequence[FileEntry], folder: Path) -> None:
        """Bring outputs into `folder`, each verified before it gets its name.

        Raises:
            OutputsDamaged: A checksum does not match.
        """

    def fetch_logs(self, folder: Path) -> None:
        """Bring ``stdout.log`` and ``stderr.log`` into `folder`."""

    def checkpoint(self, *, everything: bool = False) -> Checkpoint:
        """Return what of the job's checkpoints is whole now; `fetch` brings its contents until the next call.

        Number 0 as long as nothing has changed since they were put there.

        Args:
            everything: Whether the outputs belong to it, too: at the end of a job that is to go on elsewhere.
        """

    def collected(self) -> None:
        """Tell the agent that outputs and logs are home: if the client dies now, the machine need not wait for it."""

    def cancel(self) -> None:
        """SIGTERM, grace, SIGKILL for the job; returns at once. Idempotent."""

    def close(self) -> None:
        """Let go of the connection. Idempotent."""


Connector = Callable[[Instance, Keys], Host]
"""Connects to a machine that has an endpoint, or raises `HostUnreachable` or `HostKeyMismatch`. Does not wait."""

"""This machine as a machine: commands run in an instance's folder, files are copied. Imports `errors` and `host`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from pathlib import Path

from costgpu.errors import HostUnreachable, OutputsMissing, RunError
from costgpu.job.agent.job_environment import KEPT, KEPT_STARTS
from costgpu.job.files.download import RemoteFile
from costgpu.job.machine.host import transfer_seconds
from costgpu.job.machine.transport.command import READ_BYTES, Command, CommandTransport
from costgpu.portable.files import open_regular
from costgpu.portable.supervise import signal_group

# What a login to a machine has, and what belongs to the machine rather than to its user. Nothing else of the
# user's environment reaches the job, as on a rented machine: what it needs is named with -e.
_KEPT = frozenset(KEPT.split()) | {"VIRTUAL_ENV"}
_END_SECONDS = 2.0


class LocalTransport(CommandTransport):
    """Implements `costgpu.job.machine.host.Transport` for a folder of this machine.

    Args:
        folder: The instance's own; it is the working directory of every command and their ``COSTGPU_HOME``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    @property
    def home(self) -> str:
        """Return the instance's folder."""
        return str(self._folder)

    def open(self) -> None:
        """Raise `HostUnreachable` if the instance's folder is gone."""
        if not self._folder.is_dir():
            raise HostUnreachable(f"The local instance's folder {self._folder} is gone.")

    def download(self, files: Sequence[RemoteFile]) -> None:
        """As `Transport.download`."""
        until = time.monotonic() + transfer_seconds(sum(file.size for file in files))
        for file in files:
            try:
                source = open_regular(file.path, follow=True)  # an output may be a link to another one
            except OSError as exc:
                self.open()
                raise OutputsMissing(f"{file.path} cannot be read: {exc.strerror or exc}.") from exc
            try:
                with source, file.target.open("wb") as target:
                    _copy(source.fileno(), target.fileno(), file.size, until)
            except OSError as exc:
                raise RunError(f"{file.target} cannot be written: {exc.strerror or exc}.") from exc

    def close(self) -> None:
        """Nothing is held."""

    async def _start(self, argv: Sequence[str]) -> Command:
        self.open()
        kept = {k: v for k, v in os.environ.items() if k in _KEPT or k.startswith(KEPT_STARTS)}
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", 'exec "$@"', "sh", *argv),  # its answer is that of a login, if there is no such command
            cwd=self._folder,
            env={**kept, "COSTGPU_HOME": self.home},
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,  # Ctrl-C in the user's terminal is not for it
        )
        return _LocalCommand(process, argv[0])

    def _lost(self, exc: BaseException) -> HostUnreachable:
        return HostUnreachable(f"A command on this machine was lost: {exc}.")


class _LocalCommand(Command):
    """A process that leads a group."""

    def __init__(self, process: Process, name: str) -> None:
        assert process.stdin is not None  # noqa: S101 - started with all three
        assert process.stdout is not None  # noqa: S101
        assert process.stderr is not None  # noqa: S101
        super().__init__(process.stdin, process.stdout, process.stderr, name, "This machine")
        self._process = process

    async def returncode(self) -> int:
        """As `Command.returncode`."""
        return await self._process.wait()

    async def _end(self) -> None:
        """Send SIGTERM, and SIGKILL if it has not ended in time."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.returncode is None:
                signal_group(self._process.pid, number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    while await self._stdout.read(READ_BYTES):  # a pipe that is full would not be closed
                        pass
                    await self._process.wait()
                break


def _copy(source: int, target: int, size: int, until: float) -> None:
    """Copy the first `size` bytes. Blocks of zeros become holes: a sparse file may be larger than the disk.

    Raises:
        HostUnreachable: It takes too long.
        OSError: It cannot be read or written.
    """
    at = 0
    while at < size and (piece := os.pread(source, min(READ_BYTES, size - at), at)):
        if piece.strip(b"\0"):
            _write_at(target, piece, at)
        at += len(piece)
        if time.monotonic() > until:
            raise HostUnreachable("A file takes too long to be copied on this machine.")
    os.ftruncate(target, at)


def _write_at(target: int, piece: bytes, at: int) -> None:
    left = memoryview(piece)
    while left:
        written = os.pwrite(target, left, at)
        left, at = left[written:], at + written

"""A machine over SSH: commands, streams and files on one connection, which is opened again when it was lost.

A synchronous face over asyncssh; all connections share one event-loop thread, so a hundred of them that wait cost
next to nothing. Imports asyncssh: import this module only where a machine is really reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar, cast

import asyncssh

from costgpu.errors import HostUnreachable, MachineUnusable, OutputsMissing, RunError
from costgpu.job.agent.state_files import REMOTE_HOME
from costgpu.job.files.download import RemoteFile
from costgpu.job.machine.host import Completed, Keys, transfer_seconds
from costgpu.job.machine.transport import event_loop
from costgpu.job.machine.transport.batches import batches
from costgpu.job.machine.transport.ssh_command import Command
from costgpu.job.machine.transport.ssh_connect import address, dial, unreachable
from costgpu.models.instance import Endpoint

T = TypeVar("T")
_FILES_AT_ONCE = 16
_CLOSE_SECONDS = 2.0
_DOWNLOAD_SECONDS = 60.0  # for files without content
_PIECE_BYTES = 4 << 20
_PERHAPS_REGULAR = (asyncssh.FILEXFER_TYPE_REGULAR, asyncssh.FILEXFER_TYPE_UNKNOWN)


class SshTransport:
    """Implements `costgpu.job.machine.host.Transport` over SSH. May be used from several threads at once.

    Args:
        keys: The run's own; its host key is the only one that is believed.
        connect_timeout_seconds: For connecting and logging in.
    """

    home = REMOTE_HOME

    def __init__(self, endpoint: Endpoint, keys: Keys, *, connect_timeout_seconds: float = 10.0) -> None:
        self._endpoint = endpoint
        self._keys = keys
        self._connect_timeout = connect_timeout_seconds
        self._loop = event_loop.shared()
        self._dialling = asyncio.Lock()
        self._connection: asyncssh.SSHClientConnection | None = None
        self._closed = False

    def open(self) -> None:
        """Connect now; otherwise the first command does.

        Raises:
            HostUnreachable: No answer, refused, or not let in (yet).
            HostKeyMismatch: Another machine answers.
        """
        self._call(self._connected())

    def run(
        self, argv: Sequence[str], *, stdin: bytes | Iterable[bytes] = b"", timeout_seconds: float = 60
    ) -> Completed:
        """As `Transport.run`.

        Raises:
            HostUnreachable: The connection failed or was lost, or the time is over.
            HostKeyMismatch: Another machine answers.
        """
        command = self._call(self._start(argv))
        finishing = self._loop.submit(command.finish())
        left = timeout_seconds
        try:
            for piece in batches(stdin):
                since = time.monotonic()
                if finishing.done() or not self._call(command.feed(piece, max(0.0, left))):
                    break
                left -= time.monotonic() - since
            self._call(command.feed(None, timeout_seconds))
            try:
                return self._translated(finishing, timeout_seconds)
            except TimeoutError:
                raise command.silent(timeout_seconds) from None
        finally:
            finishing.cancel()
            self._end(command)

    @contextlib.contextmanager
    def stream(self, argv: Sequence[str], *, stdin: bytes = b"") -> Iterator[Iterator[bytes]]:
        """As `Transport.stream`.

        Raises:
            HostUnreachable: The connection failed or was lost, now or while the pieces are read.
            HostKeyMismatch: Another machine answers.
        """
        command = self._call(self._start(argv))
        feeding = self._loop.submit(_feed_all(command, stdin))
        try:
            yield self._pieces(command)
        finally:
            feeding.cancel()
            self._end(command)

    def download(self, files: Sequence[RemoteFile]) -> None:
        """Copy files home by SFTP, several at once.

        Raises:
            OutputsMissing: A file is not on the machine (any more).
            RunError: A file cannot be written here.
            HostUnreachable: The connection failed or was lost, or it takes too long.
            HostKeyMismatch: Another machine answers.
        """
        if files:
            self._call(self._download(files))

    def close(self) -> None:
        """Close the connection; commands that run on it fail with `HostUnreachable`."""
        self._closed = True
        with contextlib.suppress(HostUnreachable):
            self._call(self._disconnect())

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._translated(self._loop.submit(coroutine))

    def _translated(self, future: Future[T], timeout_seconds: float | None = None) -> T:
        """Wait; an interrupt of this thread cancels what it waits for. Raises TimeoutError only for the limit."""
        try:
            return future.result(timeout_seconds)
        except BaseException as exc:
            if isinstance(exc, TimeoutError) and not future.done():
                raise
            future.cancel()
            if isinstance(exc, (asyncssh.Error, OSError, CancelledError)):
                raise unreachable(self._endpoint, exc) from exc
            raise

    async def _connected(self) -> asyncssh.SSHClientConnection:
        async with self._dialling:
            if self._closed:
                raise HostUnreachable(f"The connection to {address(self._endpoint)} was closed.")
            if self._connection is None or self._connection.is_closed():
                self._connection = await dial(self._endpoint, self._keys, self._connect_timeout)
            return self._connection

    async def _start(self, argv: Sequence[str]) -> Command:
        return await Command.start(await self._connected(), argv, address(self._endpoint))

    def _pieces(self, command: Command) -> Iterator[bytes]:
        while piece := self._call(command.read()):
            yield piece

    def _end(self, command: Command) -> None:
        with contextlib.suppress(HostUnreachable):
            self._call(command.end())

    async def _download(self, files: Sequence[RemoteFile]) -> None:
        connection = await self._connected()
        async with asyncio.timeout(transfer_seconds(sum(file.size for file in files), _DOWNLOAD_SECONDS)):
            await self._fetch(connection, files)

    async def _fetch(self, connection: asyncssh.SSHClientConnection, files: Sequence[RemoteFile]) -> None:
        try:
            sftp = await connection.start_sftp_client(path_errors="surrogateescape")
        except asyncssh.ChannelOpenError as exc:
            raise MachineUnusable(f"{address(self._endpoint)} offers no SFTP, which files come home by.") from exc
        slots = asyncio.Semaphore(_FILES_AT_ONCE)
        async with sftp:
            tasks = [asyncio.create_task(_get(sftp, slots, file)) for file in files]
            try:
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _disconnect(self) -> None:
        async with self._dialling:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
            try:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await connection.wait_closed()
            except TimeoutError:
                connection.abort()


async def _feed_all(command: Command, stdin: bytes) -> None:
    """Feed as slowly as the command takes it: its output may have to be read first. Whoever leaves the stream ends it."""
    if not stdin or await command.feed(stdin, timeout_seconds=None):
        await command.feed(None, timeout_seconds=None)


async def _get(sftp: asyncssh.SFTPClient, slots: asyncio.Semaphore, file: RemoteFile) -> None:
    async with slots:
        try:
            found = await sftp.stat(file.path)  # an output may be a link to another one
            if found.type not in _PERHAPS_REGULAR:  # to open a FIFO would keep a process there waiting
                raise OutputsMissing(f"{file.path} is no regular file on the machine.")
            async with sftp.open(file.path, "rb") as source:
                await _take(source, file)
        except asyncssh.SFTPNoSuchFile as exc:
            raise OutputsMissing(f"{file.path} is not on the machine.") from exc
        except asyncssh.SFTPPermissionDenied as exc:
            raise OutputsMissing(f"{file.path} cannot be read on the machine.") from exc


async def _take(source: asyncssh.SFTPClientFile, file: RemoteFile) -> None:
    """Fetch the first `size` bytes. Blocks of zeros become holes: a sparse file may be larger than the disk here.

    Raises:
        RunError: It cannot be written here.
    """
    try:
        with file.target.open("wb") as target:
            at = 0
            while at < file.size:
                piece = await _read(source, min(_PIECE_BYTES, file.size - at), at)
                if not piece:
                    break
                if piece.strip(b"\0"):
                    os.pwrite(target.fileno(), piece, at)
                at += len(piece)
            os.ftruncate(target.fileno(), at)
    except _ReadFailed as exc:
        raise exc.why from exc
    except OSError as exc:
        raise RunError(f"{file.target} cannot be written: {exc.strerror or exc}.") from exc


class _ReadFailed(Exception):
    """Not the disk here, but the other side: `why` says what."""

    def __init__(self, why: Exception) -> None:
        super().__init__(str(why))
        self.why = why


async def _read(source: asyncssh.SFTPClientFile, size: int, at: int) -> bytes:
    try:
        piece = cast("bytes", await source.read(size, at))  # opened in binary mode
    except (asyncssh.Error, OSError) as exc:
        raise _ReadFailed(exc) from exc
    return piece[:size]

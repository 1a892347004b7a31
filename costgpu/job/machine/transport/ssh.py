"""A machine over SSH: commands, streams and files on one connection, which is opened again when it was lost.

A synchronous face over asyncssh; all connections share one event-loop thread, so a hundred of them that wait cost
next to nothing. Imports asyncssh: import this module only where a machine is really reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from typing import TypeVar, cast

import asyncssh

from costgpu.errors import HostUnreachable, MachineUnusable, OutputsMissing, RunError
from costgpu.job.agent.state_files import REMOTE_HOME
from costgpu.job.files.download import RemoteFile
from costgpu.job.machine.host import Keys, transfer_seconds
from costgpu.job.machine.transport.command import CommandTransport
from costgpu.job.machine.transport.ssh_command import SshCommand
from costgpu.job.machine.transport.ssh_connect import address, dial, unreachable
from costgpu.models.instance import Endpoint

T = TypeVar("T")
_FILES_AT_ONCE = 16
_CLOSE_SECONDS = 2.0
_PIECE_BYTES = 4 << 20
_PERHAPS_REGULAR = (asyncssh.FILEXFER_TYPE_REGULAR, asyncssh.FILEXFER_TYPE_UNKNOWN)


class SshTransport(CommandTransport):
    """Implements `costgpu.job.machine.host.Transport` over SSH. May be used from several threads at once.

    Args:
        keys: The run's own; its host key is the only one that is believed.
        connect_timeout_seconds: For connecting and logging in.
    """

    home = REMOTE_HOME
    errors = (asyncssh.Error, *CommandTransport.errors)

    def __init__(self, endpoint: Endpoint, keys: Keys, *, connect_timeout_seconds: float = 10.0) -> None:
        self._endpoint = endpoint
        self._keys = keys
        self._connect_timeout = connect_timeout_seconds
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

    def _lost(self, exc: BaseException) -> HostUnreachable:
        return unreachable(self._endpoint, exc)

    async def _connected(self) -> asyncssh.SSHClientConnection:
        async with self._dialling:
            if self._closed:
                raise HostUnreachable(f"The connection to {address(self._endpoint)} was closed.")
            if self._connection is None or self._connection.is_closed():
                self._connection = await dial(self._endpoint, self._keys, self._connect_timeout)
            return self._connection

    async def _start(self, argv: Sequence[str]) -> SshCommand:
        return await SshCommand.start(await self._connected(), argv, address(self._endpoint))

    async def _download(self, files: Sequence[RemoteFile]) -> None:
        connection = await self._connected()
        async with asyncio.timeout(transfer_seconds(sum(file.size for file in files))):
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

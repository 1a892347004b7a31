"""One command on an SSH connection. Imports asyncssh."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shlex
from collections.abc import Sequence
from typing import ClassVar, Self

import asyncssh

from costgpu.errors import HostUnreachable
from costgpu.job.machine.transport.command import READ_BYTES, Command

# Start-up files of the login shell and banners may print: our output starts after this line, which also tells the
# process (and group: sshd makes every command a session leader) to end, because without a terminal sshd lets a
# command live on after its channel is closed.
_LAUNCH = 'printf "\\n%s %s\\n" "$1" "$$"; shift; exec "$@"'
_END = "(kill -TERM -{pid}; sleep 2; kill -KILL -{pid}) >/dev/null 2>&1 </dev/null &"
_WRITE_BUFFER_BYTES = 1024 * 1024
_NOISE_BYTES = 1024 * 1024
_START_SECONDS = 30.0
_END_SECONDS = 3.0


class SshCommand(Command):
    """A command that was started by `start`.

    Attributes:
        pid: On the machine; None until its first output has come.
    """

    errors: ClassVar[tuple[type[Exception], ...]] = (asyncssh.Error, OSError)

    def __init__(
        self,
        connection: asyncssh.SSHClientConnection,
        process: asyncssh.SSHClientProcess[bytes],
        mark: str,
        name: str,
        where: str,
    ) -> None:
        super().__init__(process.stdin, process.stdout, process.stderr, name, where)
        self.pid: int | None = None
        self._connection = connection
        self._process = process
        self._mark = f"\n{mark} ".encode()
        self._ended = False

    @classmethod
    async def start(cls, connection: asyncssh.SSHClientConnection, argv: Sequence[str], where: str) -> Self:
        """Open a channel and start the command; `where` names the machine in messages."""
        mark = f"costgpu-{secrets.token_hex(8)}"
        line = "exec " + shlex.join(["/bin/sh", "-c", _LAUNCH, "costgpu", mark, *argv])
        async with asyncio.timeout(_START_SECONDS):
            process = await connection.create_process(line, encoding=None)
        process.channel.set_write_buffer_limits(_WRITE_BUFFER_BYTES)
        return cls(connection, process, mark, argv[0], where)

    def is_lost(self) -> bool:
        """Return whether the connection is closed."""
        return self._connection.is_closed()

    async def read(self) -> bytes:
        """As `Command.read`: what comes after the line that says that it has started."""
        self._reader = asyncio.current_task()
        if self.pid is None:
            async with asyncio.timeout(_START_SECONDS):
                if piece := await self._first():
                    return piece
        return await super().read()

    async def _first(self) -> bytes:
        """Wait for the line that says that the command has started; what came after it."""
        held = b""
        while len(held) < _NOISE_BYTES:
            piece = await self._process.stdout.read(READ_BYTES)
            held += piece
            _, found, after = held.partition(self._mark)
            if found and b"\n" in after:
                number, _, after = after.partition(b"\n")
                if not number.isdigit():
                    break
                self.pid = int(number)
                return after
            if not piece:
                await self.returncode()
                held += b" " + await self._stderr
                break
        said = " ".join(held.decode("utf-8", "replace").split())[:300]
        raise HostUnreachable(f"{self._where} lets us in, but runs no command" + (f": {said}" if said else "."))

    async def _end(self) -> None:
        """End the command on the machine if it may still run there, as far as the connection allows."""
        if not self._ended and self.pid is not None and not self._connection.is_closed():
            with contextlib.suppress(asyncssh.Error, OSError):
                async with asyncio.timeout(_END_SECONDS):
                    await self._connection.run("exec /bin/sh -c " + shlex.quote(_END.format(pid=self.pid)))
        self._process.channel.abort()

    async def returncode(self) -> int:
        """As `Command.returncode`."""
        await self._process.wait_closed()
        returncode = self._process.returncode
        if returncode is None:
            raise HostUnreachable(f"The connection to {self._where} is lost.")
        self._ended = True
        return returncode

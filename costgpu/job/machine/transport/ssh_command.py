"""One command on an SSH connection. Every method runs in the event loop. Imports asyncssh."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shlex
from collections.abc import Sequence

import asyncssh

from costgpu.errors import HostUnreachable
from costgpu.job.machine.host import MAX_OUTPUT_BYTES, Completed, endless_output

# Start-up files of the login shell and banners may print: our output starts after this line, which also tells the
# process (and group: sshd makes every command a session leader) to end, because without a terminal sshd lets a
# command live on after its channel is closed.
_LAUNCH = 'printf "\\n%s %s\\n" "$1" "$$"; shift; exec "$@"'
_END = "(kill -TERM -{pid}; sleep 2; kill -KILL -{pid}) >/dev/null 2>&1 </dev/null &"
_READ_BYTES = 256 * 1024
_WRITE_BUFFER_BYTES = 1024 * 1024
_NOISE_BYTES = 1024 * 1024
_STDERR_BYTES = 1024 * 1024
_START_SECONDS = 30.0
_END_SECONDS = 3.0


class Command:
    """A command that was started by `start`.

    Attributes:
        pid: On the machine; None until its first output has come.
    """

    def __init__(
        self,
        connection: asyncssh.SSHClientConnection,
        process: asyncssh.SSHClientProcess[bytes],
        mark: str,
        name: str,
        where: str,
    ) -> None:
        self.pid: int | None = None
        self._connection = connection
        self._process = process
        self._mark = f"\n{mark} ".encode()
        self._name = name
        self._where = where
        self._stderr = asyncio.create_task(_tail(process.stderr))
        self._ended = False

    @classmethod
    async def start(cls, connection: asyncssh.SSHClientConnection, argv: Sequence[str], where: str) -> Command:
        """Open a channel and start the command; `where` names the machine in messages."""
        mark = f"costgpu-{secrets.token_hex(8)}"
        line = "exec " + shlex.join(["/bin/sh", "-c", _LAUNCH, "costgpu", mark, *argv])
        async with asyncio.timeout(_START_SECONDS):
            process = await connection.create_process(line, encoding=None)
        process.channel.set_write_buffer_limits(_WRITE_BUFFER_BYTES)
        return cls(connection, process, mark, argv[0], where)

    async def feed(self, piece: bytes | None, timeout_seconds: float | None) -> bool:
        """Send a piece of stdin, or its end (None); False if the command does not take it any more."""
        try:
            if piece is None:
                self._process.stdin.write_eof()
            else:
                self._process.stdin.write(piece)
            async with asyncio.timeout(timeout_seconds):
                await self._process.stdin.drain()
        except TimeoutError:
            raise self.silent(timeout_seconds or 0.0) from None
        except BrokenPipeError:
            return False
        except OSError:
            if self._connection.is_closed():
                raise
            return False
        return True

    async def read(self) -> bytes:
        """Return what the command wrote next; empty once it has ended.

        Raises:
            HostUnreachable: The connection went away before the command had ended.
        """
        piece = b""
        if self.pid is None:
            async with asyncio.timeout(_START_SECONDS):
                piece = await self._first()
        if not piece:
            piece = await self._process.stdout.read(_READ_BYTES)
        if not piece:
            await self._returncode()
        return piece

    async def _first(self) -> bytes:
        """Wait for the line that says that the command has started; what came after it."""
        held = b""
        while len(held) < _NOISE_BYTES:
            piece = await self._process.stdout.read(_READ_BYTES)
            held += piece
            _, found, after = held.partition(self._mark)
            if found and b"\n" in after:
                number, _, after = after.partition(b"\n")
                if not number.isdigit():
                    break
                self.pid = int(number)
                return after
            if not piece:
                await self._returncode()
                held += b" " + await self._stderr
                break
        said = " ".join(held.decode("utf-8", "replace").split())[:300]
        raise HostUnreachable(f"{self._where} lets us in, but runs no command" + (f": {said}" if said else "."))

    async def finish(self) -> Completed:
        """Return everything that the command writes, and how it ended.

        Raises:
            MachineUnusable: It writes without an end.
        """
        pieces, size = [], 0
        while piece := await self.read():
            pieces.append(piece)
            size += len(piece)
            if size > MAX_OUTPUT_BYTES:
                raise endless_output(self._name)
        return Completed(returncode=await self._returncode(), stdout=b"".join(pieces), stderr=await self._stderr)

    async def end(self) -> None:
        """End the command on the machine if it may still run there, as far as the connection allows. Once."""
        if not self._ended and self.pid is not None and not self._connection.is_closed():
            with contextlib.suppress(asyncssh.Error, OSError):
                async with asyncio.timeout(_END_SECONDS):
                    await self._connection.run("exec /bin/sh -c " + shlex.quote(_END.format(pid=self.pid)))
        self._stderr.cancel()
        self._process.channel.abort()

    def silent(self, timeout_seconds: float) -> HostUnreachable:
        """Return the error for a command that took too long."""
        return HostUnreachable(f"{self._where} has not answered `{self._name}` for {timeout_seconds:g} s.")

    async def _returncode(self) -> int:
        await self._process.wait_closed()
        returncode = self._process.returncode
        if returncode is None:
            raise HostUnreachable(f"The connection to {self._where} is lost.")
        self._ended = True
        return returncode


async def _tail(reader: asyncssh.SSHReader[bytes]) -> bytes:
    kept = b""
    with contextlib.suppress(asyncssh.Error, OSError):
        while piece := await reader.read(_READ_BYTES):
            kept = (kept + piece)[-_STDERR_BYTES:]
    return kept

"""What all transports have in common: commands in one event loop, with limits of time and output.

Imports no library of a transport.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, ClassVar, Protocol, TypeVar

from costgpu.errors import HostUnreachable
from costgpu.job.machine.host import MAX_OUTPUT_BYTES, Completed, endless_output
from costgpu.job.machine.transport import event_loop

T = TypeVar("T")
READ_BYTES = 256 * 1024
_STDERR_BYTES = 1024 * 1024


class Writer(Protocol):
    """The input of a command, as asyncio and asyncssh have it."""

    def write(self, data: bytes, /) -> None:
        """Hand over bytes."""

    def write_eof(self) -> None:
        """Hand over the end."""

    def drain(self) -> Coroutine[Any, Any, None]:
        """Wait until there is room for more."""


class Reader(Protocol):
    """An output of a command, as asyncio and asyncssh have it."""

    def read(self, n: int, /) -> Coroutine[Any, Any, bytes]:
        """Return what comes next; empty at the end."""


class Command(ABC):
    """A command that was started. Every method runs in the event loop.

    Args:
        name: What it is called in messages.
        where: What the machine is called there.
    """

    errors: ClassVar[tuple[type[Exception], ...]] = (OSError,)

    def __init__(self, stdin: Writer, stdout: Reader, stderr: Reader, name: str, where: str) -> None:
        self._stdin, self._stdout = stdin, stdout
        self._name, self._where = name, where
        self._stderr = asyncio.create_task(self._tail(stderr))
        self._reader: asyncio.Task[Any] | None = None

    async def end(self) -> None:
        """End the command, and what it has started, if it may still run. Once."""
        if self._reader is not None:  # an interrupt may have come before anybody waited for it, to cancel it
            self._reader.cancel()
            await asyncio.wait({self._reader})
        await self._end()
        self._stderr.cancel()

    @abstractmethod
    async def _end(self) -> None:
        """End it; nobody reads any more."""

    @abstractmethod
    async def returncode(self) -> int:
        """Wait for its end; minus its number if a signal has ended it.

        Raises:
            HostUnreachable: The connection went away before.
        """

    def is_lost(self) -> bool:
        """Return whether the connection to it has gone."""
        return False

    async def feed(self, piece: bytes | None, timeout_seconds: float) -> bool:
        """Send a piece of stdin, or its end (None); False if the command does not take it any more."""
        try:
            if piece is None:
                self._stdin.write_eof()
            else:
                self._stdin.write(piece)
            async with asyncio.timeout(timeout_seconds):
                await self._stdin.drain()
        except TimeoutError:
            raise self.silent(timeout_seconds) from None
        except BrokenPipeError:
            return False
        except OSError:
            if self.is_lost():
                raise
            return False
        return True

    async def read(self) -> bytes:
        """Return what the command wrote next; empty once it has ended.

        Raises:
            HostUnreachable: The connection went away before the command had ended.
        """
        self._reader = asyncio.current_task()
        piece = await self._stdout.read(READ_BYTES)
        if not piece:
            await self.returncode()
        return piece

    async def read_within(self, seconds: float) -> bytes:
        """As `read`. Raises `HostUnreachable` if nothing comes for so long."""
        try:
            async with asyncio.timeout(seconds):
                return await self.read()
        except TimeoutError:
            raise HostUnreachable(f"The machine gave no sign of life for {seconds:.0f} s.") from None

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
        return Completed(returncode=await self.returncode(), stdout=b"".join(pieces), stderr=await self._stderr)

    def silent(self, timeout_seconds: float) -> HostUnreachable:
        """Return the error for a command that took too long."""
        return HostUnreachable(f"{self._where} has not answered `{self._name}` for {timeout_seconds:g} s.")

    async def _tail(self, reader: Reader) -> bytes:
        kept = b""
        with contextlib.suppress(*self.errors):
            while piece := await reader.read(READ_BYTES):
                kept = (kept + piece)[-_STDERR_BYTES:]
        return kept


class CommandTransport(ABC):
    """Runs commands for threads that wait for them."""

    errors: ClassVar[tuple[type[BaseException], ...]] = (OSError, CancelledError)

    @abstractmethod
    async def _start(self, argv: Sequence[str]) -> Command:
        """Start a command."""

    @abstractmethod
    def _lost(self, exc: BaseException) -> HostUnreachable:
        """Return the error for a connection that failed or was lost."""

    def run(
        self, argv: Sequence[str], *, stdin: bytes | Iterable[bytes] = b"", timeout_seconds: float = 60
    ) -> Completed:
        """As `Transport.run`.

        Raises:
            HostUnreachable: The connection failed or was lost, or the time is over.
            HostKeyMismatch: Another machine answers.
        """
        command = self._call(self._start(argv))
        left = timeout_seconds
        try:
            finishing = event_loop.shared().submit(command.finish())
            for piece in (stdin,) if isinstance(stdin, bytes) else stdin:
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
            self._end(command)

    @contextlib.contextmanager
    def stream(self, argv: Sequence[str], *, silence_seconds: float) -> Iterator[Iterator[bytes]]:
        """As `Transport.stream`.

        Raises:
            HostUnreachable: The connection failed or was lost, now or while the pieces are read, or none came for long.
            HostKeyMismatch: Another machine answers.
        """
        command = self._call(self._start(argv))
        try:
            self._call(command.feed(None, silence_seconds))
            yield iter(lambda: self._call(command.read_within(silence_seconds)), b"")
        finally:
            self._end(command)

    def _end(self, command: Command) -> None:
        with contextlib.suppress(HostUnreachable):
            self._call(command.end())

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._translated(event_loop.shared().submit(coroutine))

    def _translated(self, future: Future[T], timeout_seconds: float | None = None) -> T:
        """Wait; an interrupt of this thread cancels what it waits for. Raises TimeoutError only for the limit."""
        try:
            return future.result(timeout_seconds)
        except BaseException as exc:
            if isinstance(exc, TimeoutError) and not future.done():
                raise
            future.cancel()
            if isinstance(exc, self.errors):
                raise self._lost(exc) from exc
            raise

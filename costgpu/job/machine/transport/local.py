"""This machine as a machine: commands run in an instance's folder, files are copied. Imports `errors` and `host`."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from costgpu.errors import HostUnreachable, OutputsMissing, RunError
from costgpu.job.agent.job_environment import KEPT, KEPT_STARTS
from costgpu.job.files.download import RemoteFile
from costgpu.job.machine.host import MAX_OUTPUT_BYTES, Completed, endless_output, transfer_seconds
from costgpu.job.machine.transport.batches import batches
from costgpu.portable.files import open_regular
from costgpu.portable.supervise import end_group, signal_group

# What a login to a machine has, and what belongs to the machine rather than to its user. Nothing else of the
# user's environment reaches the job, as on a rented machine: what it needs is named with -e.
_KEPT = frozenset(KEPT.split()) | {"DYLD_LIBRARY_PATH", "VIRTUAL_ENV"}
_READ_BYTES = 256 * 1024
_END_SECONDS = 2.0
_CONNECT_SECONDS = 2.0
_LOOK_SECONDS = 0.1
_DOWNLOAD_SECONDS = 60.0  # for files without content


class LocalTransport:
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

    def run(
        self, argv: Sequence[str], *, stdin: bytes | Iterable[bytes] = b"", timeout_seconds: float = 60
    ) -> Completed:
        """As `Transport.run`. Raises `HostUnreachable` if the instance's folder is gone, or the time is over."""
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:  # a pipe would have to be read
            process = self._start(argv, stdout, stderr)
            if isinstance(process, Completed):
                return process
            guard = _Guard(process, timeout_seconds, (stdout.fileno(), stderr.fileno()))
            try:
                with contextlib.suppress(BrokenPipeError):
                    for piece in batches(stdin):
                        with guard.waiting():
                            _pipe(process.stdin).write(piece)
                with contextlib.suppress(BrokenPipeError):
                    _pipe(process.stdin).close()
                guard.begin_again()
                with guard.waiting():
                    returncode = process.wait()  # the guard ends it
            finally:
                guard.stop()
                end_group(process, _END_SECONDS)
                _pipe(process.stdin).close()
            if guard.exceeded == "time":
                raise HostUnreachable(f"`{argv[0]}` has not answered for {timeout_seconds:g} s on this machine.")
            if guard.exceeded:
                raise endless_output(argv[0])
            stdout.seek(0)
            stderr.seek(0)
            return Completed(returncode=returncode, stdout=stdout.read(), stderr=stderr.read())

    @contextlib.contextmanager
    def stream(self, argv: Sequence[str], *, stdin: bytes = b"") -> Iterator[Iterator[bytes]]:
        """As `Transport.stream`."""
        reader, writer = os.pipe()
        pieces = _Pieces(reader)
        try:
            process = self._start(argv, writer, subprocess.DEVNULL)
        finally:
            os.close(writer)
        if isinstance(process, Completed):
            yield iter(())
            return
        threading.Thread(target=_feed, args=(_pipe(process.stdin), stdin), daemon=True).start()
        try:
            yield pieces
        finally:
            end_group(process, _END_SECONDS)
            pieces.leave()

    def download(self, files: Sequence[RemoteFile]) -> None:
        """As `Transport.download`."""
        until = time.monotonic() + transfer_seconds(sum(file.size for file in files), _DOWNLOAD_SECONDS)
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

    def _start(
        self, argv: Sequence[str], stdout: int | IO[bytes], stderr: int | IO[bytes]
    ) -> subprocess.Popen[bytes] | Completed:
        """Return the process; or the shell's answer for a command that cannot be started."""
        self.open()
        kept = {k: v for k, v in os.environ.items() if k in _KEPT or k.startswith(KEPT_STARTS)}
        try:
            return subprocess.Popen(
                list(argv),
                cwd=self._folder,
                env={**kept, "COSTGPU_HOME": self.home},
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,  # Ctrl-C in the user's terminal is not for it
                bufsize=0,
            )
        except OSError as exc:
            self.open()
            code = 127 if isinstance(exc, FileNotFoundError) else 126
            said = f"{argv[0]}: {exc.strerror or exc}\n".encode()
            return Completed(returncode=code, stdout=b"", stderr=said)


class _Guard(threading.Thread):
    """Kills a process group that takes too long, or writes without an end.

    Attributes:
        exceeded: Which limit was exceeded: ``time``, ``output``, or none.
    """

    def __init__(self, process: subprocess.Popen[bytes], seconds: float, outputs: Sequence[int]) -> None:
        super().__init__(name="costgpu-local-guard", daemon=True)
        self.exceeded = ""
        self._process, self._seconds, self._outputs = process, seconds, outputs
        self._left = seconds  # of the time that the command may take
        self._since: float | None = None  # when we began to wait for it; None while we do not
        self._over = threading.Event()
        self._lock = threading.Lock()  # held while it looks: what it looks at is closed later
        self.start()

    def begin_again(self) -> None:
        """Start the whole time again."""
        self._left = self._seconds

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time in here as the command's."""
        self._since = since = time.monotonic()
        try:
            yield
        finally:
            self._since = None
            self._left -= time.monotonic() - since

    def stop(self) -> None:
        """Stop looking."""
        with self._lock:
            self._over.set()

    def run(self) -> None:
        """Until `stop`."""
        while not self._over.wait(_LOOK_SECONDS):
            with self._lock:
                if not self._over.is_set() and (limit := self._look()):
                    self.exceeded = limit
                    signal_group(self._process.pid, signal.SIGKILL)
                    return

    def _look(self) -> str:
        since = self._since
        if since is not None and time.monotonic() - since > self._left:
            return "time"
        return "output" if any(os.fstat(one).st_size > MAX_OUTPUT_BYTES for one in self._outputs) else ""


def _copy(source: int, target: int, size: int, until: float) -> None:
    """Copy the first `size` bytes. Blocks of zeros become holes: a sparse file may be larger than the disk.

    Raises:
        HostUnreachable: It takes too long.
        OSError: It cannot be read or written.
    """
    at = 0
    while at < size and (piece := os.pread(source, min(_READ_BYTES, size - at), at)):
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


class _Pieces:
    """What comes out of a pipe, for one thread that reads while another may leave.

    A descriptor that one thread closes while another is about to read from it may be somebody else's by then: its number
    is given to the next pipe, whose bytes would be taken away. So the number is kept until nobody can read any more.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if piece := os.read(self._descriptor, _READ_BYTES):
            return piece
        raise StopIteration

    def leave(self) -> None:
        """From now on there is nothing to read."""
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(nothing, self._descriptor, inheritable=False)
        os.close(nothing)

    def __del__(self) -> None:
        os.close(self._descriptor)


def _feed(pipe: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(OSError, ValueError):
        for piece in batches(data):
            pipe.write(piece)
    with contextlib.suppress(OSError):
        pipe.close()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise ValueError("started without this pipe")
    return pipe

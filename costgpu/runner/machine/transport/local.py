"""This machine as a machine: commands run in an instance's folder, files are copied. Imports `errors` and `host`."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from costgpu.errors import HostUnreachable, OutputsMissing, RunError
from costgpu.runner.agent.job_environment import KEPT, KEPT_STARTS
from costgpu.runner.machine.host import Completed
from costgpu.runner.machine.transport.batches import batches

# What a login to a machine has, and what belongs to the machine rather than to its user. Nothing else of the
# user's environment reaches the job, as on a rented machine: what it needs is named with -e.
_KEPT = frozenset(KEPT.split()) | {"DYLD_LIBRARY_PATH", "VIRTUAL_ENV"}
_READ_BYTES = 256 * 1024
_END_SECONDS = 2.0


class LocalTransport:
    """Implements `costgpu.runner.machine.host.Transport` for a folder of this machine.

    Args:
        folder: The instance's own; it is the working directory of every command and their ``COSTGPU_HOME``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    @property
    def home(self) -> str:
        """The instance's folder."""
        return str(self._folder)

    def open(self) -> None:
        """Raises `HostUnreachable` if the instance's folder is gone."""
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
            alarm = _Alarm(process, timeout_seconds)
            try:
                with contextlib.suppress(BrokenPipeError):
                    for piece in batches(stdin):
                        alarm.restart()
                        _pipe(process.stdin).write(piece)
                        alarm.stop()
                with contextlib.suppress(BrokenPipeError):
                    _pipe(process.stdin).close()
                alarm.restart()
                returncode = process.wait()
            finally:
                alarm.stop()
                _end(process)
            if alarm.rang:
                raise HostUnreachable(f"`{argv[0]}` has not answered for {timeout_seconds:g} s on this machine.")
            stdout.seek(0)
            stderr.seek(0)
            return Completed(returncode=returncode, stdout=stdout.read(), stderr=stderr.read())

    @contextlib.contextmanager
    def stream(self, argv: Sequence[str], *, stdin: bytes = b"") -> Iterator[Iterator[bytes]]:
        """As `Transport.stream`."""
        process = self._start(argv, subprocess.PIPE, subprocess.DEVNULL)
        if isinstance(process, Completed):
            yield iter(())
            return
        threading.Thread(target=_feed, args=(_pipe(process.stdin), stdin), daemon=True).start()
        try:
            yield _pieces(_pipe(process.stdout))
        finally:
            _end(process)

    def download(self, pairs: Sequence[tuple[str, Path]]) -> None:
        """Copies files.

        Raises:
            OutputsMissing: A file is not there (any more).
            RunError: A file cannot be written.
        """
        for remote, local in pairs:
            with contextlib.ExitStack() as open_files:
                try:
                    source = open_files.enter_context(Path(remote).open("rb"))
                except OSError as exc:
                    self.open()
                    raise OutputsMissing(f"{remote} cannot be read: {exc.strerror or exc}.") from exc
                try:
                    shutil.copyfileobj(source, open_files.enter_context(local.open("wb")), _READ_BYTES)
                except OSError as exc:
                    raise RunError(f"{local} cannot be written: {exc.strerror or exc}.") from exc

    def close(self) -> None:
        """Nothing is held."""

    def _start(
        self, argv: Sequence[str], stdout: int | IO[bytes], stderr: int | IO[bytes]
    ) -> subprocess.Popen[bytes] | Completed:
        """The process; or the shell's answer for a command that cannot be started."""
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


class _Alarm:
    """Kills a process group that is silent for too long."""

    def __init__(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        self.rang = False
        self._process, self._seconds = process, seconds
        self._timer: threading.Timer | None = None

    def restart(self) -> None:
        self.stop()
        self._timer = threading.Timer(self._seconds, self._ring)
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self) -> None:
        self.rang = True
        _signal(self._process, signal.SIGKILL)


def _pieces(pipe: IO[bytes]) -> Iterator[bytes]:
    with contextlib.suppress(ValueError):  # closed by whoever left the block
        while piece := pipe.read(_READ_BYTES):
            yield piece


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


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the command and its group if it still runs, and lets go of its pipes."""
    if process.poll() is None:
        _signal(process, signal.SIGTERM)
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            _signal(process, signal.SIGKILL)
            process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()

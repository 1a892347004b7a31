"""One driver per job: a lock that the system lets go when its process dies, however it dies."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from costgpu.errors import RunBusy, RunError

try:
    import fcntl
except ImportError:  # no advisory locks on this system: the ledger's sequence numbers still keep two drivers apart
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def lock_run(folder: Path) -> Iterator[None]:
    """Hold the job whose first run has this private folder.

    Raises:
        RunBusy: Another process does.
        RunError: The folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(folder / "driver.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise RunError(
            f"The folder of run {folder.name} cannot be written: {error.strerror or error} ({folder}).",
            hint="Make room, or set XDG_DATA_HOME to a folder that can be written.",
        ) from error
    try:
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.read(handle, 32).decode(errors="replace").strip()
                raise RunBusy(
                    f"Run {folder.name} is driven by another costgpu process{f' ({owner})' if owner else ''}.",
                    hint=f"Watch it with: costgpu logs -f {folder.name}",
                ) from None
        with contextlib.suppress(OSError):  # the lock holds without a name in it, as on a full disk
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"pid {os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def is_driven(folder: Path) -> bool:
    """Return whether a process drives the job whose first run has this folder."""
    if not (folder / "driver.lock").exists():
        return False
    try:
        with lock_run(folder):
            return False
    except RunBusy:
        return True

"""Who may keep files in /dev/shm while tests run side by side."""

import contextlib
import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path

LOCK = Path(tempfile.gettempdir(), "costgpu-tests-shared-memory.lock")


@contextlib.contextmanager
def shared_memory(*, alone: bool) -> Iterator[None]:
    """For a test that keeps files there, or for one that needs it empty (`alone`); they wait for each other."""
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield

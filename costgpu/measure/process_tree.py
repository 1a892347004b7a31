"""Everything that a measured program starts: found, adopted, and ended with it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import psutil

from costgpu.portable.processes import children
from costgpu.portable.supervise import adopt_orphans

MARKER = "COSTGPU_MEASUREMENT"  # an environment variable of everything that a measured program starts
KILL_ROUNDS, ROUND_SECONDS, QUIET_SECONDS = 20, 0.5, 0.02
END_SIGNALS = (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))


def own_children() -> set[int]:
    """Return the process ids of our direct children."""
    return {process.pid for process in psutil.Process().children()}


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Daemons that the script leaves behind become our children (Linux), so that they are found and ended."""
    adopt_orphans()
    try:
        yield
    finally:
        adopt_orphans(False)


@contextlib.contextmanager
def _handling(numbers: Iterable[signal.Signals], handler: Callable[..., object] | signal.Handlers) -> Iterator[None]:
    before: dict[signal.Signals, Any] = {}
    for number in set(numbers):
        with contextlib.suppress(ValueError):  # not the main thread
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def interruptible() -> contextlib.AbstractContextManager[None]:
    """SIGTERM and SIGHUP take the way of Ctrl-C, so that the script never outlives us."""
    return _handling(END_SIGNALS, _interrupt)


def uninterrupted() -> contextlib.AbstractContextManager[None]:
    """Keep a second Ctrl-C from leaving processes running or files not put back."""
    return _handling((signal.SIGINT, *END_SIGNALS), signal.SIG_IGN)


def end_everything(pid: int, marker: str, before: set[int]) -> int:
    """Kill the child, its descendants and whatever else carries our marker, until none is left.

    Our children that were not there before are what the script left behind. Returns how many besides the child were ended.
    """
    ended: set[int] = set()
    for _ in range(KILL_ROUNDS):
        ended.update(_end_adopted({*before, pid}))
        living = _living(pid, marker, before)
        if not living:
            break
        ended.update(process.pid for process in living)  # one may end with another, as all of a PID namespace do
        for process in living:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs([p for p in living if p.pid != pid], timeout=ROUND_SECONDS)
    return len(ended - {pid})


def _end_adopted(others: set[int]) -> set[int]:
    """Kill our children but for these, as fast as it can; return them.

    A process that forks and ends at once, again and again, is gone whenever a slow look has found it. But each of them
    becomes our child (`adopting`), and those are told in one read.
    """
    ended: set[int] = set()
    until, seen_at = time.monotonic() + ROUND_SECONDS, time.monotonic()
    while time.monotonic() < min(until, seen_at + QUIET_SECONDS):
        for pid in set(children("self")) - others:
            seen_at = time.monotonic()
            ended.add(pid)
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
    return ended


def _living(pid: int, marker: str, before: set[int]) -> list[psutil.Process]:
    found: dict[int, psutil.Process] = {}
    roots = []
    with contextlib.suppress(psutil.Error):
        roots.append(psutil.Process(pid))
    with contextlib.suppress(psutil.Error):  # what children from before start meanwhile is none of the script's
        roots += [orphan for orphan in psutil.Process().children() if orphan.pid not in before]
    for root in roots:
        with contextlib.suppress(psutil.Error):
            found.update({process.pid: process for process in [root, *root.children(recursive=True)]})
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(MARKER) == marker:
                found[process.pid] = process
    alive = []
    for process in found.values():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
    return alive

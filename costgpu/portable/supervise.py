"""Children and what they leave behind: adopted, signalled, ended and reaped."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .processes import GONE_SECONDS, Process, is_alive, send

if TYPE_CHECKING:
    import subprocess

# Of prctl(). Source: include/uapi/linux/prctl.h
PARENT_DEATH_SIGNAL, CHILD_SUBREAPER = 1, 36
_ROUNDS = 50  # of looking for processes that were forked meanwhile
_KILLED_SECONDS = 2.0  # one that waits for a device dies later


def control(option: int, value: int) -> Callable[[], Any]:
    """Return a call that sets something of the calling process; between fork and exec, too, it takes no lock."""
    if sys.platform == "linux":
        try:
            import ctypes

            call = ctypes.CDLL(None).prctl
            return lambda: call(option, value, 0, 0, 0)
        except (ImportError, OSError, AttributeError):
            pass
    return lambda: None


def adopt_orphans(on: bool = True) -> None:
    """Make this process the new parent of orphans below it (Linux)."""
    control(CHILD_SUBREAPER, int(on))()


def prefer_for_oom(score: int) -> None:
    """Say when this process is to go if the memory is used up: 1000 first, -1000 never."""
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as stream:
            stream.write(str(score))
    except OSError:
        pass


def signal_group(pid: int, number: int) -> None:
    """Signal all processes of a group, if there is one."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def reap() -> dict[int, int]:
    """Return the status of every child that has ended since the last call, by number."""
    found: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        found[pid] = status


def ask_group(child: subprocess.Popen[bytes], grace: float, meanwhile: Callable[[float], object] | None = None) -> None:
    """Ask a child that leads a group to end, and the group with it, by SIGTERM, and wait until it has or its time is over.

    Args:
        grace: Seconds.
        meanwhile: Waits for at most so many seconds, such as by reading what a child prints that could not end otherwise.
    """
    if child.poll() is not None:
        return
    signal_group(child.pid, signal.SIGTERM)
    wait = meanwhile or (lambda seconds: _wait(child, seconds))
    until = time.monotonic() + grace
    while child.poll() is None and time.monotonic() < until:
        wait(until - time.monotonic())


def end_group(child: subprocess.Popen[bytes], grace: float, meanwhile: Callable[[float], object] | None = None) -> None:
    """End a child that leads a group, and the group with it: SIGTERM, and SIGKILL if it has not ended in time.

    Args:
        grace: Seconds between the two.
        meanwhile: As `ask_group`.
    """
    ask_group(child, grace, meanwhile)
    if child.poll() is None:
        signal_group(child.pid, signal.SIGKILL)
        _wait(child, _KILLED_SECONDS)


def _wait(child: subprocess.Popen[bytes], seconds: float) -> None:
    import subprocess

    try:
        child.wait(max(0.0, seconds))
    except subprocess.TimeoutExpired:
        pass


def end_all(find: Callable[[Sequence[Process]], list[Process]]) -> list[Process]:
    """Freeze and then kill everything that is found; return what could not be ended.

    Frozen first, so that nothing forks away while the others die.

    Args:
        find: Looks for what lives. It is told what was frozen before.
    """
    frozen: dict[tuple[int, str], Process] = {}

    def fresh() -> list[Process]:
        return [one for one in find(list(frozen.values())) if (one.pid, one.started) not in frozen]

    for _ in range(_ROUNDS):
        found = fresh()
        if not found:
            break
        for one in found:
            frozen[one.pid, one.started] = one
            send(one, signal.SIGSTOP)
    for one in frozen.values():
        send(one, signal.SIGKILL)
    until = time.monotonic() + GONE_SECONDS
    while True:
        left = [one for one in frozen.values() if is_alive(one.pid, one.started)] + fresh()
        if not left or time.monotonic() > until:
            return left
        for one in left:
            send(one, signal.SIGKILL)
        time.sleep(0.01)

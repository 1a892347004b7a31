"""The processes of this computer, as Linux tells of them in /proc; elsewhere there are none.

Numbers of processes are used again: a process is its number and its start.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

_open, _read, _close = os.open, os.read, os.close  # before the probe replaces them in the user's process
_TICKS = float(os.sysconf("SC_CLK_TCK"))
MOST_LOOKED_AT = 32
GONE_SECONDS = 5.0


class Process(NamedTuple):
    """One that lives (a zombie does not); `cpu` includes children that were waited for, in seconds."""

    pid: int
    parent: int
    session: int
    started: str  # when, as the system counts
    cpu: float
    children_cpu: float


def read(pid: int | str, name: str) -> bytes:
    """Return what a file of a process says; empty if the process is gone, or not ours to look into."""
    try:
        descriptor = _open("/proc/%s/%s" % (pid, name), os.O_RDONLY)
        try:
            return b"".join(iter(lambda: _read(descriptor, 1 << 16), b""))
        finally:
            _close(descriptor)
    except OSError:
        return b""


def process(pid: int) -> Process | None:
    """Return the process of that number; None if none lives."""
    fields = read(pid, "stat").rpartition(b")")[2].split()
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    own, children = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
    times = (own + children) / _TICKS, children / _TICKS
    return Process(pid, int(fields[1]), int(fields[3]), fields[19].decode(), *times)


def processes() -> dict[int, Process]:
    """Return all that live, by number."""
    if not os.path.isdir("/proc/self"):
        return {}
    found = (process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {one.pid: one for one in found if one is not None}


def descendants(root: int, table: dict[int, Process] | None = None) -> list[Process]:
    """Return the children of a process, and theirs.

    Args:
        table: What `processes` has returned; None to look now.
    """
    children: dict[int, list[Process]] = {}
    for one in (processes() if table is None else table).values():
        children.setdefault(one.parent, []).append(one)
    found: list[Process] = []
    todo = [root]
    while todo:
        fresh = children.pop(todo.pop(), [])
        found += fresh
        todo += [one.pid for one in fresh]
    return found


def children(pid: int | str) -> list[int]:
    """Return the numbers of a process's children, dead ones included.

    It takes a hundredth of a look at all processes, and may miss one that comes or goes meanwhile.
    """
    try:
        threads = os.listdir("/proc/%s/task" % pid)
    except OSError:
        return []
    return [int(child) for thread in threads for child in read(pid, "task/%s/children" % thread).split()]


def some_descendants(pid: int | str) -> list[int]:
    """Return the numbers of children and theirs as fast as `children` does: some dozens, which is enough to look at."""
    found: list[int] = []
    todo = [pid]
    while todo and len(found) < MOST_LOOKED_AT:
        fresh = children(todo.pop())
        found += fresh
        todo += fresh
    return found


def arguments_of(pid: int) -> str:
    """Return the command line of a process, with a space between its words; empty if it is gone."""
    return read(pid, "cmdline").replace(b"\0", b" ").decode("utf-8", "replace")


def has_variable(pid: int, text: str) -> bool:
    """Return whether the environment that a process was started with has this, such as ``NAME=value``."""
    return os.fsencode(text) in read(pid, "environ").split(b"\0")


def is_alive(pid: int, started: str | int) -> bool:
    """Return whether that very process lives."""
    one = process(pid)
    return one is not None and one.started == str(started)


def send(one: Process, number: int) -> bool:
    """Signal this very process; False if it is gone or not ours to signal."""
    if one.pid <= 1 or not is_alive(one.pid, one.started):
        return False
    try:
        os.kill(one.pid, number)
    except OSError:
        return False
    return True


def gone(one: Process, within_seconds: float = GONE_SECONDS) -> bool:
    """Wait for the end of a process; return whether it came in time."""
    until = time.monotonic() + within_seconds
    while is_alive(one.pid, one.started):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True

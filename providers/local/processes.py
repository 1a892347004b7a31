"""Which processes belong to a local instance, and their end. Standard library only; psutil where there is no /proc.

A process belongs to an instance if its environment says ``COSTGPU_HOME=<folder>``, if it descends from one that does,
if it writes the logs of its job, or if its session was opened by one. Process numbers are used again, so a process is
its number and its start.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

MARK = "COSTGPU_HOME"
_PROC = Path("/proc")
_ROUNDS = 50  # of looking for processes that were forked meanwhile
_GONE_SECONDS = 5.0


class Process(NamedTuple):
    """One that lives (a zombie does not)."""

    pid: int
    parent: int
    session: int
    started: str  # when, as the system counts; with the number it is unique


def boot_id() -> str:
    """Return an identifier that every start of the system changes; empty if the system does not tell."""
    with contextlib.suppress(OSError):
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return ""


def system_time() -> float:
    """Return the Unix time by the system's own clock, or this process's if that is behind: it may have another one set."""
    try:
        boot = next(line for line in (_PROC / "stat").read_text().splitlines() if line.startswith("btime "))
        system = float(boot.split()[1]) + float((_PROC / "uptime").read_text().split()[0])
    except (OSError, ValueError, StopIteration):
        return time.time()
    return min(system, time.time())


def process(pid: int) -> Process | None:
    """None if no such process lives."""
    if not _PROC.joinpath("self/stat").exists():
        return _elsewhere().get(pid)
    try:
        fields = (_PROC / str(pid) / "stat").read_bytes().rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return None
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    return Process(pid, int(fields[1]), int(fields[3]), fields[19].decode())


def processes() -> dict[int, Process]:
    """Return all that live."""
    if not _PROC.joinpath("self/stat").exists():
        return _elsewhere()
    found = (process(int(name)) for name in os.listdir(_PROC) if name.isdigit())  # noqa: PTH208 - hundreds of them
    return {one.pid: one for one in found if one is not None}


class Belonging(NamedTuple):
    """What is known of an instance's processes besides their mark."""

    # the host process, which is not one of them, but whose descendants are; None if it does not live
    host: Process | None = None
    # number and start of descendants that the host has noted: they have no mark, and lose their parent with it
    noted: Collection[tuple[int, str]] = ()


def descendants(table: dict[int, Process], root: int) -> set[int]:
    """Children of a process, and theirs."""
    children: dict[int, list[int]] = {}
    for one in table.values():
        children.setdefault(one.parent, []).append(one.pid)
    found: set[int] = set()
    todo = [root]
    while todo:
        fresh = [pid for pid in children.get(todo.pop(), ()) if pid not in found]
        found.update(fresh)
        todo.extend(fresh)
    return found


def members(folder: Path, belonging: Belonging, sessions: Collection[int] = ()) -> list[Process]:
    """Return what belongs to an instance, except the caller itself and the host.

    Args:
        sessions: More sessions that are known to be its.
    """
    table = processes()
    mine = {pid for pid in table if _is_marked(pid, folder)}
    mine.update(pid for pid, started in belonging.noted if pid in table and table[pid].started == started)
    mine.update(pid for pid, one in table.items() if one.session in sessions)
    if belonging.host is not None:
        mine.update(descendants(table, belonging.host.pid))
    for pid in list(mine):
        mine.update(descendants(table, pid))
    mine.update(pid for pid, one in table.items() if one.session in mine)
    mine.difference_update({os.getpid(), *([belonging.host.pid] if belonging.host is not None else [])})
    return [table[pid] for pid in sorted(mine) if pid in table]


def end_all(folder: Path, belonging: Belonging) -> list[Process]:
    """Freeze and then kill everything of an instance; return what could not be ended.

    Frozen first, so that nothing forks away while the others die.
    """
    frozen: dict[int, Process] = {}
    sessions: set[int] = set()
    for _ in range(_ROUNDS):
        fresh = [one for one in members(folder, belonging, sessions) if not _is_in(one, frozen)]
        if not fresh:
            break
        for one in fresh:
            frozen[one.pid] = one
            send(one, signal.SIGSTOP)
        sessions = {one.pid for one in frozen.values() if one.session == one.pid}
    for one in frozen.values():
        send(one, signal.SIGKILL)
    until = time.monotonic() + _GONE_SECONDS
    while True:
        left = [one for one in frozen.values() if _lives(one)]
        left += [one for one in members(folder, belonging, sessions) if not _is_in(one, frozen)]
        if not left or time.monotonic() > until:
            return left
        for one in left:
            send(one, signal.SIGKILL)
        time.sleep(0.01)


def _is_in(one: Process, known: dict[int, Process]) -> bool:
    return one.pid in known and known[one.pid].started == one.started


def send(one: Process, number: signal.Signals) -> bool:
    """Signal this very process; False if it is gone or not ours to signal."""
    if one.pid <= 1 or not _lives(one):
        return False
    try:
        os.kill(one.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def gone(one: Process, within_seconds: float = _GONE_SECONDS) -> bool:
    """Wait for the end of a process; whether it came in time."""
    until = time.monotonic() + within_seconds
    while _lives(one):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def _lives(one: Process) -> bool:
    now = process(one.pid)
    return now is not None and now.started == one.started


def _is_marked(pid: int, folder: Path) -> bool:
    text = f"{MARK}={folder}"
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
        return os.fsencode(text) in environment.split(b"\0") or _writes_logs(pid, folder)
    except OSError:
        pass
    if _PROC.joinpath("self/stat").exists():
        return False
    import psutil  # noqa: PLC0415

    try:
        return bool(psutil.Process(pid).environ().get(MARK) == str(folder))
    except psutil.Error:
        return False


def _writes_logs(pid: int, folder: Path) -> bool:
    """Return whether its stdout or stderr is one of the job's logs: so is a process that has cleared its environment."""
    for number in (1, 2):
        with contextlib.suppress(OSError):
            target = os.readlink(_PROC / str(pid) / "fd" / str(number))  # noqa: PTH115 - not a path if it is a pipe
            if target.removesuffix(" (deleted)") in (f"{folder}/stdout.log", f"{folder}/stderr.log"):
                return True
    return False


def _elsewhere() -> dict[int, Process]:
    import psutil  # noqa: PLC0415

    found = {}
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if one.status() != psutil.STATUS_ZOMBIE:
                started = f"{one.create_time():.2f}"
                found[one.pid] = Process(one.pid, one.ppid(), os.getsid(one.pid), started)
    return found

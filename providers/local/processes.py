"""Which processes belong to a local instance, and their end. Standard library and `portable` only.

A process belongs to an instance if its environment says ``COSTGPU_HOME=<folder>``, if it descends from one that does,
if it writes the logs of its job, or if its session was opened by one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from costgpu.portable import supervise
from costgpu.portable.clock import boot_id, system_time
from costgpu.portable.processes import Process, descendants, gone, has_variable, process, processes, send

__all__ = [
    "MARK",
    "Belonging",
    "Process",
    "boot_id",
    "descendants",
    "end_all",
    "gone",
    "members",
    "process",
    "processes",
    "send",
    "system_time",
]

MARK = "COSTGPU_HOME"


class Belonging(NamedTuple):
    """What is known of an instance's processes besides their mark."""

    # the host process, which is not one of them, but whose descendants are; None if it does not live
    host: Process | None = None
    # number and start of descendants that the host has noted: they have no mark, and lose their parent with it
    noted: Collection[tuple[int, str]] = ()


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
        mine.update(one.pid for one in descendants(belonging.host.pid, table))
    for pid in list(mine):
        mine.update(one.pid for one in descendants(pid, table))
    mine.update(pid for pid, one in table.items() if one.session in mine)
    mine.difference_update({os.getpid(), *([belonging.host.pid] if belonging.host is not None else [])})
    return [table[pid] for pid in sorted(mine) if pid in table]


def end_all(folder: Path, belonging: Belonging) -> list[Process]:
    """End everything of an instance; return what could not be ended."""
    return supervise.end_all(
        lambda frozen: members(folder, belonging, {one.pid for one in frozen if one.session == one.pid})
    )


def _is_marked(pid: int, folder: Path) -> bool:
    """Return whether it has the mark, or writes one of the job's logs: so does one that has cleared its environment."""
    if has_variable(pid, f"{MARK}={folder}"):
        return True
    for number in (1, 2):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/{pid}/fd/{number}")  # noqa: PTH115 - not a path if it is a pipe
            if target.removesuffix(" (deleted)") in (f"{folder}/stdout.log", f"{folder}/stderr.log"):
                return True
    return False

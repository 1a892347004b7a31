"""Which processes belong to a local instance, and their end. Standard library and `portable` only.

A process belongs to an instance if its environment says ``COSTGPU_HOME=<folder>``, if it descends from one that does,
if it writes the logs of its job, or if its session was opened by one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

from costgpu.portable import supervise
from costgpu.portable.processes import Process, descendants, has_variable, processes

MARK = "COSTGPU_HOME"
Noted = Collection[tuple[int, str]]
"""Number and start of processes that the keeper has seen: some have no mark, and lose their parents."""


def members(folder: Path, noted: Noted = (), sessions: Collection[int] = ()) -> list[Process]:
    """Return what belongs to an instance, except the caller itself.

    Args:
        sessions: Sessions that are known to be its.
    """
    table = processes()
    mine = {pid for pid in table if _is_marked(pid, folder)}
    mine.update(pid for pid, started in noted if pid in table and table[pid].started == started)
    mine.update(pid for pid, one in table.items() if one.session in sessions)
    for pid in list(mine):
        mine.update(one.pid for one in descendants(pid, table))
    mine.update(pid for pid, one in table.items() if one.session in mine)
    mine.discard(os.getpid())
    return [table[pid] for pid in sorted(mine) if pid in table]


def end_all(folder: Path, noted: Noted = ()) -> list[Process]:
    """End everything of an instance; return what could not be ended."""
    return supervise.end_all(
        lambda frozen: members(folder, noted, {one.pid for one in frozen if one.session == one.pid})
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

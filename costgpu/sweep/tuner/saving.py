"""Whether a script is writing a file just now: ASHA ends it right after a report, when most scripts save."""

from __future__ import annotations

import os
import stat
from typing import Iterator, List

QUIET_SECONDS = 0.5  # an open file that was not changed for as long is one that stays open, such as TensorBoard's


def is_saving(group: int, folder: str, now: float, quiet_seconds: float = QUIET_SECONDS) -> bool:
    """Return whether a process has a file open that it was writing until just now; False where ``/proc`` does not tell.

    Args:
        group: The process group.
        folder: Files elsewhere, and logs that are only appended to, do not count.
        now: In seconds since the epoch, as are times of files.
        quiet_seconds: A file that was last changed longer ago does not count.
    """
    below = os.path.realpath(folder) + os.sep
    return any(now - changed < quiet_seconds for pid in _processes(group) for changed in _changes(pid, below))


def _processes(group: int) -> List[int]:
    found = []
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    for name in names:
        try:
            if name.isdigit() and os.getpgid(int(name)) == group:
                found.append(int(name))
        except OSError:
            continue  # it has ended
    return found


def _changes(pid: int, below: str) -> Iterator[float]:
    """When each file that a process has open for writing was changed last."""
    place = "/proc/%d" % pid
    try:
        names = os.listdir(place + "/fd")
    except OSError:
        return
    for name in names:
        path = "%s/fd/%s" % (place, name)
        try:
            if not os.readlink(path).startswith(below) or not _is_written("%s/fdinfo/%s" % (place, name)):
                continue
            found = os.stat(path)
        except (OSError, ValueError):
            continue  # it was closed meanwhile
        if stat.S_ISREG(found.st_mode) and found.st_nlink:
            yield found.st_mtime


def _is_written(path: str) -> bool:
    with open(path, encoding="ascii") as stream:
        for line in stream:
            if line.startswith("flags:"):
                flags = int(line.split()[1], 8)
                return bool(flags & os.O_ACCMODE) and not flags & os.O_APPEND
    return False

"""Files that a job is writing, and what was cut off when it was ended: noted while all its processes stand still."""

from __future__ import annotations

import os
import signal
import stat
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..observe.machine_stats import descendants
from ..state_files import Home

CUT_OFF = "cut_off.json"  # what was being written whenever a signal was sent, as device and inode
_STOP_SECONDS = 1.0  # whoever does not stand still then waits for a disk, and opens nothing meanwhile
_ROUND_SECONDS = 0.002
_STOPPED = (b"T", b"t", b"Z", b"X")


class CutOff(NamedTuple):
    """What the job was writing when it was sent signals; device and inode each."""

    writing: set[Any]
    appending: set[Any]  # logs: what was only appended to
    left: set[Any]  # of `writing`, what processes were writing that the job has left behind
    unknown: bool  # whether there may be more


@contextmanager
def standing_still(home: Home, root: int, left: bool = False) -> Iterator[None]:
    """Stop the processes below `root`, and note what they are writing; a signal that is sent now finds no more.

    They go on afterwards, whatever happens, but for those that stood still before.

    Args:
        left: Whether they are what the job has left behind.
    """
    stopped: set[int] = set()
    try:
        try:
            _stop(root, stopped)
            _note(home, root, left)
        except Exception:  # nothing keeps a job from being ended
            traceback.print_exc()
            note_unknown(home)
        yield
    finally:
        for pid in stopped:
            _send(pid, signal.SIGCONT)


def note_unknown(home: Home) -> None:
    """From now on nobody knows what of the job's files is half there."""
    try:
        home.write(CUT_OFF, {"unknown": True})
    except OSError:
        try:
            os.unlink(home.file(CUT_OFF))  # without a record nothing is known, either
        except OSError:
            pass


def cut_off(home: Home) -> CutOff | None:
    """Return what is noted; None without any signal, or if the record is damaged."""
    found = home.read(CUT_OFF)
    if found is None:
        return None
    writing, appending, left = (_keys(found.get(name)) for name in ("writing", "appending", "left"))
    return CutOff(writing, appending - writing, left, found.get("unknown") is not False)


def _note(home: Home, root: int, left: bool) -> None:
    before = cut_off(home)
    if before is None:
        before = CutOff(set(), set(), set(), home.exists(CUT_OFF))
    writing, appending = files_being_written(root)
    record = {
        "writing": sorted(before.writing | writing),
        "appending": sorted(before.appending | appending),
        "left": sorted(before.left | writing if left else before.left),
        "unknown": before.unknown,
    }
    home.write(CUT_OFF, record)


def _keys(rows: Any) -> set[Any]:
    whole = [row for row in rows if isinstance(row, list) and len(row) == 2] if isinstance(rows, list) else []
    return {tuple(row) for row in whole if all(isinstance(each, int) for each in row)}


def _stop(root: int, stopped: set[int]) -> None:
    """Stop all processes, those that they start meanwhile, too; add them to `stopped`."""
    until = time.monotonic() + _STOP_SECONDS
    while True:
        moving = [entry.pid for entry in descendants(root) if not _stands_still(entry.pid)]
        for pid in moving:
            stopped.add(pid)
            _send(pid, signal.SIGSTOP)
        if not moving or time.monotonic() > until:
            return
        time.sleep(_ROUND_SECONDS)


def _stands_still(pid: int) -> bool:
    """Return whether all threads of a process are stopped, or it is gone."""
    try:
        threads = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return True
    for thread in threads:
        try:
            with open("/proc/%d/task/%s/stat" % (pid, thread), "rb") as stream:
                if stream.read().rsplit(b")", 1)[1].split()[0] not in _STOPPED:
                    return False
        except (OSError, IndexError):
            continue  # it has ended
    return True


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass


def files_being_written(root: int) -> tuple[set[Any], set[Any]]:
    """Device and inode of the files that the processes below `root` have open for writing or mapped.

    Returns:
        Those that may be rewritten, and logs: those that are only appended to.
    """
    writing: set[Any] = set()
    appending: set[Any] = set()
    for entry in descendants(root):
        folder = "/proc/%d" % entry.pid
        try:
            names = os.listdir(folder + "/fd")
        except OSError:
            continue
        for name in names:
            try:
                flags = _open_flags("%s/fdinfo/%s" % (folder, name))
                found = os.stat("%s/fd/%s" % (folder, name))
            except (OSError, ValueError):
                continue
            if flags & os.O_ACCMODE and stat.S_ISREG(found.st_mode):
                (appending if flags & os.O_APPEND else writing).add((found.st_dev, found.st_ino))
        writing |= _mapped(folder + "/maps")
    return writing, appending - writing


def _open_flags(path: str) -> int:
    with open(path, encoding="ascii") as stream:
        for line in stream:
            if line.startswith("flags:"):
                return int(line.split()[1], 8)
    raise ValueError(path)


def _mapped(path: str) -> set[Any]:
    """Return the files that are mapped so that what is written to memory gets into them."""
    found = set()
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            for line in stream:
                fields = line.split(None, 5)
                if len(fields) > 4 and fields[1].startswith("rw") and fields[1].endswith("s") and fields[4] != "0":
                    major, minor = fields[3].split(":")
                    found.add((os.makedev(int(major, 16), int(minor, 16)), int(fields[4])))
    except (OSError, ValueError):
        pass
    return found

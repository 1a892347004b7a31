"""Checkpoints: files of a running job, copied at a moment at which they are whole, and put back on the next machine.

A file is whole that has not changed for `QUIET_SECONDS`, nor while it was copied. What belongs together lies in one folder,
so a folder is taken as a whole or stays as it was taken the last time. Copies are kept by their checksum: what has not
changed is not copied again. What the next machine is sent of them is a part of its working folder (`workdir`).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ....portable.clock import MachineClock
from ....portable.files import open_regular
from ..limits import min_free_bytes
from ..state_files import Home
from ..status import JobEnd, job_end, job_status
from .find_outputs import Output, find_outputs, is_named

STORE = "checkpoints"  # folder in the home with the copies, by checksum
RECORD = "checkpoint.json"  # what was taken last: number, time, files, since when folders are held back
LOCK = "checkpoint.lock"  # held by whoever takes one
QUIET_SECONDS = 5.0  # a writer that pauses for longer inside one file is taken for one that has ended
PATIENCE_SECONDS = 60.0  # after that a folder that is never quiet is taken, but for the files that are not
_CHUNK = 1 << 20


class _Changed(Exception):
    """Raised when files of a folder are being changed."""


def take_checkpoint(
    home: Home, order: Mapping[str, Any], clock: MachineClock, everything: bool = False
) -> dict[str, Any]:
    """Copy what has changed and is whole; whoever else looks meanwhile has to wait.

    With `everything` the outputs belong to it, too: for the end of a job that is to go on elsewhere. After the end of any
    other job it is what was taken last.

    Returns:
        ``number``, which grows when anything has changed; ``at``, Unix time; ``files``, rows of path, size, checksum,
        mode and time of change in nanoseconds; and ``trouble``, empty or why something was left out.
    """
    with open(home.file(LOCK), "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _take(home, order, clock, everything)


def _take(home: Home, order: Mapping[str, Any], clock: MachineClock, everything: bool) -> dict[str, Any]:
    last, ended = _record(home), job_end(home)
    if ended is not None and not everything and job_status(home)["reason"] != "preempted":
        return {"number": last["number"], "at": last["at"], "files": last["files"], "trouble": ""}
    patterns = order.get("checkpoints") or []
    found = {each.path: each for each in find_outputs(home, patterns).outputs}
    if everything:
        found.update((each.path, each) for each in find_outputs(home, order["outputs"]).outputs)
    folders: dict[str, list[Output]] = {}
    for path in sorted(found):
        folders.setdefault(os.path.dirname(path), []).append(found[path])
    _forget_copies(home, last["files"])
    known, rows, held, trouble = {row[0]: row for row in last["files"]}, [], {}, ""
    for folder, members in folders.items():
        since = float(last["held"].get(folder, clock.time()))
        whole = [each for each in members if _is_whole(each, ended, clock)]
        changing = [each for each in members if each not in whole]
        try:
            if changing and clock.time() - since < PATIENCE_SECONDS:
                raise _Changed
            rows += [_row(home, each, known.get(each.path)) for each in whole]
            rows += [known[each.path] for each in changing if each.path in known]
            continue
        except (FileNotFoundError, _Changed):
            pass
        except OSError as error:
            trouble = "%s cannot be copied: %s." % (whole[0].path, error.strerror or error)
        held[folder] = since
        rows += [row for row in last["files"] if os.path.dirname(row[0]) == folder]
    if _is_news(home, rows, last["files"], patterns):
        last.update(number=last["number"] + 1, at=clock.time(), files=rows)
    last.update(held=held, trouble=trouble)
    home.write(RECORD, last)
    return {key: last[key] for key in ("number", "at", "files", "trouble")}


def _is_whole(each: Output, ended: JobEnd | None, clock: MachineClock) -> bool:
    """Return whether nobody is writing a file, or was when the job ended.

    Its times do not tell that it was renamed into place: the last write and the renaming mostly have the same.
    """
    if ended is not None and ended.exit_code == 0 and not ended.left_behind:  # it has said goodbye by itself
        return True
    at = clock.time() if ended is None else ended.finished_epoch
    return abs(at - each.mtime_ns / 1e9) >= QUIET_SECONDS


def _is_news(home: Home, rows: Sequence[Any], last: Sequence[Any], patterns: Sequence[str]) -> bool:
    """Return whether anything differs; a file of the last checkpoint that the patterns do not name is no difference."""
    now = {row[0]: row for row in rows}
    before = {row[0]: row for row in last}
    gone = [path for path in before if path not in now]
    if patterns:
        gone = [path for path in gone if is_named(path, patterns)]
    else:  # an output that was named may be as it was sent
        gone = [path for path in gone if not os.path.exists(os.path.join(home.work, path))]
    return bool(gone) or any(before.get(path) != row for path, row in now.items())


def _row(home: Home, each: Output, known: Sequence[Any] | None) -> list[Any]:
    """Return the row of a file, which is copied unless that was done before."""
    same = known is not None and [known[1], known[4]] == [each.size, each.mtime_ns]
    if known is not None and same and os.path.exists(_copy_of(home, known[2])):
        return [each.path, each.size, known[2], each.mode, each.mtime_ns]
    return [each.path, each.size, _copy(home, each), each.mode, each.mtime_ns]


def _copy(home: Home, each: Output) -> str:
    disk = os.statvfs(home.path)
    if disk.f_bavail * disk.f_frsize - each.size < 2 * min_free_bytes(disk.f_blocks * disk.f_frsize):
        raise OSError(errno.ENOSPC, "the disk has too little room for a copy")
    partial = _incoming(home)
    try:
        with open_regular(each.full) as source, open(partial, "wb") as target:
            digest = hashlib.sha256()
            for chunk in iter(lambda: source.read(_CHUNK), b""):
                digest.update(chunk)
                target.write(chunk)
            found = os.fstat(source.fileno())
        if (found.st_size, found.st_mtime_ns) != (each.size, each.mtime_ns):
            raise _Changed
        os.replace(partial, _copy_of(home, digest.hexdigest()))
    finally:
        _remove(partial)
    return digest.hexdigest()


def begin_from(home: Home, files: Sequence[Sequence[Any]]) -> None:
    """Note files that were put back into the working folder as what was taken last: they are nothing new.

    Args:
        files: Rows as `take_checkpoint` makes them.
    """
    os.makedirs(home.file(STORE), exist_ok=True)
    for path, _, sha256, _, _ in files:
        if not os.path.exists(_copy_of(home, sha256)):
            partial = _incoming(home)
            shutil.copyfile(os.path.join(home.work, path), partial)
            os.replace(partial, _copy_of(home, sha256))
    home.write(RECORD, {"number": 0, "at": 0.0, "files": list(files), "held": {}, "trouble": ""})


def _record(home: Home) -> dict[str, Any]:
    """Return what was taken last."""
    os.makedirs(home.file(STORE), exist_ok=True)
    return home.read(RECORD) or {"number": 0, "at": 0.0, "files": [], "held": {}}


def _forget_copies(home: Home, files: Iterable[Sequence[Any]]) -> None:
    """Remove copies that the last checkpoint does not need."""
    needed = {row[2] for row in files}
    for name in os.listdir(home.file(STORE)):
        if name not in needed:
            _remove(_copy_of(home, name))


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def _incoming(home: Home) -> str:
    """Return a name in the store that nobody else uses now."""
    return _copy_of(home, "incoming.%d-%d" % (os.getpid(), threading.get_ident()))


def _copy_of(home: Home, sha256: str) -> str:
    return os.path.join(home.file(STORE), sha256)

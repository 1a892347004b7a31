"""Checkpoints: files of a running job, copied at a moment at which they are whole, and put back on the next machine.

A half-written file is never taken. A file that a process has open for writing, or has mapped, is being written; one that
was changed a moment ago may be about to be. What belongs together lies in one folder, so a folder is taken as a whole or
stays as it was taken the last time. Copies are kept by their checksum: what has not changed is not copied again.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

from ..clock import Clock
from ..limits import min_free_bytes
from ..observe.machine_stats import descendants
from ..state_files import Home, open_regular
from ..status import job_end
from .find_outputs import Output, find_outputs
from .workdir import Damaged, is_safe_path, make_parents

STORE = "checkpoints"  # folder in the home with the copies, by checksum
RECORD = "checkpoint.json"  # what was taken last: number, time, files, since when folders are held back
ANNOUNCED = "restore.json"  # what a client is about to put back
CUT_OFF = "cut_off.json"  # files that were being written when the job was killed
QUIET_SECONDS = 2.0  # a folder in which something has changed more recently is not taken
PATIENCE_SECONDS = 60.0  # after that a folder that is never quiet is taken without the files that are being written
_CHUNK = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")


class _Changed(Exception):
    """A file was changed while it was copied."""


def take_checkpoint(home: Home, order: Mapping[str, Any], clock: Clock, everything: bool = False) -> dict[str, Any]:
    """Copies what has changed and is whole; one caller at a time.

    With `everything` the outputs belong to it, too: for the end of a job that is to go on elsewhere.

    Returns:
        ``number``, which grows when anything has changed; ``at``, Unix time; ``files``, rows of path, size, checksum,
        mode and time of change in nanoseconds; and ``trouble``, empty or why something was left out.
    """
    last = _record(home)
    found = {each.path: each for each in find_outputs(home, order.get("checkpoints") or []).outputs}
    if everything:
        found.update((each.path, each) for each in find_outputs(home, order["outputs"]).outputs)
    folders: dict[str, list[Output]] = {}
    for path in sorted(found):
        folders.setdefault(os.path.dirname(path), []).append(found[path])
    _forget_copies(home, last["files"])
    work, rows, held = _Copying(home, order, clock, last["files"]), [], {}
    for folder, members in folders.items():
        since = float(last["held"].get(folder, clock.time()))
        taken = work.take(members, impatient=clock.time() - since >= PATIENCE_SECONDS)
        if taken is None:
            held[folder] = since
            taken = [row for row in last["files"] if os.path.dirname(row[0]) == folder]
        rows += taken
    if rows != last["files"]:
        last.update(number=last["number"] + 1, at=clock.time(), files=rows)
    last.update(held=held, trouble=work.trouble)
    home.write(RECORD, last)
    return {key: last[key] for key in ("number", "at", "files", "trouble")}


class _Copying:
    """Takes the files of one folder after the other."""

    def __init__(self, home: Home, order: Mapping[str, Any], clock: Clock, last: Iterable[Sequence[Any]]) -> None:
        self.home, self.clock, self.trouble = home, clock, ""
        self._known = {row[0]: row for row in last}
        self._over = job_end(home) is not None
        self._root = 0 if self._over else int(order["supervisor"]["pid"])
        self._writing, self._appending = self._look()

    def _look(self) -> tuple[set[Any], set[Any]]:
        if not self._over:
            return files_being_written(self._root)
        cut_off = (self.home.read(CUT_OFF) or {}).get("files")
        rows = cut_off if isinstance(cut_off, list) else []
        return {tuple(row) for row in rows if isinstance(row, list)}, set()

    def take(self, members: Sequence[Output], impatient: bool) -> list[list[Any]] | None:
        """The rows of the files that are whole; None if they are not all, and it is too early to do without the others."""
        keys = {each.path: _key(each.full) for each in members}
        whole = [each for each in members if keys[each.path] not in self._appending]  # a log that goes on for ever
        if not impatient and not self._is_quiet(whole, keys):
            return None
        whole = [each for each in whole if keys[each.path] not in self._writing]
        try:
            rows = [self._row(each) for each in whole]
        except (FileNotFoundError, _Changed):
            return None
        except OSError as error:
            self.trouble = "%s cannot be copied: %s." % (whole[0].path, error.strerror or error)
            return None
        writing, _ = self._look()
        return None if writing & {keys[each.path] for each in whole} else rows

    def _is_quiet(self, members: Sequence[Output], keys: Mapping[str, Any]) -> bool:
        if any(keys[each.path] in self._writing for each in members):
            return False
        latest = max((each.mtime_ns for each in members), default=0) / 1e9
        return self._over or not 0 <= self.clock.time() - latest < QUIET_SECONDS

    def _row(self, each: Output) -> list[Any]:
        known = self._known.get(each.path)
        same = known is not None and [known[1], known[4]] == [each.size, each.mtime_ns]
        if known is not None and same and os.path.exists(_copy_of(self.home, known[2])):
            return [each.path, each.size, known[2], each.mode, each.mtime_ns]
        return [each.path, each.size, self._copy(each), each.mode, each.mtime_ns]

    def _copy(self, each: Output) -> str:
        disk = os.statvfs(self.home.path)
        if disk.f_bavail * disk.f_frsize - each.size < 2 * min_free_bytes(disk.f_blocks * disk.f_frsize):
            raise OSError(errno.ENOSPC, "the disk has too little room for a copy")
        partial = _copy_of(self.home, "incoming")
        with open(open_regular(each.full), "rb") as source, open(partial, "wb") as target:
            sha256 = _copy_bytes(source, target)
            found = os.fstat(source.fileno())
        if (found.st_size, found.st_mtime_ns) != (each.size, each.mtime_ns):
            raise _Changed
        os.replace(partial, _copy_of(self.home, sha256))
        return sha256


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
    """Files that are mapped so that what is written to memory gets into them."""
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


def note_cut_off(home: Home, root: int) -> None:
    """Before the processes below `root` are killed: notes what they are writing, which will be half there."""
    writing, appending = files_being_written(root)
    try:
        home.write(CUT_OFF, {"files": sorted(writing | appending)})
    except OSError:
        pass


def expect_checkpoint(home: Home, files: Sequence[Sequence[Any]]) -> list[str]:
    """Notes what is to be put back: rows as `take_checkpoint` makes them; returns the checksums that lack."""
    for row in files:
        if not is_safe_path(row[0]) or not _SHA256.fullmatch(row[2]):
            raise Damaged("Not a file of a checkpoint: %r" % row[0])
    home.write(ANNOUNCED, {"files": files})
    _make_store(home)
    lacking = {row[2] for row in files if not os.path.exists(_copy_of(home, row[2]))}
    if not lacking:
        _put_back(home, files)
    return sorted(lacking)


def receive_checkpoint(home: Home, stream: IO[bytes]) -> int:
    """Unpacks an uncompressed tar of files that are named by their checksum, and puts all back; returns their number."""
    announced = home.read(ANNOUNCED)
    if announced is None:
        raise Damaged("Nothing was announced.")
    expected, count = {row[2] for row in announced["files"]}, 0
    partial = _copy_of(home, "incoming")
    with tarfile.open(fileobj=stream, mode="r|", errors="surrogateescape") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() and member.name in expected else None
            if content is None:
                raise Damaged("%r was not announced." % member.name)
            with open(partial, "wb") as target:
                sha256 = _copy_bytes(content, target, home)
            if sha256 != member.name:
                raise Damaged("%r changed while it was sent." % member.name)
            os.replace(partial, _copy_of(home, sha256))
            count += 1
    _put_back(home, announced["files"])
    return count


def _put_back(home: Home, files: Sequence[Sequence[Any]]) -> None:
    for path, _, sha256, mode, mtime_ns in files:
        target, partial = os.path.join(home.work, path), home.file("incoming.part")
        make_parents(home.work, path)
        shutil.copyfile(_copy_of(home, sha256), partial)
        os.chmod(partial, stat.S_IMODE(mode) & 0o777)
        os.utime(partial, ns=(mtime_ns, mtime_ns))
        if os.path.isdir(target) and not os.path.islink(target):
            shutil.rmtree(target)
        os.replace(partial, target)
    home.write(RECORD, {"number": 0, "at": 0.0, "files": list(files), "held": {}, "trouble": ""})


def _copy_bytes(source: IO[bytes], target: IO[bytes], home: Home | None = None) -> str:
    """Copies to the end; returns the checksum. With a home, notes that a client is there, however slow the line."""
    digest = hashlib.sha256()
    for chunk in iter(lambda: source.read(_CHUNK), b""):
        digest.update(chunk)
        target.write(chunk)
        if home is not None:
            home.record_contact()
    return digest.hexdigest()


def _record(home: Home) -> dict[str, Any]:
    """What was taken last; nothing if the job has damaged the record."""
    record = home.read(RECORD) or {}
    _make_store(home)
    number, files, held = record.get("number"), record.get("files"), record.get("held")
    at = record.get("at")
    return {
        "number": number if isinstance(number, int) else 0,
        "at": at if isinstance(at, (int, float)) else 0.0,
        "files": [row for row in files if isinstance(row, list) and len(row) == 5] if isinstance(files, list) else [],
        "held": held if isinstance(held, dict) else {},
    }


def _make_store(home: Home) -> None:
    """The folder for the copies; a link that the job has put in its place is not followed."""
    store = home.file(STORE)
    if os.path.islink(store) or (os.path.exists(store) and not os.path.isdir(store)):
        os.unlink(store)
    os.makedirs(store, exist_ok=True)


def _forget_copies(home: Home, files: Iterable[Sequence[Any]]) -> None:
    """Removes copies that the last checkpoint does not need."""
    needed = {row[2] for row in files}
    for name in os.listdir(home.file(STORE)):
        if name not in needed:
            try:
                os.unlink(_copy_of(home, name))
            except OSError:
                pass


def _copy_of(home: Home, sha256: str) -> str:
    return os.path.join(home.file(STORE), sha256)


def _key(path: str) -> tuple[int, int]:
    try:
        found = os.lstat(path)
    except OSError:
        return (0, 0)
    return (found.st_dev, found.st_ino)

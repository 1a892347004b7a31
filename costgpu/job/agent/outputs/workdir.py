"""The work folder: receives the files that a client announces, and remembers what it held at the start."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tarfile
from collections.abc import Sequence
from typing import IO, Any

from ....portable.files import file_sha256
from ..state_files import Home
from .checkpoints import begin_from
from .find_outputs import walk

_CHUNK = 1 << 20
_TAR_BUFFER = 1 << 15  # tarfile copies all of it at every read


class DamagedArchive(Exception):
    """What arrived is not what was announced."""


def expect_files(
    home: Home, files: Sequence[Sequence[Any]], links: dict[str, str], folders: Sequence[str] = ()
) -> list[str]:
    """Note what the work folder should hold; return the paths that lack, of several with one content the first.

    Args:
        files: ``[path, size, sha256, mode]`` each, and the time of change in nanoseconds for a file that an earlier
            attempt of the job has made: it is no part of what was sent, but an output.
    """
    os.makedirs(home.work, exist_ok=True)
    for path in folders:
        make_parents(home.work, path + "/")
    home.write("incoming.json", {"files": files, "links": links})
    lacking: dict[str, str] = {}
    for path, size, sha256, *_ in files:
        if not _is_there(home, path, size, sha256):
            lacking.setdefault(sha256, path)
    if not lacking:
        apply_manifest(home)
    return list(lacking.values())


def _is_there(home: Home, path: str, size: int, sha256: str) -> bool:
    target = os.path.join(home.work, path)
    try:
        found = os.lstat(target)
        return stat.S_ISREG(found.st_mode) and found.st_size == size and file_sha256(target) == sha256
    except OSError:
        return False


def receive(home: Home, stream: IO[bytes]) -> int:
    """Unpack an uncompressed tar of expected files, each verified before it gets its name; return their number."""
    incoming = home.read("incoming.json")
    if incoming is None:
        raise DamagedArchive("Nothing was announced.")
    expected, count = {entry[0]: entry for entry in incoming["files"]}, 0
    twins: dict[str, list[Any]] = {}  # checksum -> files with this content: it travels once
    for entry in incoming["files"]:
        twins.setdefault(entry[2], []).append(entry)
    with tarfile.open(fileobj=stream, mode="r|", bufsize=_TAR_BUFFER, errors="surrogateescape") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() and member.name in expected else None
            if content is None:
                raise DamagedArchive("%r was not announced." % member.name)
            _place(home, content, expected[member.name])
            for twin in twins[expected[member.name][2]]:
                if not _is_there(home, *twin[:3]):
                    with open(os.path.join(home.work, member.name), "rb") as copy:
                        _place(home, copy, twin)
            count += 1
            home.record_contact()
    return count


def _place(home: Home, content: IO[bytes], entry: Sequence[Any]) -> None:
    path, size, sha256, mode = entry[:4]
    target = os.path.join(home.work, path)
    make_parents(home.work, path)
    partial = home.file("incoming.part")
    digest, written = hashlib.sha256(), 0
    with open(partial, "wb") as out:
        for chunk in iter(lambda: content.read(_CHUNK), b""):
            digest.update(chunk)
            out.write(chunk)
            written += len(chunk)
            home.record_contact()  # somebody is there, however slow the line
    if written != size or digest.hexdigest() != sha256:
        raise DamagedArchive("%r changed while it was sent." % path)
    os.chmod(partial, stat.S_IMODE(mode) & 0o777)
    if os.path.isdir(target) and not os.path.islink(target):
        shutil.rmtree(target)
    os.replace(partial, target)


def make_parents(root: str, path: str) -> None:
    """Real folders all the way; whatever else is in the way goes."""
    current = root
    for part in path.split("/")[:-1]:
        current = os.path.join(current, part)
        if os.path.islink(current) or (os.path.exists(current) and not os.path.isdir(current)):
            os.unlink(current)
        if not os.path.isdir(current):
            os.mkdir(current)


def apply_manifest(home: Home) -> None:
    """Make the folder exactly what was announced, and remembers it: later changes are outputs."""
    incoming = home.read("incoming.json") or {"files": [], "links": {}}
    wanted = {entry[0] for entry in incoming["files"]} | set(incoming["links"])
    for path, _ in walk(home.work, everything=True):
        if path not in wanted:
            os.unlink(os.path.join(home.work, path))
    for path, target in incoming["links"].items():
        link = os.path.join(home.work, path)
        make_parents(home.work, path)
        if os.path.islink(link) or os.path.isfile(link):
            os.unlink(link)
        if not os.path.isdir(link):
            os.symlink(target, link)
    files, earlier = {}, []
    for path, size, sha256, mode, *modified_ns in incoming["files"]:
        full = os.path.join(home.work, path)
        os.chmod(full, stat.S_IMODE(mode) & 0o777)
        if modified_ns:
            os.utime(full, ns=(modified_ns[0], modified_ns[0]))
            earlier.append([path, size, sha256, mode, modified_ns[0]])
        else:
            files[path] = [size, os.stat(full).st_mtime_ns, sha256]
    if earlier:
        begin_from(home, earlier)
    home.write("manifest.json", {"files": files, "links": incoming["links"]})

"""The work folder: what arrived in it, and what of it are outputs."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple

from ..state_files import Home

_CHUNK = 1 << 20
_TAR_BUFFER = 1 << 15  # tarfile copies all of it at every read
# Never outputs unless asked for by name: environments, caches, what tools leave behind.
_NOT_OUTPUTS = (
    "__pycache__",
    ".git",
    ".venv",
    "node_modules",
    ".ipynb_checkpoints",
    ".*_cache",
    ".cache",
    ".tox",
    "site-packages",
    "*.egg-info",
)
_NOT_OUTPUT_FILES = ("*.pyc", "*.pyo", ".DS_Store")


class Damaged(Exception):
    """What arrived is not what was announced."""


def is_safe(path: str) -> bool:
    """Relative, inside, and not the folder itself."""
    return bool(path) and not path.startswith("/") and "\0" not in path and not set(path.split("/")) & {"", ".", ".."}


def file_sha256(path: str) -> str:
    """Hexadecimal; the file must be a regular one, not a link."""
    digest = hashlib.sha256()
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as stream:
        for chunk in iter(lambda: stream.read(_CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()


# --- arrival -------------------------------------------------------------------------------------------------------


def expect(home: Home, files: Sequence[Sequence[Any]], links: dict[str, str], folders: Sequence[str] = ()) -> list[str]:
    """Notes what the work folder should hold: ``[path, size, sha256, mode]`` each; returns the paths that lack."""
    bad = [path for path in [entry[0] for entry in files] + list(links) + list(folders) if not is_safe(path)]
    if bad:
        raise Damaged("Not a path inside the work folder: %r" % bad[0])
    os.makedirs(home.work, exist_ok=True)
    for path in folders:
        _make_parents(home.work, path + "/")
    home.write("incoming.json", {"files": files, "links": links})
    lacking = [path for path, size, sha256, _ in files if not _is_there(home, path, size, sha256)]
    if not lacking:
        settle(home)
    return lacking


def _is_there(home: Home, path: str, size: int, sha256: str) -> bool:
    target = os.path.join(home.work, path)
    try:
        found = os.lstat(target)
        return stat.S_ISREG(found.st_mode) and found.st_size == size and file_sha256(target) == sha256
    except OSError:
        return False


def receive(home: Home, stream: IO[bytes]) -> int:
    """Unpacks an uncompressed tar of expected files, each verified before it gets its name; returns their number."""
    incoming = home.read("incoming.json")
    if incoming is None:
        raise Damaged("Nothing was announced.")
    expected = {entry[0]: entry for entry in incoming["files"]}
    count = 0
    with tarfile.open(fileobj=stream, mode="r|", bufsize=_TAR_BUFFER, errors="surrogateescape") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() and member.name in expected else None
            if content is None:
                raise Damaged("%r was not announced." % member.name)
            _place(home, content, *expected[member.name])
            count += 1
            home.note_contact()
    return count


def _place(home: Home, content: IO[bytes], path: str, size: int, sha256: str, mode: int) -> None:
    target = os.path.join(home.work, path)
    _make_parents(home.work, path)
    partial = home.file("incoming.part")
    digest, written = hashlib.sha256(), 0
    with open(partial, "wb") as out:
        for chunk in iter(lambda: content.read(_CHUNK), b""):
            digest.update(chunk)
            out.write(chunk)
            written += len(chunk)
            home.note_contact()  # somebody is there, however slow the line
    if written != size or digest.hexdigest() != sha256:
        raise Damaged("%r changed while it was sent." % path)
    os.chmod(partial, stat.S_IMODE(mode) & 0o777)
    if os.path.isdir(target) and not os.path.islink(target):
        shutil.rmtree(target)
    os.replace(partial, target)


def _make_parents(root: str, path: str) -> None:
    """Real folders all the way; whatever else is in the way goes."""
    current = root
    for part in path.split("/")[:-1]:
        current = os.path.join(current, part)
        if os.path.islink(current) or (os.path.exists(current) and not os.path.isdir(current)):
            os.unlink(current)
        if not os.path.isdir(current):
            os.mkdir(current)


def settle(home: Home) -> None:
    """Makes the folder exactly what was announced, and remembers it: later changes are outputs."""
    incoming = home.read("incoming.json") or {"files": [], "links": {}}
    wanted = {entry[0] for entry in incoming["files"]} | set(incoming["links"])
    for path, _ in walk(home.work, everything=True):
        if path not in wanted:
            os.unlink(os.path.join(home.work, path))
    for path, target in incoming["links"].items():
        link = os.path.join(home.work, path)
        _make_parents(home.work, path)
        if os.path.islink(link) or os.path.isfile(link):
            os.unlink(link)
        if not os.path.isdir(link):
            os.symlink(target, link)
    files = {}
    for path, size, sha256, mode in incoming["files"]:
        full = os.path.join(home.work, path)
        os.chmod(full, stat.S_IMODE(mode) & 0o777)
        files[path] = [size, os.stat(full).st_mtime_ns, sha256]
    home.write("manifest.json", {"files": files, "links": incoming["links"]})


# --- outputs -------------------------------------------------------------------------------------------------------


class Output(NamedTuple):
    """One file that goes home; `full` is where it really is."""

    path: str
    full: str
    size: int
    mtime_ns: int
    mode: int


class Found(NamedTuple):
    """The outputs, sorted by path; the patterns that match nothing; path -> why it cannot be read."""

    outputs: list[Output]
    missing: list[str]
    unreadable: dict[str, str]


def walk(
    root: str, prefix: str = "", everything: bool = False, unreadable: dict[str, str] | None = None
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Files and links below, with forward slashes; links to folders are not entered, what went meanwhile is not there."""
    folders = [prefix]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(os.path.join(root, folder) if folder else root) as listing:
                entries = list(listing)
        except OSError as error:
            note_unreadable(unreadable, folder + "/", error)
            continue
        for entry in entries:
            path = folder + "/" + entry.name if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                if everything or not _is_tool_folder(entry):
                    folders.append(path)
            elif everything or not any(fnmatch.fnmatchcase(entry.name, each) for each in _NOT_OUTPUT_FILES):
                yield path, entry


def note_unreadable(unreadable: dict[str, str] | None, path: str, error: OSError) -> None:
    """A path that has gone meanwhile is no trouble."""
    if unreadable is not None and not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        unreadable[path] = error.strerror or str(error)


def _is_tool_folder(entry: os.DirEntry[str]) -> bool:
    return any(fnmatch.fnmatchcase(entry.name, each) for each in _NOT_OUTPUTS) or any(
        os.path.exists(os.path.join(entry.path, mark)) for mark in ("pyvenv.cfg", "conda-meta")
    )


def _inside(home: Home, path: str, unreadable: dict[str, str]) -> Output | None:
    """The regular file at this path; None if there is none, or if it is really somewhere else."""
    full = os.path.realpath(os.path.join(home.work, path))
    root = os.path.realpath(home.work)
    if os.path.commonpath([full, root]) != root:
        return None
    try:
        found = os.lstat(full)
    except OSError as error:
        note_unreadable(unreadable, path, error)
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return Output(path, full, found.st_size, found.st_mtime_ns, stat.S_IMODE(found.st_mode) & 0o777)


def find_outputs(home: Home, patterns: Sequence[str]) -> Found:
    """Looks for them. Without patterns: whatever is new or changed."""
    manifest = home.read("manifest.json") or {"files": {}, "links": {}}
    unreadable: dict[str, str] = {}
    if not patterns:
        return Found(sorted(_changed(home, manifest, unreadable)), [], unreadable)
    found: dict[str, Output] = {}
    missing = []
    for pattern in patterns:
        matched = list(_matching(home, pattern, unreadable))
        found.update((entry.path, entry) for entry in matched)
        if not matched:
            missing.append(pattern)
    return Found(sorted(found.values()), missing, unreadable)


def _changed(home: Home, manifest: dict[str, Any], unreadable: dict[str, str]) -> Iterator[Output]:
    for path, entry in walk(home.work, unreadable=unreadable):
        if entry.is_symlink() and manifest["links"].get(path) == os.readlink(entry.path):
            continue
        output = _inside(home, path, unreadable)
        if output is None:
            continue
        known = manifest["files"].get(path)
        if known is not None and output.size == known[0] and not entry.is_symlink():
            try:
                if output.mtime_ns == known[1] or file_sha256(output.full) == known[2]:
                    continue
            except OSError as error:
                note_unreadable(unreadable, path, error)
                continue
        yield output


def _matching(home: Home, pattern: str, unreadable: dict[str, str]) -> Iterator[Output]:
    pattern = os.path.normpath(pattern)
    if pattern.startswith(("/", "..")):
        return
    full = os.path.join(home.work, pattern)
    if os.path.isdir(full):
        below = "" if pattern == "." else pattern
        names = [path for path, _ in walk(home.work, below, everything=True, unreadable=unreadable)]
    elif os.path.lexists(full):
        names = [pattern]
    else:
        wanted = pattern.split("/")
        met: dict[str, str] = {}
        every = walk(home.work, everything=True, unreadable=met)
        names = [path for path, _ in every if _matches(path.split("/"), wanted)]
        unreadable.update(
            {path: why for path, why in met.items() if _may_hold([*filter(None, path.split("/"))], wanted)}
        )
    for name in names:
        output = _inside(home, name, unreadable)
        if output is not None:
            yield output


def _matches(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether a path, or a folder that it is in, has this name; ``**`` is any number of folders."""
    if not wanted:
        return True
    if wanted[0] == "**":
        return _matches(parts, wanted[1:]) or (bool(parts) and _matches(parts[1:], wanted))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], wanted[0]) and _matches(parts[1:], wanted[1:])


def _may_hold(folder: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether a path below this folder could match."""
    if not folder or not wanted or wanted[0] == "**":
        return True
    return fnmatch.fnmatchcase(folder[0], wanted[0]) and _may_hold(folder[1:], wanted[1:])


def readable(found: Found) -> Found:
    """The same without what cannot be opened, which is noted."""
    outputs = []
    for each in found.outputs:
        try:
            os.close(os.open(each.full, os.O_RDONLY | os.O_NONBLOCK))
            outputs.append(each)
        except OSError as error:
            note_unreadable(found.unreadable, each.path, error)
    return found._replace(outputs=outputs)


def with_checksums(home: Home, found: Found) -> list[list[Any]]:
    """``[path, size, sha256, mode]`` each; what cannot be read is noted there.

    Checksums are remembered as long as size and time stay.
    """
    known = (home.read("outputs.json") or {}).get("files", {})
    rows, remembered = [], {}
    for each in found.outputs:
        before = known.get(each.full)
        try:
            sha256 = before[2] if before and before[:2] == [each.size, each.mtime_ns] else file_sha256(each.full)
        except OSError as error:
            note_unreadable(found.unreadable, each.path, error)
            continue
        remembered[each.full] = [each.size, each.mtime_ns, sha256]
        rows.append([each.path, each.size, sha256, each.mode])
    if remembered != known:
        home.write("outputs.json", {"files": remembered})
    return rows

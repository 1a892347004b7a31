"""The outputs: which files of the work folder are new, changed or asked for, and their checksums."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..state_files import Home, open_regular

_CHUNK = 1 << 20
# Never outputs unless asked for by name: environments, caches, what tools leave behind.
_NOT_OUTPUTS = "__pycache__ .git .venv node_modules .ipynb_checkpoints .*_cache .cache .tox site-packages *.egg-info"
_NOT_OUTPUT_FILES = ("*.pyc", "*.pyo", ".DS_Store")


def file_sha256(path: str) -> str:
    """The checksum in hexadecimal; the file must be a regular one, not a link."""
    digest = hashlib.sha256()
    with open(open_regular(path), "rb") as stream:
        left = os.fstat(stream.fileno()).st_size  # it may grow for ever
        while left > 0:
            chunk = stream.read(min(_CHUNK, left))
            if not chunk:
                break
            digest.update(chunk)
            left -= len(chunk)
    return digest.hexdigest()


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
    return any(fnmatch.fnmatchcase(entry.name, each) for each in _NOT_OUTPUTS.split()) or any(
        os.path.exists(os.path.join(entry.path, mark)) for mark in ("pyvenv.cfg", "conda-meta")
    )


def _output_at(home: Home, path: str, unreadable: dict[str, str]) -> Output | None:
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
    if stat.S_ISREG(found.st_mode):
        return Output(path, full, found.st_size, found.st_mtime_ns, stat.S_IMODE(found.st_mode) & 0o777)
    return None


def find_outputs(home: Home, patterns: Sequence[str]) -> Found:
    """Files that match the patterns; without patterns, every file that is new or changed."""
    manifest = home.read("manifest.json") or {}
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
    links, files = _table(manifest.get("links")), _table(manifest.get("files"))
    for path, entry in walk(home.work, unreadable=unreadable):
        if entry.is_symlink() and path in links and _target(entry.path) == links[path]:
            continue
        output = _output_at(home, path, unreadable)
        if output is None:
            continue
        known = _record(files.get(path))
        if known is not None and output.size == known[0] and not entry.is_symlink():
            try:
                if output.mtime_ns == known[1] or file_sha256(output.full) == known[2]:
                    continue
            except OSError as error:
                note_unreadable(unreadable, path, error)
                continue
        yield output


def _table(value: Any) -> dict[str, Any]:
    """A part of a record; the job may have put anything there."""
    return value if isinstance(value, dict) else {}


def _record(value: Any) -> list[Any] | None:
    return value if isinstance(value, list) and len(value) == 3 else None


def _target(link: str) -> str | None:
    try:
        return os.readlink(link)
    except OSError:
        return None


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
        names = [path for path, _ in every if matches(path.split("/"), wanted)]
        unreadable.update(
            {path: why for path, why in met.items() if _may_hold([*filter(None, path.split("/"))], wanted)}
        )
    for name in names:
        output = _output_at(home, name, unreadable)
        if output is not None:
            yield output


def is_named(path: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns names this path, whatever is there."""
    for pattern in map(os.path.normpath, patterns):
        if pattern == "." or path == pattern or path.startswith(pattern + "/"):
            return True
        if not pattern.startswith(("/", "..")) and matches(path.split("/"), pattern.split("/")):
            return True
    return False


def matches(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether a path, or a folder that it is in, has this name; ``**`` is any number of folders."""
    at = _reach({0}, wanted)  # how many parts of the pattern can be behind us
    for part in parts:
        if len(wanted) in at or not at:
            break
        met = {one for one in at if one < len(wanted) and wanted[one] == "**"}
        met |= {one + 1 for one in at if one < len(wanted) and fnmatch.fnmatchcase(part, wanted[one])}
        at = _reach(met, wanted)
    return len(wanted) in at


def _reach(at: set[int], wanted: Sequence[str]) -> set[int]:
    """The same, and what can be reached by letting each ``**`` be no folder at all."""
    found = set(at)
    for one in sorted(at):
        while one < len(wanted) and wanted[one] == "**":
            one += 1
            found.add(one)
    return found


def _may_hold(folder: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether a path below this folder could match."""
    for index, name in enumerate(wanted[: len(folder)]):
        if name == "**":
            return True
        if not fnmatch.fnmatchcase(folder[index], name):
            return False
    return True


def without_unreadable(found: Found) -> Found:
    """The same without what cannot be opened, which is noted."""
    outputs = []
    for each in found.outputs:
        try:
            os.close(open_regular(each.full))
            outputs.append(each)
        except OSError as error:
            note_unreadable(found.unreadable, each.path, error)
    return found._replace(outputs=outputs)


def with_checksums(home: Home, found: Found) -> list[list[Any]]:
    """``[path, size, sha256, mode]`` each; what cannot be read is noted there.

    Checksums are remembered as long as size and time stay.
    """
    known = _table((home.read("outputs.json") or {}).get("files"))
    rows, remembered = [], {}
    for each in found.outputs:
        before = _record(known.get(each.full))
        try:
            is_same = before is not None and before[:2] == [each.size, each.mtime_ns]
            sha256 = before[2] if before is not None and is_same else file_sha256(each.full)
        except OSError as error:
            note_unreadable(found.unreadable, each.path, error)
            continue
        remembered[each.full] = [each.size, each.mtime_ns, sha256]
        rows.append([each.path, each.size, sha256, each.mode])
    if remembered != known:
        try:
            home.write("outputs.json", {"files": remembered})
        except OSError:
            pass  # no room to remember them: they are computed again
    return rows

"""The outputs: which files of the work folder are new, changed or asked for, and their checksums."""

from __future__ import annotations

import fnmatch
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ....portable.files import file_sha256, open_regular
from ..state_files import Home
from .kept_away import ENVIRONMENT_MARKS, ON_THIS_COMPUTER, is_secret_entry, job_began, why_not_behind_link

NO_OUTPUTS = ["none"]  # patterns of a job from which nothing is wanted
_MOST_FOLDERS = 16  # on the way over links, two for each
# Never outputs unless asked for by name: environments, caches, what tools leave behind.
_NOT_OUTPUTS = "__pycache__ .git .venv node_modules .ipynb_checkpoints .*_cache .cache .tox site-packages *.egg-info"
_NOT_OUTPUT_FILES = ("*.pyc", "*.pyo", ".DS_Store")


class Output(NamedTuple):
    """One file that goes home; `full` is where it really is."""

    path: str
    full: str
    size: int
    mtime_ns: int
    mode: int
    outside: bool = False  # whether it lies outside the working folder, and comes home under another path


class FoundOutputs(NamedTuple):
    """The outputs, sorted by path, and what there is besides them."""

    outputs: list[Output]
    missing: list[str]  # patterns that match nothing
    unreadable: dict[str, str]  # path -> why it cannot be read, or be brought
    elsewhere: dict[str, str]  # path of a link -> where it leads, and why that does not come
    folders: list[str]  # empty ones
    # why nobody should give the machine up although there is nothing to bring; empty if there is no reason
    trouble: str = ""


def walk(
    root: str,
    prefix: str = "",
    everything: bool = False,
    unreadable: dict[str, str] | None = None,
    empty: list[str] | None = None,
    skips: Callable[[str, os.DirEntry[str]], bool] | None = None,
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield files and links below, with forward slashes; links to folders are not entered, what went is not there.

    Args:
        prefix: Where to begin, relative to the root; may be a link.
        everything: Whether environments, caches and what tools leave behind belong to it.
        unreadable: Gets what cannot be looked into.
        empty: Gets the folders in which nothing is.
        skips: Whether a path is passed over, and all that is below it.
    """
    folders = [prefix]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(os.path.join(root, folder) if folder else root) as listing:
                entries = list(listing)
        except OSError as error:
            note_unreadable(unreadable, folder + "/", error)
            continue
        if not entries and empty is not None and folder:
            empty.append(folder)
        for entry in entries:
            path = folder + "/" + entry.name if folder else entry.name
            if skips is not None and skips(path, entry):
                continue
            if entry.is_dir(follow_symlinks=False):
                if everything or not _is_tool_folder(entry):
                    folders.append(path)
            elif everything or not any(fnmatch.fnmatchcase(entry.name, each) for each in _NOT_OUTPUT_FILES):
                yield path, entry


def note_unreadable(unreadable: dict[str, str] | None, path: str, error: OSError) -> None:
    """Note a path that cannot be read, unless it has gone meanwhile."""
    if unreadable is not None and not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        unreadable[path] = error.strerror or str(error)


def _is_tool_folder(entry: os.DirEntry[str]) -> bool:
    return any(fnmatch.fnmatchcase(entry.name, each) for each in _NOT_OUTPUTS.split()) or any(
        os.path.exists(os.path.join(entry.path, mark)) for mark in ENVIRONMENT_MARKS
    )


def find_outputs(home: Home, patterns: Sequence[str]) -> FoundOutputs:
    """Return the files that match the patterns; without patterns, every file that is new or changed."""
    if list(patterns) == NO_OUTPUTS:
        return FoundOutputs([], [], {}, {}, [])
    search = _Search(home, bool(patterns))
    if not patterns:
        found = {each.path: each for each in search.changed()}
    else:
        found = {each.path: each for pattern in patterns for each in search.matching(pattern)}
    return FoundOutputs(
        sorted(found.values()), search.missing, search.unreadable, search.elsewhere, [] if patterns else search.empty
    )


class _Search:
    """One search of the working folder, and of what links in it lead to."""

    def __init__(self, home: Home, everything: bool) -> None:
        self.home, self.root, self._everything = home, os.path.realpath(home.work), everything
        manifest = home.read("manifest.json") or {}
        self._links, self._files = manifest.get("links", {}), manifest.get("files", {})
        self._began = job_began(home)
        self.missing: list[str] = []
        self.unreadable: dict[str, str] = {}
        self.elsewhere: dict[str, str] = {}
        self.empty: list[str] = []

    def changed(self) -> Iterator[Output]:
        """Yield what differs from what was sent."""
        for path, entry in walk(self.home.work, unreadable=self.unreadable, empty=self.empty):
            if not entry.is_symlink():
                yield from (each for each in self._at(path) if not self._is_as_sent(path, each))
                continue
            target = _target(entry.path)
            if path not in self._links:
                yield from self._at(path)
            elif target != self._links[path]:
                if os.path.isdir(entry.path) and self._is_inside(os.path.realpath(entry.path)):
                    self.elsewhere[path] = "a link that now leads to %s" % target  # there, it still is another folder
                else:
                    yield from self._at(path)

    def matching(self, pattern: str) -> Iterator[Output]:
        """Yield what a pattern names; notes one that names nothing, on this computer not even elsewhere."""
        known, self.elsewhere = self.elsewhere, {}
        found = list(self._matching(os.path.normpath(pattern)))
        if not found and not any(why.endswith(ON_THIS_COMPUTER) for why in self.elsewhere.values()):
            self.missing.append(pattern)
        self.elsewhere.update(known)
        yield from found

    def _matching(self, pattern: str) -> Iterator[Output]:
        if pattern.startswith(("/", "..")):
            return
        full = os.path.join(self.home.work, pattern)
        if os.path.isdir(full) and not os.path.islink(full):
            below = "" if pattern == "." else pattern
            for path, _ in walk(self.home.work, below, everything=True, unreadable=self.unreadable):
                yield from self._at(path)
            return
        if os.path.lexists(full):
            yield from self._at(pattern)
            return
        wanted, every = pattern.split("/"), _Search(self.home, True)
        for path, entry in walk(self.home.work, everything=True, unreadable=every.unreadable):
            is_match = matches(path.split("/"), wanted)
            if is_match or entry.is_symlink():
                yield from (each for each in every._at(path) if is_match or matches(each.path.split("/"), wanted))
        for mine, its in ((self.unreadable, every.unreadable), (self.elsewhere, every.elsewhere)):
            mine.update({path: why for path, why in its.items() if _may_hold([*filter(None, path.split("/"))], wanted)})

    def _at(self, path: str, chain: tuple[str, ...] = ()) -> Iterator[Output]:
        """Yield the regular file at a path, or what a link there leads to: a file, or all that is in a folder.

        Args:
            chain: The folders that links on the way lay in, and led to.
        """
        link = os.path.join(self.home.work, path)
        full = os.path.realpath(link)
        is_inside = self._is_inside(full)
        why = "" if is_inside else why_not_behind_link(self.home, full)
        if why:
            self.elsewhere[path] = "a link to %s: %s" % (full, why)
            return
        try:
            found = os.lstat(full)
        except FileNotFoundError:
            if os.path.islink(link):
                self.elsewhere[path] = "a link to %s, where nothing is" % _target(link)
            return
        except OSError as error:
            note_unreadable(self.unreadable, path, error)
            return
        if stat.S_ISREG(found.st_mode):
            yield Output(path, full, found.st_size, found.st_mtime_ns, stat.S_IMODE(found.st_mode) & 0o777)
        elif stat.S_ISLNK(found.st_mode):
            self.elsewhere[path] = "a link that leads to itself"
        elif stat.S_ISDIR(found.st_mode):
            yield from self._below(path, full, chain, is_inside)

    def _below(self, path: str, full: str, chain: tuple[str, ...], is_inside: bool) -> Iterator[Output]:
        """Yield the files of a folder that a link leads to, but for those that were there before the job."""
        above = (*chain, os.path.realpath(os.path.dirname(os.path.join(self.home.work, path))))
        if (
            full == self.root
            or len(chain) >= _MOST_FOLDERS
            or any(os.path.commonpath([each, full]) == full for each in above)
        ):
            self.elsewhere[path] = "a link to %s, in which it is itself" % full
            return
        skips = None if is_inside else lambda at, entry: is_secret_entry(entry, self._began, self.elsewhere, at)
        for below, _ in walk(self.home.work, path, self._everything, self.unreadable, self.empty, skips):
            for each in self._at(below, (*above, full)):
                if not self._was_there(each):
                    yield each

    def _was_there(self, each: Output) -> bool:
        """Return True for a file behind a link to a folder that the job has neither made nor changed."""
        if self._is_inside(each.full):
            return self._is_as_sent(os.path.relpath(each.full, self.root), each)
        try:
            return self._began is not None and os.lstat(each.full).st_ctime < self._began
        except OSError:
            return False

    def _is_as_sent(self, path: str, each: Output) -> bool:
        known = self._files.get(path)
        if known is None or each.size != known[0]:
            return False
        try:
            return bool(each.mtime_ns == known[1] or file_sha256(each.full) == known[2])
        except OSError as error:
            note_unreadable(self.unreadable, path, error)
            return True

    def _is_inside(self, full: str) -> bool:
        return os.path.commonpath([full, self.root]) == self.root


def _target(link: str) -> str | None:
    try:
        return os.readlink(link)
    except OSError:
        return None


def is_named(path: str, patterns: Sequence[str]) -> bool:
    """Return whether one of the patterns names this path, whatever is there."""
    for pattern in map(os.path.normpath, patterns):
        if pattern == "." or path == pattern or path.startswith(pattern + "/"):
            return True
        if not pattern.startswith(("/", "..")) and matches(path.split("/"), pattern.split("/")):
            return True
    return False


def matches(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether a path, or a folder that it is in, has this name; ``**`` is any number of folders."""
    at = _reach({0}, wanted)  # how many parts of the pattern can be behind us
    for part in parts:
        if len(wanted) in at or not at:
            break
        met = {one for one in at if one < len(wanted) and wanted[one] == "**"}
        met |= {one + 1 for one in at if one < len(wanted) and fnmatch.fnmatchcase(part, wanted[one])}
        at = _reach(met, wanted)
    return len(wanted) in at


def _reach(at: set[int], wanted: Sequence[str]) -> set[int]:
    """Return the same, and what can be reached by letting each ``**`` be no folder at all."""
    found = set(at)
    for one in sorted(at):
        while one < len(wanted) and wanted[one] == "**":
            one += 1
            found.add(one)
    return found


def _may_hold(folder: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether a path below this folder could match."""
    for index, name in enumerate(wanted[: len(folder)]):
        if name == "**":
            return True
        if not fnmatch.fnmatchcase(folder[index], name):
            return False
    return True


def without_unreadable(found: FoundOutputs) -> FoundOutputs:
    """Return the same without what cannot be opened, which is noted."""
    outputs = []
    for each in found.outputs:
        try:
            open_regular(each.full).close()
            outputs.append(each)
        except OSError as error:
            note_unreadable(found.unreadable, each.path, error)
    return found._replace(outputs=outputs)


def with_checksums(home: Home, found: FoundOutputs) -> list[list[Any]]:
    """``[path, size, sha256, mode]`` each; what cannot be read is noted there.

    Checksums are remembered as long as size and time stay.
    """
    known = (home.read("outputs.json") or {"files": {}})["files"]
    rows, remembered = [], {}
    for each in found.outputs:
        before = known.get(each.full)
        try:
            is_same = before is not None and before[:2] == [each.size, each.mtime_ns]
            sha256 = before[2] if is_same else file_sha256(each.full)
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

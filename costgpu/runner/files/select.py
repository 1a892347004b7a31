"""Chooses what of a working folder travels: everything but what ignore rules, prudence and common sense keep back.

Imports `errors`, `host` and `job`. The rules are in `ignore`, what never travels in `withheld`.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from costgpu.errors import SyncRefused
from costgpu.models.job import FileEntry
from costgpu.runner.files import secret_files
from costgpu.runner.files.gitignore import RuleFile, read_rules, repository_rules
from costgpu.runner.machine.host import Selection
from costgpu.units import format_binary_size

OWN_FILE = ".costgpuignore"
GIT_FILE = ".gitignore"
_HINT = f"Name what is not needed in a {OWN_FILE} file (the syntax of {GIT_FILE})"
_UNREADABLE = "files that cannot be read"
MAX_SENT = 200_000  # files
_READ_BYTES = 1024 * 1024
_TRIES = 3
_LARGE_BYTES = 1024 * 1024  # from here on several threads are worth it: hashing lets the interpreter go on
_LISTED = 5


def select(workdir: Path, *, limit_bytes: int, extra_ignores: Sequence[str] = ()) -> Selection:
    """The files of the folder that travel, with checksums.

    Rules, strongest first: secrets, repositories and virtual environments never travel; `extra_ignores`;
    ``.costgpuignore`` files, whose ``!`` rules bring back what the following leave out; ``.gitignore`` files and
    ``.git/info/exclude`` with git's own precedence; caches.

    Args:
        limit_bytes: What it may be in all.
        extra_ignores: Patterns in the syntax of ``.gitignore``, relative to the folder.

    Raises:
        SyncRefused: No such folder, larger than the limit, links that lead out of it, or files that keep changing.
    """
    _check_folder(workdir)
    walk = _Walk(workdir, extra_ignores)
    walk.run()
    if walk.leaving:
        raise _leaving(walk.leaving)
    total = sum(size for _, size in walk.files)
    if total > limit_bytes:
        raise _too_large(walk.files, total, limit_bytes)
    files = _with_checksums(workdir, walk.files, walk.left_out)
    return Selection(
        root=workdir,
        files=tuple(files),
        links=dict(sorted(walk.links.items())),
        folders=tuple(sorted(walk.folders)),
        left_out=dict(sorted(walk.left_out.items())),
    )


@dataclass
class _Folder:
    """One that is being walked; the fields are the arguments of `_Walk._enter`."""

    prefix: str
    entries: Iterator[os.DirEntry[str]]
    weak: list[RuleFile]
    own: list[RuleFile]
    kept: bool
    travels: bool = False  # whether anything in it does


@dataclass
class _Walk:
    """Goes through the folder once, from the top down."""

    root: Path
    extra_ignores: Sequence[str]
    files: list[tuple[str, int]] = field(default_factory=list)  # with sizes
    links: dict[str, str] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    leaving: dict[str, str] = field(default_factory=dict)  # links out of the folder: path -> where to
    left_out: Counter[str] = field(default_factory=Counter)

    def run(self) -> None:
        self._top = os.path.abspath(self.root)  # noqa: PTH100 - text is faster, and links in it stay
        self._real_top = os.path.realpath(self.root)
        self._extra = RuleFile(self.extra_ignores, "rules of this run")
        defaults = RuleFile(secret_files.DISPENSABLE, "caches")
        weak = [defaults, *repository_rules(Path(self._real_top))]
        first = self._enter("", weak, [], kept=True)
        open_folders = [first] if first is not None else []
        while open_folders:  # a tree may be deeper than functions can call each other
            folder = open_folders[-1]
            entry = next(folder.entries, None)
            if entry is None:
                open_folders.pop()
                travels = self._leave(folder)
                if open_folders:
                    open_folders[-1].travels |= travels
                continue
            found = self._entry(entry, folder.prefix + entry.name, folder.weak, folder.own, kept=folder.kept)
            if isinstance(found, _Folder):
                open_folders.append(found)
            else:
                folder.travels |= found
            if len(self.files) > MAX_SENT:
                raise SyncRefused(
                    f"The working folder holds more than {MAX_SENT} files.",
                    hint=f"{_HINT}, or pack many small ones into one file.",
                )

    def _leave(self, folder: _Folder) -> bool:
        """Whether anything in it travels."""
        if folder.kept and folder.prefix and not folder.travels:
            self.folders.append(folder.prefix[:-1])
        return folder.travels or folder.kept

    def _enter(self, prefix: str, weak: list[RuleFile], own: list[RuleFile], *, kept: bool) -> _Folder | None:
        """Opens one folder; None if nothing in it travels.

        Args:
            prefix: Its path and a slash; empty for the top.
            weak: git's rules and the defaults, the strongest last.
            own: costgpu's rules, the strongest last.
            kept: False below a folder that git ignores: only an own rule brings something back.
        """
        here = f"{self._top}/{prefix}"
        try:
            with os.scandir(here) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError:
            self.left_out["folders that cannot be read"] += 1
            return None
        names = {entry.name for entry in entries}
        if prefix and ("pyvenv.cfg" in names or "conda-meta" in names):
            self.left_out[secret_files.ENVIRONMENT] += 1
            return None
        if GIT_FILE in names and kept:
            weak = _and(weak, read_rules(Path(here, GIT_FILE), GIT_FILE, cut=len(prefix)))
        if OWN_FILE in names:
            own = _and(own, read_rules(Path(here, OWN_FILE), OWN_FILE, cut=len(prefix)))
        if not prefix and "pyvenv.cfg" in names:  # the folder itself was made an environment
            entries = [entry for entry in entries if entry.name not in secret_files.ENVIRONMENT_PARTS]
            self.left_out[secret_files.ENVIRONMENT] += 1
        return _Folder(prefix, iter(entries), weak, own, kept)

    def _entry(
        self, entry: os.DirEntry[str], path: str, weak: list[RuleFile], own: list[RuleFile], *, kept: bool
    ) -> bool | _Folder:
        """Decides about one entry: whether it travels, or the folder that it is."""
        is_folder = entry.is_dir(follow_symlinks=False)
        reason = secret_files.by_name(entry.name, is_folder=is_folder)
        if reason is None:
            reason = self._ignored_by(path, entry.name, is_folder, weak, own, kept=kept)
            if reason is not None and is_folder and self._may_come_back(path, own, reason):
                return self._enter(f"{path}/", weak, own, kept=False) or False
        if reason is not None:
            self.left_out[reason] += 1
            return False
        if is_folder:
            return self._enter(f"{path}/", weak, own, kept=True) or False
        if entry.is_symlink():
            return self._link(entry, path, weak, own)
        if not entry.is_file(follow_symlinks=False):
            self.left_out["sockets, pipes and devices"] += 1
            return False
        try:
            self.files.append((path, entry.stat(follow_symlinks=False).st_size))
        except OSError:  # gone meanwhile
            return False
        return True

    def _ignored_by(
        self, path: str, name: str, is_folder: bool, weak: list[RuleFile], own: list[RuleFile], *, kept: bool
    ) -> str | None:
        """What keeps the entry back, if anything does."""
        for rules in (self._extra, *reversed(own)):
            decided = rules.decide(path, name, is_folder)
            if decided is not None:
                return rules.label if decided else None
        if not kept:
            return "files in ignored folders"
        for rules in reversed(weak):
            decided = rules.decide(path, name, is_folder)
            if decided is not None:
                return rules.label if decided else None
        return None

    def _may_come_back(self, path: str, own: list[RuleFile], reason: str) -> bool:
        """Whether a folder that only weaker rules leave out may hold something that an own rule asks for."""
        if reason in (OWN_FILE, self._extra.label):
            return False
        return any(rules.may_keep_below(path) for rules in (self._extra, *own))

    def _link(self, entry: os.DirEntry[str], path: str, weak: list[RuleFile], own: list[RuleFile]) -> bool:
        """A link stays a link if it points into the folder."""
        full = f"{self._top}/{path}"
        try:
            text = os.readlink(full)  # noqa: PTH115
        except OSError:
            return False
        folder = os.path.dirname(path)  # noqa: PTH120
        plain = os.path.normpath(os.path.join(folder, text))  # noqa: PTH118
        if not os.path.isabs(text) and plain != ".." and not plain.startswith("../"):  # noqa: PTH117
            inside = os.path.realpath(full)
            if self._is_inside(inside) or not os.path.lexists(inside):
                self.links[path] = text
                return True
        target = os.path.realpath(full)
        if self._is_inside(target):
            self.links[path] = os.path.relpath(target, os.path.realpath(f"{self._top}/{folder}"))
            return True
        if not os.path.lexists(target):
            self.left_out["links to nothing"] += 1
            return False
        # Rules for folders ("data/") do not hold for links in git, but what their writer meant is clear.
        reason = self._ignored_by(path, entry.name, True, weak, own, kept=True)
        if reason is not None:
            self.left_out[reason] += 1
            return False
        self.leaving[path] = target
        return False

    def _is_inside(self, target: str) -> bool:
        return target == self._real_top or target.startswith(self._real_top.rstrip("/") + "/")


def _and(rules: list[RuleFile], more: RuleFile | None) -> list[RuleFile]:
    return rules if more is None else [*rules, more]


def _with_checksums(root: Path, files: list[tuple[str, int]], left_out: Counter[str]) -> Iterable[FileEntry]:
    """Reads every file once; in several threads where that is faster."""
    top = os.fspath(root)
    found: list[FileEntry | str | None] = [None] * len(files)

    def read(index: int) -> None:
        found[index] = _read(top, files[index][0])

    large = [index for index, (_, size) in enumerate(files) if size >= _LARGE_BYTES]
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        for index in set(range(len(files))).difference(large):
            read(index)
        list(pool.map(read, large))
    chosen = []
    for entry in found:
        if isinstance(entry, str):
            left_out[entry] += 1
        elif entry is not None:
            chosen.append(entry)
    return sorted(chosen, key=lambda entry: entry.path)


def _read(top: str, path: str) -> FileEntry | str | None:
    """The file's entry, or why it stays here, or None if it is gone."""
    for _ in range(_TRIES):
        digest, size, head = hashlib.sha256(), 0, b""
        try:
            descriptor = os.open(f"{top}/{path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError:
            return _UNREADABLE
        try:
            before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode):
                return None
            while size <= before.st_size and (piece := os.read(descriptor, _READ_BYTES)):  # it may grow for ever
                head = head or piece[: secret_files.HEAD_BYTES]
                digest.update(piece)
                size += len(piece)
            after = os.fstat(descriptor)
        except OSError:
            return _UNREADABLE
        finally:
            os.close(descriptor)
        if (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size) and size == after.st_size:
            reason = secret_files.by_content(head, size)
            mode = stat.S_IMODE(after.st_mode) & 0o777
            return reason or FileEntry(path=path, size=size, sha256=digest.hexdigest(), mode=mode)
    raise SyncRefused(
        f"{printable_path(path)} keeps changing while it is read.",
        hint=f"Wait until nothing writes to it. {_HINT}, if the job does not need it.",
    )


def printable_path(path: str) -> str:
    """The path as a message can show it: control characters and bytes that are no text are escaped."""
    return path if path.isprintable() else ascii(path)


def _check_folder(workdir: Path) -> None:
    if not workdir.is_dir():
        raise SyncRefused(f"The working folder {workdir} is not there.")
    resolved = workdir.resolve()
    if resolved in (Path("/"), Path.home().resolve()):
        what = "the whole disk" if resolved == Path("/") else "your home folder"
        raise SyncRefused(
            f"The working folder is {what} ({resolved}): it holds more than a job needs, and secrets.",
            hint="Put the script into a folder of its own and run it there.",
        )


def _leaving(links: dict[str, str]) -> SyncRefused:
    shown = [f"{printable_path(path)} -> {printable_path(target)}" for path, target in list(links.items())[:_LISTED]]
    more = f", and {len(links) - _LISTED} more" if len(links) > _LISTED else ""
    what = "A link leads" if len(links) == 1 else f"{len(links)} links lead"
    return SyncRefused(
        f"{what} out of the working folder, and is not followed: {', '.join(shown)}{more}."
        if len(links) == 1
        else f"{what} out of the working folder, and are not followed: {', '.join(shown)}{more}.",
        hint=f"Copy into the folder what the job needs. {_HINT}, and fetch large data from the job itself.",
    )


def _too_large(files: list[tuple[str, int]], total: int, limit: int) -> SyncRefused:
    sizes: Counter[str] = Counter()
    for path, size in files:
        parts = path.split("/")
        sizes["/".join(parts[:2]) + "/" if len(parts) > 2 else parts[0] + ("/" if len(parts) == 2 else "")] += size
    largest = ", ".join(
        f"{printable_path(name)} {format_binary_size(size)}" for name, size in sizes.most_common(_LISTED)
    )
    return SyncRefused(
        f"The working folder holds {format_binary_size(total)} in {len(files)} files,"
        f" and {format_binary_size(limit)} may be sent. The largest: {largest}.",
        hint=f"{_HINT}, or allow more with --sync-limit.",
    )

"""Chooses what of a working folder travels: everything but what ignore rules, prudence and common sense keep back.

In a repository git says what it ignores; without git, or where it refuses, `gitignore` does.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path, PurePosixPath

from costgpu.errors import SyncRefused
from costgpu.job.files import secret_files
from costgpu.job.files.checksums import with_checksums
from costgpu.job.files.git_index import ignored_paths, tracked_files
from costgpu.job.files.gitignore import RuleFile, read_rules, repository_of, repository_rules
from costgpu.job.files.paths import printable_path
from costgpu.job.files.selection import FileSelection
from costgpu.models.job import JobSpec
from costgpu.units import format_binary_size

OWN_FILE = ".costgpuignore"
GIT_FILE = ".gitignore"
EXCLUDED = "--exclude"
_CACHES = "caches"
_HINT = f"Name what is not needed in a {OWN_FILE} file (the syntax of {GIT_FILE})"
MAX_SENT = 200_000  # files
_LISTED = 5


def select(
    workdir: Path, *, limit_bytes: int, include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> FileSelection:
    """Return the files of the folder that travel, with checksums.

    Rules, strongest first: secrets, repositories and virtual environments never travel; `exclude`; `include`;
    ``.costgpuignore`` files, whose ``!`` rules bring back what the following leave out; what git tracks;
    ``.gitignore`` files and ``.git/info/exclude`` with git's own precedence; caches.

    Args:
        limit_bytes: What it may be in all.
        include: Patterns in the syntax of ``.gitignore``, relative to the folder; of a folder, all in it travels.
        exclude: The same, for what stays here.

    Raises:
        SyncRefused: No such folder, larger than the limit, links that lead out of it, or files that keep changing.
    """
    _check_folder(workdir)
    walk = _Walk(workdir, include, exclude)
    walk.run()
    if walk.leaving:
        shown = [f"{printable_path(path)} -> {printable_path(to)}" for path, to in list(walk.leaving.items())[:_LISTED]]
        more = f", and {len(walk.leaving) - _LISTED} more" if len(walk.leaving) > _LISTED else ""
        what, are = ("A link leads", "is") if len(walk.leaving) == 1 else (f"{len(walk.leaving)} links lead", "are")
        raise SyncRefused(
            f"{what} out of the working folder, and {are} not followed: {', '.join(shown)}{more}.",
            hint=f"Copy into the folder what the job needs. {_HINT}, and fetch large data from the job itself.",
        )
    total = sum(size for _, size in walk.files)
    if total > limit_bytes:
        raise _too_large(walk.files, total, limit_bytes)
    files = with_checksums(workdir, walk.files, walk.stays)
    return FileSelection(
        root=workdir,
        files=tuple(files),
        links=dict(sorted(walk.links.items())),
        folders=tuple(sorted(walk.folders)),
        stays=walk.stays,
    )


def select_for(spec: JobSpec, limit_mib: float) -> FileSelection:
    """Return the files that travel for a job.

    Raises:
        SyncRefused: As `select`.
    """
    limit_bytes = int(limit_mib * 2**20)
    return select(Path(spec.workdir), limit_bytes=limit_bytes, include=spec.include, exclude=spec.exclude)


def is_by_rule(why: str) -> bool:
    """Return whether a reason is a rule that `include` beats."""
    return why.startswith((GIT_FILE, OWN_FILE, ".git/", "git's own", "caches"))


def undecided(workdir: Path, include: Sequence[str], exclude: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield each pattern that decides nothing: its option, the pattern, and why; empty if nothing like it is there.

    Raises:
        SyncRefused: As `select`.
    """
    _check_folder(workdir)
    walk = _Walk(workdir, include, ())
    walk.run()
    travels = dict.fromkeys([*(path for path, _ in walk.files), *walk.links, *walk.leaving])
    folders = {parent for path in travels for parent in PurePosixPath(path).parents}
    travels |= dict.fromkeys(f"{folder}/" for folder in (*folders, *walk.folders))
    excluded = RuleFile(exclude, EXCLUDED)
    for pattern in include:
        found = list(_matches(pattern, travels))
        if found and all(map(excluded.ignores_around, found)):
            yield "--include", pattern, EXCLUDED
        elif not found:
            never = {path: why for path, why in walk.stays.items() if not is_by_rule(why)}
            inside = (path for path in never if path[-1] == "/" and pattern.lstrip("/").startswith(path))
            yield "--include", pattern, next((never[one] for one in (*_matches(pattern, never), *inside)), "")
    for pattern in exclude:
        literal = os.path.lexists(workdir / pattern.strip("/"))
        if not literal and next(_matches(pattern, {**travels, **walk.stays}), None) is None:
            yield "--exclude", pattern, ""


def _matches(pattern: str, paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths, folders with a slash at the end, that a pattern is about."""
    rules = RuleFile([pattern], "")
    return (path for path in paths if rules.ignores(path))


class _Level(Enum):
    """How what is in a folder stands that no stronger rule is about."""

    KEPT = 0
    IGNORED = 1  # by git's rules or as a cache: rules of our own, or git's index, bring something back
    OWN = 2  # by a .costgpuignore file: only --include brings something back
    ASKED = 3  # for, with --include: only --exclude keeps something back


@dataclass(frozen=True)
class _Folder:
    """What decides about the entries of one folder."""

    weak: list[RuleFile]  # git's rules and the defaults, the strongest last
    own: list[RuleFile]  # costgpu's rules, the strongest last
    by_git: bool  # whether git has told what it ignores there
    level: _Level
    reason: str  # why it is left out itself; empty if it is not


@dataclass
class _Walk:
    """Goes through the folder once, from the top down."""

    root: Path
    include: Sequence[str]
    exclude: Sequence[str]
    files: list[tuple[str, int]] = field(default_factory=list)  # with sizes
    links: dict[str, str] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    leaving: dict[str, str] = field(default_factory=dict)  # links out of the folder: path -> where to
    stays: dict[str, str] = field(default_factory=dict)  # path, of a folder with a slash at its end -> why

    def run(self) -> None:
        self._top = os.path.abspath(self.root)  # noqa: PTH100 - text is faster, and links in it stay
        self._real_top = os.path.realpath(self.root)
        self._extra = RuleFile([*(f"!{pattern}" for pattern in self.include), *self.exclude], EXCLUDED)
        defaults = RuleFile(secret_files.DISPENSABLE, _CACHES)
        weak = [defaults, *repository_rules(Path(self._real_top))]
        self._tracked: set[str] = set()  # files, and with a slash at its end each folder that holds one
        self._ignored: set[str] = set()  # by git, where it was asked
        by_git = repository_of(Path(self._real_top)) is not None and self._ask_git("")
        self._walk("", _Folder(weak, [], by_git, _Level.KEPT, ""))

    def _ask_git(self, prefix: str) -> bool:
        """Note what git tracks and ignores in a repository; return whether it told what it ignores."""
        here = Path(self._real_top, prefix)
        ignored = ignored_paths(here)
        self._ignored |= {prefix + path for path in ignored or ()}
        self._tracked |= {prefix + path for path in tracked_files(here)}
        return ignored is not None

    def _walk(self, prefix: str, folder: _Folder) -> bool:
        """Go through one folder; return whether it travels, or anything in it.

        Args:
            prefix: Its path and a slash; empty for the top.
            folder: As things stand without its own ignore files.
        """
        here = f"{self._top}/{prefix}"
        try:
            with os.scandir(here) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError:
            self.stays[prefix or "./"] = "folders that cannot be read"
            return False
        names = {entry.name for entry in entries}
        if prefix and ("pyvenv.cfg" in names or "conda-meta" in names):
            self.stays[prefix] = secret_files.ENVIRONMENT
            return False
        if prefix and ".git" in names:  # a submodule, or a repository that nothing knows of
            folder = replace(folder, by_git=self._ask_git(prefix))
        if GIT_FILE in names and not folder.reason:
            more = read_rules(Path(here, GIT_FILE), GIT_FILE, cut=len(prefix))
            folder = replace(folder, weak=[*folder.weak, *more])
        if OWN_FILE in names:
            more = read_rules(Path(here, OWN_FILE), OWN_FILE, cut=len(prefix))
            folder = replace(folder, own=[*folder.own, *more])
        stayed = len(self.stays)
        if not prefix and "pyvenv.cfg" in names:  # the folder itself was made an environment
            entries = [entry for entry in entries if entry.name not in secret_files.ENVIRONMENT_PARTS]
            self.stays["pyvenv.cfg"] = secret_files.ENVIRONMENT
        travels = [self._entry(entry, prefix + entry.name, folder) for entry in entries]
        if any(travels):
            return True
        if not folder.reason:
            self.folders += [prefix[:-1]] if prefix else []
            return True
        while len(self.stays) > stayed:  # nothing came back, so that the folder says it all
            self.stays.popitem()
        self.stays[prefix] = folder.reason
        return False

    def _entry(self, entry: os.DirEntry[str], path: str, folder: _Folder) -> bool:
        """Decide about one entry; return whether it travels, or anything in it."""
        is_folder = entry.is_dir(follow_symlinks=False)
        reason, level = secret_files.by_name(entry.name, is_folder=is_folder) or "", _Level.OWN
        if not reason:
            reason, level = self._decide(path, is_folder, folder, folder.by_git)
            if is_folder and (not reason or self._may_come_back(path, folder.own, reason, level)):
                return self._walk(f"{path}/", replace(folder, level=level, reason=reason))
        if reason:
            self.stays[f"{path}/" if is_folder else path] = reason
            return False
        if entry.is_symlink():
            return self._link(path, folder)
        if not entry.is_file(follow_symlinks=False):
            self.stays[path] = "sockets, pipes and devices"
            return False
        try:
            self.files.append((path, entry.stat(follow_symlinks=False).st_size))
        except OSError:  # gone meanwhile
            return False
        if len(self.files) > MAX_SENT:
            raise SyncRefused(
                f"The working folder holds more than {MAX_SENT} files.",
                hint=f"{_HINT}, or pack many small ones into one file.",
            )
        return True

    def _decide(self, path: str, is_folder: bool, folder: _Folder, by_git: bool) -> tuple[str, _Level]:
        """Return what keeps the entry back, empty if nothing does, and how what is in it then stands."""
        asked = self._extra.decide(path, is_folder)
        if asked:
            return EXCLUDED, _Level.OWN
        if asked is False or folder.level is _Level.ASKED:
            return "", _Level.ASKED
        if folder.level is _Level.OWN:
            return folder.reason, _Level.OWN
        label, ignored = _decided(folder.own, path, is_folder)
        if label:
            return (label, _Level.OWN) if ignored else ("", _Level.KEPT)
        if path in self._tracked and (not is_folder or os.path.lexists(f"{self._top}/{path}/.git")):
            return "", _Level.KEPT
        if folder.level is _Level.IGNORED:
            return folder.reason, _Level.IGNORED
        label, ignored = _decided(folder.weak, path, is_folder)
        if by_git and label != _CACHES:
            label, ignored = label or GIT_FILE, (f"{path}/" if is_folder else path) in self._ignored
        return (label, _Level.IGNORED) if ignored else ("", _Level.KEPT)

    def _may_come_back(self, path: str, own: list[RuleFile], reason: str, level: _Level) -> bool:
        """Return whether a folder that is left out may hold something that a stronger rule asks for."""
        if reason == EXCLUDED:
            return False
        if self._extra.may_keep_below(path):
            return True
        tracked = f"{path}/" in self._tracked
        return level is _Level.IGNORED and (tracked or any(rules.may_keep_below(path) for rules in own))

    def _link(self, path: str, folder: _Folder) -> bool:
        """Return whether a link travels, as a link: it points into the folder."""
        full = f"{self._top}/{path}"
        try:
            text = os.readlink(full)  # noqa: PTH115
        except OSError:
            return False
        parent = os.path.dirname(path)  # noqa: PTH120
        plain = os.path.normpath(os.path.join(parent, text))  # noqa: PTH118
        if not os.path.isabs(text) and plain != ".." and not plain.startswith("../"):  # noqa: PTH117
            inside = os.path.realpath(full)
            if self._is_inside(inside) or not os.path.lexists(inside):
                self.links[path] = text
                return True
        target = os.path.realpath(full)
        if self._is_inside(target):
            self.links[path] = os.path.relpath(target, os.path.realpath(f"{self._top}/{parent}"))
            return True
        if not os.path.lexists(target):
            self.stays[path] = "links to nothing"
            return False
        # Rules for folders ("data/") do not hold for links in git, but what their writer meant is clear.
        reason, _ = self._decide(path, True, folder, False)
        if reason:
            self.stays[path] = reason
            return False
        self.leaving[path] = target
        return False

    def _is_inside(self, target: str) -> bool:
        return target == self._real_top or target.startswith(self._real_top.rstrip("/") + "/")


def _decided(files: list[RuleFile], path: str, is_folder: bool) -> tuple[str, bool]:
    """Return the label of the strongest file with a rule about the entry, empty if there is none, and what it says."""
    for rules in reversed(files):
        decided = rules.decide(path, is_folder)
        if decided is not None:
            return rules.label, decided
    return "", False


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

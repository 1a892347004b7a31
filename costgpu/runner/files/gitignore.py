"""Ignore rules in git's syntax, decided entry by entry from the top of a tree down, as git does.

Libraries such as pathspec answer for whole paths, where a rule for a folder also holds for everything below; git asks
for each folder on the way, so that a deeper rule can decide otherwise. The walk in `select` does that, and here every
rule is asked about the entry itself only. Rules without wildcards, or with one star at an end, are looked up: a hundred
thousand of them cost as much as one. Others are tried, so their number is limited.
"""

from __future__ import annotations

import bisect
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from costgpu.errors import SyncRefused
from costgpu.runner.files.ignore_pattern import translated

MAX_BYTES = 32 << 20  # of one ignore file
MAX_WILD = 5_000  # rules of one file that have to be tried one by one
_MAX_LINE = 16 * 1024  # characters; no pattern for a path is longer
_SMALL_FILE = 64 * 1024
_SPECIAL = re.compile(r"[*?\[\\]")


@dataclass(frozen=True, slots=True)
class _Rule:
    order: int  # the last one decides
    ignores: bool
    folders_only: bool
    by_name: bool
    pattern: str
    prefix: str  # literal start of what a rule by path can match


class _Lookup:
    """Rules by a literal text; of those with the same text the last one counts."""

    def __init__(self) -> None:
        self._found: dict[str, dict[bool, _Rule]] = {}
        self.lengths: set[int] = set()

    def add(self, text: str, rule: _Rule) -> None:
        self._found.setdefault(text, {})[rule.folders_only] = rule
        self.lengths.add(len(text))

    def get(self, text: str, is_folder: bool) -> Iterator[_Rule]:
        for folders_only, rule in self._found.get(text, {}).items():
            if is_folder or not folders_only:
                yield rule


class _Wild:
    """Rules that have to be tried."""

    def __init__(self) -> None:
        self.rules: list[tuple[_Rule, re.Pattern[str]]] = []
        self._any: re.Pattern[str] | None = None

    def add(self, rule: _Rule, regex: str) -> None:
        self.rules.append((rule, re.compile(regex, re.DOTALL)))

    def get(self, text: str, is_folder: bool) -> _Rule | None:
        """Return the last rule that matches."""
        if not self.rules:
            return None
        if self._any is None:  # most entries match none
            self._any = re.compile("|".join(f"(?:{regex.pattern})" for _, regex in self.rules), re.DOTALL)
        if not self._any.fullmatch(text):
            return None
        for rule, regex in reversed(self.rules):
            if (is_folder or not rule.folders_only) and regex.fullmatch(text):
                return rule
        return None


class RuleFile:
    """The rules of one ignore file.

    Args:
        lines: Its lines, without line ends.
        label: What it is called when it is counted what it kept back.
        cut: How many characters of a path from the walk's root belong to folders above the file.
        above: What has to be put before a path from the walk's root, for a file further up.

    Raises:
        SyncRefused: More than `MAX_WILD` rules have to be tried one by one.
    """

    def __init__(self, lines: Iterable[str], label: str, *, cut: int = 0, above: str = "") -> None:
        self.label = label
        self._cut = cut
        self._above = above
        self._names, self._paths = _Lookup(), _Lookup()
        self._suffixes, self._prefixes = _Lookup(), _Lookup()  # ``*.log`` and ``log*``, by name
        self._wild_names, self._wild_paths = _Wild(), _Wild()
        self._count = 0
        self._keeps_names = False  # whether a ``!`` rule is about names, wherever they are
        kept: set[str] = set()  # literal starts of the other ``!`` rules
        for rule in (_parse(line, order) for order, line in enumerate(lines)):
            if rule is None or not self._add(rule):
                continue
            self._count += 1
            self._keeps_names |= rule.by_name and not rule.ignores
            if not rule.ignores and not rule.by_name:
                kept.add(rule.prefix)
            if len(self._wild_names.rules) + len(self._wild_paths.rules) > MAX_WILD:
                raise SyncRefused(
                    f"{label} has more than {MAX_WILD} rules with wildcards.",
                    hint="Name folders instead of the files in them; rules without wildcards are not limited.",
                )
        self._kept, self._kept_sorted = kept, sorted(kept)

    def __bool__(self) -> bool:
        return self._count > 0

    def _add(self, rule: _Rule) -> bool:
        """Put a rule where it is found; False for one that matches nothing."""
        special = [found.start() for found in _SPECIAL.finditer(rule.pattern, 0, len(rule.pattern))][:2]
        if not special:
            (self._names if rule.by_name else self._paths).add(rule.pattern, rule)
        elif rule.by_name and special == [0] and rule.pattern[0] == "*" and len(rule.pattern) > 1:
            self._suffixes.add(rule.pattern[1:], rule)
        elif rule.by_name and special == [len(rule.pattern) - 1] and rule.pattern[-1] == "*" and special != [0]:
            self._prefixes.add(rule.pattern[:-1], rule)
        else:
            regex = translated(rule.pattern)
            if regex is None:
                return False
            (self._wild_names if rule.by_name else self._wild_paths).add(rule, regex)
        return True

    def decide(self, path: str, name: str, is_folder: bool) -> bool | None:
        """Return whether the entry is ignored; None if no rule is about it.

        Args:
            path: From the walk's root.
            name: Its last part.
            is_folder: Not for a symbolic link to one.
        """
        inner, name = as_bytes(self._above + path[self._cut :]), as_bytes(name)
        last = max(self._matching(inner, name, is_folder), key=lambda rule: rule.order, default=None)
        return None if last is None else last.ignores

    def ignores(self, path: str) -> bool:
        """Return whether a rule about the path itself, of a folder with a slash at its end, ignores it."""
        plain = path.rstrip("/")
        return bool(self.decide(plain, plain.rpartition("/")[2], plain != path))

    def ignores_around(self, path: str) -> bool:
        """Return whether it ignores the path or a folder around it."""
        return self.ignores(path) or any(self.ignores(f"{parent}/") for parent in [*PurePosixPath(path).parents][:-1])

    def _matching(self, inner: str, name: str, is_folder: bool) -> Iterator[_Rule]:
        yield from self._names.get(name, is_folder)
        yield from self._paths.get(inner, is_folder)
        for length in self._suffixes.lengths:
            if length <= len(name):
                yield from self._suffixes.get(name[len(name) - length :], is_folder)
        for length in self._prefixes.lengths:
            if length <= len(name):
                yield from self._prefixes.get(name[:length], is_folder)
        for wild, text in ((self._wild_names, name), (self._wild_paths, inner)):
            rule = wild.get(text, is_folder)
            if rule is not None:
                yield rule

    def may_keep_below(self, path: str) -> bool:
        """Return whether a ``!`` rule could be about something inside this folder."""
        if self._keeps_names:
            return True
        inner = as_bytes(self._above + path[self._cut :] + "/")
        after = bisect.bisect_left(self._kept_sorted, inner)
        if after < len(self._kept_sorted) and self._kept_sorted[after].startswith(inner):
            return True
        return any(inner[:length] in self._kept for length in range(len(inner) + 1))


def read_rules(path: Path, label: str, *, cut: int = 0, above: str = "") -> RuleFile | None:
    """Return the rules of a file; None if it is not there, not a regular file, unreadable, or has no rules.

    Raises:
        SyncRefused: It is too large.
    """
    content = _read(path, MAX_BYTES + 1)
    if content is None:
        return None
    if len(content) > MAX_BYTES:
        raise SyncRefused(
            f"{label} is larger than {MAX_BYTES >> 20} MiB.", hint="Name folders instead of the files in them."
        )
    text = os.fsdecode(content.removeprefix(b"\xef\xbb\xbf"))
    return RuleFile((line.removesuffix("\r") for line in text.split("\n")), label, cut=cut, above=above) or None


def _read(path: Path, most: int) -> bytes | None:
    """Return the first bytes of a regular file; None if there is none. Never waits, and follows no link."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123
            return file.read(most) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except (OSError, ValueError):  # a name with a NUL is none
        return None


def repository_of(folder: Path) -> Path | None:
    """Return the top of the repository that the folder is in; None if it is in none."""
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), None)


def repository_rules(folder: Path) -> list[RuleFile]:
    """Return what git would obey from outside the folder, weakest first: rules of the user, repository, parents."""
    top = repository_of(folder)
    if top is None:
        return []
    inner = folder.relative_to(top)
    prefix = "" if inner == Path() else f"{inner.as_posix()}/"
    settings = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    found = [
        read_rules(Path(settings) / "git" / "ignore", "git's own ignore file of this user", above=prefix),
        read_rules(_git_folder(top) / "info" / "exclude", ".git/info/exclude", above=prefix),
    ]
    for parent in [one for one in reversed(folder.parents) if one == top or top in one.parents]:
        rest = folder.relative_to(parent).as_posix()
        found.append(read_rules(parent / ".gitignore", ".gitignore", above=f"{rest}/"))
    return [one for one in found if one is not None]


def _git_folder(top: Path) -> Path:
    """Return where the repository keeps what its work trees share."""
    folder = top / ".git"
    if (written := _read(folder, _SMALL_FILE)) is not None:  # a work tree or a submodule
        folder = top / os.fsdecode(written).removeprefix("gitdir:").strip()
    shared = _read(folder / "commondir", _SMALL_FILE)
    return folder if shared is None else folder / os.fsdecode(shared).strip()


def as_bytes(text: str) -> str:
    """One character for each byte of a file name: ``?`` and ``[!a]`` are about bytes in git."""
    return text if text.isascii() else os.fsencode(text).decode("latin-1")


def _parse(line: str, order: int) -> _Rule | None:
    pattern = _without_trailing_spaces(as_bytes(line))
    if not pattern or pattern.startswith("#") or len(pattern) > _MAX_LINE:
        return None
    ignores = not pattern.startswith("!")
    pattern = pattern.removeprefix("!")
    folders_only = pattern.endswith("/")
    pattern = pattern.removesuffix("/")
    by_name = "/" not in pattern
    if not pattern or pattern.endswith("/") or "//" in pattern:  # no path looks like that
        return None
    pattern = pattern.removeprefix("/")
    special = _SPECIAL.search(pattern)
    return _Rule(order, ignores, folders_only, by_name, pattern, pattern[: special.start() if special else None])


def _without_trailing_spaces(line: str) -> str:
    """Return the line without the spaces at its end that no backslash protects."""
    short = line.rstrip(" ")
    backslashes = len(short) - len(short.rstrip("\\"))
    return short + " " if backslashes % 2 and len(short) < len(line) else short

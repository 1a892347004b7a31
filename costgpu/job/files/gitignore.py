"""Ignore rules in git's syntax, decided entry by entry from the top of a tree down, as git does.

`pathspec` translates the patterns. Its specifications answer for whole paths, where a rule for a folder also holds for
everything below; git asks for each folder on the way, so that a deeper rule can decide otherwise. The walk in `select`
does that, and here every rule is asked about the entry itself only.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pathspec.patterns.gitignore.base import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern


class _Rule(NamedTuple):
    ignores: bool
    regex: re.Pattern[bytes]
    by_name: bool
    start: bytes  # literal start of what a rule by path can match

    def is_about(self, text: bytes, is_folder: bool) -> bool:
        """Return whether the rule is about the entry itself, not about a folder around it."""
        found = self.regex.search(text + b"/" * is_folder)
        if found is None or found.lastgroup is None:  # without a group for the slash after a folder
            return found is not None and self.regex.search(text) is not None
        return found.end() == len(text) + 1


class RuleFile:
    """The rules of one ignore file.

    Args:
        lines: Its lines, without line ends.
        label: What it is called when it is counted what it kept back.
        cut: How many characters of a path from the walk's root belong to folders above the file.
        above: What has to be put before a path from the walk's root, for a file further up.
    """

    def __init__(self, lines: Iterable[str], label: str, *, cut: int = 0, above: str = "") -> None:
        self.label = label
        self._cut = cut
        self._above = above
        self._rules = [rule for rule in map(_parse, lines) if rule is not None]
        self._rules.reverse()  # the last one decides

    def __bool__(self) -> bool:
        return bool(self._rules)

    def decide(self, path: str, is_folder: bool) -> bool | None:
        """Return whether the entry is ignored; None if no rule is about it.

        Args:
            path: From the walk's root.
            is_folder: Not for a symbolic link to one.
        """
        inner = self._inner(path)
        name = inner.rpartition(b"/")[2]
        for rule in self._rules:
            if rule.is_about(name if rule.by_name else inner, is_folder):
                return rule.ignores
        return None

    def ignores(self, path: str) -> bool:
        """Return whether a rule about the path itself, of a folder with a slash at its end, ignores it."""
        return bool(self.decide(path.rstrip("/"), path.endswith("/")))

    def ignores_around(self, path: str) -> bool:
        """Return whether it ignores the path or a folder around it."""
        return self.ignores(path) or any(self.ignores(f"{parent}/") for parent in [*PurePosixPath(path).parents][:-1])

    def may_keep_below(self, path: str) -> bool:
        """Return whether a ``!`` rule could be about something inside this folder."""
        inner = self._inner(path) + b"/"
        return any(
            rule.by_name or rule.start.startswith(inner) or inner.startswith(rule.start)
            for rule in self._rules
            if not rule.ignores
        )

    def _inner(self, path: str) -> bytes:
        return os.fsencode(self._above + path[self._cut :])


def read_rules(path: Path, label: str, *, cut: int = 0, above: str = "") -> list[RuleFile]:
    """Return the rules of a file; none if it is not there, not a regular file, unreadable, or has no rules."""
    try:
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
    except OSError:
        return []
    text = os.fsdecode(content.removeprefix(b"\xef\xbb\xbf"))
    rules = RuleFile((line.removesuffix("\r") for line in text.split("\n")), label, cut=cut, above=above)
    return [rules] if rules else []


def repository_of(folder: Path) -> Path | None:
    """Return the top of the repository that the folder is in; None if it is in none."""
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), None)


def repository_rules(folder: Path) -> list[RuleFile]:
    """Return what git would obey from outside the folder, weakest first: rules of the user, repository, parents."""
    top = repository_of(folder)
    if top is None:
        return []
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    outside = [
        (settings / "git" / "ignore", "git's own ignore file of this user", top),
        (top / ".git" / "info" / "exclude", ".git/info/exclude", top),
        *(
            (parent / ".gitignore", ".gitignore", parent)
            for parent in reversed(folder.parents)
            if parent.is_relative_to(top)
        ),
    ]
    return [
        rules
        for path, label, base in outside
        for rules in read_rules(path, label, above="" if base == folder else f"{folder.relative_to(base).as_posix()}/")
    ]


def _parse(line: str) -> _Rule | None:
    try:
        with warnings.catch_warnings(action="ignore"):  # re's, of sets such as [[]
            pattern = GitIgnoreSpecPattern(os.fsencode(line))
    except (GitIgnorePatternError, re.error):  # the latter of [z-a]: git, too, finds nothing by these
        return None
    if pattern.regex is None:  # a comment, or nothing
        return None
    text = os.fsencode(line).removeprefix(b"!").rstrip()
    start = re.split(rb"[*?\[\\]", text.removeprefix(b"/"), maxsplit=1)[0]
    every_folder = pattern.regex.groups > 0 and not pattern.regex.pattern.startswith(b"^")  # **/ and the like
    return _Rule(bool(pattern.include), pattern.regex, every_folder or b"/" not in text[:-1], start)

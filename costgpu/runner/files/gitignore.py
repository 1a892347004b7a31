"""Ignore rules in git's syntax, decided entry by entry from the top of a tree down, as git does. Imports nothing of ours.

Libraries such as pathspec answer for whole paths, where a rule for a folder also holds for everything below; git asks
for each folder on the way, so that a deeper rule can decide otherwise. The walk in `select` does that, and here every
rule is asked about the entry itself only.
"""

from __future__ import annotations

import os
import re
import stat
import string
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

_SPECIAL = re.compile(r"[*?\[\\]")
_STARS = re.compile(r"\*+")
_TRAILING_SPACES = re.compile(r"((?:[^\\]|\\.)*?) +", re.DOTALL)  # those that no backslash protects
_BYTES = frozenset(map(chr, range(256)))
_NAMED_SET = re.compile(r"\[:([^\]]*):\]")
_NAMED: dict[str, Callable[[str], bool]] = {
    "alnum": lambda one: one.isascii() and one.isalnum(),
    "alpha": lambda one: one.isascii() and one.isalpha(),
    "blank": lambda one: one in " \t",
    "cntrl": lambda one: one < " " or one == "\x7f",
    "digit": lambda one: one in "0123456789",
    "graph": lambda one: "!" <= one <= "~",
    "lower": lambda one: "a" <= one <= "z",
    "print": lambda one: " " <= one <= "~",
    "punct": lambda one: one in string.punctuation,
    "space": lambda one: one in string.whitespace,
    "upper": lambda one: "A" <= one <= "Z",
    "xdigit": lambda one: one in string.hexdigits,
}


@dataclass(frozen=True, slots=True)
class _Rule:
    ignores: bool
    folders_only: bool
    by_name: bool
    regex: re.Pattern[str]
    prefix: str  # literal start of what a rule by path can match

    def matches(self, path: str, name: str, is_folder: bool) -> bool:
        if self.folders_only and not is_folder:
            return False
        return self.regex.fullmatch(name if self.by_name else path) is not None


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
        self._rules = [rule for rule in map(_parse, lines) if rule is not None][::-1]  # the last one decides
        self._names = _any(rule for rule in self._rules if rule.by_name)
        self._paths = _any(rule for rule in self._rules if not rule.by_name)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def decide(self, path: str, name: str, is_folder: bool) -> bool | None:
        """Whether the entry is ignored; None if no rule is about it.

        Args:
            path: From the walk's root.
            name: Its last part.
            is_folder: Not for a symbolic link to one.
        """
        inner, name = as_bytes(self._above + path[self._cut :]), as_bytes(name)
        if not (self._names and self._names.fullmatch(name)) and not (self._paths and self._paths.fullmatch(inner)):
            return None
        for rule in self._rules:
            if rule.matches(inner, name, is_folder):
                return rule.ignores
        return None

    def may_keep_below(self, path: str) -> bool:
        """Whether a ``!`` rule could be about something inside this folder."""
        inner = as_bytes(self._above + path[self._cut :] + "/")
        return any(
            not rule.ignores and (rule.by_name or rule.prefix.startswith(inner) or inner.startswith(rule.prefix))
            for rule in self._rules
        )


def read_rules(path: Path, label: str, *, cut: int = 0, above: str = "") -> RuleFile | None:
    """The rules of a file; None if it is not there, not a regular file, unreadable, or has no rules."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            content = file.read()
    except OSError:
        return None
    text = os.fsdecode(content.removeprefix(b"\xef\xbb\xbf"))
    return RuleFile((line.removesuffix("\r") for line in text.split("\n")), label, cut=cut, above=above) or None


def repository_rules(folder: Path) -> list[RuleFile]:
    """What git would obey from outside the folder, weakest first: the user's, the repository's, and parents' rules."""
    top = next((one for one in (folder, *folder.parents) if (one / ".git").exists()), None)
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
    """Where the repository keeps what its work trees share."""
    folder = top / ".git"
    try:
        if folder.is_file():  # a work tree or a submodule
            folder = top / folder.read_text().removeprefix("gitdir:").strip()
        shared = folder / "commondir"
        return folder / shared.read_text().strip() if shared.is_file() else folder
    except (OSError, UnicodeDecodeError):
        return folder


def as_bytes(text: str) -> str:
    """One character for each byte of a file name: ``?`` and ``[!a]`` are about bytes in git."""
    return text if text.isascii() else os.fsencode(text).decode("latin-1")


def _parse(line: str) -> _Rule | None:
    line = as_bytes(line)
    trimmed = _TRAILING_SPACES.fullmatch(line)
    pattern = trimmed[1] if trimmed is not None else line
    if not pattern or pattern.startswith("#"):
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
    regex = _translated(pattern)
    if regex is None:
        return None
    prefix = pattern[: special.start() if special else None]
    return _Rule(ignores, folders_only, by_name, re.compile(regex, re.DOTALL), prefix)


def _translated(pattern: str) -> str | None:
    """The pattern as a regular expression; None if it matches nothing."""
    regex, position = "", 0
    while position < len(pattern):
        start = position
        if stars := _STARS.match(pattern, start):
            position = stars.end()
            begins = start == 0 or pattern[start - 1] == "/"
            if len(stars[0]) == 1 or not begins or pattern[position : position + 1] not in ("", "/"):
                regex += "[^/]*"
            elif position == len(pattern):
                regex += ".+"  # what is in a folder is meant, not the folder
            else:
                regex += "(?:.*/)?"
                position += 1
        elif pattern[start] == "[":
            parsed = _parse_set(pattern, start + 1)
            if parsed is None:
                return None
            members, position = parsed
            regex += f"[{''.join(map(re.escape, sorted(members)))}]" if members else "(?!)"
        elif pattern[start] == "?":
            regex += "[^/]"
            position += 1
        else:
            position += pattern[start] == "\\"
            if position == len(pattern):
                return None
            regex += re.escape(pattern[position])
            position += 1
    return regex


def _parse_set(pattern: str, start: int) -> tuple[set[str], int] | None:
    """The characters of the set that begins after ``[``, and where the pattern goes on; None if it never ends."""
    position = start + (pattern[start : start + 1] in ("!", "^"))
    members: set[str] = set()
    last: str | None = None  # the first end of a range, if one follows
    first = True
    while first or pattern[position : position + 1] != "]":
        first = False
        named = _NAMED_SET.match(pattern, position)
        if named is not None:
            test = _NAMED.get(named[1])
            if test is None:
                return None
            members |= {one for one in _BYTES if test(one)}
            position, last = named.end(), None
            continue
        is_range = last is not None and pattern[position : position + 1] == "-" and pattern[position + 1 :][:1] != "]"
        position += is_range
        position += pattern[position : position + 1] == "\\"
        if position >= len(pattern):
            return None
        if is_range and last is not None:
            members |= {one for one in _BYTES if last <= one <= pattern[position]}
            last = None
        else:
            last = pattern[position]
            members.add(last)
        position += 1
    if position > start and pattern[start] in "!^":
        members = set(_BYTES - members)
    return members - {"/"}, position + 1


def _any(rules: Iterable[_Rule]) -> re.Pattern[str] | None:
    """One expression that matches wherever one of the rules does: most entries match none."""
    parts = [f"(?:{rule.regex.pattern})" for rule in rules]
    return re.compile("|".join(parts), re.DOTALL) if parts else None

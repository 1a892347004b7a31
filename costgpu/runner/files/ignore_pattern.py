"""One pattern of an ignore file as a regular expression that never backtracks. Imports nothing of ours.

What matches between two slashes is decided in one pass: of the pieces between stars each but the last is taken at its
first place, and the last at the end, and nothing is tried again (atomic groups). So it is with folders between ``**``.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable

_STARS = re.compile(r"\*+")
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


def translated(pattern: str) -> str | None:
    """Return the pattern as a regular expression to be matched fully; None if it matches nothing."""
    parts: list[str] = []  # each but the last ends with a slash
    part, any_folders = "", False  # what is between two ``**``, and whether one is in front of it
    component: list[str] = [""]  # what is between two slashes, as the pieces between its stars
    position = 0
    while position < len(pattern):
        start = position
        if stars := _STARS.match(pattern, start):
            position = stars.end()
            begins = start == 0 or pattern[start - 1] == "/"
            if len(stars[0]) == 1 or not begins or pattern[position : position + 1] not in ("", "/"):
                component.append("")
            elif position == len(pattern):
                return "".join(parts) + _between(part, any_folders, last=False) + ".+"  # what is in a folder, not it
            else:
                parts.append(_between(part, any_folders, last=False))
                part, any_folders = "", True
                position += 1
        elif pattern[start] == "[":
            parsed = _parse_set(pattern, start + 1)
            if parsed is None:
                return None
            members, position = parsed
            component[-1] += f"[{''.join(map(re.escape, sorted(members)))}]" if members else "(?!)"
        elif pattern[start] == "?":
            component[-1] += "[^/]"
            position += 1
        else:
            position += pattern[start] == "\\"
            if position == len(pattern):
                return None
            if pattern[position] == "/":
                part, component = part + _component(component) + "/", [""]
            else:
                component[-1] += re.escape(pattern[position])
            position += 1
    return "".join(parts) + _between(part + _component(component), any_folders, last=True)


def _component(pieces: list[str]) -> str:
    """Return what matches the whole of a name, decided once."""
    if len(pieces) == 1:
        return pieces[0]
    first, *middle, last = pieces
    return "(?>" + first + "".join(f"(?>[^/]*?{piece})" for piece in middle if piece) + f"[^/]*{last}(?![^/]))"


def _between(part: str, any_folders: bool, *, last: bool) -> str:
    """Return what stands between two ``**``; after one, it may begin in any folder, and the first one decides."""
    if not any_folders:
        return part
    return f"(?:[^/]*/)*?{part}" if last else f"(?>(?:[^/]*/)*?{part})"


def _parse_set(pattern: str, start: int) -> tuple[set[str], int] | None:
    """Return the characters of the set that begins after ``[``, and where the pattern goes on; None if it never ends."""
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

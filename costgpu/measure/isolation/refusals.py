"""Which write the system refused to a program that may write in a few folders only, by what the program said of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_REFUSED = re.compile(
    r"permission denied|operation not permitted|read-only file system|readonly database|invalid cross-device link"
    r"|\[Errno (?:1|13|18|30)\]",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"['\"`‘“](/?[^'\"`‘’“”]+)['\"’”]")
MOST_CHARS = 300


def refused_write(said: Iterable[str], folder: Path, ours: Path) -> str:
    """Return what could not be written, and could have been without us: a path, or a line that names none; empty if nothing.

    Args:
        said: Lines of the program's output, or of the error that ended it; the last that tells counts.
        folder: Where it ran: relative paths count from there.
        ours: What is below it is not the user's.
    """
    for line in reversed(list(said)):
        if _REFUSED.search(line):
            words = _paths(line[:MOST_CHARS], folder)
            paths = [os.path.normpath(folder / word) for word in words if _counts_from(folder, word)]
            if not paths:  # none is named, or it counts from another folder
                return line.strip()[:MOST_CHARS]
            return next((path for path in paths if _is_writable(path) and not Path(path).is_relative_to(ours)), "")
    return ""


def _paths(line: str, folder: Path) -> Iterator[str]:
    """Yield what is a path in a line, the likeliest first."""
    yield from reversed(_QUOTED.findall(line))
    for part in reversed(re.split(r":\s", line)[:-1]):
        for word in (part, part.rpartition(" ")[2]):
            if word and ("/" in word or os.path.lexists(folder / word)):
                yield word


def _counts_from(folder: Path, word: str) -> bool:
    path = folder / word
    return word.startswith(os.sep) or os.path.lexists(path) or path.parent.is_dir()


def _is_writable(path: str) -> bool:
    """Return whether the user may write it, or make or remove it in its folder."""
    try:
        return os.access(path, os.W_OK) or (Path(path).parent.is_dir() and os.access(Path(path).parent, os.W_OK))
    except (OSError, ValueError):
        return False

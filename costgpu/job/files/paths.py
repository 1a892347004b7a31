"""Which names files that travel may have. Imports `files` only."""

from __future__ import annotations

import os

from costgpu.files import LONGEST_NAME, LONGEST_PATH

MOST_LEVELS = 200  # folders within each other
_OWN_BYTES = 200  # of what costgpu puts in front of a path and behind it while a file travels


def is_inside(path: str) -> bool:
    """Return whether a path is relative and stays below its folder."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:  # a lone surrogate is the name of no file
        return False
    return "\0" not in path and {"", ".", ".."}.isdisjoint(path.split("/"))


def why_impossible(path: str, folder: str) -> str:
    """Return why a file cannot be kept at this path below a folder of this computer, in words; empty if it can."""
    if path.count("/") > MOST_LEVELS:
        return f"more than {MOST_LEVELS} folders deep"
    if any(len(os.fsencode(name)) > LONGEST_NAME for name in path.split("/")):
        return "of a name too long for this computer"
    if len(os.fsencode(folder)) + len(os.fsencode(path)) + _OWN_BYTES > LONGEST_PATH:
        return "of a path too long for this computer"
    return ""


def printable_path(path: str) -> str:
    """Return the path as a message can show it: control characters and bytes that are no text are escaped."""
    return path if path.isprintable() else ascii(path)

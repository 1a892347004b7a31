"""How far the files of this machine are out of a measured program's reach."""

from __future__ import annotations

import sys
from enum import StrEnum


class Isolation(StrEnum):
    """What keeps the user's files as they are, strongest first."""

    COPY_ON_WRITE = (
        "copy-on-write"  # the program and all that it starts see a world of which every change is thrown away
    )
    WRITE_PROTECTED = "write-protected"  # it runs in a copy of its folder, and the kernel refuses changes elsewhere
    COPY = "copy"  # it runs in a copy of its folder, and nothing keeps it from changing files elsewhere


_LINUX = sys.platform.startswith("linux")
MEANINGS = {
    Isolation.COPY_ON_WRITE: "The program runs in a copy-on-write world: whatever it writes is thrown away.",
    Isolation.WRITE_PROTECTED: (
        "The program runs in a copy of its folder, with a home and a temporary folder of its own; the system refuses"
        " every change of files elsewhere."
    ),
    Isolation.COPY: (
        "The program runs in a copy of its folder, with a home and a temporary folder of its own; what it writes elsewhere,"
        " by absolute paths, is really written."
    ),
}


def candidates(wanted: Isolation | None = None) -> tuple[Isolation, ...]:
    """Return the levels to try on this system, strongest first; only the one that is wanted if there is one."""
    if wanted is not None:
        return (wanted,)
    return tuple(level for level in Isolation if _LINUX or level is not Isolation.COPY_ON_WRITE)


def isolation_notes(level: Isolation) -> list[str]:
    """Return what a verdict says of the level at which its program was measured: nothing where nothing could be harmed."""
    return [] if level is Isolation.COPY_ON_WRITE else [MEANINGS[level]]

"""What a script reads and would not find where its job runs: part of the `Plan`. Imports nothing of ours."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StayingInput:
    """A file below the working folder, or a folder with many of them, that the script reads and that does not travel.

    Attributes:
        path: Relative to the working folder.
        size: Bytes that were read of it, as files.
        files: Number of those files.
        why: The rule or reason that keeps it here.
        sendable: Whether `--include` sends it; secrets and repositories never travel.
    """

    path: str
    size: int
    files: int = 1
    why: str
    sendable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The comparison of what the script reads with what travels.

    Attributes:
        known: Whether a measurement has seen what the script reads.
        complete: False if it cannot have seen all of it.
        staying: What it reads and nobody has decided about, the largest first. A run with any does not start.
    """

    known: bool = True
    complete: bool = True
    staying: tuple[StayingInput, ...] = ()

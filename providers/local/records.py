"""The border to the files of a local instance: each is parsed here, once, into a typed value. Standard library only.

The job runs as the same user and may have written, replaced or damaged any of them.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Damaged(ValueError):
    """A document that is there and cannot be used; its text says why."""


class Facts(NamedTuple):
    """``instance.json``: what the instance is."""

    tags: Mapping[str, str]
    region: str
    instance_type: str
    launched_epoch: float
    lease_epoch: float
    lifetime_seconds: float
    fingerprint: str
    host: str  # name of the computer that it lives on
    boot_id: str


class HostRecord(NamedTuple):
    """``host.json``: which process is the host."""

    pid: int
    started: str


class Ending(NamedTuple):
    """``end.json`` and ``terminated.json``: who ended it, why and when."""

    by: str
    reason: str
    at: float


def open_regular(path: Path) -> int:
    """Return a descriptor to read a regular file with; never waits, and follows no link.

    Raises:
        OSError: There is none, or something else is there.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor


def read(path: Path) -> dict[str, object] | None:
    """Return the document; None if it is not there.

    Raises:
        Damaged: Something is there that is none.
    """
    try:
        with open(open_regular(path), "rb") as stream:
            found = json.load(stream)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Damaged(f"{path.name} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{path.name} is no JSON") from error
    if not isinstance(found, dict):
        raise Damaged(f"{path.name} is no object")
    return found


def facts(document: Mapping[str, object]) -> Facts:
    """Raise `Damaged`."""
    tags = document.get("tags")
    if not isinstance(tags, dict) or not all(isinstance(value, str) for value in tags.values()):
        raise Damaged("instance.json has no tags")
    return Facts(
        tags=tags,
        region=_text(document, "region"),
        instance_type=_text(document, "instance_type"),
        launched_epoch=_number(document, "launched_epoch"),
        lease_epoch=_number(document, "lease_epoch"),
        lifetime_seconds=_number(document, "lifetime_seconds"),
        fingerprint=_text(document, "fingerprint"),
        host=_text(document, "host"),
        boot_id=_text(document, "boot_id"),
    )


def host_record(document: Mapping[str, object]) -> HostRecord:
    """Raise `Damaged`."""
    return HostRecord(pid=int(_number(document, "pid")), started=_text(document, "started"))


def ending(document: Mapping[str, object]) -> Ending:
    """Raise `Damaged`."""
    return Ending(by=_text(document, "by"), reason=_text(document, "reason"), at=_number(document, "at"))


def noted(document: Mapping[str, object]) -> list[tuple[int, str]]:
    """Return the numbers and starts of processes in ``noted.json``; what is no process is left out."""
    rows = document.get("processes")
    return [
        (row[0], row[1])
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, list) and len(row) == 2 and isinstance(row[0], int) and isinstance(row[1], str)
    ]


def _text(document: Mapping[str, object], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str):
        raise Damaged(f"`{name}` is {type(value).__name__} instead of a text")
    return value


def _number(document: Mapping[str, object], name: str) -> float:
    value = document.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Damaged(f"`{name}` is {type(value).__name__} instead of a number")
    return float(value)

"""The border to the files of a local instance: each is parsed here, once, into a typed value.

By hand, because the host of an instance is standard library only and starts in milliseconds.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_type_hints

MAX_BYTES = 1 << 20  # of one document
_JSON_TYPES: dict[Any, Any] = {float: (int, float), dict[str, str]: dict}

T = TypeVar("T", "Facts", "HostRecord", "Ending")


class Damaged(ValueError):
    """A document that is there and cannot be used; its text says why."""


class Facts(NamedTuple):
    """``instance.json``: what the instance is."""

    tags: dict[str, str]
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


def parse(kind: type[T], document: Mapping[str, Any]) -> T:
    """Return a document as one of the tuples above.

    Raises:
        Damaged: A value is missing, or of another type.
    """
    for name, hint in get_type_hints(kind).items():
        if not isinstance(document.get(name), _JSON_TYPES.get(hint, hint)):
            raise Damaged(f"`{name}` is {type(document.get(name)).__name__} instead of {hint.__name__}")
    return kind(**{name: document[name] for name in kind._fields})


def noted(document: Mapping[str, object]) -> list[tuple[int, str]]:
    """Return the numbers and starts of processes in ``noted.json``; what is no process is left out."""
    rows = document.get("processes")
    return [
        (row[0], row[1])
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, list) and len(row) == 2 and isinstance(row[0], int) and isinstance(row[1], str)
    ]

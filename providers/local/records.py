"""The border to the files of a local instance, and its name: each file is parsed here, once, into a typed value.

By hand, because the keeper of an instance is standard library only and starts in milliseconds.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from costgpu.models.instance import CreateRequest

T = TypeVar("T", "Facts", "EndRecord")
PREFIX = "local-"
INSTANCE_ID = re.compile(r"local-[a-z0-9-]{1,80}")


class DamagedDocument(ValueError):
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


class EndRecord(NamedTuple):
    """``end.json`` and ``terminated.json``: who ended it, why and when."""

    by: str
    reason: str
    at: float


def read(path: Path) -> dict[str, object] | None:
    """Return the document; None if it is not there.

    Raises:
        Damaged: Something is there that is none.
    """
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedDocument(f"{path.name} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise DamagedDocument(f"{path.name} is no JSON") from error
    if not isinstance(found, dict):
        raise DamagedDocument(f"{path.name} is no JSON object")
    return found


def load(kind: type[T], path: Path) -> T | None:
    """Return the document as one of the tuples above; None if it is not there.

    Raises:
        Damaged: Something is there that is none.
    """
    document: Any = read(path)
    if document is None:
        return None
    try:
        return kind(**{name: document[name] for name in kind._fields})
    except KeyError as error:
        raise DamagedDocument(f"it has no `{error.args[0]}`") from error


def id_of(token: str) -> str:
    """Return the same for the same token, in every process."""
    plain = f"{PREFIX}{token}"
    return plain if INSTANCE_ID.fullmatch(plain) else PREFIX + hashlib.sha256(token.encode()).hexdigest()[:32]


def fingerprint(request: CreateRequest) -> str:
    """Differs where anything of the requests does."""
    return hashlib.sha256(json.dumps(asdict(request), sort_keys=True, default=str).encode()).hexdigest()

"""Frozen dataclasses to JSON values and back, by their type hints. Imports only `border` and `errors`.

Money and times become strings, enums their values, tuples lists.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, TypeVar

from costgpu import border
from costgpu.errors import LedgerDamaged

T = TypeVar("T")


def to_json(value: Any) -> Any:
    """Return the JSON value of a dataclass, or of anything that one may hold.

    Aware times are kept as UTC. Floats that JSON does not know become ``"inf"``, ``"-inf"`` and ``"nan"``.

    Raises:
        TypeError: There is no JSON value for it, or a dataclass has a field with ``repr=False``: such fields hold
            secrets, and secrets are not stored.
    """
    if isinstance(value, Enum):
        return to_json(value.value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {_key(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            if not field.repr:
                raise TypeError(f"{type(value).__name__}.{field.name} holds a secret and is not stored.")
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    raise TypeError(f"A value of type {type(value).__name__} cannot be stored.")


def from_json(cls: type[T], data: Any) -> T:
    """Return the value of this type that `to_json` made the JSON value of, also in another version.

    Raises:
        LedgerDamaged: A key without a default is missing, or a value is not what its field holds.
    """
    return border.read(cls, data, lambda problem: _damaged(cls, problem))


def _damaged(cls: type, problem: str) -> LedgerDamaged:
    return LedgerDamaged(
        f"What was stored of a {getattr(cls, '__name__', cls)} cannot be read: {problem}",
        hint="It was changed by something else than costgpu, or written by a version that does not fit.",
    )


def _key(key: Any) -> str:
    plain = key.value if isinstance(key, Enum) else key
    if not isinstance(plain, str):
        raise TypeError(f"A key of type {type(key).__name__} cannot be stored.")
    return plain

"""Frozen dataclasses to JSON values and back, by their type hints. Imports only `errors` and `units`.

Money and times become strings, enums their values, tuples lists. Unknown keys in what was stored are ignored and
missing ones take the field's default, so that rows of older and newer versions can be read.

Not pydantic: importing it and building its validators for these classes takes 0.3 s, which every `costgpu jobs` would
pay; its strict mode refuses "inf", its lax mode takes ``true`` for 1.0, and its JSON parser refuses lone surrogates,
which names of files may hold.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from costgpu.errors import LedgerDamaged
from costgpu.units import FIRST_YEAR, LAST_YEAR, shortened

T = TypeVar("T")
LARGEST = 10**18


def to_json(value: Any) -> Any:
    """The JSON value of a dataclass, or of anything that one may hold.

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


def from_json(cls: type[T], data: Any, *, bounded: bool = False) -> T:
    """The value of this type (a dataclass, or what a field of one may hold) that `to_json` made the JSON value of.

    Args:
        bounded: Also refuse numbers and times that nobody can count with: not finite, beyond 10**18, without a zone, or
            not between the years 1970 and 2199.

    Raises:
        LedgerDamaged: A key without a default is missing, or a value is not what its field holds.
        TypeError: The type has no JSON form.
    """
    try:
        value = _read(cls, data, "")
        if bounded:
            _check_bounds(value, "")
        return typing.cast("T", value)
    except _UnreadableError as exc:
        raise LedgerDamaged(
            f"What was stored of a {getattr(cls, '__name__', cls)} cannot be read: {exc}",
            hint="It was changed by something else than costgpu, or written by a version that does not fit.",
        ) from exc


class _UnreadableError(ValueError):
    """A stored value that does not fit; its text says where."""


def _key(key: Any) -> str:
    plain = key.value if isinstance(key, Enum) else key
    if not isinstance(plain, str):
        raise TypeError(f"A key of type {type(key).__name__} cannot be stored.")
    return plain


def _read(hint: Any, data: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return data
    if origin is types.UnionType or origin is typing.Union:
        others = [argument for argument in arguments if argument is not type(None)]
        if len(others) != 1 or len(others) == len(arguments):
            raise TypeError(f"Of unions only `T | None` can be stored, not {hint}.")
        return None if data is None else _read(others[0], data, where)
    if origin is tuple or origin is list:
        items = _expect(list, data, where)
        hints = arguments if origin is tuple and arguments[-1] is not Ellipsis else arguments[:1] * len(items)
        if len(items) != len(hints):
            raise _UnreadableError(f"{where}: {len(hints)} items are expected, not {len(items)}")
        pairs = zip(hints, items, strict=True)
        return origin(_read(part, item, f"{where}[{n}]") for n, (part, item) in enumerate(pairs))
    if origin in (dict, collections.abc.Mapping):
        entries = _expect(dict, data, where).items()
        return {key: _read(arguments[1], item, f"{where}[{key!r}]") for key, item in entries}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _dataclass(hint, _expect(dict, data, where), where)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _parsed(hint, hint, data, where)
    if hint is float:
        return _float(data, where)
    if hint in (bool, int, str):
        return _expect(hint, data, where)
    if hint is Decimal:
        is_number = isinstance(data, int | float) and not isinstance(data, bool)
        return _parsed(hint, Decimal, str(data) if is_number else _expect(str, data, where), where)
    if hint in (datetime, date):
        return _parsed(hint, hint.fromisoformat, _expect(str, data, where), where)
    raise TypeError(f"A value of type {hint} cannot be stored.")


@cache
def _fields(cls: type) -> tuple[tuple[str, Any, bool], ...]:
    """Name, type and whether there must be a value, of each field."""
    hints = typing.get_type_hints(cls)
    return tuple(
        (
            field.name,
            hints[field.name],
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        )
        for field in dataclasses.fields(cls)
    )


def _dataclass(cls: type, data: dict[str, Any], where: str) -> Any:
    values = {}
    for name, hint, required in _fields(cls):
        if name in data:
            values[name] = _read(hint, data[name], f"{where}.{name}")
        elif required:
            raise _UnreadableError(f"{where}.{name} is missing")
    return cls(**values)


def _check_bounds(value: Any, where: str) -> None:
    if isinstance(value, datetime):
        if value.tzinfo is None or not FIRST_YEAR <= value.year <= LAST_YEAR:
            raise _UnreadableError(f"{where}: {value} is not a time between {FIRST_YEAR} and {LAST_YEAR} with its zone")
    elif isinstance(value, Decimal):
        if not value.is_finite() or abs(value) > LARGEST:
            raise _UnreadableError(f"{where}: an amount is beyond 10**18")
    elif isinstance(value, int | float):
        if not abs(value) <= LARGEST:  # NaN is not, either
            raise _UnreadableError(f"{where}: a number is beyond 10**18")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _check_bounds(item, f"{where}[{key!r}]")
    elif isinstance(value, tuple | list):
        for index, item in enumerate(value):
            _check_bounds(item, f"{where}[{index}]")
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for name, _, _ in _fields(type(value)):
            _check_bounds(getattr(value, name), f"{where}.{name}")


def _expect(kind: type[T], data: Any, where: str) -> T:
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        raise _UnreadableError(f"{where}: {kind.__name__} is expected, not {type(data).__name__}")
    return data


def _parsed(kind: type, parse: Callable[[Any], Any], data: Any, where: str) -> Any:
    try:
        return parse(data)
    except (ValueError, InvalidOperation, OverflowError):
        raise _UnreadableError(f"{where}: {shortened(str(data))} is not a valid {kind.__name__}") from None


def _float(data: Any, where: str) -> float:
    if isinstance(data, str) and data in {"inf", "-inf", "nan"}:
        return float(data)
    if isinstance(data, bool) or not isinstance(data, int | float):
        raise _UnreadableError(f"{where}: a number is expected, not {type(data).__name__}")
    return _parsed(float, float, data, where)  # type: ignore[no-any-return]

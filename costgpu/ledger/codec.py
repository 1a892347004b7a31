"""Frozen dataclasses to JSON values and back, by their type hints. Imports only `errors`.

Money and times become strings, enums their values, tuples lists. Unknown keys in what was stored are ignored and
missing ones take the field's default, so that rows of older and newer versions can be read.
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

T = TypeVar("T")
Reader = Callable[[Any], Any]


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
        return {field.name: to_json(getattr(value, field.name)) for field in _storable(type(value))}
    raise TypeError(f"A value of type {type(value).__name__} cannot be stored.")


def from_json(cls: type[T], data: Any) -> T:
    """The dataclass (or other type) that `to_json` made the value of.

    Args:
        cls: A dataclass, or any type that a field of one may have.
        data: As parsed from JSON.

    Raises:
        LedgerDamaged: A key without a default is missing, or a value is not what its field holds.
        TypeError: The type has no JSON form.
    """
    try:
        return typing.cast("T", _reader(typing.cast("Any", cls))(data))
    except _Unreadable as exc:
        raise LedgerDamaged(
            f"What was stored of a {getattr(cls, '__name__', cls)} cannot be read: {exc}",
            hint="It was changed by something else than costgpu, or written by a version that does not fit.",
        ) from exc


class _Unreadable(ValueError):
    """A stored value that does not fit; its text says where."""


def _key(key: Any) -> str:
    plain = key.value if isinstance(key, Enum) else key
    if not isinstance(plain, str):
        raise TypeError(f"A key of type {type(key).__name__} cannot be stored.")
    return plain


@cache
def _storable(cls: type) -> tuple[dataclasses.Field[Any], ...]:
    fields = dataclasses.fields(cls)
    for field in fields:
        if not field.repr:
            raise TypeError(f"{cls.__name__}.{field.name} holds a secret and is not stored.")
    return fields


@cache
def _reader(hint: Any) -> Reader:
    """What reads one type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return lambda data: data
    if origin is types.UnionType or origin is typing.Union:
        return _optional(arguments)
    if origin is tuple:
        return _tuple(arguments)
    if origin is list:
        item = _reader(arguments[0])
        return lambda data: [_at(f"[{n}]", item, part) for n, part in enumerate(_expect(list, data))]
    if origin in (dict, Mapping, collections.abc.Mapping):
        item = _reader(arguments[1])
        return lambda data: {key: _at(f"[{key!r}]", item, part) for key, part in _expect(dict, data).items()}
    if isinstance(hint, type):
        if dataclasses.is_dataclass(hint):
            return _dataclass(hint)
        if issubclass(hint, Enum):
            return _enum(hint)
        if hint in _SIMPLE:
            return _SIMPLE[hint]
    raise TypeError(f"A value of type {hint} cannot be stored.")


def _optional(arguments: tuple[Any, ...]) -> Reader:
    others = [argument for argument in arguments if argument is not type(None)]
    if len(others) != 1 or len(others) == len(arguments):
        raise TypeError(f"Of unions only `T | None` can be stored, not {arguments}.")
    reader = _reader(others[0])
    return lambda data: None if data is None else reader(data)


def _tuple(arguments: tuple[Any, ...]) -> Reader:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        item = _reader(arguments[0])
        return lambda data: tuple(_at(f"[{n}]", item, part) for n, part in enumerate(_expect(list, data)))
    readers = [_reader(argument) for argument in arguments]

    def read(data: Any) -> tuple[Any, ...]:
        if len(_expect(list, data)) != len(readers):
            raise _Unreadable(f": {len(readers)} items are expected, not {len(data)}")
        return tuple(_at(f"[{n}]", *pair) for n, pair in enumerate(zip(readers, data, strict=True)))

    return read


def _dataclass(cls: type) -> Reader:
    """Reads an object into a dataclass. Its fields are looked at on the first use, so that a class may hold itself."""
    plan: list[tuple[str, Reader, bool]] = []

    def read(data: Any) -> Any:
        if not plan:
            hints = typing.get_type_hints(cls)
            for field in dataclasses.fields(cls):
                required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
                plan.append((field.name, _reader(hints[field.name]), required))
        _expect(dict, data)
        values = {}
        for name, reader, required in plan:
            if name in data:
                values[name] = _at(f".{name}", reader, data[name])
            elif required:
                raise _Unreadable(f".{name} is missing")
        return cls(**values)

    return read


def _enum(cls: type[Enum]) -> Reader:
    def read(data: Any) -> Any:
        try:
            return cls(data)
        except ValueError:
            raise _Unreadable(f": {data!r} is no {cls.__name__}") from None

    return read


def _at(where: str, reader: Reader, data: Any) -> Any:
    try:
        return reader(data)
    except _Unreadable as exc:
        raise _Unreadable(f"{where}{exc}") from None


def _expect(kind: type[T], data: Any) -> T:
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        raise _Unreadable(f": {kind.__name__} is expected, not {type(data).__name__}")
    return data


def _float(data: Any) -> float:
    if isinstance(data, str) and data in {"inf", "-inf", "nan"}:
        return float(data)
    if isinstance(data, bool) or not isinstance(data, int | float):
        raise _Unreadable(f": a number is expected, not {type(data).__name__}")
    return float(data)


def _decimal(data: Any) -> Decimal:
    try:
        return Decimal(str(data) if isinstance(data, int | float) else _expect(str, data))
    except InvalidOperation:
        raise _Unreadable(f": {data!r} is no amount") from None


def _datetime(data: Any) -> datetime:
    try:
        return datetime.fromisoformat(_expect(str, data))
    except ValueError as exc:
        raise _Unreadable(str(exc) if isinstance(exc, _Unreadable) else f": {data!r} is no time") from None


def _date(data: Any) -> date:
    try:
        return date.fromisoformat(_expect(str, data))
    except ValueError as exc:
        raise _Unreadable(str(exc) if isinstance(exc, _Unreadable) else f": {data!r} is no day") from None


_SIMPLE: dict[type, Reader] = {
    bool: lambda data: _expect(bool, data),
    int: lambda data: _expect(int, data),
    str: lambda data: _expect(str, data),
    float: _float,
    Decimal: _decimal,
    datetime: _datetime,
    date: _date,
}

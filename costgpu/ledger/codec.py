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
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import cache, partial
from typing import Any, TypeVar

from costgpu.errors import LedgerDamaged
from costgpu.units import FIRST_YEAR, LAST_YEAR, shortened

T = TypeVar("T")
LARGEST = 10**18


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


def from_json(cls: type[T], data: Any, *, bounded: bool = False) -> T:
    """Return the value of this type (a dataclass, or what a field of one may hold) that `to_json` made the JSON value of.

    Args:
        bounded: Also refuse numbers and times that nobody can count with: not finite, beyond 10**18, without a zone, or
            not between the years 1970 and 2199.

    Raises:
        LedgerDamaged: A key without a default is missing, or a value is not what its field holds.
        TypeError: The type has no JSON form.
    """
    try:
        value = _reader(typing.cast("Any", cls))(data)
        if bounded:
            _check_bounds(value)
        return typing.cast("T", value)
    except _UnreadableError as exc:
        raise LedgerDamaged(
            f"What was stored of a {getattr(cls, '__name__', cls)} cannot be read: {exc}",
            hint="It was changed by something else than costgpu, or written by a version that does not fit.",
        ) from exc


class _UnreadableError(ValueError):
    """A stored value that does not fit; its text says where."""

    def __init__(self, problem: str) -> None:
        self.problem, self.where = problem, ""

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}" if self.where else self.problem

    def within(self, part: str) -> _UnreadableError:
        """Return the same, of a part of something larger: where it is, is written only when something is wrong."""
        self.where = part + self.where
        return self


def _key(key: Any) -> str:
    plain = key.value if isinstance(key, Enum) else key
    if not isinstance(plain, str):
        raise TypeError(f"A key of type {type(key).__name__} cannot be stored.")
    return plain


@cache
def _reader(hint: Any) -> Callable[[Any], Any]:
    """Return what makes a value of this type of its JSON value."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return lambda data: data
    if origin is types.UnionType or origin is typing.Union:
        others = [argument for argument in arguments if argument is not type(None)]
        if len(others) != 1 or len(others) == len(arguments):
            raise TypeError(f"Of unions only `T | None` can be stored, not {hint}.")
        read = _reader(others[0])
        return lambda data: None if data is None else read(data)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return partial(_fixed, tuple(map(_reader, arguments)))
    if origin is tuple or origin is list:
        return partial(_sequence, origin, _reader(arguments[0]))
    if origin in (dict, collections.abc.Mapping):
        return partial(_mapping, _reader(arguments[1]))
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return partial(_dataclass, hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return partial(_parsed, hint, hint)
    if hint is float:
        return _float
    if hint in (bool, int, str):
        return partial(_expect, hint)
    if hint is Decimal:
        return _decimal
    if hint in (datetime, date):
        return lambda data: _parsed(hint, hint.fromisoformat, _expect(str, data))
    raise TypeError(f"A value of type {hint} cannot be stored.")


@cache
def _fields(cls: type) -> tuple[tuple[str, Callable[[Any], Any], bool], ...]:
    """Name, reader and whether there must be a value, of each field."""
    hints = typing.get_type_hints(cls)
    return tuple(
        (
            field.name,
            _reader(hints[field.name]),
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        )
        for field in dataclasses.fields(cls)
    )


def _dataclass(cls: type, data: Any) -> Any:
    stored, values = _expect(dict, data), {}
    for name, read, required in _fields(cls):
        if name in stored:
            try:
                values[name] = read(stored[name])
            except _UnreadableError as exc:
                raise exc.within(f".{name}") from None
        elif required:
            raise _UnreadableError(f"{name} is missing")
    return cls(**values)


def _sequence(kind: type, read: Callable[[Any], Any], data: Any) -> Any:
    return kind(_items((read, item) for item in _expect(list, data)))


def _fixed(readers: tuple[Callable[[Any], Any], ...], data: Any) -> Any:
    items = _expect(list, data)
    if len(items) != len(readers):
        raise _UnreadableError(f"{len(readers)} items are expected, not {len(items)}")
    return tuple(_items(zip(readers, items, strict=True)))


def _items(pairs: Iterable[tuple[Callable[[Any], Any], Any]]) -> Iterator[Any]:
    for number, (read, item) in enumerate(pairs):
        try:
            yield read(item)
        except _UnreadableError as exc:
            raise exc.within(f"[{number}]") from None


def _mapping(read: Callable[[Any], Any], data: Any) -> dict[str, Any]:
    values = {}
    for key, item in _expect(dict, data).items():
        try:
            values[key] = read(item)
        except _UnreadableError as exc:
            raise exc.within(f"[{key!r}]") from None
    return values


def _check_bounds(value: Any) -> None:
    if value is None or isinstance(value, str | bool):
        return
    if isinstance(value, int | float):
        if not abs(value) <= LARGEST:  # NaN is not, either
            raise _UnreadableError("a number is beyond 10**18")
    elif isinstance(value, datetime):
        if value.tzinfo is None or not FIRST_YEAR <= value.year <= LAST_YEAR:
            raise _UnreadableError(f"{value} is not a time between {FIRST_YEAR} and {LAST_YEAR} with its zone")
    elif isinstance(value, Decimal):
        if not value.is_finite() or abs(value) > LARGEST:
            raise _UnreadableError("an amount is beyond 10**18")
    else:
        for part, item in _parts(value):
            try:
                _check_bounds(item)
            except _UnreadableError as exc:
                raise exc.within(f".{part}" if dataclasses.is_dataclass(value) else f"[{part!r}]") from None


def _parts(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, tuple | list):
        return enumerate(value)
    if dataclasses.is_dataclass(value):
        return [(name, getattr(value, name)) for name, _, _ in _fields(value.__class__)]
    return ()


def _expect(kind: type[T], data: Any) -> T:
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        raise _UnreadableError(f"{kind.__name__} is expected, not {type(data).__name__}")
    return data


def _parsed(kind: type, parse: Callable[[Any], T], data: Any) -> T:
    try:
        return parse(data)
    except (ValueError, InvalidOperation, OverflowError):
        raise _UnreadableError(f"{shortened(str(data))} is not a valid {kind.__name__}") from None


def _decimal(data: Any) -> Decimal:
    is_number = isinstance(data, int | float) and not isinstance(data, bool)
    text = str(data) if is_number else _expect(str, data)
    return _parsed(Decimal, Decimal, text)


def _float(data: Any) -> float:
    if isinstance(data, str) and data in {"inf", "-inf", "nan"}:
        return float(data)
    if isinstance(data, bool) or not isinstance(data, int | float):
        raise _UnreadableError(f"a number is expected, not {type(data).__name__}")
    return _parsed(float, float, data)

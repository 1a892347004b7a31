"""The probe's record, checked once: it was written beside a script that can write anything, anywhere.

What it may hold is said in `costgpu.measure.probe.record`. Past this file it is what it says that it is.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any

from costgpu.errors import ScriptError
from costgpu.measure.probe.record import ProbeRecord

MOST = 1e18  # of every number: seconds, bytes, FLOPs of a step, iterations
MOST_TEXT = 1_000_000  # characters of one text
SHOWN = 200


def check_record(record: object) -> None:
    """Check what the probe has written.

    Raises:
        ScriptError: It is not what a probe writes.
    """
    if where := _wrong(ProbeRecord, record, ""):
        raise ScriptError(
            f"What was measured cannot be read: {where[:SHOWN]}.",
            hint="Does the script write to costgpu's own files in the cache folder? Measure it again.",
        )


def _wrong(hint: Any, value: Any, where: str) -> str:
    """Return what is wrong with a value, and where; empty if nothing is."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or (hint is type(None) and value is None):
        return ""
    if origin in (typing.Union, types.UnionType):
        problems = [_wrong(one, value, where) for one in arguments]
        return "" if "" in problems else problems[0]
    if typing.is_typeddict(hint):
        return _wrong_object(hint, value, where)
    if origin is list:
        return _expected(list, value, where) or _first(
            _wrong(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(value)
        )
    if origin is tuple:
        if (problem := _expected(list | tuple, value, where)) or len(value) != len(arguments):
            return problem or f"{where} has {len(value)} parts instead of {len(arguments)}"
        pairs = zip(arguments, value, strict=True)
        return _first(_wrong(one, item, f"{where}[{index}]") for index, (one, item) in enumerate(pairs))
    if origin is dict:
        return _expected(dict, value, where) or _first(
            _wrong(arguments[1], item, f"{where}[{key!r}]") for key, item in value.items()
        )
    if hint in (int, float):
        number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MOST
        return "" if number else f"{where} is not a number"
    if hint is str and isinstance(value, str) and len(value) > MOST_TEXT:
        return f"{where} is too long"
    return _expected(hint, value, where)


def _wrong_object(hint: Any, value: Any, where: str) -> str:
    if problem := _expected(Mapping, value, where):
        return problem
    if missing := sorted(hint.__required_keys__ - set(value)):
        return f"{where}.{missing[0]} is missing"
    return _first(_wrong(one, value[key], f"{where}.{key}") for key, one in _hints(hint).items() if key in value)


@cache
def _hints(hint: Any) -> Mapping[str, Any]:
    return typing.get_type_hints(hint)


def _expected(kind: Any, value: Any, where: str) -> str:
    return "" if isinstance(value, kind) else f"{where or 'the record'} is of the type {type(value).__name__}"


def _first(problems: typing.Iterable[str]) -> str:
    return next(filter(None, problems), "")

"""The border to the probe: its record is held against `costgpu.measure.probe.record`. Behind it nothing looks again.

By hand, because the probe is standard library only, and pydantic takes no `typing.TypedDict` on Python 3.11.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable
from functools import cache
from typing import Any

from costgpu.errors import ScriptError
from costgpu.measure.probe.record import ProbeRecord

MOST = 1e18  # of every number: seconds, bytes, FLOPs of a step, iterations
SHOWN = 200
_hints = cache(typing.get_type_hints)


def check_record(record: object) -> None:
    """Check what the probe has written.

    Raises:
        ScriptError: It is not what a probe writes.
    """
    if problem := _problem(ProbeRecord, record, "the record"):
        raise ScriptError(
            f"What was measured cannot be read: {problem[:SHOWN]}.",
            hint="Does the script write to costgpu's own files in the cache folder? Measure it again.",
        )


def _problem(hint: Any, value: Any, where: str) -> str:
    """Return what is wrong with a value, and where; empty if nothing is."""
    origin, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin is Any:
        return ""
    if origin in (typing.Union, types.UnionType):
        problems = [_problem(one, value, where) for one in arguments]
        return "" if "" in problems else problems[0]
    if origin in (int, float):
        number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MOST
        return "" if number else f"{where} is not a number"
    kind: Any = dict if typing.is_typeddict(origin) else list if origin is tuple else origin
    if not isinstance(value, kind):
        return f"{where} is of the type {type(value).__name__}"
    parts: Iterable[tuple[Any, Any, Any]] = ()  # hint, name and value of each
    if typing.is_typeddict(origin):
        if missing := sorted(origin.__required_keys__ - set(value)):
            return f"{where}.{missing[0]} is missing"
        parts = ((one, key, value[key]) for key, one in _hints(origin).items() if key in value)
    elif origin is dict:
        parts = ((arguments[1], key, item) for key, item in value.items())
    elif origin is list:
        parts = ((arguments[0], index, item) for index, item in enumerate(value))
    elif origin is tuple:
        if len(value) != len(arguments):
            return f"{where} has {len(value)} parts instead of {len(arguments)}"
        parts = zip(arguments, range(len(value)), value, strict=True)
    return next(filter(None, (_problem(one, item, f"{where}.{name}") for one, name, item in parts)), "")

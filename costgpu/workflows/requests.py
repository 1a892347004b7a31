"""Requests made from the options of a command, or from the arguments of the Python interface."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from costgpu.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Request = TypeVar("Request", bound=DataclassInstance)

MAY_BE_EMPTY = frozenset({"--setup"})  # no set-up at all


def refuse_empty(option: str) -> None:
    """Refuse an option with an empty value: what it limits would not be limited.

    Raises:
        UsageError: Unless nothing is a value of this option.
    """
    if option not in MAY_BE_EMPTY:
        raise UsageError(
            f"{option} is empty.", hint="Give it a value, or leave it out; a variable of the shell may not be set."
        )


def request_of(kind: type[Request], arguments: Mapping[str, Any], **more: Any) -> Request:
    """Return a request with the arguments that have the names of its fields; None leaves a field as it is by default.

    Args:
        kind: Its fields are texts, numbers, switches or tuples of texts.
        arguments: As the caller got them, `locals()`. What a field has as a text may be a path, a number or an amount, or a
            list of which any will do; what it has as a tuple may be one text, a list, or a mapping: ``key=value``.
        more: Those that have another name there.
    """
    given = {**arguments, **more}
    found = {
        field.name: _as_field(given[field.name], str(field.type))
        for field in fields(kind)
        if given.get(field.name) is not None
    }
    for name, value in found.items():
        if value == "":
            refuse_empty(f"--{name.replace('_', '-')}")
    return kind(**found)


def _as_field(value: Any, kind: str) -> Any:
    if kind.startswith("tuple"):
        if isinstance(value, Mapping):
            return tuple(f"{key}={text}" for key, text in value.items())
        return (value,) if isinstance(value, str) else tuple(value)
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if kind.startswith("str") and not isinstance(value, str):
        return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    return value

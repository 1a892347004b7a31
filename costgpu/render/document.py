"""The versioned JSON documents that `--json` prints."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

from costgpu.units import shown_currency

VERSION = 1


def document(schema: str, **parts: Any) -> str:
    """One JSON document: `schema` (``costgpu.plan``), `version`, and the parts as `json_value` has them."""
    chosen = shown_currency()
    currency = {} if chosen is None else {"currency": json_value(chosen)}
    return json.dumps({"schema": schema, "version": VERSION, **currency, **json_object(parts)}, indent=2)


def json_object(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of a document."""
    return {key: json_value(value) for key, value in parts.items()}


def picked(value: object, *names: str) -> dict[str, Any]:
    """Return the attributes of a value as parts of a document."""
    return {name: getattr(value, name) for name in names}


def json_value(value: Any) -> Any:
    """Dataclasses as objects, enums as their values, amounts of money as strings, times in UTC, infinity as null."""
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: json_value(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(json_value(key)): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

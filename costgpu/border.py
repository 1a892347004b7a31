"""The border between values of our types and JSON, which other programs and versions of costgpu read and have written.

Nothing behind it looks again. Imports `units`, and pydantic only when a value comes (0.1 s).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from costgpu.units import FIRST_YEAR, LAST_YEAR

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator

T = TypeVar("T")

# Not pydantic's own strict modes: the one for JSON refuses lone surrogates, which names of files may hold, and the one
# for Python objects takes no texts for times and enums. The bounds are of what can be counted with.
_LIMITS: dict[str, dict[str, object]] = {
    "bool": {"strict": True},
    "int": {"strict": True, "ge": -(2**63), "lt": 2**63},
    "float": {"strict": True, "ge": -1e18, "le": 1e18},
    "decimal": {"ge": Decimal(-(10**18)), "le": Decimal(10**18)},
    "str": {"strict": True},
    "datetime": {
        "tz_constraint": "aware",
        "ge": datetime(FIRST_YEAR, 1, 1, tzinfo=UTC),
        "lt": datetime(LAST_YEAR + 1, 1, 1, tzinfo=UTC),
    },
}


def to_json(value: Any, *, money: Callable[[Decimal], str] = str, beyond: Callable[[float], str | None] = str) -> Any:
    """Return the JSON value of a dataclass, or of anything that one may hold.

    Money and times become strings (aware times in UTC), enums their values, tuples lists.

    Args:
        money: Writes an amount.
        beyond: Writes a float that JSON does not know; ``"inf"``, ``"-inf"`` or ``"nan"`` by default.

    Raises:
        TypeError: There is no JSON value for it, or a dataclass has a field with ``repr=False``: such fields hold
            secrets, and secrets are neither stored nor shown.
    """
    if isinstance(value, Enum):
        return to_json(value.value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else beyond(value)
    if isinstance(value, Decimal):
        return money(value)
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    within = partial(to_json, money=money, beyond=beyond)
    if isinstance(value, Mapping):
        return {_key(key): within(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [within(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            if not field.repr:
                raise TypeError(f"{type(value).__name__}.{field.name} holds a secret and is not stored.")
        return {field.name: within(getattr(value, field.name)) for field in dataclasses.fields(value)}
    raise TypeError(f"A value of type {type(value).__name__} has no JSON value.")


def _key(key: Any) -> str:
    plain = key.value if isinstance(key, Enum) else key
    if not isinstance(plain, str):
        raise TypeError(f"A key of type {type(key).__name__} has no JSON value.")
    return plain


def read(kind: type[T], data: object, error: Callable[[str], Exception]) -> T:
    """Return a JSON value as one of a dataclass, or of what a field of one may hold.

    Unknown keys are ignored and missing ones take the field's default, so that other versions can be read.

    Args:
        kind: The type.
        data: As `json` gives it.
        error: Makes an error of what is wrong, and where.

    Raises:
        Exception: That error: a key without a default is missing, or a value is not what its field holds.
    """
    from pydantic_core import ValidationError  # noqa: PLC0415

    try:
        return cast("T", _validator(cast("Any", kind)).validate_python(data))
    except ValidationError as problems:
        first = problems.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise error(f"{where}: {first['msg']}" if where else first["msg"]) from problems


@cache
def _validator(kind: Any) -> SchemaValidator:
    from pydantic import TypeAdapter  # noqa: PLC0415
    from pydantic_core import SchemaValidator  # noqa: PLC0415

    return SchemaValidator(_limited(TypeAdapter(kind).core_schema))


def _limited(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_limited(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _limited(value) for key, value in schema.items()} | _LIMITS.get(str(schema.get("type")), {})

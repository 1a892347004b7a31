"""The border to JSON that other programs have written, or other versions of costgpu: it becomes values of our types here.

Nothing behind it looks again. Imports `units`, and pydantic only when a value comes (0.1 s).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
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

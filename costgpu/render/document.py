"""The versioned JSON documents that `--json` prints."""

from __future__ import annotations

import json
from typing import Any

from costgpu.border import to_json
from costgpu.units import shown_currency

VERSION = 1


def document(schema: str, **parts: Any) -> str:
    """One JSON document: `schema` (``costgpu.plan``), `version`, and the parts as `json_value` has them."""
    chosen = shown_currency()
    currency = {} if chosen is None else {"currency": chosen}
    return json.dumps(json_value({"schema": schema, "version": VERSION, **currency, **parts}), indent=2)


def picked(value: object, *names: str) -> dict[str, Any]:
    """Return the attributes of a value as parts of a document."""
    return {name: getattr(value, name) for name in names}


def json_value(value: Any) -> Any:
    """Return a value as a document has it: amounts without exponents, infinity as null."""
    return to_json(value, money="{:f}".format, beyond=lambda _: None)

"""What Google's own description of ``compute.v1`` says of requests and answers: fields, types, enumerations, patterns.

The description is the one that google-api-python-client ships; only the file is read, its client is not imported. The
words are those of `wire.invalid`: what the real API says of a breach differs from field to field.
"""

import functools
import importlib.resources
import json
import re
from collections.abc import Mapping
from typing import Any

from tests.emulators.compute_engine.wire import GoogleError, invalid
from tests.emulators.wire import ApiCall

_FILE = "discovery_cache/documents/compute.v1.json"
_KNOWN_BY = {"name", "family", "body"}
"""What our paths call the resource, whatever Google calls it, and the body."""
_OF_ALL_SCOPES = {"operations.aggregatedList": "globalOperations.aggregatedList"}
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
    "any": (object,),
}
_BITS = {"int32": (-(2**31), 2**31), "uint32": (0, 2**32), "int64": (-(2**63), 2**63), "uint64": (0, 2**64)}
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")


@functools.cache
def document() -> Mapping[str, Any]:
    """Google's description of the whole API, read once."""
    text = importlib.resources.files("googleapiclient").joinpath(_FILE).read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


def check(call: ApiCall) -> None:
    """Refuses a request to Compute Engine that its description does not allow.

    Raises:
        GoogleError: A parameter or a field is unknown, missing, or has an impossible value.
    """
    method = _method(call.action)
    if not method:  # of another API, or no method at all
        return
    parameters = {**document()["parameters"], **method["parameters"]}
    for name, value in call.params.items():
        if name in parameters:
            as_json = {"true": True, "false": False}.get(value, value) if name != "filter" else value
            check_value(parameters[name], as_json, name)
        elif name not in _KNOWN_BY:
            raise _unknown(
                name, f": Cannot bind query parameter. Field '{name}' could not be found in request message."
            )
    if "request" in method:
        check_value(method["request"], call.params["body"], "resource", method["id"])


def check_answer(action: str, answer: Any) -> None:
    """Raises `GoogleError` for what the description of that method does not have in its answers."""
    check_value(_method(action)["response"], answer, action)


def _method(action: str) -> Mapping[str, Any]:
    collection, _, verb = _OF_ALL_SCOPES.get(action, action).partition(".")
    found: Mapping[str, Any] = document()["resources"].get(collection, {}).get("methods", {}).get(verb, {})
    return found


def check_value(schema: Mapping[str, Any], value: Any, field: str, method: str = "") -> None:
    """One value, with all that is in it.

    Args:
        field: Its place: ``resource.disks[0].boot``.
        method: What it is sent to, such as ``compute.instances.insert``, which decides what is required; empty if
            nothing is.

    Raises:
        GoogleError: The value is not as the schema says.
    """
    if "$ref" in schema:
        schema = document()["schemas"][schema["$ref"]]
    kind, form = schema["type"], schema.get("format", "")
    if not _has_type(value, kind, form):
        raise invalid(field, value, f"Must be of the type {form or kind}.")
    if kind == "array":
        for number, each in enumerate(value):  # a pattern beside `items` is about each of them
            one = {**schema["items"], **{key: schema[key] for key in ("pattern", "enum") if key in schema}}
            check_value(one, each, f"{field}[{number}]", method)
    elif kind == "object":
        _check_fields(schema, value, field, method)
    elif "enum" in schema and value not in schema["enum"]:
        raise invalid(field, value, "The value is not one of the enumeration.")
    elif "pattern" in schema and not re.fullmatch(schema["pattern"], value):
        raise invalid(field, value, f"Must be a match of regex '{schema['pattern']}'")


def _check_fields(schema: Mapping[str, Any], value: Mapping[str, Any], field: str, method: str) -> None:
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name, each in value.items():
        if name not in known and others is None:
            raise _unknown(name, f" at '{field}': Cannot find field.")
        if each is not None:
            check_value(known.get(name, others), each, f"{field}.{name}", method)
    for name, each in known.items():
        if method in each.get("annotations", {}).get("required", ()) and value.get(name) is None:
            raise GoogleError(400, "required", f"Required field '{field}.{name}' not specified")


def _has_type(value: Any, kind: str, form: str) -> bool:
    """Numbers of 64 bits are text in JSON; the API takes every whole number either way."""
    if form in _BITS:
        low, high = _BITS[form]
        whole = isinstance(value, int) or (isinstance(value, str) and re.fullmatch(r"-?[0-9]+", value) is not None)
        return whole and not isinstance(value, bool) and low <= int(value) < high
    if isinstance(value, bool):
        return kind in ("boolean", "any")
    return isinstance(value, _TYPES[kind]) and (form != "byte" or _BASE64.fullmatch(str(value)) is not None)


def _unknown(name: str, why: str) -> GoogleError:
    text = f'Invalid JSON payload received. Unknown name "{name}"{why}'
    return GoogleError(400, "invalid", text, status="INVALID_ARGUMENT")

"""One request to the Compute Engine API, and the documents with which Google says no.

Shapes: cloud.google.com/apis/design/errors, .../compute/docs/api/troubleshooting and documents that users have posted
(2026-11).
"""

import json
import re
import urllib.parse
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tests.emulators.wire import ApiCall, Reply

HOST = "https://www.googleapis.com/compute/v1"
PROJECT_NUMBER = "847361209845"
_CANONICAL = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
_PATH = re.compile(r"/compute/v1/projects/(?P<project>[^/]+)(?:/(?P<rest>.*))?$")
_RESOURCE_MANAGER = re.compile(r"/v1/projects/([^/:]+):(testIamPermissions|getEffectiveOrgPolicy)$")
"""Of Cloud Resource Manager, which has a host of its own at Google's."""
_VERB = {"GET": "get", "DELETE": "delete", "PATCH": "patch", "PUT": "update"}


class GoogleError(Exception):
    """A refusal: what the API answers instead."""

    def __init__(self, code: int, reason: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.more = code, reason, message, more

    def reply(self) -> Reply:
        first = {"message": self.message, "domain": self.more.get("domain", "global"), "reason": self.reason}
        if "help" in self.more:
            first["extendedHelp"] = self.more["help"]
        error: dict[str, Any] = {"code": self.code, "message": self.message, "errors": [first]}
        if self.more.get("details") or self.more.get("status"):
            error["status"] = self.more.get("status") or _CANONICAL.get(self.code, "UNKNOWN")
        if self.more.get("details"):
            error["details"] = self.more["details"]
        return answer({"error": error}, self.code)


def answer(document: Mapping[str, Any], code: int = 200) -> Reply:
    body = json.dumps(document, indent=2, ensure_ascii=False).encode()
    headers = [("Content-Type", "application/json; charset=UTF-8"), ("Server", "ESF")]
    return Reply(f"{code} {HTTPStatus(code).phrase}", headers, body)


def invalid(field: str, value: object, why: str) -> GoogleError:
    """400 for a value."""
    text = "true" if value is True else "false" if value is False else str(value)
    return GoogleError(400, "invalid", f"Invalid value for field '{field}': '{text}'. {why}")


def not_found(path: str) -> GoogleError:
    """404; `path` begins with ``projects/``."""
    return GoogleError(404, "notFound", f"The resource '{path}' was not found")


def exists(path: str) -> GoogleError:
    return GoogleError(409, "alreadyExists", f"The resource '{path}' already exists")


def permission(name: str, path: str) -> GoogleError:
    """403 for somebody without a permission."""
    return GoogleError(403, "forbidden", f"Required '{name}' permission for '{path}'")


NAMED: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).parents[1].joinpath("data/compute_engine_refusals.json").read_text()
)
"""Refusals that a fault can name as its code."""


def refusal(call: ApiCall, code: str, message: str, status: int | None = None) -> Reply:
    """What a fault answers: one of `NAMED`, or a plain document with that reason."""
    if code in NAMED:
        return GoogleError(**NAMED[code]).reply()
    return GoogleError(status or (503 if code == "backendError" else 400), code, message).reply()


def parse(environ: Mapping[str, Any], body: bytes) -> ApiCall:
    """Reads the request out of a WSGI environment; its action is empty if there is no such method.

    Parameters are those of the path, the query and the body; scripts in the metadata are left out. The access key is
    the host that was asked: callers on this machine are told apart by the loopback address that they use.
    """
    query = dict(urllib.parse.parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True))
    query = {name: value for name, value in query.items() if not name.startswith("$")}
    method, path = environ["REQUEST_METHOD"], urllib.parse.unquote(environ["PATH_INFO"])
    found, asked = _PATH.match(path), _RESOURCE_MANAGER.match(path)
    if asked and method == "POST":
        return ApiCall(
            service="cloudresourcemanager",
            action=f"projects.{asked[2]}",
            region="",
            access_key=environ.get("HTTP_HOST", "").rpartition(":")[0],
            params={"project": asked[1], "body": json.loads(body)},
            method=method,
            path=path,
        )
    place, action = _route(method, (found["rest"] or "").split("/") if found["rest"] else []) if found else ({}, "")
    project = {"project": found["project"]} if found else {}
    document = json.loads(body) if body else {}
    if not isinstance(document, dict):
        raise GoogleError(400, "parseError", "Invalid JSON payload received.")
    return ApiCall(
        service="compute",
        action=action,
        region=place.get("zone") or place.get("region", ""),
        access_key=environ.get("HTTP_HOST", "").rpartition(":")[0],
        params={**query, **place, **project, "body": document},
        method=method,
        path=path,
    )


def _route(method: str, parts: list[str]) -> tuple[dict[str, str], str]:
    """The places named in a path below the project, and the method: ``instances.insert``."""
    place: dict[str, str] = {}
    scope = ""
    if not parts:
        return place, "projects.get" if method == "GET" else ""
    if parts[0] in ("zones", "regions") and len(parts) > 2:
        scope = parts[0][:-1]
        place[scope], parts = parts[1], parts[2:]
    elif parts[0] == "aggregated" and len(parts) == 2 and method == "GET":
        return place, f"{parts[1]}.aggregatedList"
    elif parts[0] == "global":
        scope, parts = "global", parts[1:]
    collection, rest = parts[0], parts[1:]
    if collection == "operations":
        collection = f"{scope}Operations"
    if not rest:
        return place, f"{collection}.{'list' if method == 'GET' else 'insert' if method == 'POST' else ''}"
    if collection == "images" and rest[0] == "family" and len(rest) == 2:
        return {**place, "family": rest[1]}, "images.getFromFamily"
    place["name"] = rest[0]
    if len(rest) == 1:
        return place, f"{collection}.{_VERB.get(method, '')}"
    verb = {"serialPort": "getSerialPortOutput"}.get(rest[1], rest[1])
    return place, f"{collection}.{verb}"


def _is_script(key: str) -> bool:
    return "script" in key or key == "user-data"


def recorded(call: ApiCall) -> dict[str, Any]:
    """Its parameters as tests may see them: no keys, no scripts."""
    body = dict(call.params["body"])
    if "metadata" in body:
        items = [
            {
                **each,
                "value": f"<{len(each.get('value', ''))} characters>" if _is_script(each["key"]) else each.get("value"),
            }
            for each in body["metadata"].get("items", [])
        ]
        body["metadata"] = {**body["metadata"], "items": items}
    return {**call.params, "body": body}

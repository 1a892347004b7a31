"""The door to Google's client libraries: imported on first use (2-3 s), and untyped from here on."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Any


@functools.cache
def compute() -> Any:
    """``google.cloud.compute_v1``."""
    return importlib.import_module("google.cloud.compute_v1")


@functools.cache
def auth() -> Any:
    """``google.auth``."""
    return importlib.import_module("google.auth")


def anonymous() -> Any:
    """Credentials for a server that asks for none."""
    return importlib.import_module("google.auth.credentials").AnonymousCredentials()


def session(credentials: Any) -> Any:
    """An HTTP session that signs in with them; for what has no client among the compute ones."""
    return importlib.import_module("google.auth.transport.requests").AuthorizedSession(credentials)


def unsigned(url: str, seconds: float) -> Any | None:
    """The HTTP response to somebody who has not signed in, a refusal included; None if there is none."""
    requests = importlib.import_module("requests")
    try:
        return requests.get(url, timeout=seconds, allow_redirects=False)
    except requests.RequestException:
        return None


def document(response: Any) -> Mapping[str, Any]:
    """The JSON of an answer; empty if it is none."""
    try:
        found = response.json()
    except ValueError:
        return {}
    return found if isinstance(found, Mapping) else {}


def refusal(response: Any) -> Any:
    """What the client libraries would raise for an HTTP answer."""
    return api_errors().from_http_response(response)


@functools.cache
def api_errors() -> Any:
    """``google.api_core.exceptions``."""
    return importlib.import_module("google.api_core.exceptions")


@functools.cache
def auth_errors() -> Any:
    """``google.auth.exceptions``."""
    return importlib.import_module("google.auth.exceptions")


@functools.cache
def foreign() -> tuple[type[Exception], ...]:
    """Everything that a call through the client raises: refusals, failures on the way, answers that make no sense."""
    requests = importlib.import_module("requests.exceptions")
    parsing = importlib.import_module("google.protobuf.json_format")
    return (api_errors().GoogleAPIError, auth_errors().GoogleAuthError, requests.RequestException, parsing.Error)


def reasons_of(exc: Any) -> frozenset[str]:
    """Google's own names of an error, of every kind that one answer can carry; empty for what is no answer of Google.

    Such as ``notFound`` (of Compute Engine) and ``SERVICE_DISABLED`` (of what stands before it).
    """
    rows = getattr(exc, "errors", None)
    found = (
        {str(row.get("reason", "")) for row in rows if isinstance(row, Mapping)} if isinstance(rows, list) else set()
    )
    return frozenset({*found, str(getattr(exc, "reason", "") or "")} - {""})


def status_of(exc: Any) -> int:
    """The HTTP status of a refusal; 0 for what is no answer of Google."""
    code = getattr(exc, "code", None)
    return int(code) if isinstance(code, int) else 0


def is_missing(exc: Any) -> bool:
    """Whether Google says that it does not know what was named."""
    return status_of(exc) == 404

"""What Google raises, in costgpu's words; without a network. The documents are those of Google's documentation."""

import inspect
import json
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from costgpu.errors import AuthError, CostGpuError, ProviderError, Unreachable
from costgpu.providers.gcp import sdk
from costgpu.providers.gcp.sdk import refusal_of, translate

api, auth = sdk.api_errors(), sdk.auth_errors()
ParseError = sdk.foreign()[3]

URL = "https://compute.googleapis.com/compute/v1/projects/research-42/zones/us-central1-a/instances"
INFO = "type.googleapis.com/google.rpc.ErrorInfo"


def answer(status: int, message: str, reason: str = "", *, info: dict[str, Any] | None = None) -> Exception:
    """As the client raises it for an HTTP answer."""
    row = [{"message": message, "domain": "global", "reason": reason}] if reason else []
    error: dict[str, Any] = {"code": status, "message": message, "errors": row}
    if info:
        error["details"] = [{"@type": INFO, **info}]
    reply = requests.Response()
    reply.status_code, reply._content = status, json.dumps({"error": error}).encode()
    reply.headers["Content-Type"] = "application/json"
    reply.request = requests.Request("POST", URL).prepare()
    made: Exception = api.from_http_response(reply)
    return made


LOGIN = "auth application-default login"


@pytest.mark.parametrize(
    ("error", "kind", "says", "hint"),
    [
        (requests.ConnectionError("refused"), Unreachable, "refused", "network"),
        (requests.ReadTimeout("timed out"), Unreachable, "timed out", "network"),
        (ParseError("not JSON"), Unreachable, "not JSON", "network"),
        (auth.DefaultCredentialsError("None were found."), AuthError, "None were", f"gcloud {LOGIN}"),
        (auth.RefreshError("Reauthentication is needed."), AuthError, "Reauthentication", LOGIN),
        (auth.RefreshError("unavailable", retryable=True), Unreachable, "unavailable", "network"),
        (auth.TransportError("oauth2.googleapis.com: no route"), Unreachable, "no route", "network"),
        (ValueError("odd"), ProviderError, "ValueError: odd", ""),
    ],
)
def test_what_never_reached_google(error: Exception, kind: type[ProviderError], says: str, hint: str) -> None:
    check(error, kind, says, hint)


def check(error: Exception, kind: type[ProviderError], says: str, hint: str) -> None:
    found = translate(error, "create a g2-standard-4 in us-central1-a", project="research-42")
    assert type(found) is kind
    assert says in found.message
    assert "http" not in found.message or "console" in found.message
    assert hint in found.hint


def test_an_operation_that_went_well_says_nothing() -> None:
    assert refusal_of(sdk.compute().Operation({"name": "o", "status": "DONE"})) is None


@given(st.integers(400, 599), st.text(max_size=40), st.text(max_size=15))
def test_every_answer_has_a_translation(status: int, message: str, reason: str) -> None:
    found = translate(answer(status, message, reason), "do it")
    assert isinstance(found, ProviderError)
    assert found.message


def test_no_class_of_googles_is_unknown_to_the_translation() -> None:
    for module in (api, auth):
        for _, cls in inspect.getmembers(module, inspect.isclass):
            if issubclass(cls, sdk.foreign()):
                made = cls.__new__(cls)
                made.args = ("words",)
                facts: dict[str, Any] = {"message": "words", "_errors": [], "_details": []}
                for key in ("_error_info", "_retryable", "_cause"):
                    facts[key] = None
                for key, value in facts.items():
                    setattr(made, key, value)
                assert isinstance(translate(made, "do it"), CostGpuError)


def test_reasons_of_what_is_no_answer() -> None:
    assert sdk.reasons_of(SimpleNamespace()) == frozenset()
    assert sdk.status_of(ValueError()) == 0
    assert not sdk.is_missing(None)


def test_a_project_that_is_not_there_is_no_missing_machine() -> None:
    for project in ("The resource 'projects/research-42' was not found", "Failed to find project research-42"):
        assert not sdk.is_missing(answer(404, project, "notFound"))
    machine = "The resource 'projects/research-42/zones/us-central1-a/instances/x' was not found"
    assert sdk.is_missing(answer(404, machine, "notFound"))
    assert sdk.is_missing(answer(404, "Not Found"))
    assert sdk.is_missing(answer(404, "Not found: projects/research-42/zones/us-central1-a/instances/x"))

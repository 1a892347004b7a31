"""What Google raises, in costgpu's words; without a network. The documents are those of Google's documentation."""

import inspect
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from costgpu import errors
from costgpu.errors import (
    AuthError,
    CostGpuError,
    InvalidRequest,
    NoCapacity,
    ProviderError,
    QuotaExceeded,
    Throttled,
    Unreachable,
)
from costgpu.providers.gcp import sdk
from costgpu.providers.gcp.sdk import refusal_of, refused, translate

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


def operation(code: str, message: str, status: int = 0) -> Any:
    """A finished operation that failed."""
    failure = {"http_error_status_code": status, "error": {"errors": [{"code": code, "message": message}]}}
    return sdk.compute().Operation({"name": "operation-1", "status": "DONE", "operation_type": "insert", **failure})


NO_ROOM = (
    "The zone 'projects/research-42/zones/us-central1-a' does not have enough resources available to fulfill the request."
    "  Try a different zone, or try again later."
)
DENIED = "Required 'compute.instances.create' permission for 'projects/research-42/zones/us-central1-a/instances/x'"
REFUSALS = json.loads((Path(__file__).parent / "gcp_refusals.json").read_text())
LOGIN = "auth application-default login"
ADDRESS = "Constraint constraints/compute.vmExternalIpAccess violated for project 123456789012."


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal["says"])
def test_each_refusal_has_its_class_and_the_line_that_mends_it(refusal: dict[str, Any]) -> None:
    said = answer(refusal["status"], refusal["message"], refusal["reason"], info=refusal.get("info"))
    check(said, getattr(errors, refusal["kind"]), refusal["says"], refusal["hint"])


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


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        ("ZONE_RESOURCE_POOL_EXHAUSTED", NO_ROOM, NoCapacity),
        ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", NO_ROOM + " '(resource type:compute)'.", NoCapacity),
        ("STOCKOUT", "none", NoCapacity),
        ("QUOTA_EXCEEDED", "Quota 'NVIDIA_L4_GPUS' exceeded.  Limit: 1.0 in region us-central1.", QuotaExceeded),
        ("QUOTA_EXCEEDED", "Quota 'GPUS_ALL_REGIONS' exceeded.  Limit: 0.0 globally.", QuotaExceeded),
        ("RESOURCE_OPERATION_RATE_EXCEEDED", "too often", Throttled),
        ("PERMISSIONS_ERROR", DENIED, AuthError),
        ("RESOURCE_NOT_FOUND", "The resource 'x' was not found", InvalidRequest),
        ("UNSUPPORTED_OPERATION", "It was preempted while it was made", InvalidRequest),
        ("CONDITION_NOT_MET", ADDRESS, InvalidRequest),
        ("INTERNAL_ERROR", "Internal error. Please try again.", ProviderError),
        ("NEVER_HEARD_OF", "what", ProviderError),
    ],
)
def test_what_an_operation_says_after_it_was_accepted(code: str, message: str, kind: type[ProviderError]) -> None:
    said = refusal_of(operation(code, message, 403))
    assert said is not None
    found = refused(said, "create a machine", project="research-42")
    assert type(found) is kind
    assert code in found.message or (kind is AuthError and "compute.instances.create is not allowed" in found.message)
    if kind is QuotaExceeded:
        assert message.split("'")[1] in found.hint
        assert "research-42" in found.hint


def test_an_operation_that_went_well_says_nothing() -> None:
    assert refusal_of(sdk.compute().Operation({"name": "o", "status": "DONE"})) is None
    failed = sdk.compute().Operation(
        {"name": "o", "http_error_status_code": 503, "http_error_message": "SERVICE UNAVAILABLE"}
    )
    said = refusal_of(failed)
    assert said is not None
    assert type(refused(said, "x")) is Unreachable


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

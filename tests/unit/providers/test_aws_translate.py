"""What botocore raises, in costgpu's words; without a network."""

import inspect
import json
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from costgpu.providers.aws import sdk
from costgpu.providers.aws.sdk import denied_action, translate

foreign = sdk.exceptions()
ResponseParserError = sdk.foreign()[2]


def refusal(code: str, message: str = "because", status: int = 400) -> Any:
    response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return foreign.ClientError(response, "RunInstances")


@given(st.text(string.ascii_letters + ".", min_size=1), st.integers(400, 499), st.text(max_size=50))
def test_only_known_codes_are_no_capacity_and_nothing_raises(code: str, status: int, message: str) -> None:
    error = translate(refusal(code, message, status), "create")
    assert isinstance(error, ProviderError)
    assert not isinstance(error, NoCapacity)


def sample(kind: type[Exception]) -> Exception:
    """An instance of a botocore exception, with something for each field of its message."""
    names = [field for _, field, _, _ in string.Formatter().parse(getattr(kind, "fmt", "")) if field]
    values: dict[str, Any] = {name.split(".")[0].split("[")[0]: "something" for name in names}
    return kind(**values)


SPECIAL = (foreign.ClientError, foreign.WaiterError)
KINDS = [
    kind
    for _, kind in inspect.getmembers(foreign, inspect.isclass)
    if issubclass(kind, foreign.BotoCoreError) and kind not in SPECIAL
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_exception_of_botocore_is_translated(kind: type[Exception]) -> None:
    error = translate(sample(kind), "describe i-1")
    assert isinstance(error, ProviderError)
    assert error.message
    assert not isinstance(error, NoCapacity | QuotaExceeded | Throttled)


@pytest.mark.parametrize(
    ("exc", "kind"),
    [
        (foreign.NoCredentialsError(), AuthError),
        (foreign.PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"), AuthError),
        (foreign.ProfileNotFound(profile="reserch"), AuthError),
        (foreign.UnauthorizedSSOTokenError(), AuthError),
        (foreign.SSOTokenLoadError(error_msg="no token"), AuthError),
        (foreign.TokenRetrievalError(provider="sso", error_msg="expired"), AuthError),
        (foreign.CredentialRetrievalError(provider="custom", error_msg="exit 1"), AuthError),
        (foreign.EndpointConnectionError(endpoint_url="https://x"), Unreachable),
        (foreign.ConnectTimeoutError(endpoint_url="https://x"), Unreachable),
        (foreign.ReadTimeoutError(endpoint_url="https://x"), Unreachable),
        (foreign.ConnectionClosedError(endpoint_url="https://x"), Unreachable),
        (foreign.SSLError(endpoint_url="https://x", error="bad"), Unreachable),
        (ResponseParserError("a login page of the hotel"), Unreachable),
        (foreign.ParamValidationError(report="Invalid type"), InvalidRequest),
        (foreign.InvalidRegionError(region_name="a b"), InvalidRequest),
        (foreign.UnknownServiceError(service_name="x", known_service_names="y"), ProviderError),
    ],
)
def test_what_never_reached_aws(exc: Exception, kind: type[CostGpuError]) -> None:
    assert type(translate(exc, "create")) is kind
    assert isinstance(exc, sdk.foreign())


def test_a_missing_permission_is_named_from_the_words_the_decoded_message_or_the_call() -> None:
    plain = "User: arn:aws:iam::1:user/a is not authorized to perform: ec2:RunInstances on resource: x"
    assert "ec2:RunInstances is not allowed" in translate(refusal("UnauthorizedOperation", plain), "create").message
    text = "You are not authorized to perform this operation. Encoded authorization failure message: 4mBe9tQ"
    decoded = translate(refusal("UnauthorizedOperation", text), "create", decode=lambda _: "ec2:CreateTags")
    assert "ec2:CreateTags is not allowed" in decoded.message
    assert "4mBe9tQ" not in decoded.message
    assert "ec2:CreateTags" in decoded.hint
    for decode in (None, lambda _: None):
        unread = translate(refusal("UnauthorizedOperation", text), "create", decode=decode)
        assert "RunInstances is not allowed" in unread.message


def test_the_action_in_a_decoded_message() -> None:
    document = {"allowed": False, "context": {"principal": {"id": "A"}, "action": "ec2:RunInstances"}}
    assert denied_action(json.dumps(document)) == "ec2:RunInstances"
    for nonsense in ("", "null", "[]", "{}", '{"context": 3}', '{"context": {"action": ""}}'):
        assert denied_action(nonsense) is None

"""boto3 and botocore: imported on first use (0.3 s), untyped from here on; and their exceptions in costgpu's words.

What matters is which errors are *certain*: every class but `Unreachable` means that the provider has answered and has
refused. An error that is not known by name stays a plain `ProviderError`; it is never called "no capacity".
"""

from __future__ import annotations

import functools
import importlib
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from costgpu.errors import (
    AuthError,
    InvalidRequest,
    NoCapacity,
    ProviderError,
    QuotaExceeded,
    Throttled,
    Unreachable,
)

Decoder = Callable[[str], str | None]

VCPU_QUOTA = frozenset({"VcpuLimitExceeded", "MaxSpotInstanceCountExceeded", "InstanceLimitExceeded"})
ANOTHER_ZONE = re.compile(r"not supported in your requested Availability Zone|not supported in .*zone", re.IGNORECASE)
_PERFORM = re.compile(r"not authorized to perform: (\S+)")
_ENCODED = re.compile(r"Encoded authorization failure message: (\S+)")
_LOGIN = "Sign in again (aws sso login --profile NAME, or aws configure), then repeat the command."


@functools.cache
def boto3() -> Any:
    """The package."""
    return importlib.import_module("boto3")


@functools.cache
def exceptions() -> Any:
    """``botocore.exceptions``."""
    return importlib.import_module("botocore.exceptions")


@functools.cache
def foreign() -> tuple[type[Exception], ...]:
    """Everything that a call through botocore raises: refusals, failures on the way, answers that make no sense."""
    parsers = importlib.import_module("botocore.parsers")
    return (exceptions().ClientError, exceptions().BotoCoreError, parsers.ResponseParserError)


def config(**settings: Any) -> Any:
    """A ``botocore.config.Config``."""
    return importlib.import_module("botocore.config").Config(**settings)


def code_of(exc: Any) -> str:
    """AWS's own name of an error, such as ``InvalidInstanceID.NotFound``; empty for what is no answer of AWS."""
    response = getattr(exc, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


@functools.cache
def codes() -> dict[str, frozenset[str]]:
    """Names of errors by what they mean."""
    document = tomllib.loads(Path(__file__).with_name("error_codes.toml").read_text(encoding="utf-8"))
    return {meaning: frozenset(names) for meaning, names in document.items()}


def translate(exc: Exception, doing: str, *, decode: Decoder | None = None) -> ProviderError:
    """The error to raise ``from exc``.

    Args:
        decode: Turns an encoded authorization message into the action that is missing, if that is allowed.
    """
    kinds, known = {cls.__name__ for cls in type(exc).__mro__}, codes()
    if "ClientError" in kinds:
        return _refused(exc, doing, decode)
    if kinds & known["credentials"]:
        return _no_credentials(exc, doing, kinds)
    if kinds & known["unanswered"]:
        reason = " ".join(str(exc).split())
        return Unreachable(
            f"No answer from AWS to the request to {doing}: {reason}", hint="Check the network, or wait."
        )
    if kinds & {"ParamValidationError", "InvalidRegionError", "ValidationError"}:
        return InvalidRequest(f"Not a request that AWS has, to {doing}: {' '.join(str(exc).split())}")
    return ProviderError(f"Could not {doing}: {type(exc).__name__}: {exc}")


def _refused(exc: Any, doing: str, decode: Decoder | None) -> ProviderError:
    code, known = code_of(exc), codes()
    text = " ".join(str(exc.response.get("Error", {}).get("Message", "")).split())
    status = int(exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) or 0)
    said = f"Could not {doing}: {code}: {text}".rstrip(": ")
    if code in known["expired"]:
        return AuthError(f"The AWS credentials have expired, or this machine's clock is wrong ({said}).", hint=_LOGIN)
    if code in known["bad_key"]:
        return AuthError(
            f"AWS does not accept these credentials ({said}).",
            hint="Check the access key and AWS_PROFILE; a region that is not enabled in the account answers the same.",
        )
    if code in known["denied"]:
        return _denied(exc, doing, text, decode)
    if code in known["account"]:
        return AuthError(f"The AWS account cannot be used for this ({said}).", hint="AWS Support can tell why.")
    if code in known["no_capacity"] or (code == "Unsupported" and ANOTHER_ZONE.search(text)):
        return NoCapacity(said)
    if code in known["quota"]:
        return QuotaExceeded(said, hint="Quotas: https://console.aws.amazon.com/servicequotas/home/services/ec2/quotas")
    if code in known["throttled"]:
        return Throttled(said)
    if code in known["uncertain"] or status >= 500:
        return Unreachable(f"{said} (HTTP {status})")
    if code in known["invalid"] or code.startswith(("Invalid", "Missing", "Malformed")):
        return InvalidRequest(said, hint=_invalid_hint(code))
    return ProviderError(said)


def _denied(exc: Any, doing: str, text: str, decode: Decoder | None) -> AuthError:
    action = _PERFORM.search(text)
    encoded = _ENCODED.search(text)
    missing = action.group(1) if action else ""
    if not missing and encoded and decode is not None:
        missing = decode(encoded.group(1)) or ""
    if not missing:
        missing = str(getattr(exc, "operation_name", "")) or "the call"
    reason = _ENCODED.sub("", text).strip()
    return AuthError(
        f"These AWS credentials may not {doing}: {missing} is not allowed. {reason}".rstrip(),
        hint=f"Allow {missing}; what costgpu needs is in the file providers/aws/policy.json of the package.",
    )


def _no_credentials(exc: Exception, doing: str, kinds: set[str]) -> AuthError:
    reason = " ".join(str(exc).split())
    if "ProfileNotFound" in kinds:
        return AuthError(
            f"{reason}.", hint="aws configure list-profiles shows which there are; AWS_PROFILE chooses one."
        )
    if kinds & {"NoCredentialsError", "PartialCredentialsError"}:
        return AuthError(
            f"No usable AWS credentials to {doing}: {reason}.",
            hint="Run aws configure or aws sso login, or set AWS_PROFILE; --infra local needs no account.",
        )
    return AuthError(f"The AWS credentials cannot be read or renewed: {reason}", hint=_LOGIN)


def _invalid_hint(code: str) -> str:
    if code in ("VPCIdNotSpecified", "DefaultVpcDoesNotExist"):
        return "The account has no default VPC there: aws ec2 create-default-vpc, or name a subnet with --subnet."
    if code.startswith("InvalidSubnet"):
        return "aws ec2 describe-subnets --region REGION lists the subnets."
    return ""


def denied_action(document: str) -> str | None:
    """The action in a decoded authorization message, such as ``ec2:RunInstances``."""
    try:
        context = json.loads(document).get("context", {})
    except (ValueError, AttributeError):
        return None
    action = context.get("action") if isinstance(context, dict) else None
    return str(action) if action else None

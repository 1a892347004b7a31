"""botocore's exceptions in costgpu's words.

What matters is which errors are *certain*: every class but `Unreachable` means that AWS has answered and has refused.
An error that is not known by name stays a plain `ProviderError`; it is never called "no capacity".

Source of the codes: Amazon EC2 API reference, "Error codes", and the pages of STS, SSM, S3, Service Quotas and
EventBridge Scheduler (read 2026-11).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
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
from costgpu.providers.aws import sdk

Decoder = Callable[[str], str | None]

NO_CAPACITY = frozenset(
    {
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientCapacity",
        "InsufficientFreeAddressesInSubnet",
        "SpotMaxPriceTooLow",
        "UnfulfillableCapacity",
    }
)
QUOTA = frozenset(
    {
        "VcpuLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "InstanceLimitExceeded",
        "VolumeLimitExceeded",
        "MaxIOPSLimitExceeded",
        "SecurityGroupLimitExceeded",
        "SecurityGroupsPerInstanceLimitExceeded",
        "RulesPerSecurityGroupLimitExceeded",
        "AddressLimitExceeded",
        "NetworkInterfaceLimitExceeded",
        "ServiceQuotaExceededException",
        "PrivateIpAddressLimitExceeded",
    }
)
VCPU_QUOTA = frozenset({"VcpuLimitExceeded", "MaxSpotInstanceCountExceeded", "InstanceLimitExceeded"})
THROTTLED = frozenset(
    {
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestThrottled",
        "RequestThrottledException",
        "TooManyRequestsException",
        "EC2ThrottledException",
        "SlowDown",
        "BandwidthLimitExceeded",
        "PriorRequestNotComplete",
    }
)
UNCERTAIN = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "InternalServerException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "Unavailable",
        "RequestTimeout",
        "RequestTimeoutException",
        "503",
        "500",
    }
)
EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"})
BAD_KEY = frozenset(
    {
        "AuthFailure",
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "SignatureDoesNotMatch",
        "InvalidAccessKeyId",
        "InvalidToken",
        "IncompleteSignature",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "InvalidSignatureException",
        "NotSignedUp",
        "OptInRequired",
        "InvalidSecurity",
    }
)
DENIED = frozenset(
    {
        "UnauthorizedOperation",
        "AccessDenied",
        "AccessDeniedException",
        "Client.UnauthorizedOperation",
        "NotAuthorized",
        "403",
    }
)
ACCOUNT = frozenset({"PendingVerification", "Blocked", "AccountProblem", "AllAccessDisabled"})
INVALID = frozenset(
    {
        "ParameterNotFound",
        "ValidationError",
        "ValidationException",
        "VPCIdNotSpecified",
        "DefaultVpcDoesNotExist",
        "MissingParameter",
        "MissingInput",
        "UnknownParameter",
        "UnsupportedOperation",
        "Unsupported",
        "IdempotentParameterMismatch",
        "EncryptedVolumesNotSupported",
        "NoSuchBucket",
        "NoSuchKey",
        "404",
        "ResourceNotFoundException",
        "PermanentRedirect",
        "AuthorizationHeaderMalformed",
        "IllegalLocationConstraintException",
    }
)
ANOTHER_ZONE = re.compile(r"not supported in your requested Availability Zone|not supported in .*zone", re.IGNORECASE)
_PERFORM = re.compile(r"not authorized to perform: (\S+)")
_ENCODED = re.compile(r"Encoded authorization failure message: (\S+)")
_CREDENTIALS = (
    "NoCredentialsError",
    "PartialCredentialsError",
    "CredentialRetrievalError",
    "TokenRetrievalError",
    "NoAuthTokenError",
    "SSOError",
    "SSOTokenLoadError",
    "UnauthorizedSSOTokenError",
    "PendingAuthorizationExpiredError",
    "ProfileNotFound",
    "RefreshWithMFAUnsupportedError",
    "InfiniteLoopConfigError",
    "InvalidConfigError",
    "ConfigParseError",
    "ConfigNotFound",
    "MetadataRetrievalError",
    "LoginError",
    "NoRegionError",
)
_LOGIN = "Sign in again (aws sso login --profile NAME, or aws configure), then repeat the command."
_UNANSWERED = (
    "EndpointConnectionError",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "ConnectionClosedError",
    "ProxyConnectionError",
    "SSLError",
    "HTTPClientError",
    "ConnectionError",
    "ResponseStreamingError",
    "IncompleteReadError",
    "ResponseParserError",
)


def translate(exc: Exception, doing: str, *, decode: Decoder | None = None) -> ProviderError:
    """The error to raise ``from exc``.

    Args:
        exc: A botocore exception.
        doing: What was attempted and where, to complete "AWS did not let us ...".
        decode: Turns an encoded authorization message into the action that is missing, if that is allowed.
    """
    kinds = {cls.__name__ for cls in type(exc).__mro__}
    if "ClientError" in kinds:
        return _refused(exc, doing, decode)
    if kinds & set(_CREDENTIALS):
        return _no_credentials(exc, doing, kinds)
    if kinds & set(_UNANSWERED):
        reason = " ".join(str(exc).split())
        return Unreachable(
            f"No answer from AWS to the request to {doing}: {reason}", hint="Check the network, or wait."
        )
    if kinds & {"ParamValidationError", "InvalidRegionError", "ValidationError"}:
        return InvalidRequest(f"Not a request that AWS has, to {doing}: {' '.join(str(exc).split())}")
    return ProviderError(f"Could not {doing}: {type(exc).__name__}: {exc}")


def _refused(exc: Any, doing: str, decode: Decoder | None) -> ProviderError:
    code = sdk.code_of(exc)
    text = " ".join(str(exc.response.get("Error", {}).get("Message", "")).split())
    status = int(exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) or 0)
    said = f"Could not {doing}: {code}: {text}".rstrip(": ")
    if code in EXPIRED:
        return AuthError(f"The AWS credentials have expired, or this machine's clock is wrong ({said}).", hint=_LOGIN)
    if code in BAD_KEY:
        return AuthError(
            f"AWS does not accept these credentials ({said}).",
            hint="Check the access key and AWS_PROFILE; a region that is not enabled in the account answers the same.",
        )
    if code in DENIED:
        return _denied(exc, doing, text, decode)
    if code in ACCOUNT:
        return AuthError(f"The AWS account cannot be used for this ({said}).", hint="AWS Support can tell why.")
    if code in NO_CAPACITY or (code == "Unsupported" and ANOTHER_ZONE.search(text)):
        return NoCapacity(said)
    if code in QUOTA:
        return QuotaExceeded(said, hint="Quotas: https://console.aws.amazon.com/servicequotas/home/services/ec2/quotas")
    if code in THROTTLED:
        return Throttled(said)
    if code in UNCERTAIN or status >= 500:
        return Unreachable(f"{said} (HTTP {status})")
    if code in INVALID or code.startswith(("Invalid", "Missing", "Malformed")):
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

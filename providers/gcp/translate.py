"""Google's exceptions, and the errors within its operations, in costgpu's words.

What matters is which errors are *certain*: every class but `Unreachable` means that Google has answered and has refused.
An error that is not known by name stays a plain `ProviderError`; it is never called "no capacity".

Source of the names: Compute Engine, "Troubleshooting VM creation", "Resource availability errors" and "Allocation
quotas"; Google APIs, `google.api.ErrorReason`; Compute Engine API, `Operation.error` (read 2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
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
from costgpu.providers.gcp import sdk

NO_CAPACITY = frozenset(
    {
        "ZONE_RESOURCE_POOL_EXHAUSTED",
        "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
        "REGION_RESOURCE_POOL_EXHAUSTED",
        "RESOURCE_POOL_EXHAUSTED",
        "RESOURCE_AVAILABILITY_ERROR",
        "STOCKOUT",
        "GPU_STOCKOUT",
    }
)
FULL = re.compile(
    r"does not have enough resources|currently unavailable in the .*zone|resource pool exhausted", re.IGNORECASE
)
"""In words. Source: Compute Engine, "Resource availability errors" (2026-11)."""
QUOTA = frozenset({"QUOTA_EXCEEDED", "quotaExceeded", "LIMIT_EXCEEDED", "limitExceeded"})
THROTTLED = frozenset(
    {
        "rateLimitExceeded",
        "userRateLimitExceeded",
        "RATE_LIMIT_EXCEEDED",
        "RESOURCE_OPERATION_RATE_EXCEEDED",
        "resourceNotReady",
        "RESOURCE_NOT_READY",
        "operationInProgress",
    }
)
BILLING = frozenset({"BILLING_DISABLED", "billingNotEnabled", "billingDisabled", "accountDisabled"})
DISABLED = frozenset({"SERVICE_DISABLED", "accessNotConfigured"})
QUOTA_PROJECT = frozenset({"USER_PROJECT_DENIED", "CONSUMER_INVALID", "CONSUMER_SUSPENDED"})
SCOPE = frozenset({"ACCESS_TOKEN_SCOPE_INSUFFICIENT", "insufficientPermissions"})
DENIED = frozenset(
    {
        "forbidden",
        "IAM_PERMISSION_DENIED",
        "PERMISSION_DENIED",
        "PERMISSIONS_ERROR",
        "ACCESS_DENIED",
        "FORBIDDEN",
        "SECURITY_POLICY_VIOLATED",
    }
)
INVALID = frozenset(
    {
        "INVALID_USAGE",
        "INVALID_FIELD_VALUE",
        "INVALID",
        "RESOURCE_NOT_FOUND",
        "NOT_FOUND",
        "RESOURCE_ALREADY_EXISTS",
        "UNSUPPORTED_OPERATION",
        "CONDITION_NOT_MET",
        "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE",
        "FIELD_NOT_MUTABLE",
        "INCOMPATIBLE_BACKEND_SERVICES",
        "PROVISIONING_MODEL_NOT_SUPPORTED",
    }
)
LOGIN = "gcloud auth application-default login"
ROLE = "what costgpu needs is in the file providers/gcp/role.yaml of the package"
_PERMISSION = re.compile(r"Required ['\"]?([a-z][\w.]+\.[a-zA-Z]+)['\"]? permission")
_METRIC = re.compile(r"Quota '([A-Z][A-Z0-9_]+)' exceeded\.?\s+Limit: ([\d.]+)(?: in region ([a-z0-9-]+))?")
_PROJECT = re.compile(r"project[s/ #]+([a-z0-9][a-z0-9:.-]*)", re.IGNORECASE)
_URL = re.compile(r"^(?:GET|POST|PUT|PATCH|DELETE) \S+: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What Google has said, wherever it was written.

    Attributes:
        names: Its own names of the error.
        text: Its own words, in one line.
        status: HTTP; 0 within an operation.
        details: Further facts, such as ``permission`` and ``consumer``.
    """

    names: frozenset[str]
    text: str
    status: int = 0
    details: Mapping[str, str] = field(default_factory=dict)


def translate(exc: Exception, doing: str, *, project: str = "") -> ProviderError:
    """The error to raise ``from exc``.

    Args:
        exc: Of Google's libraries, or of the HTTP client under them.
        doing: What was attempted and where, to complete "could not ...".
        project: Whose; empty if that is not known yet.
    """
    kinds = {cls.__name__ for cls in type(exc).__mro__}
    text = " ".join(str(exc).split())
    if "GoogleAPICallError" in kinds and sdk.status_of(exc):
        return refused(refusal_in(exc), doing, project=project)
    if "GoogleAuthError" in kinds:
        return _no_credentials(exc, doing, kinds, text)
    if kinds & {"RequestException", "GoogleAPIError", "Error"}:
        return Unreachable(
            f"No usable answer from Google Cloud to the request to {doing}: {text}",
            hint="Check the network, or wait.",
        )
    return ProviderError(f"Could not {doing}: {type(exc).__name__}: {text}")


def refusal_in(exc: Any) -> Refusal:
    """What an HTTP error says."""
    metadata = getattr(exc, "metadata", None)
    details = {str(key): str(value) for key, value in metadata.items()} if isinstance(metadata, Mapping) else {}
    text = _URL.sub("", " ".join(str(getattr(exc, "message", exc)).split()))
    return Refusal(names=sdk.reasons_of(exc), text=text, status=sdk.status_of(exc), details=details)


def refusal_of(operation: Any) -> Refusal | None:
    """Why a finished operation has failed; None if it has not."""
    rows = list(operation.error.errors) if operation.error else []
    status = int(operation.http_error_status_code or 0)
    if not rows and status < 400:
        return None
    words = [str(row.message) for row in rows] or [str(operation.http_error_message)]
    names = frozenset(str(row.code) for row in rows if row.code)
    return Refusal(names=names, text=" ".join(" ".join(words).split()), status=status if not names else 0)


def refused(said: Refusal, doing: str, *, project: str = "") -> ProviderError:
    """The error for what Google has refused."""
    names = said.names
    code = ", ".join(sorted(names)) or (f"HTTP {said.status}" if said.status else "")
    message = f"Could not {doing}: {code}: {said.text}".rstrip(": ")
    whose = project or said.details.get("consumer", "").removeprefix("projects/") or _project_in(said.text)
    if names & NO_CAPACITY or FULL.search(said.text):
        return NoCapacity(message)
    if names & THROTTLED or said.status == 429:
        return Throttled(message)
    if names & QUOTA or _METRIC.search(said.text):
        return _over_quota(said, message, whose)
    if names & BILLING or (said.status == 403 and "billing" in said.text.lower() and not names & DISABLED):
        return AuthError(
            f"Billing is not enabled for the Google Cloud project {whose} ({message}).",
            hint=f"Link a billing account: https://console.cloud.google.com/billing/linkedaccount?project={whose}",
        )
    if names & DISABLED:
        service = said.details.get("service", "compute.googleapis.com")
        return AuthError(
            f"The API {service} is not enabled in the Google Cloud project {whose} ({message}).",
            hint=f"gcloud services enable {service} --project {whose}; then wait a minute or two.",
        )
    if names & QUOTA_PROJECT:
        return AuthError(
            f"The quota project of these credentials cannot be used ({message}).",
            hint=f"gcloud auth application-default set-quota-project {whose}",
        )
    if names & SCOPE:
        return AuthError(
            f"These credentials were made for less than Compute Engine ({message}).",
            hint=f"Sign in with {LOGIN}; on a Google machine, give it the scope cloud-platform.",
        )
    if said.status == 401:
        return AuthError(f"Google Cloud does not accept these credentials ({message}).", hint=f"Sign in again: {LOGIN}")
    if names & DENIED or said.status == 403:
        return _denied(said, doing)
    if said.status >= 500 or (said.status == 408 and not names):
        return Unreachable(f"{message} (HTTP {said.status})")
    if names & INVALID or 400 <= said.status < 500:
        return InvalidRequest(message, hint=_invalid_hint(said.text))
    return ProviderError(message)


def _over_quota(said: Refusal, message: str, project: str) -> QuotaExceeded:
    found = _METRIC.search(said.text)
    metric = found.group(1) if found else ""
    return QuotaExceeded(message, hint=ask_for_more(metric, project))


def ask_for_more(metric: str, project: str) -> str:
    """How a person asks for a higher quota."""
    where = f"https://console.cloud.google.com/iam-admin/quotas?project={project}"
    return f"Ask Google for more: {where}{f' (search for {metric})' if metric else ''}; small requests take minutes."


def _denied(said: Refusal, doing: str) -> AuthError:
    found = _PERMISSION.search(said.text)
    missing = said.details.get("permission") or (found.group(1) if found else "")
    if not missing:
        return AuthError(
            f"These Google Cloud credentials may not {doing}: {said.text}",
            hint=f"The project's owner can allow it: {ROLE}.",
        )
    return AuthError(
        f"These Google Cloud credentials may not {doing}: {missing} is not allowed. {said.text}",
        hint=f"Allow {missing}; {ROLE}.",
    )


def _no_credentials(exc: Exception, doing: str, kinds: set[str], text: str) -> ProviderError:
    if "DefaultCredentialsError" in kinds:
        return AuthError(
            f"No usable Google Cloud credentials to {doing}: {text}",
            hint=f"Run {LOGIN}, or set GOOGLE_APPLICATION_CREDENTIALS; --infra local needs no account.",
        )
    if "TransportError" in kinds or bool(getattr(exc, "retryable", False)):
        return Unreachable(f"Google does not answer the request to sign in: {text}", hint="Check the network, or wait.")
    return AuthError(f"The Google Cloud credentials cannot be read or renewed: {text}", hint=f"Sign in again: {LOGIN}")


def _project_in(text: str) -> str:
    found = _PROJECT.search(text)
    return found.group(1) if found else "PROJECT"


def _invalid_hint(text: str) -> str:
    if "/networks/" in text and "not found" in text:
        return "gcloud compute networks create default makes the usual network; or name another one: gcp_network."
    if "subnet" in text.lower() and "custom" in text.lower():
        return 'Name the subnet, too: gcp_network = "NETWORK/SUBNET".'
    if "vmExternalIpAccess" in text:
        return "The organisation forbids machines with public addresses; its administrator can make an exception."
    return ""

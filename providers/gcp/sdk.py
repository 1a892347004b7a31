"""Google's client libraries: imported on first use (2-3 s), untyped from here on; and their errors in costgpu's words.

What matters is which errors are *certain*: every class but `Unreachable` means that the provider has answered and has
refused. An error that is not known by name stays a plain `ProviderError`; it is never called "no capacity".
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
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
from costgpu.providers.common import error_codes

FULL = re.compile(
    r"does not have enough resources|currently unavailable in the .*zone|resource pool exhausted", re.IGNORECASE
)
"""In words. Source: Compute Engine, "Resource availability errors" (2026-11)."""
LOGIN = "gcloud auth application-default login"
ROLE = "what costgpu needs is in the file providers/gcp/role.yaml of the package"
_PERMISSION = re.compile(r"Required ['\"]?([a-z][\w.]+\.[a-zA-Z]+)['\"]? permission")
_METRIC = re.compile(r"Quota '([A-Z][A-Z0-9_]+)' exceeded\.?\s+Limit: ([\d.]+)(?: in region ([a-z0-9-]+))?")
_PROJECT = re.compile(r"project[s/ #]+([a-z0-9][a-z0-9:.-]*)", re.IGNORECASE)
_URL = re.compile(r"^(?:GET|POST|PUT|PATCH|DELETE) \S+: ")


# Modules, imported on first use.
compute = functools.partial(import_module, "google.cloud.compute_v1")
auth = functools.partial(import_module, "google.auth")
api_errors = functools.partial(import_module, "google.api_core.exceptions")
auth_errors = functools.partial(import_module, "google.auth.exceptions")
codes = functools.partial(error_codes, Path(__file__).with_name("error_codes.toml"))


def anonymous() -> Any:
    """Credentials for a server that asks for none."""
    return import_module("google.auth.credentials").AnonymousCredentials()


def session(credentials: Any) -> Any:
    """An HTTP session that signs in with them; for what has no client among the compute ones."""
    return import_module("google.auth.transport.requests").AuthorizedSession(credentials)


def unsigned(url: str, seconds: float) -> Any | None:
    """The HTTP response to somebody who has not signed in, a refusal included; None if there is none."""
    requests = import_module("requests")
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


@functools.cache
def foreign() -> tuple[type[Exception], ...]:
    """Everything that a call through the client raises: refusals, failures on the way, answers that make no sense."""
    requests = import_module("requests.exceptions")
    parsing = import_module("google.protobuf.json_format")
    return (api_errors().GoogleAPIError, auth_errors().GoogleAuthError, requests.RequestException, parsing.Error)


def reasons_of(exc: Any) -> frozenset[str]:
    """Google's own names of an error, of every kind that one answer can carry; empty for what is no answer of Google.

    Such as ``notFound`` (of Compute Engine) and ``SERVICE_DISABLED`` (of what stands before it).
    """
    rows = getattr(exc, "errors", None)
    rows = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    named = [row.get("reason", "") for row in rows] + [getattr(exc, "reason", "") or ""]
    return frozenset(map(str, named)) - {""}


def status_of(exc: Any) -> int:
    """The HTTP status of a refusal; 0 for what is no answer of Google."""
    code = getattr(exc, "code", None)
    return int(code) if isinstance(code, int) else 0


def is_missing(exc: Any) -> bool:
    """Whether Google says that it does not know what was named."""
    return status_of(exc) == 404


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What Google has said, wherever it was written."""

    names: frozenset[str]
    text: str  # its own words, in one line
    status: int = 0  # HTTP; 0 within an operation
    details: Mapping[str, str] = field(default_factory=dict)  # further facts, such as ``permission`` and ``consumer``


def translate(exc: Exception, doing: str, *, project: str = "") -> ProviderError:
    """The error to raise ``from exc``.

    Args:
        project: Whose; empty if that is not known yet.
    """
    kinds = {cls.__name__ for cls in type(exc).__mro__}
    text = " ".join(str(exc).split())
    if "GoogleAPICallError" in kinds and status_of(exc):
        return refused(_refusal_in(exc), doing, project=project)
    if "DefaultCredentialsError" in kinds:
        return AuthError(
            f"No usable Google Cloud credentials to {doing}: {text}",
            hint=f"Run {LOGIN}, or set GOOGLE_APPLICATION_CREDENTIALS; --infra local needs no account.",
        )
    if "GoogleAuthError" in kinds and ("TransportError" in kinds or getattr(exc, "retryable", False)):
        return Unreachable(f"Google does not answer the request to sign in: {text}", hint="Check the network, or wait.")
    if "GoogleAuthError" in kinds:
        return AuthError(
            f"The Google Cloud credentials cannot be read or renewed: {text}", hint=f"Sign in again: {LOGIN}"
        )
    if kinds & {"RequestException", "GoogleAPIError", "Error"}:
        return Unreachable(
            f"No usable answer from Google Cloud to the request to {doing}: {text}",
            hint="Check the network, or wait.",
        )
    return ProviderError(f"Could not {doing}: {type(exc).__name__}: {text}")


def _refusal_in(exc: Any) -> Refusal:
    metadata = getattr(exc, "metadata", None)
    details = {str(key): str(value) for key, value in metadata.items()} if isinstance(metadata, Mapping) else {}
    text = _URL.sub("", " ".join(str(getattr(exc, "message", exc)).split()))
    return Refusal(names=reasons_of(exc), text=text, status=status_of(exc), details=details)


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
    names, known = said.names, codes()
    code = ", ".join(sorted(names)) or (f"HTTP {said.status}" if said.status else "")
    message = f"Could not {doing}: {code}: {said.text}".rstrip(": ")
    mentioned = _PROJECT.search(said.text)
    whose = (
        project
        or said.details.get("consumer", "").removeprefix("projects/")
        or (mentioned.group(1) if mentioned else "PROJECT")
    )
    if names & known["no_capacity"] or FULL.search(said.text):
        return NoCapacity(message)
    if names & known["throttled"] or said.status == 429:
        return Throttled(message)
    metric = _METRIC.search(said.text)
    if names & known["quota"] or metric:
        return QuotaExceeded(message, hint=ask_for_more(metric.group(1) if metric else "", whose))
    if names & known["billing"] or (
        said.status == 403 and "billing" in said.text.lower() and not names & known["disabled"]
    ):
        return AuthError(
            f"Billing is not enabled for the Google Cloud project {whose} ({message}).",
            hint=f"Link a billing account: https://console.cloud.google.com/billing/linkedaccount?project={whose}",
        )
    if names & known["disabled"]:
        service = said.details.get("service", "compute.googleapis.com")
        return AuthError(
            f"The API {service} is not enabled in the Google Cloud project {whose} ({message}).",
            hint=f"gcloud services enable {service} --project {whose}; then wait a minute or two.",
        )
    if names & known["quota_project"]:
        return AuthError(
            f"The quota project of these credentials cannot be used ({message}).",
            hint=f"gcloud auth application-default set-quota-project {whose}",
        )
    if names & known["scope"]:
        return AuthError(
            f"These credentials were made for less than Compute Engine ({message}).",
            hint=f"Sign in with {LOGIN}; on a Google machine, give it the scope cloud-platform.",
        )
    if said.status == 401:
        return AuthError(f"Google Cloud does not accept these credentials ({message}).", hint=f"Sign in again: {LOGIN}")
    if names & known["denied"] or said.status == 403:
        return _denied(said, doing)
    if said.status >= 500 or (said.status == 408 and not names):
        return Unreachable(f"{message} (HTTP {said.status})")
    if names & known["invalid"] or 400 <= said.status < 500:
        return InvalidRequest(message, hint=_invalid_hint(said.text))
    return ProviderError(message)


def ask_for_more(metric: str, project: str) -> str:
    """How a person asks for a higher quota."""
    where = f"https://console.cloud.google.com/iam-admin/quotas?project={project}"
    return f"Ask Google for more: {where}{f' (search for {metric})' if metric else ''}; small requests take minutes."


def _denied(said: Refusal, doing: str) -> AuthError:
    found = _PERMISSION.search(said.text)
    missing = said.details.get("permission") or (found.group(1) if found else "")
    what = f"{missing} is not allowed. {said.text}" if missing else said.text
    hint = f"Allow {missing}; {ROLE}." if missing else f"The project's owner can allow it: {ROLE}."
    return AuthError(f"These Google Cloud credentials may not {doing}: {what}", hint=hint)


def _invalid_hint(text: str) -> str:
    if "/networks/" in text and "not found" in text:
        return "gcloud compute networks create default makes the usual network; or name another one: gcp_network."
    if "subnet" in text.lower() and "custom" in text.lower():
        return 'Name the subnet, too: gcp_network = "NETWORK/SUBNET".'
    if "vmExternalIpAccess" in text:
        return "The organisation forbids machines with public addresses; its administrator can make an exception."
    return ""

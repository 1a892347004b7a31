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
    RefusedHere,
    Throttled,
    Unreachable,
)
from costgpu.providers.common import error_codes, error_hints

FULL = re.compile(
    r"does not have enough resources|currently unavailable in the .*zone|resource pool exhausted", re.IGNORECASE
)
"""In words. Source: Compute Engine, "Resource availability errors" (2026-11)."""
ONE_PLACE = re.compile(
    r"machine type|machineTypes?\b|accelerator|disk ?types?\b|provisioning model|cpu platform"
    r"|features are not compatible|live migration|on ?host ?maintenance"
    r"|in (?:the )?zone|unknown zone|zones/[a-z0-9-]+' (?:was not found|does not exist)|regions/[a-z0-9-]+/subnetworks/"
    r"|gcp\.resourceLocations|preempted",
    re.IGNORECASE,
)
"""In words: a refusal about one type, zone, region or moment. Source: issues on GitHub that quote some of them; the
others are terms of the documents (2026-11)."""
LOCATION = re.compile(r"permission denied on 'locations/", re.IGNORECASE)
"""What Google says, with 403, of a zone or region that does not exist or is not open to the project."""
NO_PROJECT = re.compile(
    r"resource 'projects/[^/']+' was not found|failed to find project|not found: project\b", re.IGNORECASE
)
LOGIN = "gcloud auth application-default login"
ROLE = "what costgpu needs is in the file providers/gcp/role.yaml of the package"
_PERMISSION = re.compile(r"Required ['\"]?([a-z][\w.]+\.[a-zA-Z]+)['\"]? permission")
_METRIC = re.compile(r"Quota '([A-Za-z][A-Za-z0-9_-]+)' exceeded\.?\s+Limit: ([\d.]+)(?: in region ([a-z0-9-]+))?")
_PROJECT = re.compile(r"project[s/ #]+([a-z0-9][a-z0-9:.-]*)", re.IGNORECASE)
_POLICY = re.compile(r"\b((?:compute|gcp|iam)\.[a-zA-Z]+)\b")
_URL = re.compile(r"^(?:GET|POST|PUT|PATCH|DELETE) \S+: ")


# Modules, imported on first use.
compute = functools.partial(import_module, "google.cloud.compute_v1")
auth = functools.partial(import_module, "google.auth")
api_errors = functools.partial(import_module, "google.api_core.exceptions")
auth_errors = functools.partial(import_module, "google.auth.exceptions")
CODES_FILE = Path(__file__).with_name("error_codes.toml")
codes = functools.partial(error_codes, CODES_FILE)
hints = functools.partial(error_hints, CODES_FILE)


def anonymous() -> Any:
    """Return the credentials for a server that asks for none."""
    return import_module("google.auth.credentials").AnonymousCredentials()


def session(credentials: Any) -> Any:
    """Return an HTTP session that signs in with them; for what has no client among the compute ones."""
    return import_module("google.auth.transport.requests").AuthorizedSession(credentials)


def unsigned(url: str, seconds: float) -> Any | None:
    """Return the HTTP response to somebody who has not signed in, a refusal included; None if there is none."""
    requests = import_module("requests")
    try:
        return requests.get(url, timeout=seconds, allow_redirects=False)
    except requests.RequestException:
        return None


def document(response: Any) -> Mapping[str, Any]:
    """Return the JSON of an answer; empty if it is none."""
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
    """Return the HTTP status of a refusal; 0 for what is no answer of Google."""
    code = getattr(exc, "code", None)
    return int(code) if isinstance(code, int) else 0


def is_missing(exc: Any) -> bool:
    """Return whether Google says that it does not know what was named, in a project that it does know."""
    return status_of(exc) == 404 and not NO_PROJECT.search(str(exc))


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What Google has said, wherever it was written."""

    names: frozenset[str]
    text: str  # its own words, in one line
    status: int = 0  # HTTP; 0 if none was told
    is_final: bool = False  # of an operation that is over: nothing is left open, whatever the status
    details: Mapping[str, str] = field(default_factory=dict)  # further facts, such as ``permission`` and ``consumer``


def translate(exc: Exception, doing: str, *, project: str = "") -> ProviderError:
    """Return the error to raise ``from exc``.

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
    """Return why a finished operation has failed; None if it has not."""
    rows = list(operation.error.errors) if operation.error else []
    status = int(operation.http_error_status_code or 0)
    if not rows and status < 400:
        return None
    words = [str(row.message) for row in rows] or [str(operation.http_error_message)]
    names = frozenset(str(row.code) for row in rows if row.code)
    return Refusal(names=names, text=" ".join(" ".join(words).split()), status=status, is_final=True)


def refused(said: Refusal, doing: str, *, project: str = "") -> ProviderError:
    """Return the error for what Google has refused."""
    names, known = said.names, codes()
    code = ", ".join(sorted(names)) or (f"HTTP {said.status}" if said.status else "")
    message = f"Could not {doing}: {code}: {said.text}".rstrip(": ")
    mentioned = _PROJECT.search(said.text)
    whose = (
        project
        or said.details.get("consumer", "").removeprefix("projects/")
        or (mentioned.group(1) if mentioned else "PROJECT")
    )
    exhausted = any("RESOURCE_POOL_EXHAUSTED" in name for name in names)
    if exhausted or names & known["no_capacity"] or FULL.search(said.text):
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
    return _judged(said, doing, message, whose)


def _judged(said: Refusal, doing: str, message: str, whose: str) -> ProviderError:
    """Return the error for a refusal that is not about capacity, quotas, the project or signing in."""
    names, known, status = said.names, codes(), said.status
    if LOCATION.search(said.text):
        return RefusedHere(message, hint="Google has no such place, or the project may not use it.")
    by_policy = "constraints/" in said.text
    if said.is_final and (names & known["later"] or status >= 500):
        return RefusedHere(message)
    if not by_policy and (names & known["denied"] or (status == 403 and not names & known["invalid"])):
        return _denied(said, doing)
    if status >= 500 or (status == 408 and not names):
        return Unreachable(f"{message} (HTTP {status})")
    if NO_PROJECT.search(said.text):
        hint = f"gcloud projects describe {whose} tells whether it is there; gcp_project in the settings names another one."
        return InvalidRequest(message, hint=hint)
    if names & known["refused_here"] or (status != 409 and ONE_PLACE.search(said.text)):
        return RefusedHere(message, hint=_hint(said))
    if names & known["invalid"] or 400 <= status < 500:
        return InvalidRequest(message, hint=_hint(said))
    return ProviderError(message)


def quota_page(project: str) -> str:
    """Return where a person sees all quotas of a project."""
    return f"https://console.cloud.google.com/iam-admin/quotas?project={project}"


def ask_for_more(metric: str, project: str) -> str:
    """Return how a person asks for a higher quota."""
    search = f" (search for {metric})" if metric else ""
    return f"Ask Google for more: {quota_page(project)}{search}; small requests take minutes."


def _denied(said: Refusal, doing: str) -> AuthError:
    found = _PERMISSION.search(said.text)
    missing = said.details.get("permission") or (found.group(1) if found else "")
    what = f"{missing} is not allowed. {said.text}" if missing else said.text
    hint = f"Allow {missing}; {ROLE}." if missing else f"The project's owner can allow it: {ROLE}."
    return AuthError(f"These Google Cloud credentials may not {doing}: {what}", hint=hint)


def _hint(said: Refusal) -> str:
    text = said.text
    if "VM_EXTERNAL_IP_ACCESS_POLICY_CONSTRAINT" in said.names:
        return hints()["compute.vmExternalIpAccess"]
    if "constraint" in text.lower():
        named = (hints().get(name) for name in _POLICY.findall(text))
        return next(
            filter(None, named), "A policy of the organisation forbids it: its administrator can make an exception."
        )
    if "/networks/" in text and "not found" in text:
        return "gcloud compute networks create default makes the usual network; or name another one: gcp_network."
    if "subnet" in text.lower() and "custom" in text.lower():
        return 'Name the subnet, too: gcp_network = "NETWORK/SUBNET".'
    return ""

"""boto3 and botocore: imported on first use (0.3 s), untyped from here on; clients; and exceptions in costgpu's words.

What matters is which errors are *certain*: every class but `Unreachable` means that the provider has answered and has
refused. An error that is not known by name stays a plain `ProviderError`; it is never called "no capacity".
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
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
from costgpu.models.instance import Identity
from costgpu.providers.common import date_in, error_codes, error_hints, unknown_region

FALLBACK_REGION = "us-east-1"  # enabled in every account of the standard partition
USUAL = ("us-east-1", "us-west-2", "eu-west-1")
CONNECT_SECONDS, READ_SECONDS = 5, 15
_METHODS = {
    "env": "environment variables",
    "sso": "single sign-on",
    "iam-role": "instance role",
    "container-role": "container role",
    "custom-process": "credential process",
    "explicit": "given in the program",
    "assume-role": "assumed role",
    "assume-role-with-web-identity": "web identity",
}
"""botocore's names of where credentials came from, in words."""
Decoder = Callable[[str], str | None]

VCPU_QUOTA = frozenset({"VcpuLimitExceeded", "MaxSpotInstanceCountExceeded", "InstanceLimitExceeded"})
_PERFORM = re.compile(r"not authorized to perform: (\S+)")
_ENCODED = re.compile(r"Encoded authorization failure message: (\S+)")
_SENDER = re.compile(r"^(?:Client|Server)\.")
_LOGIN = "Sign in again (aws sso login --profile NAME, or aws configure), then repeat the command."
MEANINGS: dict[str, tuple[type[ProviderError], str, str]] = {
    "expired": (AuthError, "The AWS credentials have expired, or this machine's clock is wrong ({said}).", _LOGIN),
    "bad_key": (
        AuthError,
        "AWS does not accept these credentials ({said}).",
        "Check the access key and AWS_PROFILE; a region that is not enabled in the account answers the same.",
    ),
    "denied": (AuthError, "{said}", "What costgpu needs is in the file providers/aws/policy.json of the package."),
    "account": (AuthError, "The AWS account cannot be used for this ({said}).", "AWS Support can tell why."),
    "no_capacity": (NoCapacity, "{said}", ""),
    "refused_here": (RefusedHere, "{said}", ""),
    "quota": (
        QuotaExceeded,
        "{said}",
        "Quotas: https://console.aws.amazon.com/servicequotas/home/services/ec2/quotas",
    ),
    "throttled": (Throttled, "{said}", ""),
    "uncertain": (Unreachable, "{said}", ""),
    "invalid": (InvalidRequest, "{said}", ""),
    "": (ProviderError, "{said}", ""),
}
"""What a refusal means, as in ``error_codes.toml`` -> class, message and hint of the error; empty: not known."""
WORDS = (
    (
        r"AuthFailure",
        r"not authorized for images",
        "invalid",
        "The image's owner can share it with this account (aws ec2 modify-image-attribute); aws_image names another one.",
    ),
    (
        r"UnauthorizedOperation|AccessDenied.*",
        r"service control policy",
        "denied",
        "A service control policy of the organisation forbids it: its administrator can allow it.",
    ),
    (
        r"InvalidParameterCombination|InvalidParameterValue|Unsupported.*",
        r"eligible for free tier",
        "account",
        "The account is on the free plan, which has small types only: upgrade it in the console, under Billing.",
    ),
    (r"PendingVerification", r"\bregion\b", "refused_here", ""),
    (
        r"InvalidParameter.*|Unsupported.*",
        r"\bAMIs?\b",
        "refused_here",
        "The image must fit the type: an image of your own is named by aws_image.",
    ),
    (
        r"InvalidParameter.*|UnsupportedOperation",
        r"instance ?type|availability ?zone|in (this|the|your) (requested )?(region|zone)|requested configuration",
        "refused_here",
        "",
    ),
)
"""Name of the error (all of it), words in its text -> meaning and hint, where the name alone does not decide.

Source of the words: issues on GitHub that quote these refusals (2026-11).
"""


# Modules, imported on first use.
boto3 = functools.partial(import_module, "boto3")
exceptions = functools.partial(import_module, "botocore.exceptions")
CODES_FILE = Path(__file__).with_name("error_codes.toml")
codes = functools.partial(error_codes, CODES_FILE)
hints = functools.partial(error_hints, CODES_FILE)


@functools.cache
def foreign() -> tuple[type[Exception], ...]:
    """Everything that a call through botocore raises: refusals, failures on the way, answers that make no sense."""
    parsers = import_module("botocore.parsers")
    return (exceptions().ClientError, exceptions().BotoCoreError, parsers.ResponseParserError)


def code_of(exc: Any) -> str:
    """AWS's own name of an error, such as ``InvalidInstanceID.NotFound``; empty for what is no answer of AWS."""
    response = getattr(exc, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


class Tolerate(contextlib.AbstractContextManager[None, bool]):
    """A block that just ends where AWS refuses with one of these names of errors."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> bool:
        return exc is not None and code_of(exc) in self._names


def translate(exc: Exception, doing: str, *, decode: Decoder | None = None) -> ProviderError:
    """Return the error to raise ``from exc``.

    Args:
        decode: Turns an encoded authorization message into the action that is missing, if that is allowed.
    """
    kinds, known = {cls.__name__ for cls in type(exc).__mro__}, codes()
    reason = " ".join(str(exc).split())
    if "ClientError" in kinds:
        return _refused(exc, doing, decode)
    if "ProfileNotFound" in kinds:
        return AuthError(
            f"{reason}.", hint="aws configure list-profiles shows which there are; AWS_PROFILE chooses one."
        )
    if kinds & {"NoCredentialsError", "PartialCredentialsError"}:
        return AuthError(
            f"No usable AWS credentials to {doing}: {reason}.",
            hint="Run aws configure or aws sso login, or set AWS_PROFILE; --infra local needs no account.",
        )
    if kinds & known["credentials"]:
        return AuthError(f"The AWS credentials cannot be read or renewed: {reason}", hint=_LOGIN)
    if kinds & known["unanswered"]:
        return Unreachable(
            f"No answer from AWS to the request to {doing}: {reason}", hint="Check the network, or wait."
        )
    if kinds & {"ParamValidationError", "InvalidRegionError", "ValidationError"}:
        return InvalidRequest(f"Not a request that AWS has, to {doing}: {reason}")
    return ProviderError(f"Could not {doing}: {type(exc).__name__}: {exc}")


def refusal_at_launch(code: str, message: str, doing: str) -> ProviderError | None:
    """Return the error for a machine that EC2 has ended before it ran, None if somebody ended it, or its owner took it back.

    Args:
        code: That of its StateReason, such as ``Server.InsufficientInstanceCapacity``.
        message: That of its StateReason.
        doing: What was asked for, such as ``create a g5.xlarge in us-east-1a``.
    """
    if not _SENDER.match(code):
        return None
    said = message if message.startswith(code) else f"{code}: {message}".rstrip(": ")
    if code == "Client.InternalError" or "KMSKey" in code:
        return AuthError(
            f"Could not {doing}: EC2 ended the machine at once ({said}).", hint=hints()["Client.InternalError"]
        )
    meaning, hint = _meaning(_SENDER.sub("", code), message, 0)
    if meaning in ("uncertain", "throttled"):
        meaning = "refused_here"  # the machine has ended: nothing is left open
    return _error(meaning, f"Could not {doing}: {said}", hint) if meaning else None


def _refused(exc: Any, doing: str, decode: Decoder | None) -> ProviderError:
    code = _SENDER.sub("", code_of(exc))
    text = " ".join(str(exc.response.get("Error", {}).get("Message", "")).split())
    status = int(exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) or 0)
    said = f"Could not {doing}: {code}: {text}".rstrip(": ")
    meaning, hint = _meaning(code, text, status)
    if meaning == "denied":
        return _denied(exc, doing, text, decode, hint)
    return _error(meaning, f"{said} (HTTP {status})" if meaning == "uncertain" else said, hint)


def _meaning(code: str, text: str, status: int) -> tuple[str, str]:
    """Return what AWS means by a refusal, empty if that is not known, and a hint of its own, if it has one."""
    for name, words, meaning, hint in WORDS:
        if re.fullmatch(name, code) and re.search(words, text, re.IGNORECASE):
            return meaning, hint or hints().get(code, "")
    hint = hints().get(code, "")
    known = codes()
    for meaning in MEANINGS:
        if meaning and code in known[meaning]:
            return meaning, hint
    if status >= 500:
        return "uncertain", hint
    return "invalid" if code.startswith(("Invalid", "Missing", "Malformed", "Unsupported")) else "", hint


def _error(meaning: str, said: str, hint: str) -> ProviderError:
    kind, message, usual = MEANINGS[meaning]
    return kind(message.replace("{said}", said), hint=hint or usual)


def _denied(exc: Any, doing: str, text: str, decode: Decoder | None, hint: str) -> AuthError:
    action, encoded = _PERFORM.search(text), _ENCODED.search(text)
    missing = action.group(1) if action else decode(encoded.group(1)) if encoded and decode else None
    if "ServiceLinkedRole" in code_of(exc):
        missing = "iam:CreateServiceLinkedRole"
    missing = missing or str(getattr(exc, "operation_name", "")) or "the call"
    reason = _ENCODED.sub("", text).strip()
    return AuthError(
        f"These AWS credentials may not {doing}: {missing} is not allowed. {reason}".rstrip(),
        hint=hint or f"Allow {missing}; what costgpu needs is in the file providers/aws/policy.json of the package.",
    )


def denied_action(document: str) -> str | None:
    """Return the action in a decoded authorization message, such as ``ec2:RunInstances``."""
    try:
        context = json.loads(document).get("context", {})
    except (ValueError, AttributeError):
        return None
    action = context.get("action") if isinstance(context, dict) else None
    return str(action) if action else None


class Clients:
    """Clients of one session.

    Args:
        session: A ``boto3.Session``; None makes the default one (AWS_PROFILE, SSO and AWS_ENDPOINT_URL count).
    """

    def __init__(self, session: Any | None = None) -> None:
        self._given = session
        self._lock = threading.RLock()
        self._clients: dict[tuple[str, str, int], Any] = {}
        self._known: set[str] = set()
        self._date = ""

    def client(self, service: str, region: str, *, max_attempts: int = 3) -> Any:
        """Return a boto3 client.

        Args:
            max_attempts: How often one call is tried in all; 1 leaves every decision to the caller.
        """
        with self._lock:
            key = (service, region, max_attempts)
            if key not in self._clients:
                self._clients[key] = self.new_client(
                    service, region, max_attempts=max_attempts, tcp_keepalive=True, max_pool_connections=16
                )
            return self._clients[key]

    def new_client(self, service: str, region: str, *, max_attempts: int = 3, **settings: Any) -> Any:
        """Return a boto3 client that nobody else uses.

        Args:
            settings: Further ones of a ``botocore.config.Config``.
        """
        made = import_module("botocore.config").Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries={"mode": "standard", "total_max_attempts": max_attempts},
            user_agent_extra="costgpu",
            **settings,
        )
        client = self.session().client(service, region_name=region, config=made)
        client.meta.events.register("after-call", self._note_time)
        return client

    def rows(self, region: str, operation: str, field: str, *, service: str = "ec2", **question: Any) -> list[Any]:
        """Return what all pages of an answer have in a field; botocore's errors are left to the caller."""
        client = self.client(service, region)
        if not client.can_paginate(operation):
            return list(getattr(client, operation)(**question)[field])
        return [row for page in client.get_paginator(operation).paginate(**question) for row in page[field]]

    def _note_time(self, http_response: Any, **_: Any) -> None:
        """AWS says the time with every answer."""
        self._date = http_response.headers.get("date") or self._date

    def told_at(self) -> datetime | None:
        """Return the time of AWS's last answer, by its clock; None before one."""
        return date_in(self._date)

    def session(self) -> Any:
        """Return the ``boto3.Session``."""
        with self._lock:
            if self._given is None:
                self._given = boto3().Session()
            return self._given

    @contextlib.contextmanager
    def speaking(self, doing: str) -> Iterator[None]:
        """Translate what botocore raises inside the block."""
        try:
            yield
        except foreign() as exc:
            raise translate(exc, doing, decode=self._decode) from exc

    def _decode(self, message: str) -> str | None:
        with contextlib.suppress(*foreign()):
            reply = self.client("sts", self.home()).decode_authorization_message(EncodedMessage=message)
            return denied_action(reply["DecodedMessage"])
        return None

    def home(self) -> str:
        """Return the region for questions that are about no region: the configured one, or us-east-1."""
        region = str(self.session().region_name or FALLBACK_REGION)
        known = self.regions_of()
        if region not in known:
            raise unknown_region("AWS (AWS_REGION, AWS_DEFAULT_REGION or the profile)", region, known, USUAL)
        return region

    def require(self, region: str) -> None:
        """Raise `InvalidRequest`, with near names, if AWS has no such region."""
        if region in self._known:
            return
        with self.speaking(f"find the region {region}"):
            names = self.regions_of()
            if region not in names:  # newer than this botocore, or a slip of the pen
                reply = self.client("ec2", FALLBACK_REGION).describe_regions(AllRegions=True)
                names |= {row["RegionName"] for row in reply["Regions"]}
            if region not in names:
                raise unknown_region("AWS", region, names, USUAL)
        self._known.add(region)

    def regions_of(self, service: str = "ec2") -> set[str]:
        """Return the regions in which a service is known to exist; asks nobody."""
        session = self.session()
        return {
            region
            for partition in session.get_available_partitions()
            for region in session.get_available_regions(service, partition_name=partition)
        }

    def enabled_regions(self) -> Sequence[str]:
        """Return the regions that the account can use, sorted."""
        with self.speaking("list the regions of the account"):
            reply = self.client("ec2", self.home()).describe_regions()
        return sorted(row["RegionName"] for row in reply["Regions"])

    def identity(self) -> Identity:
        """Account, principal, and where the credentials came from."""
        with self.speaking("find out who is asking"):
            reply = self.client("sts", self.home()).get_caller_identity()
            return Identity(provider="aws", account=reply["Account"], principal=reply["Arn"], source=self._source())

    def _source(self) -> str:
        session = self.session()
        credentials = session.get_credentials()
        method = str(getattr(credentials, "method", "") or "")
        profile = str(session.profile_name or "")
        if method in ("env", "explicit") or not profile or profile == "default":
            return _METHODS.get(method, "profile default" if "file" in method else method)
        return f"profile {profile}"

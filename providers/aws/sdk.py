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
from costgpu.providers.common import date_in, error_codes, unknown_region

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
ANOTHER_ZONE = re.compile(r"not supported in your requested Availability Zone|not supported in .*zone", re.IGNORECASE)
_PERFORM = re.compile(r"not authorized to perform: (\S+)")
_ENCODED = re.compile(r"Encoded authorization failure message: (\S+)")
_SENDER = re.compile(r"^(?:Client|Server)\.")
_KEY_HINT = (
    "The usual reason is a key of the account's own as its default for EBS encryption. Allow these credentials to use it:"
    " kms:CreateGrant, kms:Decrypt, kms:DescribeKey, kms:GenerateDataKeyWithoutPlainText and kms:ReEncrypt*. A spot machine"
    " also needs a grant of the key to the role AWSServiceRoleForEC2Spot (aws kms create-grant). Which key it is:"
    " aws ec2 get-ebs-default-kms-key-id."
)
"""Source: EC2 user guide, "Amazon EBS encryption" and "Grant access to customer managed keys" (2026-11)."""
_LOGIN = "Sign in again (aws sso login --profile NAME, or aws configure), then repeat the command."


# Modules, imported on first use.
boto3 = functools.partial(import_module, "boto3")
exceptions = functools.partial(import_module, "botocore.exceptions")
codes = functools.partial(error_codes, Path(__file__).with_name("error_codes.toml"))


@functools.cache
def foreign() -> tuple[type[Exception], ...]:
    """Everything that a call through botocore raises: refusals, failures on the way, answers that make no sense."""
    parsers = import_module("botocore.parsers")
    return (exceptions().ClientError, exceptions().BotoCoreError, parsers.ResponseParserError)


def config(**settings: Any) -> Any:
    """A ``botocore.config.Config``."""
    return import_module("botocore.config").Config(**settings)


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
    """The error to raise ``from exc``.

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
    """The error for a machine that EC2 has ended before it ran; None if somebody ended it, or its owner took it back.

    Args:
        code: That of its StateReason, such as ``Server.InsufficientInstanceCapacity``.
        message: That of its StateReason.
        doing: What was asked for, such as ``create a g5.xlarge in us-east-1a``.
    """
    if not _SENDER.match(code):
        return None
    said = message if message.startswith(code) else f"{code}: {message}".rstrip(": ")
    if code == "Client.InternalError" or "KMSKey" in code:
        return AuthError(f"Could not {doing}: EC2 ended the machine at once ({said}).", hint=_KEY_HINT)
    error = _by_code(_SENDER.sub("", code), f"Could not {doing}: {said}", message, 0)
    if isinstance(error, Unreachable):
        return RefusedHere(error.message)  # the machine has ended: nothing is left open
    return error if type(error) is not ProviderError else None


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
    return _by_code(code, said, text, status)


def _by_code(code: str, said: str, text: str, status: int) -> ProviderError:
    """The error for a refusal that is not about the credentials."""
    known = codes()
    if code in known["no_capacity"] or (code == "Unsupported" and ANOTHER_ZONE.search(text)):
        return NoCapacity(said)
    if code in known["quota"]:
        return QuotaExceeded(said, hint="Quotas: https://console.aws.amazon.com/servicequotas/home/services/ec2/quotas")
    if code in known["throttled"]:
        return Throttled(said)
    if code in known["uncertain"] or status >= 500:
        return Unreachable(f"{said} (HTTP {status})" if status else said)
    if code in known["invalid"] or code.startswith(("Invalid", "Missing", "Malformed")):
        return InvalidRequest(said, hint=_invalid_hint(code))
    return ProviderError(said)


def _denied(exc: Any, doing: str, text: str, decode: Decoder | None) -> AuthError:
    action, encoded = _PERFORM.search(text), _ENCODED.search(text)
    missing = action.group(1) if action else decode(encoded.group(1)) if encoded and decode else None
    missing = missing or str(getattr(exc, "operation_name", "")) or "the call"
    reason = _ENCODED.sub("", text).strip()
    return AuthError(
        f"These AWS credentials may not {doing}: {missing} is not allowed. {reason}".rstrip(),
        hint=f"Allow {missing}; what costgpu needs is in the file providers/aws/policy.json of the package.",
    )


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

    def client(self, service: str, region: str, *, attempts: int = 3) -> Any:
        """A boto3 client.

        Args:
            attempts: How often one call is tried in all; 1 leaves every decision to the caller.
        """
        with self._lock:
            key = (service, region, attempts)
            if key not in self._clients:
                self._clients[key] = self.new_client(
                    service, region, attempts=attempts, tcp_keepalive=True, max_pool_connections=16
                )
            return self._clients[key]

    def new_client(self, service: str, region: str, *, attempts: int = 3, **settings: Any) -> Any:
        """A boto3 client that nobody else uses.

        Args:
            settings: Further ones of a ``botocore.config.Config``.
        """
        made = config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries={"mode": "standard", "total_max_attempts": attempts},
            user_agent_extra="costgpu",
            **settings,
        )
        client = self.session().client(service, region_name=region, config=made)
        client.meta.events.register("after-call", self._note_time)
        return client

    def _note_time(self, http_response: Any, **_: Any) -> None:
        """AWS says the time with every answer."""
        self._date = http_response.headers.get("date") or self._date

    def told_at(self) -> datetime | None:
        """The time of AWS's last answer, by its clock; None before one."""
        return date_in(self._date)

    def session(self) -> Any:
        """The ``boto3.Session``."""
        with self._lock:
            if self._given is None:
                self._given = boto3().Session()
            return self._given

    @contextlib.contextmanager
    def speaking(self, doing: str) -> Iterator[None]:
        """Translates what botocore raises inside the block."""
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
        """The region for questions that are about no region: the configured one, or us-east-1."""
        region = str(self.session().region_name or FALLBACK_REGION)
        known = self.regions_of()
        if region not in known:
            raise unknown_region("AWS (AWS_REGION, AWS_DEFAULT_REGION or the profile)", region, known, USUAL)
        return region

    def require(self, region: str) -> None:
        """Raises `InvalidRequest`, with near names, if AWS has no such region."""
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
        """The regions in which a service is known to exist; asks nobody."""
        session = self.session()
        return {
            region
            for partition in session.get_available_partitions()
            for region in session.get_available_regions(service, partition_name=partition)
        }

    def enabled_regions(self) -> Sequence[str]:
        """The regions that the account can use, sorted."""
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

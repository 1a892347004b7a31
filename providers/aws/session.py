"""boto3 sessions and clients: one of each kind per region, made on first use, used from several threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from costgpu.models.instance import Identity
from costgpu.providers.aws import sdk
from costgpu.providers.aws.sdk import denied_action, translate
from costgpu.providers.common import unknown_region

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

    def client(self, service: str, region: str, *, attempts: int = 3) -> Any:
        """A boto3 client.

        Args:
            attempts: How often one call is tried in all; 1 leaves every decision to the caller.
        """
        with self._lock:
            key = (service, region, attempts)
            if key not in self._clients:
                settings = sdk.config(
                    connect_timeout=CONNECT_SECONDS,
                    read_timeout=READ_SECONDS,
                    tcp_keepalive=True,
                    max_pool_connections=16,
                    retries={"mode": "standard", "total_max_attempts": attempts},
                    user_agent_extra="costgpu",
                )
                self._clients[key] = self._session().client(service, region_name=region, config=settings)
            return self._clients[key]

    def _session(self) -> Any:
        with self._lock:
            if self._given is None:
                self._given = sdk.boto3().Session()
            return self._given

    @contextlib.contextmanager
    def speaking(self, doing: str) -> Iterator[None]:
        """Translates what botocore raises inside the block."""
        try:
            yield
        except sdk.foreign() as exc:
            raise translate(exc, doing, decode=self._decode) from exc

    def _decode(self, message: str) -> str | None:
        with contextlib.suppress(*sdk.foreign()):
            reply = self.client("sts", self.home()).decode_authorization_message(EncodedMessage=message)
            return denied_action(reply["DecodedMessage"])
        return None

    def home(self) -> str:
        """The region for questions that are about no region: the configured one, or us-east-1."""
        region = str(self._session().region_name or FALLBACK_REGION)
        if region not in self._offline():
            raise unknown_region("AWS (AWS_REGION, AWS_DEFAULT_REGION or the profile)", region, self._offline(), USUAL)
        return region

    def require(self, region: str) -> None:
        """Raises `InvalidRequest`, with near names, if AWS has no such region."""
        if region in self._known:
            return
        with self.speaking(f"find the region {region}"):
            names = self._offline()
            if region not in names:  # newer than this botocore, or a slip of the pen
                reply = self.client("ec2", FALLBACK_REGION).describe_regions(AllRegions=True)
                names |= {row["RegionName"] for row in reply["Regions"]}
            if region not in names:
                raise unknown_region("AWS", region, names, USUAL)
        self._known.add(region)

    def _offline(self) -> set[str]:
        session = self._session()
        return {
            region
            for partition in session.get_available_partitions()
            for region in session.get_available_regions("ec2", partition_name=partition)
        }

    def enabled_regions(self) -> Sequence[str]:
        """The regions that the account can use, sorted."""
        with self.speaking("list the regions of the account"):
            reply = self.client("ec2", self.home()).describe_regions()
        return sorted(row["RegionName"] for row in reply["Regions"])

    def has(self, service: str, region: str) -> bool:
        """Whether a service is known to exist in a region."""
        session = self._session()
        return any(
            region in session.get_available_regions(service, partition_name=partition)
            for partition in session.get_available_partitions()
        )

    def identity(self) -> Identity:
        """Account, principal, and where the credentials came from."""
        with self.speaking("find out who is asking"):
            reply = self.client("sts", self.home()).get_caller_identity()
            return Identity(provider="aws", account=reply["Account"], principal=reply["Arn"], source=self._source())

    def _source(self) -> str:
        session = self._session()
        credentials = session.get_credentials()
        method = str(getattr(credentials, "method", "") or "")
        profile = str(session.profile_name or "")
        if method in ("env", "explicit") or not profile or profile == "default":
            return _METHODS.get(method, "profile default" if "file" in method else method)
        return f"profile {profile}"

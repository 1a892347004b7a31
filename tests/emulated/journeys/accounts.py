"""What is different from cloud to cloud for the people in it: how they get in, what they rent, what is left of it."""

from dataclasses import dataclass
from typing import Any, Protocol

from tests.emulators.compute_engine.client import RunningComputeEngine
from tests.emulators.ec2.client import RunningEc2

Cloud = RunningEc2 | RunningComputeEngine
_STATES = {
    "PROVISIONING": "pending",
    "STAGING": "pending",
    "RUNNING": "running",
    "STOPPING": "stopping",
    "TERMINATED": "stopped",
    "gone": "terminated",
}
"""Google's words for what costgpu calls so."""


class Account(Protocol):
    """One cloud, as people see it.

    Attributes:
        infra: What they give to ``--infra``.
        kind: The instance type that they take.
        cap: US dollars that are good for less than half an hour of it.
    """

    @property
    def infra(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def cap(self) -> str: ...

    def key(self, number: int) -> str:
        """By which the requests of the n-th person are known."""

    def environment(self, key: str) -> dict[str, str]:
        """Of that person's processes."""

    def instances(self, name: str = "") -> list[dict[str, Any]]:
        """All that ever were (of the jobs of that name): ``id``, ``guest``, ``state`` in costgpu's words, ``region``..."""


@dataclass(frozen=True)
class AwsAccount:
    """The emulated account of AWS."""

    cloud: RunningEc2
    infra: str = "aws/us-east-1"
    kind: str = "t3.micro"
    cap: str = "0.01"

    def key(self, number: int) -> str:
        return f"AKIAPERSON{number:04d}"

    def environment(self, key: str) -> dict[str, str]:
        return self.cloud.environment(access_key=key)

    def instances(self, name: str = "") -> list[dict[str, Any]]:
        rows = self.cloud.instances_of(name) if name else self.cloud.instances()
        return [{**row, "guest": row["id"]} for row in rows]


@dataclass(frozen=True)
class GcpAccount:
    """The emulated project of Google Cloud."""

    cloud: RunningComputeEngine
    infra: str = "gcp/us-central1"
    kind: str = "e2-standard-2"
    cap: str = "0.03"

    def key(self, number: int) -> str:
        return f"127.1.{number // 250}.{number % 250 + 1}"

    def environment(self, key: str) -> dict[str, str]:
        return self.cloud.environment(key)

    def instances(self, name: str = "") -> list[dict[str, Any]]:
        rows = self.cloud.instances_of(name) if name else self.cloud.instances()
        return [{**row, "state": _STATES[row["state"]]} for row in rows]


def account_of(cloud: Cloud) -> Account:
    return GcpAccount(cloud) if isinstance(cloud, RunningComputeEngine) else AwsAccount(cloud)

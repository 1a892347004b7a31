"""What costgpu has in the account, found by tag, and the removal of what runs leave behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from costgpu.errors import AuthError, ProviderError
from costgpu.job import InstanceState
from costgpu.providers.aws import sdk
from costgpu.providers.aws.instances import Instances, lease_in, tags_in
from costgpu.providers.aws.schedule import Schedules, run_of
from costgpu.providers.aws.session import Clients
from costgpu.providers.base import TAG_RUN, Leftover, Owned

PARALLEL_REGIONS = 8
HOURS_PER_MONTH = 730
GP3_USD_PER_GIB_MONTH = 0.08  # Source: Amazon EBS pricing, us-east-1; other regions up to twice that (2026-11)
ADDRESS_USD_PER_HOUR = 0.005  # Source: Amazon VPC pricing, public IPv4 addresses (2026-11)
GONE = frozenset({
    "InvalidGroup.NotFound", "InvalidGroupId.Malformed", "InvalidVolume.NotFound", "InvalidNetworkInterfaceID.NotFound",
    "InvalidAllocationID.NotFound",
})  # fmt: skip
STILL_USED = frozenset({
    "DependencyViolation", "VolumeInUse", "InvalidNetworkInterface.InUse", "InvalidParameterValue",
    "InvalidIPAddress.InUse", "IncorrectState", "OperationNotPermitted",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kind:
    """One sort of resource that carries tags.

    Attributes:
        name: As users read it.
        operation: boto3's paginated (or plain) call that lists it.
        key: Of the rows in the reply.
        id_key: Of the resource's id in a row.
        remove: boto3's call that deletes one.
        idle: Whether a row is left over, rather than part of a machine.
        usd_per_hour: What a row costs.
    """

    name: str
    operation: str
    key: str
    id_key: str
    remove: str
    idle: Callable[[Any], bool]
    usd_per_hour: Callable[[Any], float]


KINDS = (
    Kind("disk", "describe_volumes", "Volumes", "VolumeId", "delete_volume",
         lambda row: not row.get("Attachments"),
         lambda row: round(row.get("Size", 0) * GP3_USD_PER_GIB_MONTH / HOURS_PER_MONTH, 6)),
    Kind("address", "describe_addresses", "Addresses", "AllocationId", "release_address",
         lambda row: not row.get("AssociationId"), lambda _: ADDRESS_USD_PER_HOUR),
    Kind("network interface", "describe_network_interfaces", "NetworkInterfaces", "NetworkInterfaceId",
         "delete_network_interface", lambda row: row.get("Status") == "available", lambda _: 0.0),
    Kind("security group", "describe_security_groups", "SecurityGroups", "GroupId", "delete_security_group",
         lambda _: True, lambda _: 0.0),
)  # fmt: skip
"""In the order of removal: a group goes last, for interfaces are in it."""


class Inventory:
    """Looks for what is ours."""

    def __init__(self, clients: Clients, instances: Instances, schedules: Schedules) -> None:
        self._clients = clients
        self._instances = instances
        self._schedules = schedules

    def everywhere(self, regions: Sequence[str]) -> Owned:
        """All regions at once; one that fails is named and hides nothing.

        Raises:
            AuthError: No region at all accepts the credentials.
        """
        with ThreadPoolExecutor(max_workers=PARALLEL_REGIONS, thread_name_prefix="costgpu-aws") as pool:
            answers = list(pool.map(self._survey, regions))
        failed = [error for _, error in answers if error is not None]
        refused = [error for error in failed if isinstance(error, AuthError)]
        if regions and len(refused) == len(regions):
            raise refused[0]
        owned = [answer for answer, _ in answers]
        return Owned(
            instances=tuple(each for answer in owned for each in answer.instances),
            leftovers=tuple(each for answer in owned for each in answer.leftovers),
            unreachable=tuple(each for answer in owned for each in answer.unreachable),
        )

    def _survey(self, region: str) -> tuple[Owned, ProviderError | None]:
        try:
            self._clients.require(region)
            instances = self._instances.filtered(region, "tag-key", [TAG_RUN])
        except ProviderError as error:
            return Owned(unreachable=((region, error.message),)), error
        leftovers: list[Leftover] = []
        unreachable: list[tuple[str, str]] = []
        for name, listing in self._listings(region):
            try:
                leftovers += listing()
            except ProviderError as error:
                if name != "schedule" or self._schedules.configured:
                    unreachable.append((f"{region} ({name})", error.message))
        return Owned(instances=tuple(instances), leftovers=tuple(leftovers), unreachable=tuple(unreachable)), None

    def _listings(self, region: str) -> Iterator[tuple[str, Callable[[], list[Leftover]]]]:
        for kind in KINDS:
            yield (
                kind.name,
                lambda kind=kind: [  # type: ignore[misc]
                    self._leftover(region, kind, row)
                    for row in self._rows(region, kind, "tag-key", TAG_RUN)
                    if kind.idle(row)
                ],
            )
        yield "schedule", lambda: self._schedule_leftovers(region)

    def _rows(self, region: str, kind: Kind, name: str, value: str) -> list[Any]:
        ec2 = self._clients.client("ec2", region)
        question = {"Filters": [{"Name": name, "Values": [value]}]}
        with self._clients.speaking(f"list each {kind.name} in {region}"):
            if not ec2.can_paginate(kind.operation):
                return list(getattr(ec2, kind.operation)(**question)[kind.key])
            return [row for page in ec2.get_paginator(kind.operation).paginate(**question) for row in page[kind.key]]

    @staticmethod
    def _leftover(region: str, kind: Kind, row: Any) -> Leftover:
        tags = tags_in({"Tags": row.get("Tags") or row.get("TagSet")})
        return Leftover(
            provider="aws", region=region, kind=kind.name, resource_id=row[kind.id_key], run_id=tags.get(TAG_RUN, ""),
            usd_per_hour=kind.usd_per_hour(row), lease_until=lease_in(tags),
        )  # fmt: skip

    def _schedule_leftovers(self, region: str, run_id: str = "") -> list[Leftover]:
        with self._clients.speaking(f"list schedules in {region}"):
            names = list(self._schedules.names(region, run_id))
        return [
            Leftover(provider="aws", region=region, kind="schedule", resource_id=name, run_id=run_of(name))
            for name in names
        ]

    def clean_up(self, run_id: str, region: str) -> tuple[Leftover, ...]:
        """Removes what a run left in a region; returns what has to wait, everything if its machine still lives."""
        self._clients.require(region)
        machines = self._instances.filtered(region, f"tag:{TAG_RUN}", [run_id])
        alive = any(each.state.alive and each.state is not InstanceState.TERMINATING for each in machines)
        waiting = [] if alive else self._remove_schedules(run_id, region)
        if alive:
            waiting = self._schedules_of(run_id, region)
        for kind in KINDS:
            for row in self._rows(region, kind, f"tag:{TAG_RUN}", run_id):
                if alive or not self._remove(region, kind, row):
                    waiting.append(self._leftover(region, kind, row))
        return tuple(waiting)

    def _schedules_of(self, run_id: str, region: str) -> list[Leftover]:
        try:
            return self._schedule_leftovers(region, run_id)
        except AuthError:
            if self._schedules.configured:
                raise
            return []

    def _remove_schedules(self, run_id: str, region: str) -> list[Leftover]:
        found = self._schedules_of(run_id, region)
        return [each for each in found if not self._schedules.remove_quietly(region, each.resource_id)]

    def _remove(self, region: str, kind: Kind, row: Any) -> bool:
        """Deletes one thing; returns whether it is gone."""
        resource = row[kind.id_key]
        with self._clients.speaking(f"remove the {kind.name} {resource} in {region}"):
            if not kind.idle(row):
                return False
            try:
                getattr(self._clients.client("ec2", region), kind.remove)(**{kind.id_key: resource})
            except sdk.exceptions().ClientError as exc:
                if sdk.code_of(exc) in STILL_USED:
                    return False
                if sdk.code_of(exc) not in GONE:
                    raise
        return True

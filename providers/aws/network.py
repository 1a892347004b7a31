"""Where a machine is placed, and who may reach it: default subnets, and one security group for each run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from costgpu.clock import Clock
from costgpu.errors import InvalidRequest
from costgpu.models.defaults import SSH_PORT
from costgpu.models.instance import CreateRequest
from costgpu.models.offer import Offer
from costgpu.providers.aws import sdk
from costgpu.providers.aws.sdk import Clients
from costgpu.providers.base import TAG_RUN
from costgpu.providers.common import network_of, run_name

T = TypeVar("T")
PORTS = ("IpProtocol", "FromPort", "ToPort")
SOURCES = ("IpRanges", "Ipv6Ranges", "UserIdGroupPairs", "PrefixListIds")
SETTLE_TRIES, SETTLE_SECONDS = 6, 0.5  # a new group is not at once known to every part of EC2


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where to put a machine."""

    vpc_id: str  # the network that the subnet is in
    subnet_id: str | None  # None lets AWS choose among the default subnets, and with them the zone


def aws_tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Tags in the form of the API."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


class Network:
    """Subnets and security groups.

    Args:
        subnet: Used instead of the default ones; None for those.
    """

    def __init__(self, clients: Clients, clock: Clock, subnet: str | None) -> None:
        self._clients = clients
        self._clock = clock
        self._subnet = subnet
        self._subnets: dict[str, list[Any]] = {}
        self._offerings: dict[tuple[str, str], frozenset[str]] = {}

    def place(self, request: CreateRequest) -> Placement:
        """Return the subnet for a request.

        Raises:
            InvalidRequest: There is no default VPC, no default subnet in the zone, or the subnet is elsewhere.
        """
        region, zone = request.offer.region, request.zone
        if self._subnet:
            with self._clients.speaking(f"look up the subnet {self._subnet} in {region}"):
                row = self._clients.client("ec2", region).describe_subnets(SubnetIds=[self._subnet])["Subnets"][0]
            if zone not in (None, row["AvailabilityZone"]):
                raise InvalidRequest(f"The subnet {self._subnet} is in {row['AvailabilityZone']}, not in {zone}.")
            return Placement(vpc_id=row["VpcId"], subnet_id=self._subnet)
        rows = self._default_subnets(region)
        if not rows:
            raise InvalidRequest(
                f"There is no default VPC with subnets in {region}.",
                hint=f"aws ec2 create-default-vpc --region {region} makes one; or name a subnet with --subnet.",
            )
        if zone is None and all(row.get("MapPublicIpOnLaunch") for row in rows):
            return Placement(vpc_id=rows[0]["VpcId"], subnet_id=None)
        if zone is None:  # AWS gives machines in such subnets an address only where the call names the subnet
            fit = self._offering(request.offer)
            inside = [row for row in rows if row["AvailabilityZone"] in fit] or rows
        else:
            inside = [row for row in rows if row["AvailabilityZone"] == zone]
        if not inside:
            zones = ", ".join(row["AvailabilityZone"] for row in rows)
            raise InvalidRequest(f"There is no default subnet in the zone {zone}.", hint=f"There are some in {zones}.")
        return Placement(vpc_id=inside[0]["VpcId"], subnet_id=inside[0]["SubnetId"])

    def zones(self, offer: Offer) -> tuple[str | None, ...]:
        """Return where to try, in this order; None leaves the choice to AWS.

        Raises:
            InvalidRequest: No zone of the region has the type.
        """
        if offer.zone is not None:
            return (offer.zone,)
        fit = self._offering(offer)
        if not fit:
            raise InvalidRequest(f"AWS has no {offer.instance_type} in {offer.region}.")
        if self._subnet:
            return (None,)
        return (
            None,
            *(row["AvailabilityZone"] for row in self._default_subnets(offer.region) if row["AvailabilityZone"] in fit),
        )

    def _default_subnets(self, region: str) -> list[Any]:
        """By zone."""
        if region not in self._subnets:
            question = [{"Name": "default-for-az", "Values": ["true"]}]
            with self._clients.speaking(f"list the default subnets of {region}"):
                rows = self._clients.rows(region, "describe_subnets", "Subnets", Filters=question)
            self._subnets[region] = sorted(rows, key=lambda row: str(row["AvailabilityZone"]))
        return self._subnets[region]

    def _offering(self, offer: Offer) -> frozenset[str]:
        """Return the zones of the region that have the type."""
        key = (offer.region, offer.instance_type)
        if key not in self._offerings:
            with self._clients.speaking(f"find the zones of {offer.region} that have {offer.instance_type}"):
                rows = self._clients.rows(
                    offer.region,
                    "describe_instance_type_offerings",
                    "InstanceTypeOfferings",
                    LocationType="availability-zone",
                    Filters=[{"Name": "instance-type", "Values": [offer.instance_type]}],
                )
            self._offerings[key] = frozenset(row["Location"] for row in rows)
        return self._offerings[key]

    def ensure_group(self, request: CreateRequest, vpc_id: str, tags: Mapping[str, str]) -> str:
        """Return the run's security group with port 22 open to `request.allow_from`; made, or found again."""
        region, name = request.offer.region, run_name(request.run_id)
        ec2 = self._clients.client("ec2", region)
        with self._clients.speaking(f"create the security group {name} in {region}"):
            words = f"costgpu run {request.run_id}: SSH for its user"
            group_id = self.security_group(region, vpc_id, name, words, tags)
            self.settled(lambda: self._allow(ec2, group_id, request.allow_from, request.run_id))
        return group_id

    def security_group(self, region: str, vpc_id: str, name: str, words: str, tags: Mapping[str, str]) -> str:
        """One of that name and with those tags, made or found again."""
        with sdk.Tolerate("InvalidGroup.Duplicate"):
            made = self._clients.client("ec2", region).create_security_group(
                GroupName=name,
                VpcId=vpc_id,
                Description=words,
                TagSpecifications=[{"ResourceType": "security-group", "Tags": aws_tags(tags)}],
            )
            return str(made["GroupId"])
        return self._existing(region, name, vpc_id, tags[TAG_RUN])

    def settled(self, call: Callable[[], T]) -> T:
        """Repeat a call while AWS does not know the new group everywhere yet."""
        for _ in range(SETTLE_TRIES - 1):
            with sdk.Tolerate("InvalidGroup.NotFound", "InvalidPlacementGroup.Unknown"):
                return call()
            self._clock.sleep(SETTLE_SECONDS)
        return call()

    def _existing(self, region: str, name: str, vpc_id: str, run_id: str) -> str:
        filters = [{"Name": "group-name", "Values": [name]}, {"Name": "vpc-id", "Values": [vpc_id]}]
        for row in self._clients.rows(region, "describe_security_groups", "SecurityGroups", Filters=filters):
            if {"Key": TAG_RUN, "Value": run_id} in row.get("Tags", ()):
                return str(row["GroupId"])
        raise InvalidRequest(f"The security group {name} in {region} exists, but it is not costgpu's.")

    def open_only(self, region: str, run_id: str, allow_from: str) -> None:
        """Let `allow_from`, and nobody else, reach port 22 of the run's machine."""
        ec2 = self._clients.client("ec2", region)
        with self._clients.speaking(f"open port 22 of run {run_id} in {region}"):
            filters = [
                {"Name": f"tag:{TAG_RUN}", "Values": [run_id]},
                {"Name": "group-name", "Values": [run_name(run_id)]},  # not that of its node group
            ]
            rows = self._clients.rows(region, "describe_security_groups", "SecurityGroups", Filters=filters)
            if not rows:
                raise InvalidRequest(f"The run {run_id} has no security group in {region}.")
            wanted = single_sources([_permission(allow_from, run_id)])
            for row in rows:
                self._allow(ec2, row["GroupId"], allow_from, run_id)
                stale = [each for each in single_sources(row.get("IpPermissions", ())) if each not in wanted]
                if stale:
                    ec2.revoke_security_group_ingress(GroupId=row["GroupId"], IpPermissions=stale)

    @staticmethod
    def _allow(ec2: Any, group_id: str, allow_from: str, run_id: str) -> None:
        with sdk.Tolerate("InvalidPermission.Duplicate"):
            ec2.authorize_security_group_ingress(GroupId=group_id, IpPermissions=[_permission(allow_from, run_id)])


def _permission(allow_from: str, run_id: str) -> dict[str, Any]:
    network = network_of(allow_from)
    entry = {"Description": f"costgpu run {run_id}"}
    rule: dict[str, Any] = {"IpProtocol": "tcp", "FromPort": SSH_PORT, "ToPort": SSH_PORT}
    if network.version == 6:
        return {**rule, "Ipv6Ranges": [{"CidrIpv6": str(network), **entry}]}
    return {**rule, "IpRanges": [{"CidrIp": str(network), **entry}]}


def single_sources(rules: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return each source of some permissions as a permission of its own, in the form that revoking takes."""
    return [
        {**{key: rule[key] for key in PORTS if key in rule}, kind: [_plain(source)]}
        for rule in rules
        for kind in SOURCES
        for source in rule.get(kind, ())
    ]


def _plain(source: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in source.items() if key != "Description"}

"""What the machines of a node group share: a security group in which they reach each other, and a placement group.

Both are made before each of the machines, unless they are there, and go with node 0's clean-up: they carry its run's tag.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from costgpu.errors import InvalidRequest, Throttled
from costgpu.models.instance import CreateRequest
from costgpu.providers.aws import sdk
from costgpu.providers.aws.launch import tags_of
from costgpu.providers.aws.network import Network, aws_tags
from costgpu.providers.aws.sdk import Clients
from costgpu.providers.base import TAG_RUN
from costgpu.providers.common import group_name, of_group


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedResources:
    """What RunInstances is told of them."""

    security_groups: tuple[str, ...] = ()  # ids; none for a machine that works alone
    placement_group: str = ""  # name; empty for a machine that AWS places where it likes


def ensure_shared(clients: Clients, network: Network, request: CreateRequest, vpc_id: str) -> SharedResources:
    """Return those of the request's group, made or found again.

    Raises:
        InvalidRequest: Something of that name is not costgpu's.
    """
    group = request.group
    if group is None:
        return SharedResources()
    region, name, tags = request.offer.region, group_name(group.group_id), tags_of(of_group(request, group))
    ec2 = clients.client("ec2", region)
    with clients.speaking(f"create the security group {name} in {region}"):
        words = f"costgpu run {group.group_id}: its machines reach each other"
        group_id = network.security_group(region, vpc_id, name, words, tags)
        network.settled(lambda: _open_to_itself(ec2, group_id))
    if group.placement:
        with clients.speaking(f"create the placement group {name} in {region}"):
            _placement_group(ec2, region, name, tags)
    return SharedResources(security_groups=(group_id,), placement_group=name if group.placement else "")


def _open_to_itself(ec2: Any, group_id: str) -> None:
    """All traffic between its members, in both directions.

    EFA's traffic needs the outgoing rule that names the group, beside the one to everywhere that every group begins with.
    Source: EC2 user guide, "Get started with EFA", prepare an EFA-enabled security group (2026-11).
    """
    rule = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group_id}]}
    for authorize in (ec2.authorize_security_group_ingress, ec2.authorize_security_group_egress):
        with sdk.Tolerate("InvalidPermission.Duplicate"):
            authorize(GroupId=group_id, IpPermissions=[rule])


def _placement_group(ec2: Any, region: str, name: str, tags: dict[str, str]) -> None:
    with sdk.Tolerate("InvalidPlacementGroup.Duplicate"):
        ec2.create_placement_group(
            GroupName=name,
            Strategy="cluster",
            TagSpecifications=[{"ResourceType": "placement-group", "Tags": aws_tags(tags)}],
        )
        return
    question = [{"Name": "group-name", "Values": [name]}]
    for row in ec2.describe_placement_groups(Filters=question)["PlacementGroups"]:
        if row["State"] == "deleting":
            raise Throttled(f"The placement group {name} in {region} is being removed.")
        if {"Key": TAG_RUN, "Value": tags[TAG_RUN]} not in row.get("Tags", ()):
            raise InvalidRequest(f"The placement group {name} in {region} exists, but it is not costgpu's.")

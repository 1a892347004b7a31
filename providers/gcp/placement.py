"""Compact placement: a policy of the region that the machines of a group share, so that they are close together.

It says nothing of how many machines there are: with a number, Google places none before all have been asked for.
Source: Compute Engine, "Placement policies overview", and API reference, ``groupPlacementPolicy.vmCount`` (2026-11).
"""

from __future__ import annotations

from costgpu.errors import InvalidRequest, ProviderError, Throttled
from costgpu.models.instance import CreateRequest, NodeGroup
from costgpu.providers.base import TAG_RUN
from costgpu.providers.common import group_name, of_group
from costgpu.providers.gcp import sdk
from costgpu.providers.gcp.launch import facts_from, facts_of, label_value
from costgpu.providers.gcp.session import Clients

POLICY_SECONDS = 60.0  # until it can be used
CHANGING = frozenset({"CREATING", "DELETING"})


def ensure_policy(clients: Clients, request: CreateRequest, group: NodeGroup) -> None:
    """Make or find the group's policy, which is ready when this returns.

    Raises:
        InvalidRequest: A policy of that name is not costgpu's.
    """
    name, region = group_name(group.group_id), request.offer.region
    doing = f"make the placement policy {name} in {region}"
    policy = {
        "name": name,
        "description": facts_of(of_group(request, group)),
        "group_placement_policy": {"collocation": "COLLOCATED"},
    }
    try:
        fields = {"region": region, "resource_policy_resource": policy}
        operation = clients.write(doing, "ResourcePolicies", "insert_unary", **fields)
    except ProviderError as error:
        if sdk.status_of(error.__cause__) != 409:
            raise
    else:
        if not clients.finished(doing, operation, seconds=POLICY_SECONDS):
            raise Throttled(f"The placement policy {name} in {region} is still being made.")
        return
    row = clients.maybe(doing, "ResourcePolicies", "get", region=region, resource_policy=name)
    if row is None or str(row.status) in CHANGING:
        raise Throttled(f"The placement policy {name} in {region} is being made, or removed.")
    if facts_from(str(row.description)).get(TAG_RUN) != label_value(group.group_id):
        raise InvalidRequest(f"The placement policy {name} in {region} exists, but it is not costgpu's.")

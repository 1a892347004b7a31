"""Placement groups, which moto does not have; and what RunInstances refuses about them and about EFA.

Sources: EC2 user guide, "Placement groups" and "Elastic Fabric Adapter"; API reference, error codes (2026-11).
"""

import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.models.instances import Instance
from moto.ec2.responses.general import General
from moto.ec2.responses.instances import InstanceResponse

from tests.emulators.ec2.account import replace

NOT_CLUSTERED = ("t2", "t3", "t3a", "t4g", "mac")


@dataclass(frozen=True, slots=True)
class PlacementGroup:
    """One cluster placement group."""

    group_id: str
    name: str
    tags: Mapping[str, str]


class PlacementGroups:
    """Those of all regions."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._request = threading.local()
        self.reset()

    def reset(self) -> None:
        self._groups: dict[tuple[str, str], PlacementGroup] = {}  # (region, name)
        self._members: list[tuple[str, str, Instance]] = []  # region, name, who is in it

    def install(self) -> None:
        """The three calls, and the placement that RunInstances names."""
        for name in ("create", "delete", "describe"):
            method, verb = f"{name}_placement_group{'s' * (name == 'describe')}", getattr(self, f"_{name}")
            setattr(General, method, lambda response, verb=verb: verb(response))
        run = InstanceResponse.run_instances

        def run_instances(response: Any) -> ActionResult:
            self._request.value = self._check(response)
            try:
                return run(response)
            finally:
                self._request.value = ""

        replace(InstanceResponse, "run_instances", run_instances)

    def join(self, instance: Instance) -> None:
        """The new instance is in the placement group that its request names, if any."""
        name = getattr(self._request, "value", "")
        if name:
            instance._placement.group_name = name
            self._members.append((instance.region_name, name, instance))

    def request_key(self) -> str:
        """What of the present request idempotency has to compare, too."""
        return str(getattr(self._request, "value", ""))

    def _check(self, response: Any) -> str:
        kind, name = response._get_param("InstanceType", "m1.small"), response._get_param("Placement.GroupName", "")
        interfaces: Sequence[Mapping[str, Any]] = response._get_param("NetworkInterfaces", [])
        network = INSTANCE_TYPES.get(kind, {}).get("NetworkInfo", {})
        if any(each.get("InterfaceType") == "efa" for each in interfaces) and not network.get("EfaSupported"):
            raise EC2ClientError("Unsupported", f"EFA interfaces are not supported on {kind}.")
        if len(interfaces) > 1 and any(each.get("AssociatePublicIpAddress") for each in interfaces):
            raise EC2ClientError(
                "InvalidParameterCombination",
                "The associatePublicIPAddress parameter cannot be specified when launching with multiple network "
                "interfaces.",
            )
        if name and (response.region, name) not in self._groups:
            raise EC2ClientError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
        if name and kind.startswith(NOT_CLUSTERED):
            raise EC2ClientError(
                "InvalidParameterCombination",
                f"Cluster placement groups are not supported by the '{kind}' instance type. Specify a supported instance "
                "type or change the placement group strategy, and try again.",
            )
        return str(name)

    def _create(self, response: Any) -> ActionResult:
        name, key = response._get_param("GroupName"), (response.region, response._get_param("GroupName"))
        response.error_on_dryrun()
        if key in self._groups:
            raise EC2ClientError("InvalidPlacementGroup.Duplicate", f"The Placement Group '{name}' already exists.")
        tags = response._parse_tag_specification().get("placement-group", {})
        self._groups[key] = PlacementGroup(f"pg-{next(self._ids):017x}", name, tags)
        return ActionResult({"PlacementGroup": _row(self._groups[key])})

    def _delete(self, response: Any) -> ActionResult:
        name, key = response._get_param("GroupName"), (response.region, response._get_param("GroupName"))
        response.error_on_dryrun()
        if key not in self._groups:
            raise EC2ClientError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
        if any((region, used) == key and member.state != "terminated" for region, used, member in self._members):
            raise EC2ClientError(
                "InvalidPlacementGroup.InUse", f"The placement group '{name}' is in use and may not be deleted."
            )
        del self._groups[key]
        return ActionResult({})

    def _describe(self, response: Any) -> ActionResult:
        response.error_on_dryrun()
        rows = [group for (region, _), group in sorted(self._groups.items()) if region == response.region]
        for name, values in response._filters_from_querystring().items():
            rows = [group for group in rows if _fits(group, name, values)]
        return ActionResult({"PlacementGroups": [_row(group) for group in rows]})


def _fits(group: PlacementGroup, name: str, values: Sequence[str]) -> bool:
    if name == "group-name":
        return group.name in values
    if name == "tag-key":
        return bool(set(values) & set(group.tags))
    if name.startswith("tag:"):
        return group.tags.get(name.removeprefix("tag:")) in values
    raise EC2ClientError("InvalidParameterValue", f"The filter '{name}' is invalid")


def _row(group: PlacementGroup) -> dict[str, Any]:
    return {
        "GroupName": group.name,
        "GroupId": group.group_id,
        "State": "available",
        "Strategy": "cluster",
        "Tags": [{"Key": key, "Value": value} for key, value in group.tags.items()],
    }

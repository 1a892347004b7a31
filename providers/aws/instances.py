"""EC2's description of a machine as costgpu's `Instance`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from costgpu.models.instance import Instance, InstanceRef, InstanceState
from costgpu.providers.aws import sdk
from costgpu.providers.aws.sdk import Clients
from costgpu.providers.common import facts_in, ssh_endpoint

STATES = {
    "pending": InstanceState.PENDING,
    "running": InstanceState.RUNNING,
    "stopping": InstanceState.STOPPING,
    "stopped": InstanceState.STOPPED,
    "shutting-down": InstanceState.TERMINATING,
    "terminated": InstanceState.TERMINATED,
}
TAKEN_BACK = frozenset({"Server.SpotInstanceTermination", "Server.SpotInstanceShutdown"})
"""Codes of StateReason. Source: Amazon EC2 API reference, StateReason (2026-11)."""
BY_GUEST = "Client.InstanceInitiatedShutdown"
"""Code of StateReason: a shutdown was begun within the machine. Source: as above."""
MARKED = "marked-for-termination"
TAKEN_BACK_REQUEST = frozenset(
    {
        MARKED,
        "instance-terminated-by-price",
        "instance-terminated-no-capacity",
        "instance-terminated-capacity-oversubscribed",
        "instance-terminated-by-service",
    }
)
"""Status of a spot request. Source: EC2 user guide, "Spot request status codes" (2026-11)."""
MOVED_AT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) GMT\)")
"""In StateTransitionReason. Source: Amazon EC2 API reference, Instance (2026-11)."""
NOT_FOUND = "InvalidInstanceID.NotFound"
PAGES = {"PaginationConfig": {"PageSize": 1000}}
"""The most. Source: Amazon EC2 API reference, DescribeInstances (2026-11)."""


def tags_in(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of anything that EC2 describes; interfaces have theirs elsewhere."""
    return {tag["Key"]: tag.get("Value", "") for tag in row.get("Tags") or row.get("TagSet") or ()}


def instance_from(row: Mapping[str, Any], region: str, request: Mapping[str, Any] | None = None) -> Instance:
    """One entry of ``Instances``.

    Args:
        request: Status of its spot request; None if it was not asked for. The entry itself often knows as much.
    """
    tags, asked = tags_in(row), request or {}
    state = STATES.get(row["State"]["Name"], InstanceState.PENDING)
    why = row.get("StateReason") or {}
    code, words = str(why.get("Code", "")), str(why.get("Message") or row.get("StateTransitionReason") or "")
    zone = (row.get("Placement") or {}).get("AvailabilityZone")
    over = state is InstanceState.TERMINATED
    taken_back = asked.get("Code") in TAKEN_BACK_REQUEST
    ended_at = _moved_at(row) or (asked.get("UpdateTime") if taken_back and asked.get("Code") != MARKED else None)
    return Instance(
        ref=InstanceRef(provider="aws", region=region, instance_id=row["InstanceId"]),
        zone=zone,
        instance_type=row["InstanceType"],
        state=state,
        reason=words,
        preempted=taken_back or code in TAKEN_BACK,
        launched_at=row["LaunchTime"].astimezone(UTC),
        ended_at=ended_at.astimezone(UTC) if over and ended_at is not None else None,
        by_guest=code == BY_GUEST,
        refusal=sdk.refusal_at_launch(code, words, f"launch a {row['InstanceType']} in {zone or region}"),
        endpoint=ssh_endpoint(row.get("PublicIpAddress"), state),
        spot=row.get("InstanceLifecycle") == "spot",
        private_address=str(row.get("PrivateIpAddress") or ""),
        **facts_in(tags),
    )


def _moved_at(row: Mapping[str, Any]) -> datetime | None:
    """When its state changed last, as in ``User initiated (2026-11-21 10:00:00 GMT)``; None if EC2 does not say."""
    found = MOVED_AT.search(str(row.get("StateTransitionReason") or ""))
    return datetime.strptime(found.group(1), "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC) if found else None


class Instances:
    """Questions about machines."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def describe(self, ref: InstanceRef) -> Instance | None:
        """One machine, ours or not; None if EC2 does not know it (yet, or any more)."""
        self._clients.require(ref.region)
        with self._clients.speaking(f"describe {ref.instance_id} in {ref.region}"), sdk.Tolerate(NOT_FOUND):
            rows = list(self._machines(ref.region, InstanceIds=[ref.instance_id]))
            if rows:
                return instance_from(rows[0], ref.region, self._request_status(ref.region, rows[0]))
        return None

    def _filtered(self, region: str, name: str, value: str) -> list[Instance]:
        """Return the machines that a filter of EC2 leaves, all pages of them."""
        with self._clients.speaking(f"list instances in {region}"):
            rows = list(self._machines(region, Filters=[{"Name": name, "Values": [value]}], **PAGES))
        return [instance_from(row, region) for row in rows]

    def _machines(self, region: str, **question: Any) -> Iterator[Any]:
        for reservation in self._clients.rows(region, "describe_instances", "Reservations", **question):
            yield from reservation["Instances"]

    def _request_status(self, region: str, row: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Why a spot instance has ended: it may have powered itself off first, when it saw the notice. None if unknown."""
        request = row.get("SpotInstanceRequestId")
        if not request or STATES.get(row["State"]["Name"]) not in (InstanceState.TERMINATING, InstanceState.TERMINATED):
            return None
        try:
            reply = self._clients.client("ec2", region).describe_spot_instance_requests(
                SpotInstanceRequestIds=[request]
            )
        except sdk.foreign():
            return None  # the state of the machine matters more than why
        return next((found.get("Status") for found in reply["SpotInstanceRequests"]), None)

    def console(self, ref: InstanceRef) -> str:
        """Boot messages; empty if there are none yet, or the machine is gone."""
        self._clients.require(ref.region)
        ec2 = self._clients.client("ec2", ref.region)
        doing = f"read the console of {ref.instance_id} in {ref.region}"
        with self._clients.speaking(doing), sdk.Tolerate(NOT_FOUND):
            with sdk.Tolerate("UnsupportedOperation", "InvalidParameterCombination"):  # not a Nitro machine
                return str(ec2.get_console_output(InstanceId=ref.instance_id, Latest=True).get("Output") or "")
            return str(ec2.get_console_output(InstanceId=ref.instance_id).get("Output") or "")
        return ""

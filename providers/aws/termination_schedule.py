"""The second net: an EventBridge schedule that terminates the machine at the end of its lease, whatever we do."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime

from costgpu.errors import ProviderError
from costgpu.models.instance import InstanceRef, OrphanedResource, Safeguard
from costgpu.providers.aws import sdk
from costgpu.providers.aws.sdk import Clients
from costgpu.providers.base import TAG_RUN
from costgpu.providers.common import leftover_from

LAYER, SCHEDULE = "provider schedule", "schedule"
PREFIX = "costgpu-"
TARGET = "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances"
"""Universal target. Source: EventBridge Scheduler user guide, "Using universal targets" (2026-11)."""


def schedule_name(run_id: str, instance_id: str) -> str:
    """Return the name of a machine's schedule: at most 64 characters of letters, digits and dashes."""
    return f"{PREFIX}{run_id}-{instance_id}"


def run_of(name: str) -> str:
    """Return the run in a schedule's name; empty if the name is not one of ours."""
    run_id, dash, instance_id = name.removeprefix(PREFIX).partition("-")
    return run_id if name.startswith(PREFIX) and dash and instance_id.startswith("i-") else ""


class Schedules:
    """One-shot schedules.

    Args:
        role_arn: The role that EventBridge takes on to call ec2:TerminateInstances; None arms nothing.
    """

    def __init__(self, clients: Clients, role_arn: str | None) -> None:
        self._clients = clients
        self._role_arn = role_arn

    def planned(self, lease_until: datetime) -> Safeguard:
        """Return the layer as it will be."""
        if not self._role_arn:
            return Safeguard(
                name=LAYER, armed=False, detail="no role for EventBridge is configured (aws_scheduler_role_arn)"
            )
        return Safeguard(name=LAYER, armed=True, detail="EventBridge terminates the instance", deadline=lease_until)

    def arm(self, ref: InstanceRef, run_id: str, lease_until: datetime) -> Safeguard:
        """Make the schedule, once; never raises: the machine exists, and other layers hold it."""
        if not self._role_arn:
            return self.planned(lease_until)
        name, moment = schedule_name(run_id, ref.instance_id), lease_until.astimezone(UTC)
        doing = f"arm the EventBridge schedule for {ref.instance_id} in {ref.region}"
        try:
            with self._clients.speaking(doing), sdk.Tolerate("ConflictException"):  # the same machine and lease
                self._clients.client("scheduler", ref.region, max_attempts=2).create_schedule(
                    Name=name,
                    Description="costgpu: ends the instance of a run when its lease is over",
                    ScheduleExpression=f"at({moment:%Y-%m-%dT%H:%M:%S})",
                    ScheduleExpressionTimezone="UTC",
                    FlexibleTimeWindow={"Mode": "OFF"},
                    ActionAfterCompletion="DELETE",
                    Target={
                        "Arn": TARGET,
                        "RoleArn": self._role_arn,
                        "Input": json.dumps({"InstanceIds": [ref.instance_id]}),
                    },
                )
        except ProviderError as error:
            return Safeguard(name=LAYER, armed=False, detail=error.message)
        return Safeguard(name=LAYER, armed=True, detail=f"EventBridge schedule {name}", deadline=lease_until)

    def made(self, region: str, run_id: str = "") -> list[OrphanedResource]:
        """Return the schedules of a run, or of all runs, in a region."""
        if region not in self._clients.regions_of("scheduler"):
            return []
        prefix = f"{PREFIX}{run_id}-" if run_id else PREFIX
        with self._clients.speaking(f"list schedules in {region}"):
            rows = self._clients.rows(region, "list_schedules", "Schedules", service="scheduler", NamePrefix=prefix)
        return [
            leftover_from("aws", region, SCHEDULE, name, {TAG_RUN: run_of(name)}, 0.0, row.get("CreationDate"))
            for row in rows
            if run_of(name := str(row["Name"])) and (row.get("Target") or {}).get("Arn") == TARGET
        ]

    def remove(self, region: str, name: str) -> None:
        """Delete one; it may be gone already."""
        with sdk.Tolerate("ResourceNotFoundException"):
            self._clients.client("scheduler", region).delete_schedule(Name=name)

    @property
    def configured(self) -> bool:
        """Return whether schedules are armed at all."""
        return bool(self._role_arn)

    def remove_quietly(self, region: str, name: str) -> bool:
        """Delete one; return whether it is gone."""
        with contextlib.suppress(*sdk.foreign()):
            self.remove(region, name)
            return True
        return False

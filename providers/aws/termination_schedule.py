"""The second net: an EventBridge schedule that terminates the machine at the end of its lease, whatever we do."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from costgpu.errors import ProviderError
from costgpu.models.instance import InstanceRef, Safeguard
from costgpu.providers.aws import sdk
from costgpu.providers.aws.session import Clients

LAYER = "provider schedule"
PREFIX = "costgpu-"
TARGET = "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances"
"""Universal target. Source: EventBridge Scheduler user guide, "Using universal targets" (2026-11)."""


def schedule_name(run_id: str, instance_id: str) -> str:
    """The name of a machine's schedule: at most 64 characters of letters, digits and dashes."""
    return f"{PREFIX}{run_id}-{instance_id}"


def run_of(name: str) -> str:
    """The run in a schedule's name; empty if the name is not one of ours."""
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
        """The layer as it will be."""
        if not self._role_arn:
            return Safeguard(
                name=LAYER, armed=False, detail="no role for EventBridge is configured (aws_scheduler_role_arn)"
            )
        return Safeguard(name=LAYER, armed=True, detail="EventBridge terminates the instance", deadline=lease_until)

    def arm(self, ref: InstanceRef, run_id: str, lease_until: datetime) -> Safeguard:
        """Makes the schedule, once; never raises: the machine exists, and other layers hold it."""
        if not self._role_arn:
            return self.planned(lease_until)
        name, moment = schedule_name(run_id, ref.instance_id), lease_until.astimezone(UTC)
        try:
            with self._clients.speaking(f"arm the EventBridge schedule for {ref.instance_id} in {ref.region}"):
                self._create(ref, name, f"at({moment:%Y-%m-%dT%H:%M:%S})")
        except ProviderError as error:
            return Safeguard(name=LAYER, armed=False, detail=error.message)
        return Safeguard(name=LAYER, armed=True, detail=f"EventBridge schedule {name}", deadline=lease_until)

    def _create(self, ref: InstanceRef, name: str, moment: str) -> None:
        try:
            self._clients.client("scheduler", ref.region, attempts=2).create_schedule(
                Name=name,
                Description="costgpu: ends the instance of a run when its lease is over",
                ScheduleExpression=moment,
                ScheduleExpressionTimezone="UTC",
                FlexibleTimeWindow={"Mode": "OFF"},
                ActionAfterCompletion="DELETE",
                Target={
                    "Arn": TARGET,
                    "RoleArn": self._role_arn,
                    "Input": json.dumps({"InstanceIds": [ref.instance_id]}),
                },
            )
        except sdk.exceptions().ClientError as exc:
            if sdk.code_of(exc) != "ConflictException":  # the same name is the same machine and the same lease
                raise

    def made(self, region: str, run_id: str = "") -> Iterator[tuple[str, datetime | None]]:
        """The schedules of a run, or of all runs, in a region: name, and when it was made."""
        if not self._clients.has("scheduler", region):
            return
        prefix = f"{PREFIX}{run_id}-" if run_id else PREFIX
        pages = self._clients.client("scheduler", region).get_paginator("list_schedules").paginate(NamePrefix=prefix)
        for page in pages:
            for row in page["Schedules"]:
                if run_of(row["Name"]) and (row.get("Target") or {}).get("Arn") == TARGET:
                    yield str(row["Name"]), row.get("CreationDate")

    def remove(self, region: str, name: str) -> None:
        """Deletes one; it may be gone already."""
        client: Any = self._clients.client("scheduler", region)
        try:
            client.delete_schedule(Name=name)
        except sdk.exceptions().ClientError as exc:
            if sdk.code_of(exc) != "ResourceNotFoundException":
                raise

    @property
    def configured(self) -> bool:
        """Whether schedules are armed at all."""
        return bool(self._role_arn)

    def remove_quietly(self, region: str, name: str) -> bool:
        """Deletes one; returns whether it is gone."""
        with contextlib.suppress(*sdk.foreign()):
            self.remove(region, name)
            return True
        return False

"""Simulated maintenance of a machine's host. Source: Compute Engine, "Simulate a host maintenance event" (2026-11)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from costgpu.errors import InvalidRequest
from costgpu.models.instance import InstanceRef
from costgpu.providers.base import TAG_RUN, HostMaintenance
from costgpu.providers.gcp.instances import SYSTEM, Instances, begun_at, operations_on, split_id
from costgpu.providers.gcp.session import is_done

OF_HOST = "HostMaintenance"  # how the types of the events end that come of it


class SimulatedMaintenance(Instances):
    """See `costgpu.providers.base.MaintenanceSimulator`."""

    def simulate_maintenance(self, ref: InstanceRef) -> None:
        """Ask for the maintenance, which takes the permission ``compute.instances.simulateMaintenanceEvent``."""
        zone, name = split_id(ref)
        row = self._row(zone, name)
        if row is None or TAG_RUN not in row.labels:
            raise InvalidRequest(f"{name} in {zone} is no machine of costgpu.")
        doing = f"simulate the maintenance of the host of {name} in {zone}"
        self._clients.write(doing, "Instances", "simulate_maintenance_event_unary", zone=zone, instance=name)

    def maintained(self, ref: InstanceRef) -> HostMaintenance:
        """Return what its zone's operations and its own description tell."""
        zone, name = split_id(ref)
        rows = sorted(operations_on(self._clients, zone, name), key=begun_at)
        kinds = [str(row.operation_type) for row in rows if is_done(row)]
        return HostMaintenance(
            events=tuple(str(row.operation_type) for row in rows),
            over=any(kind.startswith(SYSTEM) and kind.endswith(OF_HOST) for kind in kinds),
            time_limit=_time_limit(self._row(zone, name)),
        )


def _time_limit(row: Any | None) -> datetime | None:
    """When Google will delete the machine, as long as it runs; None if it will not, or the client has no such field."""
    scheduling = getattr(getattr(row, "resource_status", None), "scheduling", None)
    text = str(getattr(scheduling, "termination_timestamp", "") or "")
    return datetime.fromisoformat(text) if text else None

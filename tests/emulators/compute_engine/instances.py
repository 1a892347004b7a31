"""Compute Engine's instances as they live: capacity, quotas, guests that stop themselves, time limits, preemption.

What is not AWS: a guest that powers itself off is TERMINATED and still there, and so is its disk; the time limit of an
instance counts only while it is RUNNING (cloud.google.com/compute/docs/instances/limit-vm-runtime, 2026-11: the
termination timestamp is cleared whenever a VM is stopped).
"""

import threading
import time
from collections.abc import Callable

from tests.emulators.compute_engine.catalog import ACCELERATORS, last_part, region_of
from tests.emulators.compute_engine.operations import OperationFailed, Operations, Scope, pool_exhausted, quota_exceeded
from tests.emulators.compute_engine.project import Key, ProjectState, Row
from tests.emulators.compute_engine.quotas import exceeded
from tests.emulators.compute_engine.vm import Vm, make
from tests.emulators.compute_engine.wire import GoogleError, exists, not_found
from tests.emulators.machines import GuestSpec, Machines
from tests.emulators.phases import later
from tests.emulators.wire import ApiCall

GONE = ("STOPPING", "TERMINATED")


class Instances:
    """All of them, over the machines that carry them."""

    def __init__(
        self,
        world: ProjectState,
        operations: Operations,
        machines: Machines,
        changed: Callable[[Vm], None] = lambda _: None,
    ) -> None:
        self.world, self.operations, self.machines = world, operations, machines
        self.changed = changed  # called when an instance is about to run, and when its metadata change
        self.rows: dict[Key, Vm] = {}
        self.ended: list[Row] = []
        threading.Thread(target=self._watch, daemon=True).start()

    def clear(self) -> None:
        self.rows, self.ended = {}, []
        self.machines.close()

    def get(self, project: str, zone: str, name: str) -> Vm:
        found = self.rows.get((project, zone, name))
        if found is None:
            raise not_found(f"projects/{project}/zones/{zone}/instances/{name}")
        return found

    def at(self, address: str) -> Vm | None:
        with self.world.lock:
            return next((vm for vm in self.rows.values() if address in (vm.private_ip, vm.public_ip)), None)

    def placed_by(self, policy: str) -> list[str]:
        """The instances that a policy places, by their links."""
        with self.world.lock:
            return [vm.row["selfLink"] for vm in self.rows.values() if policy in vm.row.get("resourcePolicies", ())]

    # -- create --------------------------------------------------------------------------------------------------------

    def insert(self, call: ApiCall) -> Row:
        """``instances.insert``: what is wrong in itself is refused here, the rest comes in the operation."""
        body, scope = call.params["body"], Scope(call.params["project"], "zone", call.region)
        vm, disk = make(body, scope, self.world)
        with self.world.lock:
            if vm.key in self.rows:
                raise exists(vm.path)
            if (scope.project, scope.place, disk["name"]) in self.world.stores["disks"]:
                raise exists(f"{scope.path}/disks/{disk['name']}")
            if self.world.early_quotas and (short := self._over_quota(vm)):
                raise GoogleError(403, "quotaExceeded", short.error["message"].replace("  ", " "))
        generation = self.world.generation
        return self.operations.start(scope, "insert", vm.row, lambda: self._insert(vm, disk, generation))

    def _over_quota(self, vm: Vm) -> OperationFailed | None:
        held = [each.demand for each in self.rows.values() if each.status != "TERMINATED"]
        disks = sum(
            int(disk["sizeGb"])
            for (_, zone, _), disk in self.world.stores["disks"].items()
            if region_of(zone) == vm.demand.region
        )
        over = exceeded(vm.demand, held, disks, self.world.quota)
        return quota_exceeded(*over) if over else None

    def _insert(self, vm: Vm, disk: Row, generation: int) -> None:
        project, zone, _ = vm.key
        with self.world.lock:
            self._still(generation)
            if vm.key in self.rows:
                raise OperationFailed(
                    409, "CONFLICT", {"code": "RESOURCE_ALREADY_EXISTS", "message": exists(vm.path).message}
                )
            if short := self._over_quota(vm):
                raise short
            self.rows[vm.key] = vm
        self.world.dwell("insert_seconds", 0.5)
        with self.world.lock:
            self._still(generation)
            if failures := self.world.failures.get(vm.kind.name):
                status, code, message = failures.pop(0)
                self.rows.pop(vm.key, None)
                raise OperationFailed(status, code, {"code": code, "message": message})
            if self.world.short_of({vm.kind.name, vm.demand.accelerator} - {""}, zone):
                self.rows.pop(vm.key, None)
                raise self._exhausted(vm)
            if not vm.deleting:
                self.world.stores["disks"][project, zone, disk["name"]] = disk
                vm.row["status"] = "STAGING"
        self.world.dwell("insert_seconds", 0.5)
        self._power_on(vm, generation)

    def _still(self, generation: int) -> None:
        if generation != self.world.generation:
            raise OperationFailed(500, "INTERNAL", {"code": "INTERNAL_ERROR", "message": "another project by now"})

    def _exhausted(self, vm: Vm) -> OperationFailed:
        zone, what = vm.key[1], {vm.kind.name, vm.demand.accelerator} - {""}
        places = ACCELERATORS[vm.demand.accelerator].zones if vm.demand.accelerator else vm.kind.zones
        others = [
            each
            for each in places
            if region_of(each) == region_of(zone) and each != zone and not self.world.short_of(what, each)
        ]
        attached = f"{vm.demand.accelerator}:{vm.demand.gpus}" if vm.demand.gpus and not vm.kind.accelerator else ""
        return pool_exhausted(vm.key[0], zone, vm.kind.name, attached, others)

    def _power_on(self, vm: Vm, generation: int) -> None:
        with self.world.lock:
            self._still(generation)
            if vm.deleting or vm.status != "STAGING":
                return
            for config in vm.row["networkInterfaces"][0].get("accessConfigs", []):
                config.setdefault("natIP", self.world.public_ip())
            spec = GuestSpec(
                instance_id=vm.guest,
                private_ip=vm.private_ip,
                public_ip=vm.public_ip,
                user_data=vm.metadata.get("user-data", "").encode(),
                instance_type=vm.kind.name,
                region=vm.demand.region,
                zone=vm.key[1],
                spot=vm.spot,
                gpus=(ACCELERATORS[vm.demand.accelerator].shown,) * vm.demand.gpus if vm.demand.gpus else (),
                soft_off_seconds=self.world.soft_off_seconds,
            )
            vm.row.update(status="RUNNING", lastStartTimestamp=self.world.stamp(), cpuPlatform="Intel Skylake")
            if vm.until is not None:
                vm.row["resourceStatus"]["scheduling"]["terminationTimestamp"] = self.world.stamp(vm.until)
            self.changed(vm)
            self.machines.boot(spec, lambda by_us: None if by_us else self._guest_ended(vm))

    # -- end -----------------------------------------------------------------------------------------------------------

    def delete(self, project: str, zone: str, name: str) -> Row:
        vm = self.get(project, zone, name)
        with self.world.lock:
            vm.deleting = True
        return self.operations.start(vm.scope, "delete", vm.row, lambda: self._delete(vm))

    def _delete(self, vm: Vm) -> None:
        with self.world.lock:
            if self.rows.get(vm.key) is not vm:
                return
            vm.deleting = True
            vm.row["status"] = "STOPPING"
        self.machines.stop(vm.guest)
        self.world.dwell("shutdown_seconds")
        with self.world.lock:
            if self.rows.get(vm.key) is not vm:
                return
            del self.rows[vm.key]
            self.ended.append(vm.row)
            for attached in vm.row["disks"]:
                key = (vm.key[0], vm.key[1], last_part(attached["source"]))
                disk = self.world.stores["disks"].pop(key, None)
                if disk is not None and not attached["autoDelete"]:
                    self.world.stores["disks"][key] = {**disk, "users": []}

    def stop(self, project: str, zone: str, name: str) -> Row:
        vm = self.get(project, zone, name)
        return self.operations.start(vm.scope, "stop", vm.row, lambda: self._halt(vm))

    def _halt(self, vm: Vm) -> None:
        """To TERMINATED, from RUNNING or STOPPING."""
        with self.world.lock:
            if vm.status == "TERMINATED" or vm.deleting:
                return
            vm.row["status"] = "STOPPING"
        self.machines.stop(vm.guest)
        self.world.dwell("shutdown_seconds")
        with self.world.lock:
            if self.rows.get(vm.key) is not vm or vm.status != "STOPPING":
                return
            vm.row.update(status="TERMINATED", lastStopTimestamp=self.world.stamp())
            vm.row["resourceStatus"]["scheduling"].pop("terminationTimestamp", None)
            for config in vm.row["networkInterfaces"][0].get("accessConfigs", []):
                config.pop("natIP", None)

    def simulateMaintenanceEvent(self, project: str, zone: str, name: str) -> Row:  # noqa: N802 - the API's own name
        vm = self.get(project, zone, name)
        if vm.status != "RUNNING":
            raise GoogleError(400, "resourceNotReady", f"The resource '{vm.path}' is not ready")
        return self.operations.start(vm.scope, "simulateMaintenanceEvent", vm.row, lambda: self.maintain(vm))

    def maintain(self, vm: Vm) -> None:
        """A machine that cannot be moved is stopped; another one goes on elsewhere as it is."""
        ends = vm.row["scheduling"].get("onHostMaintenance") == "TERMINATE"
        self.host_event(vm, "terminateOnHostMaintenance" if ends else "migrateOnHostMaintenance", ends=ends)

    def host_event(self, vm: Vm, kind: str, *, ends: bool = True) -> None:
        """Something happens to the host of a VM."""
        with self.world.lock:
            if vm.status != "RUNNING" or vm.deleting:
                return
            row = self.operations.note(vm.scope, f"compute.instances.{kind}", vm.row)
        if ends:
            self._halt(vm)
        self.operations.finish(row)

    def _guest_ended(self, vm: Vm) -> None:
        with self.world.lock:
            if vm.status in GONE or self.rows.get(vm.key) is not vm:
                return
            vm.row["status"] = "STOPPING"
            row = self.operations.note(vm.scope, "compute.instances.guestTerminate", vm.row)
        self._halt(vm)
        self.operations.finish(row)

    def preempt(self, vm: Vm, notice_seconds: float) -> None:
        """Google takes a spot VM back: the notice, the power button, and then it is stopped or deleted."""
        if not vm.spot or vm.status != "RUNNING":
            raise ValueError(f"{vm.key} is no running spot VM")
        with self.world.lock:
            vm.preempted = True
            self.changed(vm)
        later(notice_seconds, self._take_back, vm)

    def _take_back(self, vm: Vm) -> None:
        with self.world.lock:
            if vm.status in GONE or self.rows.get(vm.key) is not vm:
                return
            vm.row["status"] = "STOPPING"
            row = self.operations.note(vm.scope, "compute.instances.preempted", vm.row)
            row["statusMessage"] = "Instance was preempted."
        if vm.row["scheduling"].get("instanceTerminationAction") == "DELETE":
            self._delete(vm)
        else:
            self._halt(vm)
        self.operations.finish(row)

    def _watch(self) -> None:
        """Ends what has reached its time limit."""
        while True:
            time.sleep(0.05)
            with self.world.lock:
                now = self.world.now()
                due = [
                    vm
                    for vm in self.rows.values()
                    if vm.status == "RUNNING" and vm.until is not None and vm.until <= now and not vm.deleting
                ]
                begun = [(vm, self._begin_to_end(vm)) for vm in due]
            for vm, row in begun:
                later(0, self._time_is_over, vm, row)

    def _begin_to_end(self, vm: Vm) -> Row:
        vm.row["status"] = "STOPPING"
        kind = "delete" if vm.row["scheduling"]["instanceTerminationAction"] == "DELETE" else "stop"
        return self.operations.note(vm.scope, kind, vm.row)

    def _time_is_over(self, vm: Vm, row: Row) -> None:
        (self._delete if row["operationType"] == "delete" else self._halt)(vm)
        self.operations.finish(row)

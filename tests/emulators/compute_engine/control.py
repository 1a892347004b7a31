"""The control side of the emulated Compute Engine: what `control_side` has, and:

- GET  instances: what exists, and what was deleted; POST instances {name}: only those of the job of that name
- POST reset; quota {place, metric, value}; shortage {kind, zone}; fail {kind, code, message, status}
- POST unreachable {zones, partial}; forbid {permissions}; page {limit}; early-quotas {on}
- POST power-off {name}; preempt {name, notice_seconds}; expire {name}
- GET  leftovers: disks, addresses, snapshots and rules that a new project does not have
"""

import copy

from costgpu.providers.base import TAG_NAME
from tests.emulators.compute_engine.catalog import last_part
from tests.emulators.compute_engine.instances import Instances
from tests.emulators.compute_engine.operations import Operations
from tests.emulators.compute_engine.project import ProjectState, Row
from tests.emulators.compute_engine.vm import Vm
from tests.emulators.control_side import ControlSide
from tests.emulators.faults import FaultInjector
from tests.emulators.machines import NoGuests


class Control(ControlSide):
    def __init__(
        self, project: ProjectState, faults: FaultInjector, instances: Instances, operations: Operations
    ) -> None:
        super().__init__(project, faults)
        self._instances, self._operations = instances, operations

    def _get_instances(self) -> list[Row]:
        with self._state.lock:
            alive = [_row(vm.row, vm) for vm in self._instances.rows.values()]
            return [*alive, *(_row(row, None) for row in self._instances.ended)]

    def _post_instances(self, name: str) -> list[Row]:
        return [row for row in self._get_instances() if row["tags"].get(TAG_NAME) == name]

    def _get_leftovers(self) -> list[str]:
        with self._state.lock:
            return sorted(
                f"{kind}/{name}"
                for kind in ("disks", "addresses", "snapshots", "firewalls")
                for _, _, name in self._state.stores[kind]
                if not (kind == "firewalls" and name.startswith("default-allow-"))
            )

    def _post_reset(self) -> None:
        with self._state.lock:
            self._state.reset()
            self._operations.clear()
            self._faults.clear()
            vms, self._instances.rows = self._instances.rows, {}
        for vm in vms.values():
            vm.deleting = True
        self._instances.clear()

    def _post_early_quotas(self, on: bool) -> None:
        self._state.early_quotas = on

    def _post_quota(self, place: str, metric: str, value: float) -> None:
        self._state.quotas[place, metric] = value

    def _post_shortage(self, kind: str, zone: str = "*") -> None:
        self._state.shortages.add((kind, zone))

    def _post_fail(self, kind: str, code: str, message: str, status: int = 503) -> None:
        self._state.failures.setdefault(kind, []).append((status, code, message))

    def _post_unreachable(self, zones: list[str], partial: bool = True) -> None:
        self._state.unreachable, self._state.partial = set(zones), partial

    def _post_forbid(self, permissions: list[str]) -> None:
        self._state.forbidden = set(permissions)

    def _post_page(self, limit: int) -> None:
        self._state.page_limit = limit

    def _vm(self, name: str) -> Vm:
        return next(vm for vm in self._instances.rows.values() if vm.key[2] == name)

    def _post_power_off(self, name: str) -> None:
        if not isinstance(self._instances.machines, NoGuests):
            raise TypeError("real guests power themselves off")
        self._instances.machines.power_off(self._vm(name).guest)

    def _post_expire(self, name: str) -> None:
        self._vm(name).until = self._state.now()

    def _post_preempt(self, name: str, notice_seconds: float = 0.0) -> None:
        self._instances.preempt(self._vm(name), notice_seconds)


def _row(row: Row, vm: Vm | None) -> Row:
    network, zone = row["networkInterfaces"][0], last_part(row["zone"])
    configs = network.get("accessConfigs", [{}])
    return {
        "id": row["name"],
        "guest": f"gce-{row['id']}",
        "zone": zone,
        "region": zone.rpartition("-")[0],
        "state": row["status"] if vm else "gone",
        "type": last_part(row["machineType"]),
        "tags": row["labels"],
        "public_ip": configs[0].get("natIP", ""),
        "private_ip": network["networkIP"],
        "preempted": bool(vm and vm.preempted),
        "row": copy.deepcopy(row),
    }

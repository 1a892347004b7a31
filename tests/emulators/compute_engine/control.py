"""The control side of the emulated Compute Engine."""

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

    def instances(self, *states: str) -> list[Row]:
        """What exists, and what was deleted; only in these states, if any are given."""
        with self._state.lock:
            alive = [_row(vm.row, vm) for vm in self._instances.rows.values()]
            rows = [*alive, *(_row(row, None) for row in self._instances.ended)]
        return [row for row in rows if not states or row["state"] in states]

    def instances_of(self, name: str) -> list[Row]:
        """Those of the jobs of that name."""
        return [row for row in self.instances() if row["tags"].get(TAG_NAME) == name]

    def leftovers(self) -> list[str]:
        """``disks/...``, ``firewalls/...`` and so on: what a new project does not have, besides instances."""
        with self._state.lock:
            return sorted(
                f"{kind}/{name}"
                for kind in ("disks", "addresses", "snapshots", "firewalls", "resourcePolicies")
                for _, _, name in self._state.stores[kind]
                if not (kind == "firewalls" and name.startswith("default-allow-"))
            )

    def reset(self) -> None:
        """A new project."""
        with self._state.lock:
            self._state.reset()
            self._operations.clear()
            self._faults.clear()
            vms, self._instances.rows = self._instances.rows, {}
        for vm in vms.values():
            vm.deleting = True
        self._instances.clear()

    def early_quotas(self, on: bool = True) -> None:
        """Quotas are checked in the request, not in its operation."""
        self._state.early_quotas = on

    def quota(self, place: str, metric: str, value: float) -> None:
        self._state.quotas[place, metric] = value

    def shortage(self, kind: str, zone: str = "*") -> None:
        """A machine type or an accelerator is not to be had there any more."""
        self._state.shortages.add((kind, zone))

    def fail(self, kind: str, code: str, message: str, status: int = 503) -> None:
        """The next insert of this machine type is accepted, and its operation fails."""
        self._state.failures.setdefault(kind, []).append((status, code, message))

    def unreachable(self, *zones: str, partial: bool = True) -> None:
        """These zones, and no others, answer no list; an aggregated one has the rest and a warning, or fails."""
        self._state.unreachable, self._state.partial = set(zones), partial

    def forbid(self, *permissions: str) -> None:
        """Nobody has these permissions any more, but all the others."""
        self._state.forbidden = set(permissions)

    def org_policy(self, constraint: str, policy: Row) -> None:
        """This policy of an organisation holds for the project."""
        self._state.org_policies[constraint] = policy

    def page(self, limit: int) -> None:
        """No page of a list is longer."""
        self._state.page_limit = limit

    def _vm(self, name: str) -> Vm:
        return next(vm for vm in self._instances.rows.values() if vm.key[2] == name)

    def power_off(self, name: str) -> None:
        """A guest of `NoGuests` powers itself off."""
        if not isinstance(self._instances.machines, NoGuests):
            raise TypeError("real guests power themselves off")
        self._instances.machines.power_off(self._vm(name).guest)

    def expire(self, name: str) -> None:
        """Its time limit is reached."""
        self._vm(name).until = self._state.now()

    def fail_host(self, name: str) -> None:
        """The host of a VM fails: it is off, and its disk stays."""
        self._instances.host_event(self._vm(name), "hostError")

    def maintain_host(self, name: str) -> None:
        """The host of a VM is maintained."""
        self._instances.maintain(self._vm(name))

    def preempt(self, name: str, notice_seconds: float = 0.0) -> None:
        """A spot VM is taken back: notice at once, the power button after a while (at Google's, there is none)."""
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

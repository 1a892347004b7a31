"""The control side of the emulated Compute Engine, under ``/emu/``: JSON in, JSON out.

- GET  requests: every API request so far; POST requests: forget them
- GET  instances: what exists, and what was deleted; POST instances {name}: only those of the job of that name
- POST reset; settings {pending_seconds, insert_seconds, ...: see `gce_world.World`}; clock {advance_seconds}
- POST faults {faults: [see `faults.Fault`; a code may be one of `gce_wire.NAMED`], add}; kill {see `faults.KillOrder`}
- POST quota {place, metric, value}; shortage {kind, zone}; fail {kind, code, message, status}; unreachable {zones, partial}
- POST forbid {permissions}; page {limit}
- POST power-off {name}; preempt {name, notice_seconds}; expire {name}
- GET  leftovers: disks, addresses, snapshots and rules that a new project does not have
"""

from __future__ import annotations

import copy
import json
from datetime import timedelta
from typing import Any

from costgpu.providers.base import TAG_NAME
from tests.emulators.compute_engine.catalog import last_part
from tests.emulators.compute_engine.instances import Instances
from tests.emulators.compute_engine.operations import Operations
from tests.emulators.compute_engine.project import Row, World
from tests.emulators.compute_engine.vm import Vm
from tests.emulators.compute_engine.wire import answer
from tests.emulators.faults import Fault, KillOrder, Mischief
from tests.emulators.machines import NoGuests
from tests.emulators.wire import Reply


class Control:
    """Answers the requests to ``/emu/``."""

    def __init__(self, world: World, mischief: Mischief, instances: Instances, operations: Operations) -> None:
        self._world, self._mischief, self._instances, self._operations = world, mischief, instances, operations

    def answer(self, method: str, what: str, body: bytes) -> Reply:
        """One request; an unknown one is a 404, a wrong one a 400 with the reason."""
        handler = getattr(self, f"_{method.lower()}_{what.replace('-', '_')}", None)
        if handler is None:
            return answer({"error": "no such control"}, 404)
        try:
            return answer({"answer": handler(**json.loads(body or b"{}"))})
        except (KeyError, TypeError, ValueError, StopIteration) as error:
            return answer({"error": repr(error)}, 400)

    def _get_requests(self) -> list[Row]:
        return list(self._mischief.recorded)

    def _post_requests(self) -> None:
        self._mischief.recorded = []

    def _get_instances(self) -> list[Row]:
        with self._world.lock:
            alive = [_row(vm.row, vm) for vm in self._instances.rows.values()]
            return [*alive, *(_row(row, None) for row in self._instances.ended)]

    def _post_instances(self, name: str) -> list[Row]:
        return [row for row in self._get_instances() if row["tags"].get(TAG_NAME) == name]

    def _get_leftovers(self) -> list[str]:
        with self._world.lock:
            return sorted(
                f"{kind}/{name}"
                for kind in ("disks", "addresses", "snapshots", "firewalls")
                for _, _, name in self._world.stores[kind]
                if not (kind == "firewalls" and name.startswith("default-allow-"))
            )

    def _post_reset(self) -> None:
        with self._world.lock:
            self._world.reset()
            self._operations.clear()
            self._mischief.clear()
            vms, self._instances.rows = self._instances.rows, {}
        for vm in vms.values():
            vm.deleting = True
        self._instances.clear()

    def _post_settings(self, **values: float) -> None:
        for name, value in values.items():
            if not name.endswith("_seconds") or not hasattr(self._world, name):
                raise KeyError(name)
            setattr(self._world, name, float(value))

    def _post_early_quotas(self, on: bool) -> None:
        self._world.early_quotas = on

    def _post_clock(self, advance_seconds: float) -> str:
        self._world.ahead += timedelta(seconds=advance_seconds)
        return self._world.now().isoformat()

    def _post_faults(self, faults: list[dict[str, Any]], add: bool = False) -> None:
        self._mischief.faults = [*(self._mischief.faults if add else ()), *(Fault(**fault) for fault in faults)]

    def _get_faults(self) -> list[int]:
        return [fault.times for fault in self._mischief.faults]

    def _post_kill(self, **order: Any) -> None:
        self._mischief.kills.append(KillOrder(**order))

    def _post_quota(self, place: str, metric: str, value: float) -> None:
        self._world.quotas[place, metric] = value

    def _post_shortage(self, kind: str, zone: str = "*") -> None:
        self._world.shortages.add((kind, zone))

    def _post_fail(self, kind: str, code: str, message: str, status: int = 503) -> None:
        self._world.failures.setdefault(kind, []).append((status, code, message))

    def _post_unreachable(self, zones: list[str], partial: bool = True) -> None:
        self._world.unreachable, self._world.partial = set(zones), partial

    def _post_forbid(self, permissions: list[str]) -> None:
        self._world.forbidden = set(permissions)

    def _post_page(self, limit: int) -> None:
        self._world.page_limit = limit

    def _vm(self, name: str) -> Vm:
        return next(vm for vm in self._instances.rows.values() if vm.key[2] == name)

    def _post_power_off(self, name: str) -> None:
        if not isinstance(self._instances.machines, NoGuests):
            raise TypeError("real guests power themselves off")
        self._instances.machines.power_off(self._vm(name).guest)

    def _post_expire(self, name: str) -> None:
        self._vm(name).until = self._world.now()

    def _post_preempt(self, name: str, notice_seconds: float | None = None) -> None:
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

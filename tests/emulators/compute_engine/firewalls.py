"""Firewall rules of the emulated networks, and what they mean for one guest."""

import copy
from collections.abc import Callable
from typing import Any

from tests.emulators.compute_engine import validation
from tests.emulators.compute_engine.catalog import last_part
from tests.emulators.compute_engine.instances import Instances
from tests.emulators.compute_engine.operations import Operations, Scope
from tests.emulators.compute_engine.project import ProjectState, Row, new_id
from tests.emulators.compute_engine.vm import Vm
from tests.emulators.compute_engine.wire import HOST, exists, not_found
from tests.emulators.machines import PacketRule
from tests.emulators.wire import ApiCall


class Firewalls:
    def __init__(self, world: ProjectState, operations: Operations, instances: Instances) -> None:
        self._world, self._operations, self._instances = world, operations, instances

    def insert(self, call: ApiCall) -> Row:
        body, project = copy.deepcopy(call.params["body"]), call.params["project"]
        validation.firewall(body)
        key = (project, "global", str(body["name"]))
        network = last_part(str(body.get("network", "") or "default"))
        if (project, "global", network) not in self._world.stores["networks"]:
            raise not_found(f"projects/{project}/global/networks/{network}")
        path = f"projects/{project}/global/firewalls/{body['name']}"
        with self._world.lock:
            if key in self._world.stores["firewalls"]:
                raise exists(path)
        direction = body.get("direction", "INGRESS")
        row = {
            "direction": direction,
            "priority": 1000,
            "disabled": False,
            "logConfig": {"enable": False},
            **body,
            "kind": "compute#firewall",
            "id": new_id(),
            "creationTimestamp": self._world.stamp(),
            "network": f"{HOST}/projects/{project}/global/networks/{network}",
            "selfLink": f"{HOST}/{path}",
        }
        if direction == "INGRESS" and not (row.get("sourceRanges") or row.get("sourceTags")):
            row["sourceRanges"] = ["0.0.0.0/0"]
        return self._change(call, "insert", row, lambda: self._world.stores["firewalls"].__setitem__(key, row))

    def delete(self, call: ApiCall) -> Row:
        key, row = self._find(call)
        return self._change(call, "delete", row, lambda: self._world.stores["firewalls"].pop(key, None))

    def patch(self, call: ApiCall) -> Row:
        _, row = self._find(call)
        body = {**row, **call.params["body"], "name": row["name"]}
        validation.firewall(body)
        return self._change(call, "patch", row, lambda: row.update(body))

    def _find(self, call: ApiCall) -> tuple[tuple[str, str, str], Row]:
        key = (call.params["project"], "global", call.params["name"])
        found = self._world.stores["firewalls"].get(key)
        if found is None:
            raise not_found(f"projects/{key[0]}/global/firewalls/{key[2]}")
        return key, found

    def _change(self, call: ApiCall, kind: str, row: Row, change: Callable[[], Any]) -> Row:
        def work() -> None:
            with self._world.lock:
                change()
            self.apply_all()

        return self._operations.start(Scope(call.params["project"], "global"), kind, row, work)

    def apply(self, vm: Vm) -> None:
        """Tells the hypervisor what may reach the guest."""
        self._instances.machines.admit(vm.guest, self.rules(vm))

    def apply_all(self) -> None:
        """Tells it of every running guest: who has a tag decides what reaches others."""
        with self._world.lock:
            running = [vm for vm in self._instances.rows.values() if vm.status == "RUNNING"]
        for vm in running:
            self.apply(vm)

    def _sources(self, row: Row, project: str) -> tuple[str, ...]:
        """Ranges, and the addresses of the instances that have one of the source tags."""
        tags = set(row.get("sourceTags", ()))
        tagged = [
            f"{vm.private_ip}/32"
            for vm in self._instances.rows.values()
            if vm.key[0] == project and tags & set(vm.row["tags"]["items"])
        ]
        return (*row.get("sourceRanges", ()), *tagged)

    def rules(self, vm: Vm) -> list[PacketRule]:
        """Those that concern an instance, the first that fits decides; at the same priority, denial does."""
        tags = set(vm.row["tags"]["items"])
        network = last_part(vm.row["networkInterfaces"][0]["network"])
        with self._world.lock:
            rows = [
                {**row, "sourceRanges": self._sources(row, vm.key[0])}
                for (project, _, _), row in self._world.stores["firewalls"].items()
                if project == vm.key[0]
                and row["direction"] == "INGRESS"
                and not row["disabled"]
                and last_part(row["network"]) == network
                and (not row.get("targetTags") or tags & set(row["targetTags"]))
            ]
        rows.sort(key=lambda row: (int(row["priority"]), bool(row.get("allowed"))))
        return [
            PacketRule(
                allow=bool(row.get("allowed")),
                sources=row["sourceRanges"],
                protocol=str(each["IPProtocol"]).lower(),
                ports=tuple(each.get("ports", [])),
            )
            for row in rows
            if row["sourceRanges"]
            for each in row.get("allowed") or row["denied"]
        ]

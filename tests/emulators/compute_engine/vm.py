"""One instance of Compute Engine: what it is, and how an insert describes it."""

import copy
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tests.emulators.compute_engine import validation
from tests.emulators.compute_engine.catalog import MachineType, last_part, region_of
from tests.emulators.compute_engine.operations import Scope
from tests.emulators.compute_engine.project import Key, ProjectState, Row, new_id
from tests.emulators.compute_engine.quotas import Demand
from tests.emulators.compute_engine.wire import HOST, not_found


@dataclass
class Vm:
    """One instance."""

    key: Key  # project, zone, name
    row: Row  # as the API shows it
    kind: MachineType
    demand: Demand  # what it counts against quotas
    until: datetime | None  # when its time is over
    guest: str  # how the hypervisor calls it
    preempted: bool = False  # what its metadata say
    deleting: bool = False  # whether somebody has asked for its end

    @property
    def status(self) -> str:
        return str(self.row["status"])

    @property
    def scope(self) -> Scope:
        return Scope(self.key[0], "zone", self.key[1])

    @property
    def path(self) -> str:
        """``projects/p/zones/z/instances/n``."""
        return f"{self.scope.path}/instances/{self.key[2]}"

    @property
    def spot(self) -> bool:
        return bool(self.row["scheduling"].get("provisioningModel") == "SPOT")

    @property
    def private_ip(self) -> str:
        return str(self.row["networkInterfaces"][0]["networkIP"])

    @property
    def public_ip(self) -> str:
        configs = self.row["networkInterfaces"][0].get("accessConfigs", [])
        return str(configs[0].get("natIP", "")) if configs else ""

    @property
    def metadata(self) -> dict[str, str]:
        return {each["key"]: each.get("value", "") for each in self.row["metadata"].get("items", [])}


def make(body: Row, scope: Scope, world: ProjectState) -> tuple[Vm, Row]:
    """The instance that an insert describes, and its boot disk; nothing exists yet.

    Raises:
        GoogleError: What is wanted is wrong, or names something that is not there.
    """
    name, zone = str(body["name"]), scope.place
    kind = validation.machine_type(body, zone)
    gpu, count = validation.accelerators(body, kind, zone)
    image, size, form = validation.boot_disk(body, kind, zone)
    validation.check_labels("resource.labels", body.get("labels", {}))
    validation.check_metadata(body.get("metadata", {}))
    validation.connections(body)
    until = validation.scheduling(body, kind, world.now(), gpus=bool(gpu))
    here = {
        name: row
        for (project, place, name), row in world.stores["resourcePolicies"].items()
        if (project, place) == (scope.project, region_of(zone))
    }
    policies = validation.placement(body, kind, here)
    interface = _interface(body, scope, world)
    disk, attached = _disk(body["disks"][0], scope, name, image, size, form, world.stamp())
    identity, link = new_id(), f"{HOST}/{scope.path}/instances/{name}"
    spot = body.get("scheduling", {}).get("provisioningModel") == "SPOT"
    row: Row = {
        **copy.deepcopy(body),
        "kind": "compute#instance",
        "id": identity,
        "name": name,
        "status": "PROVISIONING",
        "creationTimestamp": world.stamp(),
        "zone": f"{HOST}/{scope.path}",
        "selfLink": link,
        "machineType": f"{HOST}/{scope.path}/machineTypes/{kind.name}",
        "cpuPlatform": "Unknown CPU Platform",
        "labels": dict(body.get("labels", {})),
        "metadata": {"items": copy.deepcopy(body.get("metadata", {}).get("items", []))},
        "tags": {"items": list(body.get("tags", {}).get("items", []))},
        "networkInterfaces": [interface],
        "disks": [attached],
        "resourcePolicies": policies,
        "resourceStatus": {"scheduling": {}},
        "scheduling": {
            "onHostMaintenance": "TERMINATE" if spot else "MIGRATE",
            "automaticRestart": not spot,
            "preemptible": spot,
            "provisioningModel": "STANDARD",
            **body.get("scheduling", {}),
        },
    }
    if gpu:
        link = f"{HOST}/{scope.path}/acceleratorTypes/{gpu}"
        row["guestAccelerators"] = [{"acceleratorType": link, "acceleratorCount": count}]
    limited = row["scheduling"].get("instanceTerminationAction") == "DELETE" and until is not None
    demand = Demand(
        region_of(scope.place),
        kind,
        gpu,
        count,
        size,
        spot=spot,
        limited=limited,
        address=bool(interface.get("accessConfigs")),
    )
    return Vm((scope.project, scope.place, name), row, kind, demand, until, f"gce-{identity}"), disk


def _interface(body: Row, scope: Scope, world: ProjectState) -> Row:
    given = body["networkInterfaces"][0]
    network = last_part(given.get("network", "") or "default")
    subnet = last_part(given.get("subnetwork", "") or network)
    if (scope.project, "global", network) not in world.stores["networks"]:
        raise not_found(f"projects/{scope.project}/global/networks/{network}")
    region = region_of(scope.place)
    configs = [
        {
            "kind": "compute#accessConfig",
            "type": "ONE_TO_ONE_NAT",
            "name": each.get("name", "External NAT"),
            "networkTier": each.get("networkTier", "PREMIUM"),
        }
        for each in given.get("accessConfigs", [])
    ]
    return {
        "kind": "compute#networkInterface",
        "name": "nic0",
        "stackType": "IPV4_ONLY",
        "network": f"{HOST}/projects/{scope.project}/global/networks/{network}",
        "networkIP": world.private_ip(),
        "nicType": given.get("nicType", "VIRTIO_NET"),
        "subnetwork": f"{HOST}/projects/{scope.project}/regions/{region}/subnetworks/{subnet}",
        **({"accessConfigs": configs} if configs else {}),
    }


def _disk(given: Row, scope: Scope, name: str, image: Any, size: int, form: str, stamp: str) -> tuple[Row, Row]:
    """The disk as a resource, and as the instance shows it."""
    wanted = given.get("initializeParams", {})
    called = str(wanted.get("diskName") or name)
    link = f"{HOST}/{scope.path}/disks/{called}"
    disk = {
        "kind": "compute#disk",
        "id": new_id(),
        "name": called,
        "creationTimestamp": stamp,
        "sizeGb": str(size),
        "zone": f"{HOST}/{scope.path}",
        "status": "READY",
        "selfLink": link,
        "labels": dict(wanted.get("labels", {})),
        "type": f"{HOST}/{scope.path}/diskTypes/{form}",
        "sourceImage": f"{HOST}/projects/{image.project}/global/images/{image.name}",
        "users": [f"{HOST}/{scope.path}/instances/{name}"],
    }
    attached = {
        "kind": "compute#attachedDisk",
        "type": "PERSISTENT",
        "mode": "READ_WRITE",
        "boot": True,
        "index": 0,
        "deviceName": given.get("deviceName", "persistent-disk-0"),
        "autoDelete": bool(given.get("autoDelete", False)),
        "diskSizeGb": str(size),
        "source": link,
        "interface": "SCSI",
        "architecture": image.architecture,
    }
    return disk, attached

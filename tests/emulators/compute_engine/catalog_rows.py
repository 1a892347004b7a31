"""What is always there, as the Compute Engine API shows it: machine types, accelerators, zones, images."""

from typing import Any

from tests.emulators.compute_engine.catalog import ACCELERATORS, IMAGES, ZONES, MachineType, region_of
from tests.emulators.compute_engine.project import Row
from tests.emulators.compute_engine.wire import HOST


def machine_type(each: MachineType, project: str, zone: str) -> Row:
    row: Row = {
        "kind": "compute#machineType",
        "id": str(abs(hash(each.name)) % 10**6),
        "name": each.name,
        "guestCpus": each.vcpus,
        "memoryMb": each.memory_mib,
        "zone": zone,
        "architecture": each.architecture,
        "selfLink": f"{HOST}/projects/{project}/zones/{zone}/machineTypes/{each.name}",
    }
    if each.accelerator:
        row["accelerators"] = [{"guestAcceleratorType": each.accelerator, "guestAcceleratorCount": each.accelerators}]
    return row


def accelerator(name: str, project: str, zone: str) -> Row:
    each, place = ACCELERATORS[name], f"{HOST}/projects/{project}/zones/{zone}"
    return {
        "kind": "compute#acceleratorType",
        "id": str(10000 + list(ACCELERATORS).index(name)),
        "name": name,
        "description": each.description,
        "zone": place,
        "selfLink": f"{place}/acceleratorTypes/{name}",
        "maximumCardsPerInstance": max(each.counts, default=8),
    }


def zone(project: str, zone: str) -> Row:
    return {
        "kind": "compute#zone",
        "id": str(2000 + ZONES.index(zone)),
        "name": zone,
        "status": "UP",
        "region": f"{HOST}/projects/{project}/regions/{region_of(zone)}",
        "selfLink": f"{HOST}/projects/{project}/zones/{zone}",
    }


def image(image: Any) -> Row:
    where = f"{HOST}/projects/{image.project}/global"
    return {
        "kind": "compute#image",
        "id": str(3000 + IMAGES.index(image)),
        "name": image.name,
        "family": image.family,
        "diskSizeGb": str(image.disk_gib),
        "architecture": image.architecture,
        "status": "READY",
        "guestOsFeatures": [{"type": "GVNIC"}, {"type": "VIRTIO_SCSI_MULTIQUEUE"}],
        "selfLink": f"{where}/images/{image.name}",
        "creationTimestamp": "2026-11-10T00:00:00.000-08:00",
    }

"""The insert call: everything that makes the machine end by itself is in this one request. Pure."""

from __future__ import annotations

import re
import uuid
from datetime import UTC
from typing import TYPE_CHECKING, Any

from costgpu.errors import InvalidRequest
from costgpu.models.instance import CreateRequest
from costgpu.models.offer import Offer, PurchaseOption
from costgpu.providers.gcp.labels import METADATA_KEY, facts_of, labels_of, metadata_value

if TYPE_CHECKING:
    from costgpu.providers.gcp.images import Image

NAMESPACE = uuid.UUID("6f0a2f5e-3c0d-5b52-9a55-c2a5a4f1f7a1")  # of our request ids; any fixed value does
NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
"""Of an instance. Source: Compute Engine API reference, ``instances``, name (2026-11)."""
METADATA_BYTES = 262144  # one value. Source: Compute Engine, "About VM metadata", limitations (2026-11)
LONGEST_DAYS, SHORTEST_SECONDS = 120, 30  # Source: Compute Engine, "Limit the run time of a VM" (2026-11)
ATTACHED = {"T4": "nvidia-tesla-t4", "V100": "nvidia-tesla-v100", "P100": "nvidia-tesla-p100", "P4": "nvidia-tesla-p4"}
"""What is attached to an n1 machine; others bring theirs. Source: Compute Engine, "GPU machine types" (2026-11)."""
HYPERDISK_ONLY = re.compile(r"(c4|c4a|c4d|n4|n4a|n4d|g4|a4|a4x|x4|m4|h4d)-|a3-ultragpu-")
"""Machine types that take no persistent disk. Source: Compute Engine, "About Google Cloud Hyperdisk" and "About Persistent
Disk", machine series support (2026-11)."""


def split_type(instance_type: str) -> tuple[str, str, int]:
    """Machine type, attached accelerator and their number: ``n1-standard-8+T4:2`` is ``n1-standard-8``, ``T4``, 2."""
    machine, _, attached = instance_type.partition("+")
    name, _, count = attached.partition(":")
    return machine, name, int(count or 1) if name else 0


def join_type(machine: str, accelerators: list[tuple[str, int]]) -> str:
    """The reverse of `split_type`, from Google's names of what is attached."""
    names = {google: ours for ours, google in ATTACHED.items()}
    for google, count in accelerators:
        if google in names and machine.startswith("n1-"):
            return f"{machine}+{names[google]}:{count}"
    return machine


def name_of(token: str) -> str:
    """The instance's name, which is never used for another one."""
    name = f"costgpu-{token}"
    return name if NAME.fullmatch(name) else f"costgpu-{uuid.uuid5(NAMESPACE, token)}"


def request_id(token: str, what: str = "instance") -> str:
    """What Google knows a repeated request by."""
    return str(uuid.uuid5(NAMESPACE, f"{what}/{token}"))


def network_tag(run_id: str) -> str:
    """What the run's firewall rules are about."""
    return f"costgpu-{run_id}"


def is_spot(offer: Offer) -> bool:
    """Whether it can be taken back."""
    return offer.purchase_option is PurchaseOption.SPOT


def disk_type(machine: str) -> str:
    """The cheapest kind of SSD disk that the machine type takes."""
    return "hyperdisk-balanced" if HYPERDISK_ONLY.match(machine) else "pd-balanced"


def body(request: CreateRequest, zone: str, image: Image, network: str, subnetwork: str = "") -> dict[str, Any]:
    """The instance of ``instances.insert``, by the client's names; the same for the same request.

    Args:
        request: What to create.
        zone: Where.
        image: What it boots.
        network: ``global/networks/...``.
        subnetwork: ``regions/.../subnetworks/...``; empty for the one that the network has there.

    Raises:
        InvalidRequest: The disk is smaller than the image, or the boot script is too long.
    """
    if request.disk_gib < image.root_gib:
        raise InvalidRequest(
            f"A disk of {request.disk_gib} GiB is too small: the image {image.path} needs {image.root_gib} GiB.",
            hint=f"Ask for a disk of at least {image.root_gib} GiB.",
        )
    script = request.boot_script if request.boot_script.startswith("#!") else f"#!/bin/sh\n{request.boot_script}"
    if len(script.encode()) > METADATA_BYTES:
        raise InvalidRequest(f"The boot script is too long for Google Cloud: more than {METADATA_BYTES} bytes.")
    machine, accelerator, count = split_type(request.offer.instance_type)
    labels = labels_of(request)
    interface: dict[str, Any] = {
        "network": network,
        "stack_type": "IPV4_ONLY",
        "access_configs": [{"name": "External NAT", "type_": "ONE_TO_ONE_NAT"}],
    }
    if subnetwork:
        interface["subnetwork"] = subnetwork
    metadata = {
        "startup-script": script,
        METADATA_KEY: metadata_value(request),
        "block-project-ssh-keys": "TRUE",
        "enable-oslogin": "FALSE",
        "serial-port-logging-enable": "FALSE",
    }
    disk = {
        "source_image": image.path,
        "disk_size_gb": request.disk_gib,
        "labels": labels,
        "description": facts_of(request),
        "disk_type": f"zones/{zone}/diskTypes/{disk_type(machine)}",
    }
    made: dict[str, Any] = {
        "name": name_of(request.token),
        "description": f"costgpu run {request.run_id}",
        "machine_type": f"zones/{zone}/machineTypes/{machine}",
        "labels": labels,
        "tags": {"items": [network_tag(request.run_id)]},
        "metadata": {"items": [{"key": key, "value": value} for key, value in metadata.items()]},
        "scheduling": _scheduling(request),
        "disks": [{"boot": True, "auto_delete": True, "initialize_params": disk}],
        "network_interfaces": [interface],
        "service_accounts": [],
        "deletion_protection": False,
    }
    if accelerator:
        kind = ATTACHED.get(accelerator)
        if kind is None:
            raise InvalidRequest(f"Google attaches no {accelerator} to {machine}.")
        path = f"zones/{zone}/acceleratorTypes/{kind}"
        made["guest_accelerators"] = [{"accelerator_type": path, "accelerator_count": count}]
    return made


def _scheduling(request: CreateRequest) -> dict[str, Any]:
    until = request.lease_until.astimezone(UTC).replace(microsecond=0, tzinfo=None)
    spot = is_spot(request.offer)
    rules: dict[str, Any] = {
        "provisioning_model": "SPOT" if spot else "STANDARD",
        "termination_time": f"{until.isoformat()}Z",
        "instance_termination_action": "DELETE",
        "automatic_restart": False,
    }
    if spot or request.offer.accelerator is not None:
        rules["on_host_maintenance"] = "TERMINATE"
    return rules

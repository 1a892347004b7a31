"""What Compute Engine refuses at once: values that are wrong in themselves, or name nothing that exists."""

import ipaddress
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from tests.emulators.compute_engine.catalog import (
    ACCELERATORS,
    DISK_TYPES,
    IMAGES,
    Image,
    MachineType,
    last_part,
    machine_types,
)
from tests.emulators.compute_engine.wire import GoogleError, invalid, not_found

NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")  # international letters, too; not here
LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
LABELS = 64
METADATA_VALUE_BYTES, METADATA_BYTES = 256 * 1024, 512 * 1024
LIMIT_MIN, LIMIT_MAX = timedelta(seconds=30), timedelta(days=120)
"""Of a time limit. Source: cloud.google.com/compute/docs/instances/limit-vm-runtime (2026-11)."""
_NAME_RULE = "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'"


def check_name(field: str, value: str) -> None:
    if not NAME.fullmatch(value):
        raise invalid(field, value, _NAME_RULE)


def check_labels(field: str, labels: Mapping[str, str]) -> None:
    if len(labels) > LABELS:
        raise invalid(field, f"{len(labels)} labels", f"The maximum number of labels is {LABELS}.")
    for key, value in labels.items():
        rule = (
            "can only contain lowercase letters, numeric characters, underscores and dashes, and be at most 63 characters "
            "long. International characters are allowed."
        )
        if not LABEL_KEY.fullmatch(key):
            why = (
                f"Label key '{key}' violates format constraints. The key must start with a lowercase character, {rule}"
            )
            raise invalid(field, "", why)
        if not LABEL_VALUE.fullmatch(value):
            raise invalid(field, "", f"Label value '{value}' violates format constraints. The value {rule}")


def check_metadata(metadata: Mapping[str, Any]) -> None:
    items, total = metadata.get("items", []), 0
    if len({each["key"] for each in items}) != len(items):
        raise invalid("metadata", "", "Duplicate keys.")
    for each in items:
        size = len(each["value"].encode())
        total += size + len(each["key"])
        if size > METADATA_VALUE_BYTES:
            raise invalid("metadata.items[].value", each["key"], "The value exceeds 262144 characters.")
    if total > METADATA_BYTES:
        raise invalid("metadata", "", "The total size of all keys and values exceeds 524288 bytes.")


def machine_type(body: Mapping[str, Any], zone: str) -> MachineType:
    link = str(body.get("machineType", ""))
    found = machine_types().get(last_part(link))
    place = re.search(r"zones/([^/]+)/machineTypes/", link)
    if place is None or place[1] != zone:
        raise invalid(
            "resource.machineType",
            link,
            "The URL is malformed." if place is None else f"Machine type specified must be in zone '{zone}'.",
        )
    if found is None or zone not in found.zones:
        name = last_part(link)
        raise invalid("resource.machineType", link, f"Machine type with name '{name}' does not exist in zone '{zone}'.")
    return found


def accelerators(body: Mapping[str, Any], kind: MachineType, zone: str) -> tuple[str, int]:
    """What the machine has, attached or bundled, and how many."""
    wanted = body.get("guestAccelerators", [])
    if not wanted:
        return kind.accelerator, kind.accelerators
    first = wanted[0]
    name, count = last_part(str(first.get("acceleratorType", ""))), int(first.get("acceleratorCount", 0))
    if kind.accelerator:
        if (name, count) != (kind.accelerator, kind.accelerators):
            raise invalid("resource.guestAccelerators", name, f"Machine type {kind.name} has accelerators of its own.")
        return name, count
    known = ACCELERATORS.get(name)
    if known is None or zone not in known.zones:
        raise not_found(f"zones/{zone}/acceleratorTypes/{name}")
    if kind.family != "n1" or not known.counts:
        raise GoogleError(
            400, "badRequest", f"[{kind.name}, {name}] features are not compatible for creating instance."
        )
    if count not in known.counts:
        why = f"Number of accelerator cards attached to an instance must be one of {list(known.counts)}."
        raise invalid("resource.guestAccelerators[0].acceleratorCount", count, why)
    return name, count


def image_named(link: str) -> Image:
    """``projects/p/global/images/family/f`` or ``.../images/n``."""
    found = re.search(r"projects/([^/]+)/global/images/(family/)?([^/]+)$", link)
    if found is None:
        raise invalid("resource.disks[0].initializeParams.sourceImage", link, "The URL is malformed.")
    for image in IMAGES:
        if image.project == found[1] and (image.family if found[2] else image.name) == found[3]:
            return image
    raise not_found(f"projects/{found[1]}/global/images/{found[2] or ''}{found[3]}")


def boot_disk(body: Mapping[str, Any], kind: MachineType, zone: str) -> tuple[Image, int, str]:
    """The image, the size in GiB and the type of the boot disk that the instance wants."""
    disks = body.get("disks", [])
    if not disks or not disks[0].get("boot"):
        raise invalid("resource.disks", "", "At least one disk must be specified as boot disk.")
    wanted = disks[0].get("initializeParams", {})
    image = image_named(str(wanted.get("sourceImage", "")))
    if image.architecture != kind.architecture:
        raise invalid(
            "resource.disks[0].initializeParams.sourceImage",
            image.name,
            f"The image's architecture {image.architecture} is not compatible with {kind.name}.",
        )
    size = int(wanted.get("diskSizeGb") or image.disk_gib)
    if size < image.disk_gib:
        raise invalid(
            "resource.disks[0].initializeParams.diskSizeGb",
            size,
            f"Requested disk size cannot be smaller than the image size ({image.disk_gib} GB)",
        )
    link = str(wanted.get("diskType", "") or f"zones/{zone}/diskTypes/pd-standard")
    place, form = re.search(r"zones/([^/]+)/diskTypes/", link), last_part(link)
    if place is None or place[1] != zone or form not in DISK_TYPES:
        raise invalid("resource.disks[0].initializeParams.diskType", link, "The referenced resource does not exist.")
    if form not in kind.goes_with.disks:
        raise GoogleError(
            400, "badRequest", f"[{kind.name}, {form}] features are not compatible for creating instance."
        )
    check_labels("resource.disks[0].initializeParams.labels", wanted.get("labels", {}))
    return image, size, form


def scheduling(body: Mapping[str, Any], kind: MachineType, now: datetime, *, gpus: bool) -> datetime | None:
    """Checks it; when the instance is to be ended, if ever."""
    wanted = body.get("scheduling", {})
    model, field = wanted.get("provisioningModel", "STANDARD"), "resource.scheduling"
    spot = model == "SPOT"
    action = wanted.get("instanceTerminationAction", "")
    moves = wanted.get("onHostMaintenance", "TERMINATE" if spot else "MIGRATE")
    if model not in kind.goes_with.models:
        why = f"Machine type {kind.name} is not available with this provisioning model."
        raise invalid(f"{field}.provisioningModel", model, why)
    if gpus and moves != "TERMINATE":
        raise GoogleError(400, "badRequest", "Instances with guest accelerators do not support live migration.")
    if spot and (moves != "TERMINATE" or wanted.get("automaticRestart", False)):
        raise GoogleError(
            400,
            "badRequest",
            "Scheduling must have preemptible be false when AutomaticRestart is true, and "
            "onHostMaintenance must be TERMINATE for spot instances.",
        )
    if not spot and moves not in kind.goes_with.maintenance:
        why = f"{kind.family} instances do not support onHostMaintenance={moves} unless they are preemptible."
        raise GoogleError(400, "badRequest", why)
    limited = "terminationTime" in wanted
    if action and not (spot or limited):
        raise invalid(
            f"{field}.instanceTerminationAction",
            action,
            "Instance termination action can only be set for Spot VMs or VMs with a time limit.",
        )
    if not limited:
        return None
    if not action:
        raise invalid(
            f"{field}.instanceTerminationAction",
            action,
            "You must specify an instance termination action with a time limit.",
        )
    text = str(wanted["terminationTime"])
    try:
        until = datetime.fromisoformat(text)
    except ValueError:
        until = datetime.min  # noqa: DTZ901 - has no zone, as it must for what follows
    if until.tzinfo is None:
        raise invalid(f"{field}.terminationTime", text, "Must be a valid RFC 3339 timestamp.")
    return _within(f"{field}.terminationTime", until, now)


def _within(field: str, until: datetime, now: datetime) -> datetime:
    if until < now + LIMIT_MIN:
        raise invalid(field, until, "The time limit must be at least 30 seconds in the future.")
    if until > now + LIMIT_MAX:
        raise invalid(field, until, "The time limit must be at most 120 days in the future.")
    return until


def connections(body: Mapping[str, Any]) -> None:
    """The network interface that there must be.

    Source: cloud.google.com/compute/docs/instances/multiple-network-interfaces (2026-11).
    """
    if not body.get("networkInterfaces"):
        raise invalid("resource.networkInterfaces", "", "At least one network interface is required.")


def firewall(body: Mapping[str, Any]) -> None:
    if bool(body.get("allowed")) == bool(body.get("denied")):
        raise GoogleError(400, "invalid", "Exactly one of 'allowed' and 'denied' must be specified.")
    if not 0 <= int(body.get("priority", 1000)) <= 65535:
        raise invalid("resource.priority", body["priority"], "Must be between 0 and 65535.")
    for source in body.get("sourceRanges", []):
        try:
            ipaddress.ip_network(source)
        except ValueError:
            raise invalid("resource.sourceRanges[0]", source, "Invalid IP CIDR range.") from None
    for field in ("targetTags", "sourceTags"):
        for tag in body.get(field, []):
            check_name(f"resource.{field}[0]", tag)
    if len(str(body.get("description", ""))) > 2048:
        raise invalid("resource.description", "", "Must be at most 2048 characters.")


NOT_PLACED = ("e2", "n1", "t2d", "t2a", "f1", "g1")
"""Families that cannot be placed close together. Source: Compute Engine, "Placement policies overview" (2026-11)."""


def placement_policy(body: Mapping[str, Any]) -> None:
    """Of the resource policies only these."""
    if "groupPlacementPolicy" not in body:
        raise invalid("resource", "", "A resource policy must have a policy; others than placements are not emulated.")


def placement(body: Mapping[str, Any], kind: MachineType, known: Mapping[str, Any]) -> list[str]:
    """The links of the policies that place an instance; `known` has those of its region, by name."""
    names = [last_part(link) for link in body.get("resourcePolicies", [])]
    for name in names:
        if name not in known:
            raise invalid("resource.resourcePolicies[0]", name, "The referenced resource policy cannot be found.")
        if kind.family in NOT_PLACED:
            raise GoogleError(
                400, "badRequest", f"Instance machine type '{kind.name}' is not supported by placement policy '{name}'."
            )
        if body.get("scheduling", {}).get("onHostMaintenance") != "TERMINATE":
            raise GoogleError(
                400, "badRequest", "Instances with a compact placement policy must have onHostMaintenance TERMINATE."
            )
    return [str(known[name]["selfLink"]) for name in names]

"""What a machine boots, and the insert call: everything that makes it end by itself is in this one request."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from datetime import UTC
from typing import Any

from costgpu.errors import InvalidRequest
from costgpu.models.instance import CreateRequest
from costgpu.models.offer import Offer, PurchaseOption
from costgpu.providers.base import OUR_TAGS
from costgpu.providers.common import BOOTHOOK, Image, ImageCache, boot_script_of, group_name, our_tags, run_name
from costgpu.providers.gcp.facts import needs_own_image
from costgpu.providers.gcp.session import Clients

NAMESPACE = uuid.UUID("6f0a2f5e-3c0d-5b52-9a55-c2a5a4f1f7a1")  # of our request ids; any fixed value does
NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
"""Form of an instance's name. Source: Compute Engine API reference, ``instances``, name (2026-11)."""
NOTICE_SECONDS = 120
"""How long before the power button a spot machine hears that it is taken back. Without this it hears of it with the
button, 30 s before its end. Source: Compute Engine API reference, ``Scheduling.preemptionNoticeDuration`` (2026-11)."""
METADATA_BYTES = 262144  # one value. Source: Compute Engine, "About VM metadata", limitations (2026-11)
ATTACHED = {"T4": "nvidia-tesla-t4", "V100": "nvidia-tesla-v100", "P100": "nvidia-tesla-p100", "P4": "nvidia-tesla-p4"}
"""What is attached to an n1 machine; others bring theirs. Source: Compute Engine, "GPU machine types" (2026-11)."""
HYPERDISK_ONLY = re.compile(r"(c4|c4a|c4d|n4|n4a|n4d|g4|a4|a4x|x4|m4|h4d)-|a3-ultragpu-")
"""Machine types that take no persistent disk. Source: Compute Engine, "About Google Cloud Hyperdisk" and "About Persistent
Disk", machine series support (2026-11)."""
METADATA_KEY = "costgpu-tags"
VALUE_CHARACTERS = 63
MOST_LABELS = 64
DEEP_LEARNING = "deeplearning-platform-release"
DRIVER_FAMILIES = ("common-cu129-ubuntu-2204-nvidia-580", "common-cu129-ubuntu-2404-nvidia-580")
"""CUDA and NVIDIA's driver are in the image, so nothing is installed at boot (``install-nvidia-driver``, which takes
minutes, is for the images without). Source: Deep Learning VM Images, "Choose an image", base images for GPU (2026-11)."""
DRIVER_PATTERN = r"common-cu[0-9]+-ubuntu-[0-9]+-nvidia-[0-9]+"
"""What such families are called: CUDA, Ubuntu and driver in turn."""
LAST_DRIVER_FOR_OLD = 580
"""The last branch with Pascal and Volta (P4, P100, V100). Source: NVIDIA, "Unix driver archive" (2025-10)."""
OLD = frozenset({"P4", "P100", "V100"})

UBUNTU = "ubuntu-os-cloud"
UBUNTU_FAMILIES = {
    "x86_64": ("ubuntu-2404-lts-amd64", "ubuntu-2204-lts"),
    "arm64": ("ubuntu-2404-lts-arm64", "ubuntu-2204-lts-arm64"),
}
"""Source: Canonical, "Find Google Cloud images", and Compute Engine, "Operating system details" (2026-11)."""

GVNIC = "GVNIC"
"""Google's own network card, up to ten times as fast as VirtIO: an image says whether it has its driver. Source: Compute
Engine, "Use Google Virtual NIC" (2026-11)."""

NAMED = re.compile(r"projects/(?P<project>[a-z0-9.:-]+)/global/images/(?P<family>family/)?(?P<name>[a-z][a-z0-9-]*)")

_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_OTHER = re.compile(r"[^a-z0-9_-]+")
_FACT = re.compile(r"(costgpu-[a-z-]+)=(\S+)")


def label_value(text: str) -> str:
    """Return a text as a label can hold it: ``ann@laptop`` becomes ``ann-laptop``."""
    return _OTHER.sub("-", text.lower())[:VALUE_CHARACTERS]


def labels_of(request: CreateRequest) -> dict[str, str]:
    """Return the labels of a machine and its disk: ours, and of the user's tags those that can be labels."""
    ours = {key: label_value(value) for key, value in our_tags(request).items()}
    theirs = {
        key: value
        for key, value in sorted(request.tags.items())
        if _KEY.fullmatch(key) and _VALUE.fullmatch(value) and key not in OUR_TAGS and not key.startswith("goog")
    }
    return {**dict(list(theirs.items())[: MOST_LABELS - len(ours)]), **ours}


def metadata_value(request: CreateRequest) -> str:
    """Return the exact tags, as JSON in ASCII."""
    return json.dumps({**request.tags, **our_tags(request)}, sort_keys=True)


def tags_from(labels: Mapping[str, str], kept: str = "") -> dict[str, str]:
    """Return all tags of a machine.

    Args:
        kept: Its metadata item; empty if it has none.
    """
    try:
        loaded = json.loads(kept) if kept else {}
    except ValueError:
        loaded = {}
    exact = (
        {str(key): value for key, value in loaded.items() if isinstance(value, str)} if isinstance(loaded, dict) else {}
    )
    tags = {**{key: value for key, value in exact.items() if key not in OUR_TAGS}, **labels}
    for key in OUR_TAGS:
        if key in labels and key in exact and label_value(exact[key]) == labels[key]:
            tags[key] = exact[key]
    return tags


def facts_of(request: CreateRequest) -> str:
    """Return what stands in the description of things that have no labels."""
    facts = {
        **{key: label_value(value) for key, value in our_tags(request).items()},
        "costgpu-region": request.offer.region,
    }
    return " ".join(f"{key}={value}" for key, value in facts.items() if value)


def facts_from(description: str) -> dict[str, str]:
    """Return the tags in such a description; empty for what is not ours."""
    return dict(_FACT.findall(description))


def split_type(instance_type: str) -> tuple[str, str, int]:
    """Machine type, attached accelerator and their number: ``n1-standard-8+T4:2`` is ``n1-standard-8``, ``T4``, 2."""
    machine, _, attached = instance_type.partition("+")
    name, _, count = attached.partition(":")
    return machine, name, int(count or 1) if name else 0


def join_type(machine: str, accelerators: list[tuple[str, int]]) -> str:
    """Return the reverse of `split_type`, from Google's names of what is attached."""
    names = {google: ours for ours, google in ATTACHED.items()}
    for google, count in accelerators:
        if google in names and machine.startswith("n1-"):
            return f"{machine}+{names[google]}:{count}"
    return machine


def name_of(token: str) -> str:
    """Return the instance's name, which is never used for another one."""
    name = f"costgpu-{token}"
    return name if NAME.fullmatch(name) else f"costgpu-{uuid.uuid5(NAMESPACE, token)}"


def request_id(token: str) -> str:
    """Return what Google knows a repeated request by."""
    return str(uuid.uuid5(NAMESPACE, f"instance/{token}"))


def is_spot(offer: Offer) -> bool:
    """Return whether it can be taken back."""
    return offer.purchase_option is PurchaseOption.SPOT


def disk_type(machine: str) -> str:
    """Return the cheapest kind of SSD disk that the machine type takes."""
    return "hyperdisk-balanced" if HYPERDISK_ONLY.match(machine) else "pd-balanced"


def families_for(offer: Offer) -> tuple[str, tuple[str, ...]]:
    """Project and families of an offer's image, the preferred one first.

    Raises:
        InvalidRequest: No public image has a driver for this accelerator.
    """
    if offer.accelerator is None:
        return UBUNTU, UBUNTU_FAMILIES.get(offer.architecture, ())
    if needs_own_image(offer):
        raise InvalidRequest(
            f"Google publishes no image with a driver for {offer.instance_type} ({offer.accelerator.name}).",
            hint="Choose another type, or name an image of your own that has the driver (gcp_image).",
        )
    return DEEP_LEARNING, DRIVER_FAMILIES


class Images:
    """Looks images up, once each.

    Args:
        image: ``projects/PROJECT/global/images/NAME`` or ``.../family/FAMILY`` instead; None for the public ones.
    """

    def __init__(self, clients: Clients, image: str | None = None) -> None:
        self._clients = clients
        self._named = NAMED.fullmatch(image) if image else None
        if image and self._named is None:
            raise InvalidRequest(
                f"{image!r} is no image of Google Cloud.",
                hint="Write projects/PROJECT/global/images/NAME or projects/PROJECT/global/images/family/FAMILY.",
            )
        self._cache = ImageCache()

    def check(self, offer: Offer) -> None:
        """Raise `InvalidRequest` if no image is known for the offer's type; ask nobody."""
        if self._named is None:
            families_for(offer)

    def find(self, offer: Offer) -> Image:
        """Return the image that an offer boots."""
        key = self._named or (*families_for(offer), _is_old(offer))
        return self._cache.get(key, offer, lambda: _image(self._look_up(offer)))

    def _look_up(self, offer: Offer) -> Any:
        if self._named is not None:
            row = self._one(self._named["project"], self._named["name"], family=bool(self._named["family"]))
            if row is None:
                raise InvalidRequest(f"There is no image {self._named.group()}, or these credentials may not see it.")
            return row
        project, families = families_for(offer)
        preferred = (self._one(project, family, family=True) for family in families)
        row = next((row for row in preferred if row is not None), None)
        if row is None and project == DEEP_LEARNING:
            row = self._newest(offer)
        if row is None:
            raise InvalidRequest(
                f"No public image: the project {project} has none of the families {', '.join(families)}.",
                hint="Name an image of your own: gcp_image.",
            )
        return row

    def _one(self, project: str, name: str, *, family: bool) -> Any | None:
        doing = f"look up the image {name} of {project}"
        if family:
            return self._clients.maybe(doing, "Images", "get_from_family", family=name, project=project)
        return self._clients.maybe(doing, "Images", "get", image=name, project=project)

    def _newest(self, offer: Offer) -> Any | None:
        """Return the newest driver that serves this accelerator, for when the families have other names."""
        question = {"project": DEEP_LEARNING, "filter": f'family eq "{DRIVER_PATTERN}"'}
        rows = self._clients.rows("list the images with a driver", "Images", **question)
        rows = [row for row in rows if not row.deprecated.state and str(row.status) == "READY"]
        fit = [row for row in rows if not _is_old(offer) or _numbers(str(row.family))[-1] <= LAST_DRIVER_FOR_OLD]
        return max(fit, key=lambda row: (_numbers(str(row.family))[::-1], str(row.name)), default=None)


def _image(row: Any) -> Image:
    url = str(row.self_link)
    return Image(
        name=url[url.index("projects/") :] if "projects/" in url else url,
        root_gib=int(row.disk_size_gb),
        architecture=str(row.architecture).lower() or "x86_64",
        network_driver=GVNIC if any(str(each.type_) == GVNIC for each in row.guest_os_features) else "",
    )


def _is_old(offer: Offer) -> bool:
    return offer.accelerator is not None and split_type(offer.instance_type)[1] in OLD


def _numbers(family: str) -> tuple[int, ...]:
    """CUDA, Ubuntu, driver."""
    return tuple(int(number) for number in re.findall(r"\d+", family)) or (0,)


def body(
    request: CreateRequest, zone: str, image: Image, network: str, subnetwork: str = "", notice_seconds: int = 0
) -> dict[str, Any]:
    """Return the instance of ``instances.insert``, by the client's names; the same for the same request.

    Args:
        network: ``global/networks/...``.
        subnetwork: ``regions/.../subnetworks/...``; empty for the one that the network has there.
        notice_seconds: How long before it is taken back a spot machine hears of it; 0 where the client cannot ask for that.

    Raises:
        InvalidRequest: The disk is smaller than the image, or the boot script is too long.
    """
    image.check_disk(request.disk_gib)
    script = boot_script_of(request)
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
    group = request.group
    if group is not None and image.network_driver:
        interface["nic_type"] = image.network_driver
    metadata = {
        # The same script twice. Ubuntu's images read user data before they start sshd; the startup script may come minutes
        # after it, and is for images without cloud-init. Source: Canonical's google-startup-scripts.service (2020).
        "user-data": BOOTHOOK + script,
        "startup-script": script,
        METADATA_KEY: metadata_value(request),
        "block-project-ssh-keys": "TRUE",
        "enable-oslogin": "FALSE",
        "serial-port-logging-enable": "FALSE",
    }
    disk = {
        "source_image": image.name,
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
        "tags": {"items": [run_name(request.run_id), *([group_name(group.group_id)] if group else [])]},
        "metadata": {"items": [{"key": key, "value": value} for key, value in metadata.items()]},
        "scheduling": _scheduling(request, notice_seconds),
        "disks": [{"boot": True, "auto_delete": True, "initialize_params": disk}],
        "network_interfaces": [interface],
        "service_accounts": [],
        "deletion_protection": False,
    }
    if group is not None and group.placement:
        made["resource_policies"] = [f"regions/{request.offer.region}/resourcePolicies/{group_name(group.group_id)}"]
    if accelerator:
        kind = ATTACHED.get(accelerator)
        if kind is None:
            raise InvalidRequest(f"Google attaches no {accelerator} to {machine}.")
        path = f"zones/{zone}/acceleratorTypes/{kind}"
        made["guest_accelerators"] = [{"accelerator_type": path, "accelerator_count": count}]
    return made


def _scheduling(request: CreateRequest, notice_seconds: int) -> dict[str, Any]:
    until = request.lease_until.astimezone(UTC).replace(microsecond=0, tzinfo=None)
    spot = is_spot(request.offer)
    rules: dict[str, Any] = {
        "provisioning_model": "SPOT" if spot else "STANDARD",
        "termination_time": f"{until.isoformat()}Z",
        "instance_termination_action": "DELETE",
        "automatic_restart": False,
    }
    placed = request.group is not None and request.group.placement
    if spot or placed or request.offer.accelerator is not None:
        rules["on_host_maintenance"] = "TERMINATE"
    if spot and notice_seconds:
        rules["preemption_notice_duration"] = {"seconds": notice_seconds}
    return rules

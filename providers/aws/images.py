"""Which public image a machine boots: found by the public parameters that AWS and Canonical publish in every region."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from costgpu.errors import InvalidRequest
from costgpu.models.offer import Offer
from costgpu.providers.aws.session import Clients

DEEP_LEARNING = "/aws/service/deeplearning/ami/{arch}/base-oss-nvidia-driver-gpu-ubuntu-{release}/latest/ami-id"
"""NVIDIA driver, CUDA and Docker, no framework. Source: AWS Deep Learning AMIs developer guide, "Finding the ID of a
DLAMI" and the release notes of the Base OSS Nvidia Driver GPU AMI, Ubuntu 24.04 and 22.04 (2026-10-08)."""

UBUNTU = "/aws/service/canonical/ubuntu/server/{release}/stable/current/{arch}/hvm/ebs-{disk}/ami-id"
"""Source: Canonical, "Find Ubuntu images on AWS" (2026-11): the disk is gp3 from 23.10 on, gp2 before."""

DRIVER_FAMILIES = {
    "x86_64": frozenset(
        {
            "g4dn",
            "g5",
            "g6",
            "gr6",
            "g6e",
            "g7",
            "g7e",
            "p4d",
            "p4de",
            "p5",
            "p5e",
            "p5en",
            "p6-b200",
            "p6-b300",
        }
    ),
    "arm64": frozenset({"g5g", "p6e-gb200", "p6e-gb300"}),
}
"""Families that the driver of those images serves. g6f and gr6f need NVIDIA's licensed GRID driver, P2, P3 and G3 an
older one, g4ad AMD's. Source: ``supported_ec2_instances`` in the release notes above (2026-10-08)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image in one region.

    Attributes:
        image_id: ``ami-...``.
        root_device: Name of the root disk, such as ``/dev/sda1``.
        root_gib: The least size of the root disk.
        architecture: ``x86_64`` or ``arm64``.
    """

    image_id: str
    root_device: str
    root_gib: int
    architecture: str


def parameters_for(offer: Offer) -> tuple[str, ...]:
    """Names of the public parameters for an offer's image, the preferred one first.

    Raises:
        InvalidRequest: No public image has a driver for this accelerator.
    """
    if offer.accelerator is None:
        arch = {"x86_64": "amd64"}.get(offer.architecture, offer.architecture)
        return tuple(
            UBUNTU.format(arch=arch, release=release, disk=disk)
            for release, disk in (("24.04", "gp3"), ("22.04", "gp2"))
        )
    if offer.family not in DRIVER_FAMILIES.get(offer.architecture, ()):
        raise InvalidRequest(
            f"AWS publishes no image with a driver for {offer.instance_type} ({offer.accelerator.name}).",
            hint="Choose another type, or name an image of your own that has the driver (aws_image, an ami-... id).",
        )
    return tuple(DEEP_LEARNING.format(arch=offer.architecture, release=release) for release in ("24.04", "22.04"))


class Images:
    """Looks images up, once for each region and kind.

    Args:
        clients: To ask with.
        image: ``ami-...`` or the name of a parameter, instead of the public one; None for the public one.
    """

    def __init__(self, clients: Clients, image: str | None = None) -> None:
        self._clients = clients
        self._image = image
        self._found: dict[tuple[str, tuple[str, ...]], Image] = {}
        self._lock = threading.Lock()

    def check(self, offer: Offer) -> None:
        """Raises `InvalidRequest` if no image is known for the offer's type; asks nobody."""
        if self._image is None:
            parameters_for(offer)

    def find(self, offer: Offer) -> Image:
        """The image that an offer boots."""
        names = (self._image,) if self._image else parameters_for(offer)
        key = (offer.region, names)
        with self._lock:
            if key not in self._found:
                self._found[key] = self._describe(offer.region, self._image_id(offer.region, names))
            found = self._found[key]
        if found.architecture != offer.architecture:
            raise InvalidRequest(
                f"The image {found.image_id} is for {found.architecture}, but {offer.instance_type} is {offer.architecture}."
            )
        return found

    def _image_id(self, region: str, names: tuple[str, ...]) -> str:
        if names[0].startswith("ami-"):
            return names[0]
        with self._clients.speaking(f"look up the image in {region}"):
            reply = self._clients.client("ssm", region).get_parameters(Names=list(names))
        values = {row["Name"]: row["Value"] for row in reply["Parameters"]}
        for name in names:
            if name in values:
                return str(values[name])
        raise InvalidRequest(f"No public image in {region}: none of {', '.join(names)} exists there.")

    def _describe(self, region: str, image_id: str) -> Image:
        with self._clients.speaking(f"describe the image {image_id} in {region}"):
            rows = self._clients.client("ec2", region).describe_images(ImageIds=[image_id])["Images"]
        if not rows:
            raise InvalidRequest(f"There is no image {image_id} in {region}.")
        row, root = rows[0], str(rows[0].get("RootDeviceName", "/dev/sda1"))
        size = next(
            (
                disk["Ebs"].get("VolumeSize", 0)
                for disk in row.get("BlockDeviceMappings", ())
                if disk.get("DeviceName") == root and "Ebs" in disk
            ),
            0,
        )
        return Image(image_id=image_id, root_device=root, root_gib=int(size), architecture=str(row["Architecture"]))

"""What a machine boots, and the create call: everything that makes it end by itself is in this one request."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from typing import Any

from costgpu.errors import InvalidRequest
from costgpu.models.instance import CreateRequest
from costgpu.models.offer import Offer, PurchaseOption
from costgpu.providers.aws.facts import needs_own_image
from costgpu.providers.aws.network import Placement, aws_tags
from costgpu.providers.aws.sdk import Clients
from costgpu.providers.base import OUR_TAGS
from costgpu.providers.common import BOOTHOOK, Image, ImageCache, boot_script_of, our_tags

DEEP_LEARNING = "/aws/service/deeplearning/ami/{arch}/base-oss-nvidia-driver-gpu-ubuntu-{release}/latest/ami-id"
"""NVIDIA driver, CUDA and Docker, no framework. Source: AWS Deep Learning AMIs developer guide, "Finding the ID of a
DLAMI" and the release notes of the Base OSS Nvidia Driver GPU AMI, Ubuntu 24.04 and 22.04 (2026-10-08)."""

UBUNTU = "/aws/service/canonical/ubuntu/server/{release}/stable/current/{arch}/hvm/ebs-{disk}/ami-id"
"""Source: Canonical, "Find Ubuntu images on AWS" (2026-11): the disk is gp3 from 23.10 on, gp2 before."""


def parameters_for(offer: Offer) -> tuple[str, ...]:
    """Return the names of the public parameters for an offer's image, the preferred one first.

    Raises:
        InvalidRequest: No public image has a driver for this accelerator.
    """
    if offer.accelerator is None:
        arch = {"x86_64": "amd64"}.get(offer.architecture, offer.architecture)
        return tuple(
            UBUNTU.format(arch=arch, release=release, disk=disk)
            for release, disk in (("24.04", "gp3"), ("22.04", "gp2"))
        )
    if needs_own_image(offer):
        raise InvalidRequest(
            f"AWS publishes no image with a driver for {offer.instance_type} ({offer.accelerator.name}).",
            hint="Choose another type, or name an image of your own that has the driver (aws_image, an ami-... id).",
        )
    return tuple(DEEP_LEARNING.format(arch=offer.architecture, release=release) for release in ("24.04", "22.04"))


class Images:
    """Looks images up, once for each region and kind.

    Args:
        image: ``ami-...`` or the name of a parameter, instead of the public one; None for the public one.
    """

    def __init__(self, clients: Clients, image: str | None = None) -> None:
        self._clients = clients
        self._image = image
        self._cache = ImageCache()

    def check(self, offer: Offer) -> None:
        """Raise `InvalidRequest` if no image is known for the offer's type; ask nobody."""
        if self._image is None:
            parameters_for(offer)

    def find(self, offer: Offer) -> Image:
        """Return the image that an offer boots."""
        names = (self._image,) if self._image else parameters_for(offer)
        key = (offer.region, names)
        region = offer.region
        return self._cache.get(key, offer, lambda: self._describe(region, self._image_id(region, names)))

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
        return Image(name=image_id, root_device=root, root_gib=int(size), architecture=str(row["Architecture"]))


USER_DATA_BYTES = 16384  # Source: EC2 user guide, "Run commands when you launch an EC2 instance" (2026-11)
TAG_VALUE_CHARACTERS = 256  # Source: EC2 user guide, "Tag restrictions" (2026-11)
BURSTABLE = frozenset({"t2", "t3", "t3a", "t4g"})
"""Families that are launched without surplus credits: those are charged beside the price, at termination, and would
break the cap. Source: EC2 user guide, "Unlimited mode for burstable performance instances" (2026-11)."""


def tags_of(request: CreateRequest) -> dict[str, str]:
    """Return the user's tags, and ours over them."""
    theirs = {key: value for key, value in request.tags.items() if key not in OUR_TAGS}
    made = {**theirs, **our_tags(request), "Name": f"costgpu-{request.name}"}
    return {key: value[:TAG_VALUE_CHARACTERS] for key, value in made.items()}


def user_data(script: str) -> bytes:
    """Return the boot script as user data; compressed if it has to be.

    Raises:
        InvalidRequest: Too long even so.
    """
    data = (BOOTHOOK + script).encode()
    if len(data) > USER_DATA_BYTES:
        data = gzip.compress(data, mtime=0)  # the same bytes for the same token
    if len(data) > USER_DATA_BYTES:
        raise InvalidRequest(
            f"The boot script is too long for AWS: {len(data)} bytes after compression, of {USER_DATA_BYTES}."
        )
    return data


def parameters(
    request: CreateRequest, image: Image, place: Placement, groups: Sequence[str], placement_group: str = ""
) -> dict[str, Any]:
    """Return the arguments of RunInstances; the same for the same request.

    Args:
        groups: The run's security group, and that of its node group; empty for a dry run, before there are any.
        placement_group: Name of the one that the machine is put into; empty for none.

    Raises:
        InvalidRequest: The disk is smaller than the image's, or the boot script is too long.
    """
    image.check_disk(request.disk_gib)
    spot = request.offer.purchase_option is PurchaseOption.SPOT
    kinds = ["instance", "volume", "network-interface", *(["spot-instances-request"] if spot else [])]
    tags = aws_tags(tags_of(request))
    disk = {"VolumeSize": request.disk_gib, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True}
    call: dict[str, Any] = {
        "ClientToken": request.token,
        "MinCount": 1,
        "MaxCount": 1,
        "ImageId": image.name,
        "InstanceType": request.offer.instance_type,
        "UserData": user_data(boot_script_of(request)),
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1, "HttpEndpoint": "enabled"},
        "BlockDeviceMappings": [{"DeviceName": image.root_device, "Ebs": disk}],
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in kinds],
    }
    if request.offer.family in BURSTABLE:
        call["CreditSpecification"] = {"CpuCredits": "standard"}
    if placement_group:
        call["Placement"] = {"GroupName": placement_group}
    efa = request.group is not None and request.group.efa_interfaces > 0
    if place.subnet_id or efa:
        call["NetworkInterfaces"] = [_interface(place, groups, efa=efa)]
    elif groups:
        call["SecurityGroupIds"] = list(groups)
    if spot:
        options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
        call["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": options}
    return call


def _interface(place: Placement, groups: Sequence[str], *, efa: bool) -> dict[str, Any]:
    """Return the only network interface, also of types that could have EFA on several.

    AWS gives no public address to a machine that is launched with more than one. An Elastic IP address would be billed
    until somebody releases it, which no power-off and no schedule does.
    Source: Amazon EC2 API reference, InstanceNetworkInterfaceSpecification, AssociatePublicIpAddress (2026-11).
    """
    interface: dict[str, Any] = {"DeviceIndex": 0, "AssociatePublicIpAddress": True, "DeleteOnTermination": True}
    if place.subnet_id:
        interface["SubnetId"] = place.subnet_id
    if efa:
        interface["InterfaceType"] = "efa"
    if groups:
        interface["Groups"] = list(groups)
    return interface

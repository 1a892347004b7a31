"""The create call: everything that makes the machine end by itself is in this one request."""

from __future__ import annotations

import gzip
from typing import Any

from costgpu.errors import InvalidRequest
from costgpu.models.instance import CreateRequest
from costgpu.models.offer import PurchaseOption
from costgpu.providers.aws.images import Image
from costgpu.providers.aws.network import Place, aws_tags
from costgpu.providers.base import TAG_LEASE, TAG_NAME, TAG_OWNER, TAG_RUN

USER_DATA_BYTES = 16384  # Source: EC2 user guide, "Run commands when you launch an EC2 instance" (2026-11)
TAG_VALUE_CHARACTERS = 256  # Source: EC2 user guide, "Tag restrictions" (2026-11)
BOOTHOOK = "#cloud-boothook\n"
"""Makes cloud-init run the script at every boot, before the network's own modules and before any other user data.
Source: cloud-init documentation, "User data formats" (2026-11)."""

BURSTABLE = frozenset({"t2", "t3", "t3a", "t4g"})
"""Families that are launched without surplus credits: those are charged beside the price, at termination, and would
break the cap. Source: EC2 user guide, "Unlimited mode for burstable performance instances" (2026-11)."""


def tags_of(request: CreateRequest) -> dict[str, str]:
    """The user's tags, and ours over them."""
    ours = {
        TAG_RUN: request.run_id,
        TAG_NAME: request.name,
        TAG_OWNER: request.owner,
        TAG_LEASE: str(int(request.lease_until.timestamp())),
        "Name": f"costgpu-{request.name}",
    }
    return {key: value[:TAG_VALUE_CHARACTERS] for key, value in {**request.tags, **ours}.items()}


def user_data(boot_script: str) -> bytes:
    """The boot script as user data; compressed if it has to be.

    Raises:
        InvalidRequest: Too long even so.
    """
    script = boot_script if boot_script.startswith("#!") else f"#!/bin/sh\n{boot_script}"
    data = (BOOTHOOK + script).encode()
    if len(data) > USER_DATA_BYTES:
        data = gzip.compress(data, mtime=0)  # the same bytes for the same token
    if len(data) > USER_DATA_BYTES:
        raise InvalidRequest(
            f"The boot script is too long for AWS: {len(data)} bytes after compression, of {USER_DATA_BYTES}."
        )
    return data


def parameters(request: CreateRequest, image: Image, place: Place, group_id: str | None) -> dict[str, Any]:
    """The arguments of RunInstances; the same for the same request.

    Args:
        request: What to create.
        image: What it boots.
        place: Where.
        group_id: The run's security group; None for a dry run, before there is one.

    Raises:
        InvalidRequest: The disk is smaller than the image's, or the boot script is too long.
    """
    if request.disk_gib < image.root_gib:
        raise InvalidRequest(
            f"A disk of {request.disk_gib} GiB is too small: the image {image.image_id} needs {image.root_gib} GiB.",
            hint=f"Ask for a disk of at least {image.root_gib} GiB.",
        )
    spot = request.offer.purchase_option is PurchaseOption.SPOT
    kinds = ["instance", "volume", "network-interface", *(["spot-instances-request"] if spot else [])]
    tags = aws_tags(tags_of(request))
    disk = {"VolumeSize": request.disk_gib, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True}
    call: dict[str, Any] = {
        "ClientToken": request.token,
        "MinCount": 1,
        "MaxCount": 1,
        "ImageId": image.image_id,
        "InstanceType": request.offer.instance_type,
        "UserData": user_data(request.boot_script),
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1, "HttpEndpoint": "enabled"},
        "BlockDeviceMappings": [{"DeviceName": image.root_device, "Ebs": disk}],
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in kinds],
    }
    if request.offer.family in BURSTABLE:
        call["CreditSpecification"] = {"CpuCredits": "standard"}
    groups = [group_id] if group_id else []
    if place.subnet_id:
        interface: dict[str, Any] = {
            "DeviceIndex": 0,
            "SubnetId": place.subnet_id,
            "AssociatePublicIpAddress": True,
            "DeleteOnTermination": True,
        }
        call["NetworkInterfaces"] = [{**interface, "Groups": groups} if groups else interface]
    elif groups:
        call["SecurityGroupIds"] = groups
    if spot:
        options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
        call["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": options}
    return call

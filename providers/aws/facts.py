"""What is known of AWS without asking it: costs, images, permissions, the end by hand. Imports next to nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from costgpu.models.provider_costs import ProviderCosts

if TYPE_CHECKING:
    from costgpu.models.instance import InstanceRef
    from costgpu.models.offer import Offer

# Source: Amazon EBS pricing (gp3) and Amazon VPC pricing (public IPv4 address), us-east-1 (read 2026-11).
# Watts: Cloud Carbon Footprint, published coefficients, average over the provider's processors (read 2026-11-21).
COSTS = ProviderCosts(disk_usd_per_gb_month=0.08, address_usd_per_hour=0.005, vcpu_watts=(0.74, 3.50))
POLICY_FILE = Path(__file__).with_name("policy.json")
"""The IAM policy that is enough."""
DRIVER_FAMILIES = {
    "x86_64": frozenset(
        ["g4dn", "g5", "g6", "gr6", "g6e", "g7", "g7e", "p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300"]
    ),
    "arm64": frozenset({"g5g", "p6e-gb200", "p6e-gb300"}),
}
"""Families that the driver of the Deep Learning Base images serves. g6f and gr6f need NVIDIA's licensed GRID driver, P2,
P3 and G3 an older one, g4ad AMD's. Source: ``supported_ec2_instances`` in the release notes of the Base OSS Nvidia Driver
GPU AMI, Ubuntu 24.04 and 22.04 (2026-10-08)."""


def needs_own_image(offer: Offer) -> bool:
    """Return whether no public image has a driver for the machine's accelerator."""
    return offer.accelerator is not None and offer.family not in DRIVER_FAMILIES.get(offer.architecture, ())


def end_by_hand(ref: InstanceRef, account: str = "") -> str:  # noqa: ARG001 - the command names no account
    """Return the command that terminates an instance without costgpu."""
    return f"aws ec2 terminate-instances --region {ref.region} --instance-ids {ref.instance_id}"

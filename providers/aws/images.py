"""Which machines AWS's public images with NVIDIA's driver serve. Asks nobody, and imports next to nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from costgpu.models.offer import Offer

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

"""Which machines Google's public images with NVIDIA's driver serve. Asks nobody, and imports next to nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from costgpu.models.offer import Offer


def needs_own_image(offer: Offer) -> bool:
    """Return whether no public image has a driver for the machine's accelerator.

    None is for Arm, and none has the licensed driver of a part of a GPU.
    """
    return offer.accelerator is not None and (offer.architecture != "x86_64" or offer.accelerator.count < 1)

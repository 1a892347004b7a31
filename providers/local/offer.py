"""This computer as an offer."""

import os
from datetime import date
from decimal import Decimal

import psutil

from costgpu.models.offer import Offer, PurchaseOption


def own_offer(usd_per_hour: Decimal, today: date) -> Offer:
    """Return this computer as it is, at a price that the user gives."""
    return Offer(
        provider="local",
        instance_type="this-machine",
        family="local",
        region="local",
        zone=None,
        purchase_option=PurchaseOption.ON_DEMAND,
        price_usd_per_hour=usd_per_hour,
        vcpus=os.cpu_count() or 1,
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        architecture="",
        accelerator=None,
        price_source="--assume-price",
        price_as_of=today,
    )

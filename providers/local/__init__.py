"""This machine as a provider: an instance is a folder, a process that keeps it, and whatever clients start in it.

The keeper outlives the client, ends the instance at its lease, and leaves nothing running. If it is killed itself, it is
started again, and what belongs to the instance is found in any case, by a mark in the environment of its processes.
Nothing boots: the boot script of a request, which is for machines of their own, is not run. Standard library only: `keeper`
and what it imports run as a program of their own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from costgpu.models.provider_costs import NO_EXTRAS
from costgpu.providers.spec import ProviderConfig, ProviderSpec

if TYPE_CHECKING:
    from datetime import date
    from decimal import Decimal

    from costgpu.models.offer import Offer
    from costgpu.providers.base import Provider


def _adapter(config: ProviderConfig) -> Provider:
    from costgpu.providers.local.provider import LocalProvider  # noqa: PLC0415

    return LocalProvider(config.data_folder() / "machines", config.clock)


def own_offer(usd_per_hour: Decimal, today: date) -> Offer:
    """Return this computer as it is, at a price that the user gives."""
    import psutil  # noqa: PLC0415

    from costgpu.models.offer import Offer, PurchaseOption  # noqa: PLC0415

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


SPEC = ProviderSpec(
    name="local",
    display_name="this computer",
    publisher="This computer",
    service="This computer",
    adapter=_adapter,
    has_credentials=lambda: True,
    costs=NO_EXTRAS,
    free=True,
    over_ssh=False,
    label="this machine",
    own_offer=own_offer,
)

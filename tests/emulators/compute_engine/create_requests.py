"""Create requests for Google Cloud, with honest values that can be changed one by one."""

import itertools
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from costgpu.models.instance import CreateRequest
from costgpu.models.offer import Accelerator, Offer, PurchaseOption

BOOT = "#!/bin/sh\necho booted\n"
L4 = Accelerator(name="L4", count=1, memory_gib=24.0)
T4 = Accelerator(name="T4", count=2, memory_gib=16.0)
V100 = Accelerator(name="V100", count=1, memory_gib=16.0)
SLICE = Accelerator(name="RTX-PRO-6000", count=0.5, memory_gib=48.0)
_runs = itertools.count(1)


def offer(
    instance_type: str = "g2-standard-4",
    *,
    region: str = "us-central1",
    vcpus: int = 4,
    accelerator: Accelerator | None = L4,
    architecture: str = "x86_64",
    spot: bool = False,
) -> Offer:
    return Offer(
        provider="gcp",
        instance_type=instance_type,
        family=instance_type.partition("-")[0],
        region=region,
        zone=None,
        purchase_option=PurchaseOption.SPOT if spot else PurchaseOption.ON_DEMAND,
        price_usd_per_hour=Decimal("0.71"),
        vcpus=vcpus,
        memory_gib=16.0,
        architecture=architecture,
        accelerator=accelerator,
        price_source="test",
        price_as_of=date(2026, 11, 1),
    )


def cpu_offer(*, region: str = "us-central1", spot: bool = False) -> Offer:
    """A small machine without an accelerator."""
    return offer("e2-standard-2", region=region, vcpus=2, accelerator=None, spot=spot)


def request(
    what: Offer | None = None,
    *,
    run_id: str = "",
    attempt: int = 1,
    tags: Mapping[str, str] | None = None,
    **changes: Any,
) -> CreateRequest:
    """A create call of a run of its own."""
    run = run_id or f"g{next(_runs):011d}"
    values: dict[str, Any] = {
        "run_id": run,
        "token": f"{run}-{attempt}",
        "name": "train",
        "owner": "ann@laptop",
        "offer": what or offer(),
        "zone": None,
        "disk_gib": 100,
        "lease_until": datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2),
        "boot_script": BOOT,
        "allow_from": "203.0.113.7/32",
        "tags": dict(tags or {}),
        **changes,
    }
    return CreateRequest(**values)

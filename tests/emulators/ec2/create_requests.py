"""Create requests for the tests, with honest values that can be changed one by one."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from costgpu.models.instance import CreateRequest
from costgpu.models.offer import Accelerator, Offer, PurchaseOption

BOOT = "#!/bin/sh\necho booted\n"
GPU = Accelerator(name="A10G", count=1, memory_gib=24.0)
T4G = Accelerator(name="T4G", count=1, memory_gib=16.0)
H100 = Accelerator(name="H100", count=8, memory_gib=80.0)
V100 = Accelerator(name="V100", count=1, memory_gib=16.0)


def offer(
    instance_type: str = "g5.xlarge",
    *,
    region: str = "us-east-1",
    vcpus: int = 4,
    accelerator: Accelerator | None = GPU,
    architecture: str = "x86_64",
    spot: bool = False,
) -> Offer:
    return Offer(
        provider="aws",
        instance_type=instance_type,
        family=instance_type.split(".", maxsplit=1)[0],
        region=region,
        zone=None,
        purchase_option=PurchaseOption.SPOT if spot else PurchaseOption.ON_DEMAND,
        price_usd_per_hour=Decimal("1.006"),
        vcpus=vcpus,
        memory_gib=16.0,
        architecture=architecture,
        accelerator=accelerator,
        price_source="test",
        price_as_of=date(2026, 11, 1),
    )


def cpu_offer(*, region: str = "us-east-1", spot: bool = False) -> Offer:
    """A small machine without an accelerator."""
    return offer("c7i.large", region=region, vcpus=2, accelerator=None, spot=spot)


def request(
    what: Offer | None = None,
    *,
    run_id: str = "r7k2m9x4q1ab",
    attempt: int = 1,
    zone: str | None = None,
    disk_gib: int = 100,
    lease_seconds: float = 3600.0,
    boot_script: str = BOOT,
    allow_from: str = "203.0.113.7/32",
    tags: Mapping[str, str] | None = None,
    lease_until: datetime | None = None,
) -> CreateRequest:
    """A create call; the token is the run's id and the attempt."""
    return CreateRequest(
        run_id=run_id,
        token=f"{run_id}-{attempt}",
        name="train",
        owner="ann@laptop",
        offer=what or offer(),
        zone=zone,
        disk_gib=disk_gib,
        lease_until=lease_until or datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=lease_seconds),
        boot_script=boot_script,
        allow_from=allow_from,
        tags=tags or {},
    )

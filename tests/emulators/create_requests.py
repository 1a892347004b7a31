"""Offers and create requests for tests, with honest values that can be changed one by one."""

import itertools
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from costgpu.models.instance import CreateRequest
from costgpu.models.offer import Accelerator, Offer, PurchaseOption

A10G = Accelerator(name="A10G", count=1, memory_gib=24.0)
L4 = Accelerator(name="L4", count=1, memory_gib=24.0)
T4 = Accelerator(name="T4", count=2, memory_gib=16.0)
T4G = Accelerator(name="T4G", count=1, memory_gib=16.0)
V100 = Accelerator(name="V100", count=1, memory_gib=16.0)
H100 = Accelerator(name="H100", count=8, memory_gib=80.0)
SLICE = Accelerator(name="RTX-PRO-6000", count=0.5, memory_gib=48.0)
_runs = itertools.count(1)


def offer_of(provider: str, region: str, instance_type: str, *, spot: bool = False, **changes: Any) -> Offer:
    """A plausible one."""
    made = Offer(
        provider=provider,
        instance_type=instance_type,
        family=instance_type.partition(".")[0].partition("-")[0],
        region=region,
        zone=None,
        purchase_option=PurchaseOption.SPOT if spot else PurchaseOption.ON_DEMAND,
        price_usd_per_hour=Decimal("0.1"),
        vcpus=2,
        memory_gib=4.0,
        architecture="x86_64",
        accelerator=None,
        price_source="test",
        price_as_of=date(2026, 11, 1),
    )
    return replace(made, **changes)


def request_of(offer: Offer, run_id: str, attempt: int = 1, **changes: Any) -> CreateRequest:
    """A create call; the token is the run's id and the attempt."""
    made = CreateRequest(
        run_id=run_id,
        token=f"{run_id}-{attempt}",
        name="train",
        owner="ann@laptop",
        offer=offer,
        zone=None,
        disk_gib=100,
        lease_until=datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2),
        boot_script="#!/bin/sh\necho booted\n",
        allow_from="203.0.113.7/32",
        tags={},
    )
    return replace(made, **changes)


@dataclass(frozen=True)
class Requests:
    """What is asked of one cloud unless a test says otherwise."""

    provider: str
    region: str
    gpu_type: str  # has 4 vCPUs and the accelerator
    accelerator: Accelerator
    cpu_type: str  # has 2 vCPUs
    run_id: str = ""  # of every request; empty for another one each time

    def offer(self, instance_type: str = "", *, region: str = "", **changes: Any) -> Offer:
        values: dict[str, Any] = {"vcpus": 4, "accelerator": self.accelerator, **changes}
        return offer_of(self.provider, region or self.region, instance_type or self.gpu_type, **values)

    def cpu_offer(self, **changes: Any) -> Offer:
        """A small machine without an accelerator."""
        return self.offer(self.cpu_type, vcpus=2, accelerator=None, **changes)

    def request(
        self, what: Offer | None = None, *, run_id: str = "", attempt: int = 1, **changes: Any
    ) -> CreateRequest:
        run = run_id or self.run_id or f"g{next(_runs):011d}"
        return request_of(what or self.offer(), run, attempt, **changes)


AWS = Requests("aws", "us-east-1", "g5.xlarge", A10G, "c7i.large", "r7k2m9x4q1ab")
GCP = Requests("gcp", "us-central1", "g2-standard-4", L4, "e2-standard-2")

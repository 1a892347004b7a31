"""What a run will do and cost, before anything is spent. Pure: values in, a frozen plan out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from costgpu.errors import CapTooSmall, UsageError
from costgpu.models.offer import Offer, PurchaseOption
from costgpu.models.prediction import Prediction
from costgpu.models.provider_costs import BOOT_DISK_GIB
from costgpu.models.run import Lease, Option
from costgpu.runner.lease import LOCAL, extras_usd_per_hour, lease_for

MAX_OPTIONS = 12  # places to fail over to
MAX_PRICE_RATIO = Decimal("1.5")  # a place is no replacement if it costs more than this times the first choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the user allows.

    Attributes:
        max_cost_usd: Everything from the create call on.
        max_duration_seconds: What the job may take.
        lease_seconds: With ``--no-auto-shutdown``.
        longest_seconds: No lease may be longer.
        disk_gib: Root disk; None for the default.
    """

    max_cost_usd: Decimal | None = None
    max_duration_seconds: float | None = None
    lease_seconds: float | None = None
    longest_seconds: float = 7 * 86400.0
    disk_gib: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlace:
    """An offer with what is known about the job on it.

    Attributes:
        offer: What.
        prediction: None if the script was not measured.
        on_demand_usd_per_hour: What a spot offer costs at most.
    """

    offer: Offer
    prediction: Prediction | None = None
    on_demand_usd_per_hour: Decimal | None = None


def this_machine(price_usd_per_hour: Decimal, today: date, *, vcpus: int, memory_gib: float) -> Offer:
    """This machine as an offer; free unless the user says what it costs."""
    return Offer(
        provider=LOCAL,
        instance_type="this-machine",
        family=LOCAL,
        region=LOCAL,
        zone=None,
        purchase_option=PurchaseOption.ON_DEMAND,
        price_usd_per_hour=price_usd_per_hour,
        vcpus=vcpus,
        memory_gib=memory_gib,
        architecture="",
        accelerator=None,
        price_source="--assume-price",
        price_as_of=today,
    )


def options_for(places: Sequence[LaunchPlace], limits: Limits) -> tuple[Option, ...]:
    """Places with their leases, in the order given; without those that cost far more than the first one.

    Raises:
        CapTooSmall: The limits do not even boot the first one.
        UsageError: There is no place, or no limit.
    """
    if not places:
        raise UsageError("No offer that can be launched matches.", hint="costgpu offers shows what there is.")
    options: list[Option] = []
    for place in places:
        try:
            lease = _lease(place, limits)
        except CapTooSmall:
            if not options:
                raise
            continue
        if options and not _replaces(place, places[0]):
            continue
        disk = limits.disk_gib or BOOT_DISK_GIB[place.offer.accelerator is not None]
        options.append(
            Option(
                offer=place.offer,
                lease=lease,
                disk_gib=disk,
                extras_usd_per_hour=extras_usd_per_hour(place.offer, disk),
            )
        )
        if len(options) == MAX_OPTIONS:
            break
    return tuple(options)


def _lease(place: LaunchPlace, limits: Limits) -> Lease:
    return lease_for(
        place.offer,
        on_demand_usd_per_hour=place.on_demand_usd_per_hour,
        max_cost_usd=limits.max_cost_usd,
        max_duration_seconds=limits.max_duration_seconds,
        estimated_seconds=place.prediction.wall_seconds.high if place.prediction else None,
        lease_seconds=limits.lease_seconds,
        longest_seconds=limits.longest_seconds,
        disk_gib=limits.disk_gib,
    )


def _replaces(place: LaunchPlace, first: LaunchPlace) -> bool:
    if place.prediction is not None and first.prediction is not None:
        return place.prediction.cost_usd.value <= first.prediction.cost_usd.value * float(MAX_PRICE_RATIO)
    return place.offer.price_usd_per_hour <= first.offer.price_usd_per_hour * MAX_PRICE_RATIO

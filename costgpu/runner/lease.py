"""From what the user allows to how long a machine may live. Pure."""

from __future__ import annotations

import math
from decimal import ROUND_DOWN, ROUND_UP, Decimal

from costgpu.errors import CapTooSmall, UsageError
from costgpu.estimate.cost import CPU_READY_SECONDS, GPU_READY_SECONDS
from costgpu.models.offer import Offer
from costgpu.models.provider_costs import BOOT_DISK_GIB
from costgpu.models.run import Lease
from costgpu.providers import registry
from costgpu.runner.timeouts import POWER_OFF_SECONDS
from costgpu.units import format_duration, format_usd

LOCAL = "local"
LEAST_JOB_SECONDS = 60.0  # a cap that leaves less than this for the job is refused
LEAST_LOCAL_SECONDS = 5.0  # the same on this machine, where nothing boots
ROOM_SECONDS = 900.0  # around a --max-duration: set-up before it, checkpoint and outputs after it, each
ESTIMATE_FACTOR = 3.0  # the default cap, in upper ends of the estimate
LEAST_DEFAULT_SECONDS = 1800.0  # a default cap is no shorter: installing packages can take longer than the job
LOCAL_SECONDS = 7 * 86400.0  # this machine costs nothing; it still does not run for ever


def extras_usd_per_hour(offer: Offer, disk_gib: int | None = None) -> Decimal:
    """Disk and address; 0 on this machine.

    Args:
        offer: Where.
        disk_gib: Root disk; None for the size that estimates count with.

    Raises:
        PriceNotFound: The provider does not say what they cost.
    """
    size = disk_gib or BOOT_DISK_GIB[offer.accelerator is not None]
    return Decimal(str(round(registry.costs(offer.provider).extras_usd_per_hour(size), 6)))


def boot_seconds(offer: Offer) -> float:
    """From the create call to the job's start, as estimated."""
    if offer.provider == LOCAL:
        return 0.0
    return GPU_READY_SECONDS if offer.accelerator is not None else CPU_READY_SECONDS


def lease_for(
    offer: Offer,
    *,
    on_demand_usd_per_hour: Decimal | None,
    max_cost_usd: Decimal | None,
    max_duration_seconds: float | None,
    estimated_seconds: float | None,
    lease_seconds: float | None = None,
    longest_seconds: float = math.inf,
    disk_gib: int | None = None,
) -> Lease:
    """How long a machine may live: the tightest of what the user allows, else a multiple of the estimate.

    Args:
        offer: Where.
        on_demand_usd_per_hour: Price of the same machine on demand: the worst case of spot. None if it is not known.
        max_cost_usd: Everything from the create call on.
        max_duration_seconds: What the job may take.
        estimated_seconds: Upper end of the wall-clock time, boot included.
        lease_seconds: Instead of the other limits on time, with ``--no-auto-shutdown``.
        longest_seconds: No lease may be longer.
        disk_gib: Root disk; None for the usual size.

    Raises:
        CapTooSmall: The machine would be ended before the job could do anything.
        UsageError: Nothing limits the run, or the lease is too long.
    """
    rate = max(offer.price_usd_per_hour, on_demand_usd_per_hour or Decimal(0)) + extras_usd_per_hour(offer, disk_gib)
    limits: list[tuple[float, str]] = []
    if lease_seconds is not None:
        if lease_seconds > longest_seconds:
            raise UsageError(
                f"A lease of {format_duration(lease_seconds)} is longer than {format_duration(longest_seconds)}.",
                hint="A machine that nobody ends is ended by its lease: choose a shorter one.",
            )
        limits.append((lease_seconds, "--lease"))
    if max_cost_usd is not None and rate > 0:
        affordable = float((max_cost_usd * 3600 / rate).quantize(Decimal("0.1"), rounding=ROUND_DOWN))
        limits.append((affordable - POWER_OFF_SECONDS, f"--max-cost {format_usd(max_cost_usd)}"))
    if max_duration_seconds is not None and lease_seconds is None:
        around = 2 * ROOM_SECONDS + boot_seconds(offer)
        limits.append((max_duration_seconds + around, f"--max-duration {format_duration(max_duration_seconds)}"))
    if not limits and estimated_seconds is not None and math.isfinite(estimated_seconds):
        limits.append((max(ESTIMATE_FACTOR * estimated_seconds, LEAST_DEFAULT_SECONDS), "3x the estimate"))
    if not limits and offer.provider == LOCAL:
        limits.append((LOCAL_SECONDS, "a week, on this machine"))
    if limits and offer.provider != LOCAL:
        limits.append((longest_seconds, f"no lease is longer than {format_duration(longest_seconds)}"))
    if not limits:
        raise UsageError(
            "Nothing says when this run must be over, and it could not be estimated.",
            hint="Give --max-cost 5 or --max-duration 2h.",
        )
    seconds, by = min(limits)
    least = boot_seconds(offer) + (LEAST_JOB_SECONDS if offer.provider != LOCAL else LEAST_LOCAL_SECONDS)
    if seconds < least:
        needed = (Decimal(str(least + POWER_OFF_SECONDS)) * rate / 3600).quantize(Decimal("0.01"), rounding=ROUND_UP)
        boots = f": {offer.instance_type} takes about {format_duration(boot_seconds(offer))} to boot and be set up"
        raise CapTooSmall(
            f"{by} would be used up before the job starts{boots if offer.provider != LOCAL else ''}.",
            hint=f"Allow at least {format_usd(needed)}, or {format_duration(least)}.",
        )
    worst = (Decimal(str(round(seconds + POWER_OFF_SECONDS, 1))) * rate / 3600).quantize(
        Decimal("0.000001"), rounding=ROUND_UP
    )
    return Lease(lifetime_seconds=seconds, worst_cost_usd=worst, usd_per_hour=rate, limited_by=by)

"""From seconds to dollars as the providers bill. Pure.

Both bill per second with a minimum of 60 s, from the create call's success to termination, plus the disk and the
public address that every machine of ours has.
"""

from __future__ import annotations

import math
from dataclasses import replace

from costgpu.errors import PriceNotFound
from costgpu.models.offer import PurchaseOption
from costgpu.models.prediction import Candidate, Prediction, Range
from costgpu.models.provider_costs import BOOT_DISK_GIB

MINIMUM_SECONDS = 60
# Seconds from the create call to the script's start, with what it needs installed.
# Source: benchmarks/README.md (2026-10): 160-190 s on CPU machines, 60-90 s on GPU machines with a driver-ready image.
CPU_READY_SECONDS = 175.0
GPU_READY_SECONDS = 90.0
SPOT_REPEATED_WORK = 1.10  # time lost to interruptions, assumed; the upper end is the on-demand price


def extras_usd_per_hour(candidate: Candidate) -> float:
    """Disk and address; 0 for this machine.

    Raises:
        PriceNotFound: Nobody has said what they cost.
    """
    if candidate.offer is None:
        return 0.0
    if candidate.costs is None:
        raise PriceNotFound(f"What the disk of a machine on {candidate.offer.provider} costs is not known.")
    return candidate.costs.extras_usd_per_hour(BOOT_DISK_GIB[candidate.is_gpu])


def hourly_usd(candidate: Candidate) -> float:
    """Everything that runs by the hour; 0 for this machine."""
    return float(candidate.offer.price_usd_per_hour) + extras_usd_per_hour(candidate) if candidate.offer else 0.0


def expected_usd_per_hour(candidate: Candidate) -> float:
    """The rate with what spot interruptions are expected to add."""
    spot = candidate.offer is not None and candidate.offer.purchase_option is PurchaseOption.SPOT
    return hourly_usd(candidate) * (SPOT_REPEATED_WORK if spot else 1.0)


def ready_seconds(candidate: Candidate) -> float:
    """From the create call to the script's start; 0 for this machine."""
    if candidate.offer is None:
        return 0.0
    return GPU_READY_SECONDS if candidate.is_gpu else CPU_READY_SECONDS


def billed_usd(seconds: float, usd_per_hour: float) -> float:
    """Cost of a machine for so many seconds, by the second and 60 s at least."""
    return max(math.ceil(seconds), MINIMUM_SECONDS) * usd_per_hour / 3600


def cost_range(candidate: Candidate, wall: Range) -> Range:
    """Cost of the wall-clock seconds on the candidate."""
    if candidate.offer is None:
        return Range(value=0.0, low=0.0, high=0.0)
    rate = hourly_usd(candidate)
    value, low, high = (billed_usd(seconds, rate) for seconds in (wall.value, wall.low, wall.high))
    if candidate.offer.purchase_option is PurchaseOption.SPOT:
        value *= SPOT_REPEATED_WORK
        worst = candidate.on_demand_usd_per_hour
        if worst is not None:
            high = max(high, billed_usd(wall.high, float(worst) + extras_usd_per_hour(candidate)))
        high = max(high, value)
    return Range(value=value, low=low, high=high)


def with_run(prediction: Prediction, run: Range) -> Prediction:
    """The prediction with other seconds of the run, and so of wall clock and cost."""
    wall = run.plus(prediction.overhead_seconds)
    cost = cost_range(prediction.candidate, wall)
    return replace(prediction, run_seconds=run, wall_seconds=wall, cost_usd=cost)

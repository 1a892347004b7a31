"""From seconds to dollars as the providers bill, and to kilowatt hours. Pure.

Both bill per second with a minimum of 60 s, from the create call's success to termination, plus the disk and the
public address that every machine of ours has.

    P(card) = TDP * c(load)      c: share of the TDP at a load, from a published curve
    load = busy + AWAKE (1 - busy), busy = (compute + on-chip + memory + depthwise) / step
    P(vCPU) = idle + (full - idle) * utilisation

A GPU's own draw is within a few tens of per cent of this; nothing here is measured on the machine in question. What a
data centre adds for cooling is not in it.
"""

from __future__ import annotations

import math
from itertools import pairwise

from costgpu.errors import PriceNotFound
from costgpu.models.defaults import BOOT_DISK_GIB
from costgpu.models.offer import PurchaseOption
from costgpu.models.prediction import Candidate, Prediction, Range
from costgpu.models.provider_costs import DEFAULT_VCPU_WATTS
from costgpu.models.workload import Machine

MINIMUM_SECONDS = 60
# Seconds from the create call to the script's start, with what it needs installed.
# Source: benchmarks/README.md (2026-10): 160-190 s on CPU machines, 60-90 s on GPU machines with a driver-ready image.
CPU_READY_SECONDS = 175.0
GPU_READY_SECONDS = 90.0
# Share of the thermal design power by load. Source: B. Davy, "Building an AWS EC2 Carbon Emissions Dataset", Teads
# Engineering (2021); the default curve of the Green Software Foundation's Impact Framework, too. Read 2026-11-21.
POWER_CURVE = ((0.0, 0.12), (0.1, 0.32), (0.5, 0.75), (1.0, 1.02))
BUSY_TERMS = frozenset({"compute", "on-chip", "memory", "depthwise"})
WAITING_TERMS = frozenset({"launch", "calls", "host", "copy", "loading", "waiting", "communication", "stragglers"})
# Small kernels that keep coming hold the clocks up while the card waits: a tenth of load, a third of the TDP (assumed).
AWAKE = 0.1
IDLE_PARTS = frozenset(
    {"set-up", "download", "checkpoint", "epoch start", "rendezvous"}
)  # of a run: the GPU has next to nothing to do
# Of the vCPUs beside a GPU, and of all while a machine boots. Source: Cloud Carbon Footprint's default (2026-11-21).
HOST_UTILISATION = 0.5
# The computer around an own GPU, at the wall: about 60 W idle (a desktop measured part by part: marwedel.eu, "Idle PC
# power consumption", 2017, read 2026-11-21) and 40 W for the cores that feed the GPU (assumed).
HOST_WATTS = 100.0
POWER_SUPPLY = 0.90  # efficiency at half load, assumed
VCPUS_PER_CORE = 2.0


def extras_usd_per_hour(candidate: Candidate) -> float:
    """Disk and address of all its machines; 0 for this machine.

    Raises:
        PriceNotFound: Nobody has said what they cost.
    """
    if candidate.offer is None:
        return 0.0
    if candidate.costs is None:
        raise PriceNotFound(f"What the disk of a machine on {candidate.offer.provider} costs is not known.")
    return candidate.nodes * candidate.costs.extras_usd_per_hour(candidate.disk_gib or BOOT_DISK_GIB[candidate.is_gpu])


def hourly_usd(candidate: Candidate) -> float:
    """Return everything that runs by the hour, of all its machines; 0 for this machine."""
    if candidate.offer is None:
        return 0.0
    return candidate.nodes * float(candidate.offer.price_usd_per_hour) + extras_usd_per_hour(candidate)


def expected_usd_per_hour(prediction: Prediction) -> float:
    """Return the rate of an hour without interruptions, with what they are expected to add to it."""
    return hourly_usd(prediction.candidate) * prediction.interruption_factor


def ready_seconds(candidate: Candidate) -> float:
    """From the create call to the script's start; 0 for this machine."""
    if candidate.offer is None:
        return 0.0
    return GPU_READY_SECONDS if candidate.is_gpu else CPU_READY_SECONDS


def billed_usd(seconds: float, usd_per_hour: float) -> float:
    """Return the cost of a machine for so many seconds, by the second and 60 s at least."""
    return max(math.ceil(seconds), MINIMUM_SECONDS) * usd_per_hour / 3600


def share_usd(seconds: float, usd_per_hour: float) -> float:
    """Return the cost of so many seconds of a machine that runs for longer."""
    return seconds * usd_per_hour / 3600


def cost_range(candidate: Candidate, wall: Range, *, whole: bool = True, undisturbed: Range | None = None) -> Range:
    """Cost of the wall-clock seconds on the candidate; of spot machines at most what the same costs on demand, or more.

    Args:
        candidate: Where; beyond the last day of an own price its list price counts.
        wall: Seconds from now on.
        whole: Whether the machine is rented for them alone, and not for a longer job that they are a part of.
        undisturbed: The seconds without interruptions; None if these are they.
    """
    if candidate.offer is None:
        return Range(value=0.0, low=0.0, high=0.0)
    rate, own, held = hourly_usd(candidate), candidate.offer.own_price, candidate.own_price_seconds
    usd = billed_usd if whole else share_usd
    value, low, high = (usd(seconds, rate) for seconds in (wall.value, wall.low, wall.high))
    if own is not None and held is not None:
        dearer = candidate.nodes * float(own.list_usd_per_hour - candidate.offer.price_usd_per_hour)
        later = [share_usd(max(0.0, seconds - held), dearer) for seconds in (wall.value, wall.low, wall.high)]
        value, low, high = value + later[0], low + later[1], high + later[2]
    worst = candidate.on_demand_usd_per_hour
    if candidate.offer.purchase_option is PurchaseOption.SPOT and worst is not None:
        on_demand = candidate.nodes * float(worst) + extras_usd_per_hour(candidate)
        high = max(high, usd((undisturbed or wall).high, on_demand))
    return Range(value=value, low=low, high=high)


def power_share(load: float) -> float:
    """Return the share of the thermal design power at a load between 0 and 1; never above 1, where cards are capped."""
    load = min(max(load, 0.0), 1.0)
    for (x, low), (end, high) in pairwise(POWER_CURVE):
        if load <= end:
            return min(1.0, low + (high - low) * (load - x) / (end - x))
    return 1.0


def gpu_load(terms: dict[str, float]) -> float:
    """Load while steps run, from 0.1 to 1; 1 where it is not known what the time goes into (measured, from a table)."""
    busy = sum(seconds for name, seconds in terms.items() if name in BUSY_TERMS)
    known = busy + sum(seconds for name, seconds in terms.items() if name in WAITING_TERMS)
    if known <= 0 or known < 0.5 * sum(terms.values()):
        return 1.0
    return (busy + AWAKE * (known - busy)) / known


def card_watts(prediction: Prediction) -> float:
    """Average draw of each accelerator that the script uses while it runs, W; 0 without one."""
    spec = prediction.candidate.accelerator
    if spec is None:
        return 0.0
    whole = sum(prediction.parts.values())
    idle = sum(seconds for name, seconds in prediction.parts.items() if name in IDLE_PARTS)
    waiting = idle / whole if whole > 0 else 0.0
    share = (1 - waiting) * power_share(gpu_load(prediction.terms)) + waiting * power_share(0.0)
    return spec.tdp_watts * share


def own_watts(prediction: Prediction) -> float:
    """Average power at the wall of a computer with an own GPU, W."""
    return card_watts(prediction) / POWER_SUPPLY + HOST_WATTS


def vcpu_watts(watts: tuple[float, float], vcpus: float, utilisation: float) -> float:
    """Power of a machine's vCPUs, W, from that of one when idle and at full load."""
    idle, full = watts
    return vcpus * (idle + (full - idle) * utilisation)


def energy_kwh(prediction: Prediction, machine: Machine) -> float:
    """Energy of a predicted run, boot included, kWh: of the machine, without what cools it."""
    offer, spec = prediction.candidate.offer, prediction.candidate.accelerator
    run = prediction.run_seconds.value
    if offer is None:
        if spec is not None:  # an own GPU
            return own_watts(prediction) * run / 3.6e6
        return vcpu_watts(DEFAULT_VCPU_WATTS, machine.cores * VCPUS_PER_CORE, 1.0) * run / 3.6e6
    costs = prediction.candidate.costs
    watts = costs.vcpu_watts if costs is not None else DEFAULT_VCPU_WATTS
    boot = vcpu_watts(watts, offer.vcpus, HOST_UTILISATION) * prediction.overhead_seconds
    if spec is None or offer.accelerator is None:
        return (boot + vcpu_watts(watts, offer.vcpus, 1.0) * run) / 3.6e6
    count, nodes = offer.accelerator.count, prediction.candidate.nodes
    used = prediction.gpus / nodes  # of one machine
    resting = max(0.0, count - max(used, 1.0)) * spec.tdp_watts * power_share(0.0)
    host = vcpu_watts(watts, offer.vcpus, HOST_UTILISATION)
    boot += count * spec.tdp_watts * power_share(0.0) * prediction.overhead_seconds
    return nodes * (boot + (host + resting + card_watts(prediction) * used) * run) / 3.6e6

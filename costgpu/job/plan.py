"""What a run will do and cost, and how long its machine may live, before anything is spent. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import ROUND_DOWN, ROUND_UP, Decimal

from costgpu.errors import CapTooSmall, UsageError
from costgpu.estimator.cost import CPU_READY_SECONDS, GPU_READY_SECONDS
from costgpu.job.timeouts import POWER_OFF_SECONDS
from costgpu.models.defaults import BOOT_DISK_GIB
from costgpu.models.offer import Offer
from costgpu.models.prediction import Prediction
from costgpu.models.run import LaunchOption, Lease
from costgpu.models.storage import NO_STORAGE, StorageNeed
from costgpu.providers import registry
from costgpu.units import format_dollars, format_duration

MAX_OPTIONS = 12  # places to fail over to
LARGER_SIZES = 3  # how often a job may turn to a larger machine
PLACES_OF_SIZE = 2  # of each larger size
SIZE_GROWTH = 1.4  # least memory of a size, in those of the one before: from 40 to 80 GiB, and not to 48
MAX_PRICE_RATIO = Decimal("1.5")  # a place is no replacement if it costs more than this times the first choice
LEAST_JOB_SECONDS = 60.0  # a cap that leaves less than this for the job is refused
LEAST_WITHOUT_BOOT_SECONDS = 5.0  # the same where nothing boots
ROOM_SECONDS = 900.0  # around a --max-duration: set-up before it, checkpoint and outputs after it, each
ESTIMATE_FACTOR = 3.0  # the default cap, in upper ends of the estimate
LEAST_DEFAULT_SECONDS = 1800.0  # a default cap is no shorter: installing packages can take longer than the job
OWN_PRICE_SLACK_SECONDS = 3600.0  # before an own price ends: a plan is carried out a little later
FREE_SECONDS = 7 * 86400.0  # what costs nothing still does not run for ever


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the user allows."""

    max_cost_usd: Decimal | None = None  # everything from the create call on
    cap_from: str = "--max-cost"  # what `max_cost_usd` is, in words
    max_duration_seconds: float | None = None  # what the job may take
    lease_seconds: float | None = None  # instead of the other limits on time, with ``--no-auto-shutdown``
    longest_seconds: float = 7 * 86400.0  # no lease may be longer
    disk_gib: int | None = None  # root disk; None for the default
    now: datetime | None = None  # when the lease begins; None if that is not known: then an own price limits nothing
    nodes: int = 1  # machines, which share `max_cost_usd`; each has a lease of the same length
    storage: StorageNeed = NO_STORAGE  # what the job puts on the disk, if its size is the default


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlace:
    """An offer with what is known about the job on it."""

    offer: Offer  # what
    prediction: Prediction | None = None  # None if the script was not measured
    on_demand_usd_per_hour: Decimal | None = None  # what a spot offer costs at most
    placement: bool = False  # whether several such machines can be placed close together
    efa_interfaces: int = 0  # network interfaces with EFA that such a machine can have


def options_for(places: Sequence[LaunchPlace], limits: Limits) -> tuple[LaunchOption, ...]:
    """Return the places with their leases, in the order given; without those that cost far more than the first one.

    Raises:
        CapTooSmall: The limits do not even boot the first one.
        UsageError: There is no place, or no limit.
    """
    if not places:
        raise UsageError("No offer that can be launched matches.", hint="costgpu offers shows what there is.")
    options: list[LaunchOption] = []
    for place in places:
        try:
            option = _option(place, limits)
        except CapTooSmall:
            if not options:
                raise
            continue
        if options and not _replaces(place, places[0]):
            continue
        options.append(option)
        if len(options) == MAX_OPTIONS:
            break
    return tuple(options)


def larger_options(
    places: Sequence[LaunchPlace], options: Sequence[LaunchOption], limits: Limits
) -> tuple[LaunchOption, ...]:
    """Return options on larger machines, for a job that runs out of memory: the first places of each size.

    A larger machine has more memory of each kind, so that it does not matter which has run out, and as many GPUs.

    Args:
        places: Places to choose from, in order.
        options: Options that they are to be larger than.
        limits: What the user allows; what it does not allow is left out.
    """
    first, found = options[0].offer, list[LaunchOption]()
    for size in range(1, LARGER_SIZES + 1):
        smaller = [option.offer for option in (*options, *found) if _is_like(option.offer, first)]
        of_size: list[LaunchOption] = []
        for place in places:
            offer = place.offer
            another = not of_size or not _is_larger(offer, of_size[0].offer)
            if another and _is_like(offer, first) and all(_is_larger(offer, than) for than in smaller):
                with suppress(CapTooSmall, UsageError):
                    of_size.append(replace(_option(place, limits), size=size))
        found += of_size[:PLACES_OF_SIZE]
    return tuple(found)


def _is_like(offer: Offer, first: Offer) -> bool:
    """Return whether a job is the same there: as many GPUs and CPUs for it, and what was installed runs."""
    new, old = (each.accelerator and each.accelerator.count for each in (offer, first))
    enough = new is not None or offer.vcpus >= first.vcpus
    return new == old and enough and offer.architecture == first.architecture


def _is_larger(offer: Offer, than: Offer) -> bool:
    memory, before = (each.accelerator or each for each in (offer, than))
    return memory.memory_gib >= SIZE_GROWTH * before.memory_gib and offer.memory_gib > than.memory_gib


def _option(place: LaunchPlace, limits: Limits) -> LaunchOption:
    lease = lease_for(
        place.offer,
        limits,
        on_demand_usd_per_hour=place.on_demand_usd_per_hour,
        estimated_seconds=place.prediction.wall_seconds.high if place.prediction else None,
    )
    disk = _disk_gib(place.offer, limits)
    several = limits.nodes > 1
    return LaunchOption(
        offer=place.offer,
        lease=lease,
        disk_gib=disk,
        extras_usd_per_hour=extras_usd_per_hour(place.offer, disk),
        placement=several and place.placement,
        efa_interfaces=place.efa_interfaces if several else 0,
    )


def _disk_gib(offer: Offer, limits: Limits) -> int:
    return limits.disk_gib or limits.storage.disk_gib(BOOT_DISK_GIB[offer.accelerator is not None])


def _replaces(place: LaunchPlace, first: LaunchPlace) -> bool:
    if place.prediction is not None and first.prediction is not None:
        return place.prediction.cost_usd.value <= first.prediction.cost_usd.value * float(MAX_PRICE_RATIO)
    return place.offer.price_usd_per_hour <= first.offer.price_usd_per_hour * MAX_PRICE_RATIO


def extras_usd_per_hour(offer: Offer, disk_gib: int | None = None) -> Decimal:
    """Disk and address; 0 on this machine.

    Args:
        disk_gib: Root disk; None for the size that estimates count with.

    Raises:
        PriceNotFound: The provider does not say what they cost.
    """
    size = disk_gib or BOOT_DISK_GIB[offer.accelerator is not None]
    return Decimal(str(round(registry.costs(offer.provider).extras_usd_per_hour(size), 6)))


def boot_seconds(offer: Offer) -> float:
    """From the create call to the job's start, as estimated."""
    if registry.is_here(offer.provider):
        return 0.0
    return GPU_READY_SECONDS if offer.accelerator is not None else CPU_READY_SECONDS


def lease_for(
    offer: Offer,
    limits: Limits,
    *,
    on_demand_usd_per_hour: Decimal | None = None,
    estimated_seconds: float | None = None,
) -> Lease:
    """Return how long a machine may live: the tightest of what the user allows, else a multiple of the estimate.

    Args:
        limits: What the user allows.
        on_demand_usd_per_hour: Price of the same machine on demand: the worst case of spot. None if it is not known.
        estimated_seconds: Upper end of the wall-clock time, boot included.

    Raises:
        CapTooSmall: The machine would be ended before the job could do anything.
        UsageError: Nothing limits the run, or the lease is too long.
    """
    extras = extras_usd_per_hour(offer, _disk_gib(offer, limits))
    now, later = (
        max(price, on_demand_usd_per_hour or Decimal(0)) + extras
        for price in (offer.price_usd_per_hour, offer.dearest_usd_per_hour)
    )
    held = _own_price_seconds(offer, limits.now)
    rate = now if held else later
    cap, duration, longest = limits.max_cost_usd, limits.max_duration_seconds, limits.longest_seconds
    ends: list[tuple[float, str]] = []
    if limits.lease_seconds is not None:
        if limits.lease_seconds > longest:
            raise UsageError(
                f"A lease of {format_duration(limits.lease_seconds)} is longer than {format_duration(longest)}.",
                hint="A machine that nobody ends is ended by its lease: choose a shorter one.",
            )
        ends.append((limits.lease_seconds, "--lease"))
    if cap is not None and later > 0:
        # what is paid for already, or nearly, must not live for ever: the list price says how long
        first = later if offer.price_usd_per_hour == 0 else rate
        affordable = cap * 3600 / (first * limits.nodes)
        if first == now and affordable > held:
            affordable = held + (affordable - held) * now / later
        alive = float(affordable.quantize(Decimal("0.1"), rounding=ROUND_DOWN)) - POWER_OFF_SECONDS
        ends.append((alive, f"{limits.cap_from} {format_dollars(cap)}"))
    if duration is not None and limits.lease_seconds is None:
        around = 2 * ROOM_SECONDS + boot_seconds(offer)
        ends.append((duration + around, f"--max-duration {format_duration(duration)}"))
    if not ends and estimated_seconds is not None and math.isfinite(estimated_seconds):
        ends.append((max(ESTIMATE_FACTOR * estimated_seconds, LEAST_DEFAULT_SECONDS), "3x the estimate"))
    place = registry.spec(offer.provider)
    if not ends and place.free:
        ends.append((FREE_SECONDS, f"a week, on {place.label}"))
    if ends and not place.free:
        ends.append((longest, f"no lease is longer than {format_duration(longest)}"))
    if not ends:
        raise UsageError(
            "Nothing says when this run must be over, and it could not be estimated.",
            hint="Give --max-cost 5 or --max-duration 2h.",
        )
    seconds, by = min(ends)
    boot = boot_seconds(offer)
    least = boot + (LEAST_JOB_SECONDS if boot else LEAST_WITHOUT_BOOT_SECONDS)
    if seconds < least:
        needed = (Decimal(str(least + POWER_OFF_SECONDS)) * rate * limits.nodes / 3600).quantize(
            Decimal("0.01"), rounding=ROUND_UP
        )
        boots = f": {offer.instance_type} takes about {format_duration(boot)} to boot and be set up"
        raise CapTooSmall(
            f"{by} would be used up before the job starts{boots if boot else ''}.",
            hint=f"Allow at least {format_dollars(needed)}, or {format_duration(least)}.",
        )
    worst = worst_cost(seconds, now, held, later)
    return Lease(lifetime_seconds=seconds, worst_cost_usd=worst, usd_per_hour=rate, limited_by=by)


def _own_price_seconds(offer: Offer, now: datetime | None) -> Decimal:
    """Return for how long the price of an offer holds at least from now on; a list price does for ever."""
    if offer.own_price is None:
        return Decimal("Infinity")
    left = (offer.own_price.ends_at - now).total_seconds() - OWN_PRICE_SLACK_SECONDS if now is not None else 0.0
    return Decimal(str(round(max(0.0, left), 1)))


def worst_cost(
    lifetime_seconds: float, usd_per_hour: Decimal, held: Decimal | None = None, later: Decimal = Decimal(0)
) -> Decimal:
    """Highest cost of a machine that lives so long, its last billing minute included.

    Args:
        held: Seconds after which it costs `later` an hour; None if it never does.
    """
    seconds = Decimal(str(round(lifetime_seconds + POWER_OFF_SECONDS, 1)))
    after = max(Decimal(0), seconds - held) if held is not None else Decimal(0)
    usd = (seconds - after) * usd_per_hour + after * later
    return (usd / 3600).quantize(Decimal("0.000001"), rounding=ROUND_UP)

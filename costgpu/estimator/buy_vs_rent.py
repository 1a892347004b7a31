"""Rent or own: the same script on a GPU that the user owns or would buy, and when buying wins. Pure.

    cost of a job = energy at the wall * price of electricity
    jobs until it has paid = price of the GPU / (cost on the cloud - cost of the energy)

The time is the GPU model's, with the card in the machine that measured: no boot, no disk, no address. The rest of
that computer counts as there, with its electricity but not its price.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal

from costgpu.errors import UsageError
from costgpu.estimator.cost import HOST_WATTS, VCPUS_PER_CORE, card_watts, own_watts
from costgpu.estimator.predict import predict
from costgpu.estimator.prepared import Workload
from costgpu.models.offer import Accelerator, AcceleratorSpec, Offer, PurchaseOption
from costgpu.models.prediction import BreakEven, Candidate, Ownership, Prediction, Range, Verdict
from costgpu.models.provider_costs import NO_EXTRAS

# USD per kWh, assumed: about the average residential price in the United States in 2025, from memory; a figure that was
# read is still to be put here.
POWER_USD_PER_KWH = 0.17
POWER_SOURCE = "assumed, about what homes in the US paid in 2025"
DEAREST_POWER = 5.0  # USD per kWh; above it somebody wrote cents
LIFE_YEARS = 5.0  # after which a computer is written off. Assumed
HOURS_PER_YEAR = 8766.0
COLAB_GPU = "T4"  # that Google Colab lends free of charge. research.google.com/colaboratory/faq.html (2026-11-21)
COLAB_SESSION_SECONDS = 12 * 3600.0  # at most; as above
BRANDS = re.compile(r"nvidia|geforce|quadro|radeon|tesla|titan|instinct|rtx|gtx|amd")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipTerms:
    """What the user said about the GPU."""

    price_usd: Decimal | None = None  # None if it is owned already
    power_usd_per_kwh: float | None = None  # None for the default, which says where it comes from
    hours_per_year: float | None = None  # hours of use, for amortisation; None to leave that out

    def __post_init__(self) -> None:
        """Reject impossible values.

        Raises:
            UsageError: A price that is negative, not finite, or per another unit.
        """
        power = self.power_usd_per_kwh
        if self.price_usd is not None and not (self.price_usd.is_finite() and self.price_usd > 0):
            raise UsageError(
                f"--own-price {self.price_usd} is not a positive amount of US dollars.",
                hint="Leave it out for a GPU that you own already.",
            )
        if power is not None and not (math.isfinite(power) and 0 <= power <= DEAREST_POWER):
            raise UsageError(
                f"--power-price {power:g} is not a price of electricity in US dollars per kWh.",
                hint="30 cents are 0.30.",
            )
        if self.hours_per_year is not None and not 0 < self.hours_per_year <= HOURS_PER_YEAR:
            raise UsageError(f"{self.hours_per_year:g} hours of use a year are not possible.")


def gpu_key(name: str) -> str:
    """Return a name without case, separators and brand words; ``NVIDIA GeForce RTX 3090`` is ``3090``."""
    return BRANDS.sub("", _plain(name)) or _plain(name)


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name.lower())


def find_gpu(name: str, cards: Mapping[str, AcceleratorSpec]) -> AcceleratorSpec:
    """Return the one card that a user's spelling means: ``rtx 3090``, ``RTX3090``, ``3090``, ``A100-SXM4-80GB``.

    Nothing is guessed: a ``1080`` is not a ``GTX 1080 Ti``.

    Args:
        cards: All known boards by their canonical name.

    Raises:
        UsageError: None is meant, or more than one; with the nearest names.
    """
    for key in (_plain, gpu_key):
        wanted = key(name)
        found = {
            spec.name: spec
            for spec in cards.values()
            if wanted and wanted in (key(spec.name), key(spec.model), key(f"{spec.name} {spec.memory_gib:g}GB"))
        }
        exact = [spec for spec in found.values() if key(spec.name) == wanted]
        if len(exact) == 1 or len(found) == 1:
            return (exact or list(found.values()))[0]
        if found:
            raise UsageError(f"--own {name!r} may be {' or '.join(sorted(found))}.", hint="Write one of them.")
    by_key = {gpu_key(spec.name): spec.name for spec in cards.values()}
    near = [by_key[key] for key in difflib.get_close_matches(gpu_key(name), by_key, n=3, cutoff=0.0)]
    raise UsageError(
        f"There are no figures for a GPU named {name!r}.",
        hint=f"The nearest names are {', '.join(near)}." if near else "The hardware table is empty.",
    )


def unpriced_offer(spec: AcceleratorSpec, *, vcpus: int, memory_gib: float, accelerator_memory_gib: float) -> Offer:
    """Return a machine that no provider rents, in the form that `predict` takes; its price never reaches anybody."""
    return Offer(
        provider="own",
        instance_type=spec.name,
        family="own",
        region="here",
        zone=None,
        purchase_option=PurchaseOption.ON_DEMAND,
        price_usd_per_hour=Decimal(1),
        vcpus=vcpus,
        memory_gib=memory_gib,
        architecture="x86_64",
        price_source="none",
        price_as_of=date.min,
        accelerator=Accelerator(name=spec.name, count=1.0, memory_gib=accelerator_memory_gib),
    )


def fits_colab(workload: Workload, spec: AcceleratorSpec) -> bool:
    """Return whether the whole job fits a free session of Google Colab, by the upper end of its 80 % interval."""
    if not workload.scope.whole:
        return False
    offer = unpriced_offer(spec, vcpus=2, memory_gib=12.7, accelerator_memory_gib=spec.memory_gib)
    there = predict(workload, Candidate(offer=offer, accelerator=spec, costs=NO_EXTRAS))
    return not there.infeasible and there.run_seconds.high <= COLAB_SESSION_SECONDS


def predict_on_own_gpu(workload: Workload, spec: AcceleratorSpec, power_usd_per_kwh: float) -> Prediction:
    """Return the seconds on a GPU in the machine that measured, and the cost of its energy; no offer, no boot."""
    machine = workload.profile.machine
    offer = unpriced_offer(
        spec,
        vcpus=max(1, round(machine.cores * VCPUS_PER_CORE)),
        memory_gib=machine.memory_gib,
        accelerator_memory_gib=spec.memory_gib,
    )
    there = predict(workload, Candidate(offer=offer, accelerator=spec, costs=NO_EXTRAS))
    run = there.run_seconds
    mine = replace(
        there,
        candidate=Candidate(offer=None, accelerator=spec),
        overhead_seconds=0.0,
        wall_seconds=run,
    )
    return replace(mine, cost_usd=run.times(own_watts(mine) / 3.6e6 * power_usd_per_kwh))


def ownership(workload: Workload, spec: AcceleratorSpec, terms: OwnershipTerms, verdict: Verdict) -> Ownership:
    """Return the script on a GPU that the user owns or would buy, against the best cloud offers of the verdict."""
    power = POWER_USD_PER_KWH if terms.power_usd_per_kwh is None else terms.power_usd_per_kwh
    prediction = predict_on_own_gpu(workload, spec, power)
    run, watts = prediction.run_seconds, own_watts(prediction)
    notes = []
    if spec.name in workload.profile.machine.accelerators:
        notes.append("this machine has one: what was measured here may already have run on it")
    amortised = None
    if terms.price_usd is not None and terms.hours_per_year is not None:
        amortised = float(terms.price_usd) / (LIFE_YEARS * terms.hours_per_year) * run.value / 3600
    return Ownership(
        prediction=prediction,
        price_usd=terms.price_usd,
        power_usd_per_kwh=power,
        power_source=POWER_SOURCE if terms.power_usd_per_kwh is None else "as given",
        card_watts=card_watts(prediction),
        host_watts=HOST_WATTS,
        energy_kwh=run.times(watts / 3.6e6),
        amortised_usd=amortised,
        break_evens=_break_evens(prediction, terms.price_usd, verdict),
        notes=(*notes, *prediction.notes),
    )


def _break_evens(mine: Prediction, price: Decimal | None, verdict: Verdict) -> tuple[BreakEven, ...]:
    rivals = [p for p in (verdict.best_cpu, verdict.best_gpu) if p is not None]
    if price is None or mine.infeasible or not rivals:
        return ()
    cheapest = min(rivals, key=lambda p: p.cost_usd.value)
    against = [cheapest, *(p for p in rivals if p is verdict.best_gpu and p is not cheapest)]
    return tuple(break_even(mine, float(price), rival) for rival in against)


def break_even(mine: Prediction, price_usd: float, rival: Prediction) -> BreakEven:
    """When a GPU of that price has paid for itself; both intervals are taken to be independent."""
    own_cost, cloud = mine.cost_usd, rival.cost_usd
    jobs = Range(
        value=_jobs(price_usd, cloud.value - own_cost.value),
        low=_jobs(price_usd, cloud.high - own_cost.low),
        high=_jobs(price_usd, cloud.low - own_cost.high),
    )
    hours = jobs.value * mine.run_seconds.value / 3600
    return BreakEven(
        against=rival,
        saving_usd=cloud.value - own_cost.value,
        jobs=jobs,
        hours=hours,
        in_life=hours <= LIFE_YEARS * HOURS_PER_YEAR,
    )


def _jobs(price: float, saving: float) -> float:
    """Infinite where nothing is saved."""
    return max(1.0, price / saving) if saving > 0 else math.inf

"""Free notebook services: would this job fit a session of one? Pure; nothing is ever launched there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from costgpu.estimator.buy_vs_rent import unpriced_offer
from costgpu.estimator.predict import predict
from costgpu.estimator.prepared import Workload
from costgpu.estimator.scope import Scope
from costgpu.models.offer import AcceleratorSpec
from costgpu.models.prediction import Candidate, FreeNotebook
from costgpu.models.provider_costs import NO_EXTRAS
from costgpu.units import format_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeTier:
    """The machine that a service lends free of charge."""

    name: str
    accelerator: str  # key of the hardware table
    accelerator_memory_gib: float  # memory that a session sees
    vcpus: int
    memory_gib: float  # main memory of the host
    session_hours: float  # longest session
    limits: str  # further limits, for people
    source: str
    as_of: date


FREE_TIERS = (
    FreeTier(
        name="Google Colab",
        accelerator="T4",
        accelerator_memory_gib=15.0,
        vcpus=2,
        memory_gib=12.7,
        session_hours=12.0,
        limits="a GPU is not guaranteed, and sessions without anybody at them end early",
        source="research.google.com/colaboratory/faq.html; sizes from memory",
        as_of=date(2026, 11, 21),
    ),
    FreeTier(
        name="Kaggle",
        accelerator="T4",
        accelerator_memory_gib=15.0,
        vcpus=4,
        memory_gib=29.0,
        session_hours=12.0,
        limits="about 30 hours of GPU a week, and a verified phone number",
        source="kaggle.com/docs/notebooks; sizes and the telephone from memory",
        as_of=date(2026, 11, 21),
    ),
)


def free_notebooks(
    workload: Workload, scope: Scope, cards: Mapping[str, AcceleratorSpec], tiers: tuple[FreeTier, ...] = FREE_TIERS
) -> tuple[FreeNotebook, ...]:
    """Each free tier, with the job's time there and why it does not fit, if so; nothing where its length is not known.

    It fits if the upper end of the 80 % interval is below the longest session.
    """
    if not scope.whole:
        return ()
    found = []
    for tier in tiers:
        spec = cards[tier.accelerator]
        offer = unpriced_offer(
            spec, vcpus=tier.vcpus, memory_gib=tier.memory_gib, accelerator_memory_gib=tier.accelerator_memory_gib
        )
        there = predict(workload, Candidate(offer=offer, accelerator=spec, costs=NO_EXTRAS))
        why_not = there.infeasible
        if not why_not and there.run_seconds.high > tier.session_hours * 3600:
            why_not = (
                f"may take {format_duration(there.run_seconds.high)}; a session ends after {tier.session_hours:g} h"
            )
        found.append(
            FreeNotebook(
                name=tier.name,
                accelerator=tier.accelerator,
                session_hours=tier.session_hours,
                run_seconds=there.run_seconds,
                why_not=why_not,
                limits=tier.limits,
                source=tier.source,
                as_of=tier.as_of,
            )
        )
    return tuple(found)

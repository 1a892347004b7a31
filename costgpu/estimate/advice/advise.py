"""What would make a job cheaper: each line with the saving that the model predicts for this workload. Pure.

Every piece of advice is a changed workload (or another place), predicted by the model that made the verdict, and
compared with the verdict's recommendation. What saves less than 5 % or less than a cent is not said (where the
recommendation costs nothing: less than a minute); nor is what saves less than the model can tell, or what a change
adds that no prediction knows (`costgpu.estimate.advice.overheads`). What no prediction can tell, torch.compile above all,
is not advised. Savings of several lines do not add up.
"""

from __future__ import annotations

from collections.abc import Sequence

from costgpu.estimate.advice.context import AdviceContext, cheapest_of_each_type
from costgpu.estimate.advice.placement import place_advice
from costgpu.estimate.advice.script import script_advice
from costgpu.estimate.predict import Workload
from costgpu.estimate.verdict import Preferences
from costgpu.models.prediction import Advice, Prediction, Verdict


def advise(
    workload: Workload,
    verdict: Verdict,
    offers: Sequence[Prediction],
    preferences: Preferences,
    *,
    spot_offers: Sequence[Prediction] = (),
    wider_offers: Sequence[Prediction] = (),
) -> tuple[Advice, ...]:
    """The advice for a workload, the most dollars first; empty where there is none that the model can tell.

    Args:
        workload: The workload as it was measured.
        verdict: The verdict over `offers`.
        offers: Predictions for the places that were considered.
        preferences: What the user wants.
        spot_offers: Predictions for spot machines, where `offers` are on demand; empty for no advice on them.
        wider_offers: Predictions for what the user's options (accelerator, region) left out; empty if nothing.
    """
    context = AdviceContext(
        workload=workload,
        before=verdict.recommended,
        preferences=preferences,
        offers=cheapest_of_each_type(offers, verdict.recommended),
    )
    if context.free and workload.profile.ended:
        return ()  # it is over already
    found: list[Advice | None] = [*script_advice(context), *place_advice(context, wider_offers, spot_offers)]
    return ranked([advice for advice in found if advice is not None])


def ranked(advice: Sequence[Advice]) -> tuple[Advice, ...]:
    """The advice in order of dollars, then of time saved."""
    return tuple(sorted(advice, key=lambda one: (-one.saving_usd, -one.saving_seconds)))

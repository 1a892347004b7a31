"""What would make a job cheaper: each line with the saving that the model predicts for this workload. Pure.

Every piece of advice is a changed workload (or another place), predicted by the model that made the verdict, and
compared with the verdict's recommendation. What saves less than 5 % or less than a cent is not said (where the
recommendation costs nothing: less than a minute); nor is what saves less than the model can tell, or what a change
adds that no prediction knows (`costgpu.estimator.advice.changes`). What no prediction can tell, torch.compile of training
above all, is not advised; engines for inference are named, without a saving. Savings of several lines do not add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costgpu.estimator.advice.context import (
    MIN_SAVED_SHARE,
    MIN_SAVED_USD,
    AdviceContext,
    Option,
    cheapest_of_each_type,
)
from costgpu.estimator.advice.fitting import does_not_fit, several_gpus
from costgpu.estimator.advice.less_memory import TriedChange, less_memory
from costgpu.estimator.advice.named import named_options
from costgpu.estimator.advice.placement import between_epochs, other_instance, preprocessing, region, spot_machine
from costgpu.estimator.advice.table import TABLE
from costgpu.estimator.prepared import Workload
from costgpu.estimator.verdict import Preferences
from costgpu.models.prediction import Advice, AdviceKind, Prediction, Verdict

NEARLY_ALL = 0.8  # the smallest change with so much of the largest saving is the one advised
# What cannot be done at once: the second of a pair is not tried beside the first. Upper bounds and what changes the
# training are not put together with anything.
EXCLUDES = {
    AdviceKind.MIXED_PRECISION: {AdviceKind.TF32},
    AdviceKind.TF32: {AdviceKind.MIXED_PRECISION, AdviceKind.HALF_PRECISION},
    AdviceKind.HALF_PRECISION: {AdviceKind.TF32},
}
ALONE = {AdviceKind.HOST_PYTHON, AdviceKind.LARGER_BATCH}
# What is only said where none of these is, which leave the training as it is.
UNLESS = {AdviceKind.LARGER_BATCH: frozenset({AdviceKind.FEWER_ACCUMULATIONS})}


def advise(
    workload: Workload,
    verdict: Verdict,
    offers: Sequence[Prediction],
    preferences: Preferences,
    *,
    spot_offers: Sequence[Prediction] = (),
    wider_offers: Sequence[Prediction] = (),
    tried: Sequence[TriedChange] = (),
) -> tuple[Advice, ...]:
    """Return the advice for a workload, the most dollars first; empty where there is none that the model can tell.

    Args:
        offers: Predictions for the places that were considered.
        spot_offers: Predictions for spot machines, where `offers` are on demand; empty for no advice on them.
        wider_offers: Predictions for what the user's options (accelerator, region) left out; empty if nothing.
        tried: Changes for less memory with which the script was run again.
    """
    before, places = verdict.recommended, cheapest_of_each_type(offers, verdict.recommended)
    smaller = less_memory(workload, before, offers, preferences, tried)
    if before is None:
        fitting = does_not_fit(workload, places, wider_offers, preferences, None)
        return (*smaller, *(() if fitting is None else (fitting,)))
    context = AdviceContext(workload=workload, before=before, preferences=preferences, offers=places)
    if context.free and workload.profile.ended:
        return ()  # it is over already
    found = [
        *script_advice(context),
        *smaller,
        preprocessing(context),
        between_epochs(context),
        other_instance(context, wider_offers),
        region(context, wider_offers),
        spot_machine(context, spot_offers),
        does_not_fit(workload, places, wider_offers, preferences, context),
        several_gpus(context),
    ]
    priced = sorted(filter(None, found), key=lambda one: (-one.saving_usd, -one.saving_seconds))
    return (*priced, *named_options(context))


def script_advice(context: AdviceContext) -> list[Advice]:
    """Return everything that a change of the script would save, and what several changes would save together."""
    trains = [phase.unit.trains for phase in context.workload.profile.phases]
    options: dict[AdviceKind, list[Option]] = {}
    for row in TABLE:
        if row.trains is None or row.trains in trains:
            options.setdefault(row.kind, []).extend((row, size) for size in row.sizes(context))
    found: dict[AdviceKind, tuple[Option, Advice]] = {}
    for kind, same in options.items():
        if not UNLESS.get(kind, frozenset()) & found.keys() and (pair := _best(context, (), same)) is not None:
            found[kind] = pair
    advice = [one for _, one in found.values()]
    both = _together(context, found, options)
    return [*advice, both] if both is not None else advice


def _together(
    context: AdviceContext,
    found: Mapping[AdviceKind, tuple[Option, Advice]],
    options: Mapping[AdviceKind, Sequence[Option]],
) -> Advice | None:
    """Return the advice to combine changes: the one that saves most, and each further one that still saves."""
    alone = [pair for kind, pair in found.items() if kind not in ALONE]
    if not alone:
        return None
    first, advice = max(alone, key=lambda pair: (pair[1].saving_usd, pair[1].saving_seconds))
    chosen = [first]
    least = max(MIN_SAVED_USD if context.workload.scope.whole else 0.0, MIN_SAVED_SHARE * context.before.cost_usd.value)
    while True:
        taken = {row.kind for row, _ in chosen}
        out = taken | ALONE | {other for kind in taken for other in EXCLUDES.get(kind, ())}
        more = [_best(context, chosen, same) for kind, same in options.items() if kind not in out]
        better = [pair for pair in more if pair is not None and pair[1].saving_usd - advice.saving_usd >= least]
        if not better:
            return advice if len(chosen) > 1 else None
        option, advice = max(better, key=lambda pair: pair[1].saving_usd)
        chosen.append(option)


def _best(context: AdviceContext, before: Sequence[Option], options: Sequence[Option]) -> tuple[Option, Advice] | None:
    """Return the smallest of these options, after those before them, with nearly all of the largest saving."""
    found = [(option, advice) for option in options if (advice := context.best_advice(*before, option)) is not None]
    if not found:
        return None
    saved = [advice.saving_seconds if context.free else advice.saving_usd for _, advice in found]
    enough = [pair for pair, saving in zip(found, saved, strict=True) if saving >= NEARLY_ALL * max(saved)]
    return min(enough, key=lambda pair: pair[0][1])

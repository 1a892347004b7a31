"""The places that show what more or fewer GPUs of the recommended kind would do. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from costgpu.models.prediction import Prediction

MOST_ROWS = 8


def scaling_rows(offers: Sequence[Prediction], recommended: Prediction | None) -> tuple[Prediction, ...]:
    """For each number of GPUs of the recommended kind the cheapest place, fewest first; empty for one process.

    Args:
        offers: Predictions for all places.
        recommended: The verdict's recommendation.
    """
    offer = recommended.offer if recommended is not None else None
    if recommended is None or offer is None or offer.accelerator is None:
        return ()
    found: dict[int, Prediction] = {gpus_at_work(recommended): recommended}
    for one in offers:
        there = one.offer
        same = (
            there is not None
            and there.accelerator is not None
            and not one.infeasible
            and (there.provider, there.accelerator.name, there.purchase_option)
            == (offer.provider, offer.accelerator.name, offer.purchase_option)
        )
        if not same:
            continue
        gpus = gpus_at_work(one)
        known = found.get(gpus)
        if known is None or (known is not recommended and one.cost_usd.value < known.cost_usd.value):
            found[gpus] = one
    if all(one.scaling is None for one in found.values()):
        return ()
    return tuple(found[gpus] for gpus in sorted(found))[:MOST_ROWS]


def gpus_at_work(prediction: Prediction) -> int:
    """GPUs that the training uses."""
    return prediction.scaling.gpus if prediction.scaling is not None else 1

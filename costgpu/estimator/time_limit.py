"""A job that ends by its own clock: how long it runs on a candidate, and how far it comes by then. Pure."""

from __future__ import annotations

import math
from dataclasses import replace

from costgpu.estimator.interval import Z80
from costgpu.estimator.scope import Scope
from costgpu.estimator.spot import with_run
from costgpu.models.prediction import LEAST, Prediction, Range, TimeLimit

ONCE = ("set-up", "download", "rendezvous")  # parts of a run that come before the clock starts


def limited(prediction: Prediction, scope: Scope) -> Prediction:
    """Cut a prediction of all the scope's steps off where the script's clock ends them; itself without a clock."""
    if not any(scope.limits):
        return prediction
    once = sum(prediction.parts.get(name, 0.0) for name in ONCE)
    whole = [phase.seconds for phase in prediction.phases]

    def bounded(factor: float) -> list[float]:
        """Return the seconds of each phase if its steps take `factor` times what is predicted."""
        seconds = [factor * one for one in whole]
        pairs = zip(seconds, scope.limits, strict=True)
        return [one if clock is None else clock.bounded(one) for one, clock in pairs]

    unlimited, plain = prediction.run_seconds, max(prediction.run_seconds.value, LEAST)
    factors = (1.0, unlimited.low / plain, unlimited.high / plain)
    value, low, high = (once + sum(bounded(factor)) for factor in factors)
    alone = scope.limits[-1] is not None and scope.limits[-1].alone  # only the clock ends the last phase
    most = math.inf if alone else 1.0
    steps = [scope.steps[-1] * min(bounded(factor)[-1] / max(factor * whole[-1], LEAST), most) for factor in factors]
    shares = [done / one if one > 0 else 1.0 for done, one in zip(bounded(1.0), whole, strict=True)]
    part = sum(bounded(1.0)) / max(sum(whole), LEAST)
    ends = [math.inf if clock is None else clock.seconds for clock in scope.limits]
    cut = replace(
        prediction,
        parts={name: seconds * (1.0 if name in ONCE else part) for name, seconds in prediction.parts.items()},
        phases=tuple(
            replace(phase, seconds=phase.seconds * share)
            for phase, share in zip(prediction.phases, shares, strict=True)
        ),
        sigma=math.log(max(high, LEAST) / max(low, LEAST)) / 2 / Z80,
        time_limit=TimeLimit(
            seconds=sum(ends),
            steps=Range(value=steps[0], low=steps[2], high=steps[1]),
            unlimited_seconds=unlimited,
            reached=whole[-1] >= ends[-1] or alone,
        ),
    )
    return with_run(cut, Range(value=value, low=low, high=high), saves=shares[-1])

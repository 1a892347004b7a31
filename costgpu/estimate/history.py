"""A prediction from earlier runs of the same job on the same instance type. Pure."""

from __future__ import annotations

import math
from dataclasses import replace

from costgpu.estimate.cost import cost_range
from costgpu.estimate.interval import Z80
from costgpu.estimate.scope import Amount
from costgpu.models.prediction import MeasuredSpeed, Prediction, Provenance, Range

# What is taken for the spread between runs before there are several: that of a longer run on the same machine
# (HERE_SIGMA in `predict`), worth as much as three runs. So a single run gives +- 15 %, three that agree +- 8 %, and
# many their own spread.
PRIOR_SIGMA, PRIOR_RUNS = 0.06, 3
# No machine of a cloud is exactly as fast as the next one of its type: below this an interval would claim what no
# number of runs on other machines can show.
LEAST_SIGMA = math.log(1.05) / Z80
# 90 % quantile of Student's t by degrees of freedom: the upper end of an 80 % interval. Source: any table; the last one
# is the normal distribution's.
T90 = {1: 3.078, 2: 1.886, 3: 1.638, 4: 1.533, 5: 1.476, 6: 1.440, 7: 1.415, 8: 1.397, 9: 1.383, 10: 1.372}
SAME_STEPS = 0.01  # numbers of steps that differ by less are the same job: some can be told only approximately


def log_sigma(speed: MeasuredSpeed) -> float:
    """Standard deviation of the logarithm of the next run's seconds, such that Z80 of them hold it 80 % of the time.

    The next run differs from the others' median by its own spread and by the median's. The spread is the larger one of
    two: that of the prior and the runs, pooled by their degrees of freedom; and that of the runs alone, so that a job
    that takes longer at times than others is not taken for a steady one.
    """
    alone = speed.runs - 1
    pooled = (PRIOR_RUNS * PRIOR_SIGMA**2 + alone * speed.log_spread**2) / (PRIOR_RUNS + alone)
    spread = T90.get(PRIOR_RUNS + alone, Z80) * math.sqrt(pooled)
    if alone:
        spread = max(spread, T90.get(alone, Z80) * speed.log_spread)
    return max(spread * math.sqrt(1 + 1 / speed.runs) / Z80, LEAST_SIGMA)


def applies(speed: MeasuredSpeed, amount: Amount, own: Amount) -> bool:
    """Whether that was this job: all of it, with as many steps.

    Args:
        speed: Measured.
        amount: What is to be predicted.
        own: What the script does by itself: as long as that is what a run of unknown length did.
    """
    total = amount.total_steps
    if total is None:
        return False
    steps = speed.steps if speed.steps is not None else own.total_steps
    return steps is not None and abs(steps - total) <= SAME_STEPS * max(steps, total)


def as_measured(modelled: Prediction, speed: MeasuredSpeed) -> Prediction:
    """The prediction with the seconds that this very job took there."""
    seconds, sigma = speed.job_seconds, log_sigma(speed)
    run = Range(value=seconds, low=seconds * math.exp(-Z80 * sigma), high=seconds * math.exp(Z80 * sigma))
    overhead = modelled.overhead_seconds
    wall = (run.value + overhead, run.low + overhead, run.high + overhead)
    cost = cost_range(modelled.candidate, wall)
    step = modelled.step_seconds * seconds / modelled.run_seconds.value if modelled.run_seconds.value > 0 else 0.0
    times = "1 run" if speed.runs == 1 else f"{speed.runs} runs"
    return replace(
        modelled,
        step_seconds=step,
        run_seconds=run,
        wall_seconds=Range(value=wall[0], low=wall[1], high=wall[2]),
        cost_usd=Range(value=cost[0], low=cost[1], high=cost[2]),
        terms={"run": step},
        parts={"the whole job": seconds},
        sigma=sigma,
        provenance=Provenance.MEASURED,
        infeasible="",  # it has run there
        notes=(f"measured in {times}, last {speed.last_at:%Y-%m-%d}",),
    )

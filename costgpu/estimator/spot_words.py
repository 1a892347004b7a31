"""What to say of interruptions, in plain words with where each figure comes from. Pure."""

from __future__ import annotations

from costgpu.estimator.cost import at_best_interval
from costgpu.estimator.interruptions import enough_recoveries
from costgpu.models.prediction import Interruptions, Prediction
from costgpu.units import format_duration, format_usd

WORTH_SAYING = 0.02  # of the cost, that another interval saves
ALL_LOST = "each interruption loses all since the start"


def recover_option(found: Interruptions) -> str:
    """``--recover 3``: as many as suffice in nineteen cases of twenty."""
    return f"--recover {enough_recoveries(found.expected)}"


def interruption_sentences(prediction: Prediction | None) -> list[str]:
    """Return what the figures of a spot machine have in them, what its checkpoints do, and how to go on; none on demand."""
    found = prediction.interruptions if prediction is not None else None
    if prediction is None or found is None:
        return []
    return [
        f"Interruptions are in the figures of spot machines: {rate_words(prediction, found)}.",
        *checkpoint_sentences(prediction),
        f"costgpu run --spot {recover_option(found)} goes on after each.",
    ]


def interruption_words(prediction: Prediction | None) -> str:
    """Return the same in one sentence; empty on demand."""
    found = prediction.interruptions if prediction is not None else None
    if prediction is None or found is None:
        return ""
    name = prediction.offer.instance_type if prediction.offer is not None else "such a machine"
    return (
        f"Interruptions are in the figures of spot machines: {found.expected:.2g} expected on {name};"
        f" costgpu run --spot {recover_option(found)} goes on after each."
    )


def rate_words(prediction: Prediction, found: Interruptions) -> str:
    """``g5.xlarge is taken back about every 20 h ..., 0.5 times in this job; the next goes on after 2.5 min``."""
    rate, nodes, offer = found.rate, prediction.candidate.nodes, prediction.offer
    name = offer.instance_type if offer is not None else "such a machine"
    name = name if nodes == 1 else f"one of {nodes} {name}"
    if rate.percent_a_month:
        share = rate.percent_a_month.replace("<", "less than ").replace(">", "more than ")
        basis = f"assumed from {share} % a month: {rate.source}, {rate.as_of}"
    else:
        basis = f"assumed: nothing is published about it, {rate.source}"
    seldom = _every(rate.low_per_hour * nodes) if rate.low_per_hour else "hardly ever"
    interval = f"80 % interval: {_every(rate.high_per_hour * nodes)} to {seldom}"
    where = "job" if prediction.overhead_seconds > 0 else "part of a job"
    return (
        f"{name} is taken back about {_every(rate.per_hour * nodes)} that it runs ({basis}; {interval}),"
        f" {found.expected:.2g} times in this {where}, and the next machine goes on after"
        f" {format_duration(found.restart_seconds)}, not counting a wait for a free one"
    )


def checkpoint_sentences(prediction: Prediction) -> list[str]:
    """Return how often it saves, how often it should, and what that would change."""
    found = prediction.interruptions
    if found is None:
        return []
    best = at_best_interval(prediction)
    other = f"{format_duration(best.wall_seconds.value)} and {format_usd(best.cost_usd.value)}"
    advised = f"every {format_duration(found.best_interval_seconds)} (Young/Daly)"
    each = format_duration(found.checkpoints.seconds_each)
    saves = prediction.cost_usd.value - best.cost_usd.value > WORTH_SAYING * prediction.cost_usd.value
    if found.interval_seconds is not None:
        how = "measured" if found.checkpoints.measured else "not reached: inferred from its source"
        words = f"It saves a checkpoint every {format_duration(found.interval_seconds)} there ({each} each, {how})"
        if found.best_interval_seconds >= prediction.run_seconds.value:
            return [f"{words}; the job is too short to need any."]
        return [f"{words}, and is taken to resume from it; best is {advised}{f': {other}' if saves else ''}."]
    if prediction.overhead_seconds <= 0:
        return [f"No checkpoint was seen: these figures are for one {advised}, {each} each (assumed)."]
    lost = f"No checkpoint was seen, so {ALL_LOST}"
    if found.best_interval_seconds >= prediction.run_seconds.value or not saves:
        return [f"{lost}; the job is short enough for that."]
    return [f"{lost}. With a checkpoint {advised}, {each} each (assumed), it would take {other}."]


def _every(per_hour: float) -> str:
    return f"every {format_duration(3600 / per_hour)}"

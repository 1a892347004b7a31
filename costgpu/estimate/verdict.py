"""From predictions to an answer. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from costgpu.estimate.cost import GPU_READY_SECONDS, billed_usd, expected_usd_per_hour, hourly_usd
from costgpu.estimate.scope import Amount
from costgpu.models.prediction import Choice, Objective, Prediction, Provenance, Verdict
from costgpu.units import format_duration, format_ratio, format_usd

CLOSE_LOW, CLOSE_HIGH = (
    0.5,
    2.0,
)  # cost ratios between which the side is right 79 % of the time. Source: benchmarks/README.md
# Of GPU figures from the benchmark table, which are off by factors: as sure as that, or it is too close to call.
MIN_CONFIDENCE = 0.79
NEAR_TIE = 1.10  # of offers whose costs differ by less than this, the faster one is the better
HERE_MINUTES_SECONDS = 600.0  # this machine is the answer if it is done in minutes
WORTH_A_ROW = 0.95  # a dearer offer is shown if it takes less than this of the time of the next cheaper one
MEASURE_SECONDS = 60.0  # of training on the instance that would settle a close call


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """What the user wants.

    Attributes:
        objective: What is best.
        deadline_seconds: Wall-clock limit; None for none.
        max_cost_usd: Cost limit; None for none.
        value_of_time_usd_per_hour: What an hour of waiting is worth to the user; 0 for nothing.
        rows: Length of the table.
    """

    objective: Objective = Objective.CHEAPEST
    deadline_seconds: float | None = None
    max_cost_usd: float | None = None
    value_of_time_usd_per_hour: float = 0.0
    rows: int = 10


def weight(prediction: Prediction, preferences: Preferences) -> float:
    """Dollars, with the user's waiting in them."""
    waiting = prediction.wall_seconds.value / 3600 * preferences.value_of_time_usd_per_hour
    return prediction.cost_usd.value + waiting


def allowed(prediction: Prediction, preferences: Preferences) -> bool:
    """Whether it can run there within the user's limits."""
    if prediction.infeasible:
        return False
    if preferences.deadline_seconds is not None and prediction.wall_seconds.value > preferences.deadline_seconds:
        return False
    return preferences.max_cost_usd is None or prediction.cost_usd.value <= preferences.max_cost_usd


def best(predictions: Sequence[Prediction], preferences: Preferences) -> Prediction | None:
    """The best of them by the objective, within the limits; None if there is none."""
    possible = [p for p in predictions if allowed(p, preferences)]
    if not possible:
        return None
    if preferences.objective is Objective.FASTEST:
        quickest = min(p.wall_seconds.value for p in possible)
        close = [p for p in possible if p.wall_seconds.value <= quickest * 1.02]
        return min(close, key=lambda p: (p.cost_usd.value, p.wall_seconds.value))
    if preferences.objective is Objective.BALANCED:
        return min(possible, key=lambda p: weight(p, preferences) * p.wall_seconds.value)
    least = min(weight(p, preferences) for p in possible)
    close = [p for p in possible if weight(p, preferences) <= least * NEAR_TIE]
    return min(close, key=lambda p: (p.wall_seconds.value, p.cost_usd.value))


def probability_cheaper(one: Prediction, other: Prediction) -> float:
    """P(cost of `one` < cost of `other`) with independent log-normal errors."""
    spread = math.hypot(one.sigma, other.sigma)
    if one.cost_usd.value <= 0 or other.cost_usd.value <= 0:
        return 1.0 if one.cost_usd.value <= other.cost_usd.value else 0.0
    distance = math.log(other.cost_usd.value / one.cost_usd.value)
    if spread == 0:
        return 0.5 if distance == 0 else float(distance > 0)
    return 0.5 * (1 + math.erf(distance / spread / math.sqrt(2)))


def break_even(cpu: Prediction, gpu: Prediction) -> float:
    """The speed-up from which the GPU is the cheaper, its boot and set-up included; inf if none would do.

    p_gpu (o_gpu + T_cpu / S) = p_cpu (o_cpu + T_cpu), solved for S.
    """
    gpu_rate = expected_usd_per_hour(gpu.candidate)
    cpu_rate = expected_usd_per_hour(cpu.candidate)
    seconds = cpu_rate * (cpu.overhead_seconds + cpu.run_seconds.value) / gpu_rate - gpu.overhead_seconds
    return cpu.run_seconds.value / seconds if seconds > 0 else math.inf


def pareto(predictions: Sequence[Prediction], preferences: Preferences) -> tuple[Prediction, ...]:
    """Predictions within the limits that no other beats in both cost and time, fastest first."""
    possible = sorted(
        (p for p in predictions if allowed(p, preferences)), key=lambda p: (p.cost_usd.value, p.wall_seconds.value)
    )
    front: list[Prediction] = []
    for p in possible:
        if not front or p.wall_seconds.value < front[-1].wall_seconds.value * WORTH_A_ROW:
            front.append(p)
    front.reverse()
    if len(front) <= preferences.rows:
        return tuple(front)
    keep = [round(i * (len(front) - 1) / max(1, preferences.rows - 1)) for i in range(preferences.rows)]
    return tuple(front[i] for i in dict.fromkeys(keep))


def decide(
    amount: Amount,
    here: Prediction,
    offers: Sequence[Prediction],
    preferences: Preferences,
    notes: Sequence[str],
) -> Verdict:
    """The verdict over this machine and the predictions of all offers."""
    cpu = best([p for p in offers if not p.candidate.is_gpu], preferences)
    gpu = best([p for p in offers if p.candidate.is_gpu], preferences)
    speedup = premium = even = probability = None
    settle = ""
    if cpu is not None and gpu is not None:
        speedup = cpu.run_seconds.value / gpu.run_seconds.value
        premium = expected_usd_per_hour(gpu.candidate) / expected_usd_per_hour(cpu.candidate)
        even = break_even(cpu, gpu)
        probability = probability_cheaper(gpu, cpu)
    choice, chosen = _choose(here, cpu, gpu, preferences, amount)
    nowhere = _common_reason(offers) if gpu is None else ""
    if choice is Choice.TOO_CLOSE and gpu is not None and gpu.provenance is not Provenance.MEASURED:
        seconds = GPU_READY_SECONDS + MEASURE_SECONDS
        price = billed_usd(seconds, hourly_usd(gpu.candidate))
        settle = f"a minute of it on {describe(gpu)} would settle it for about {format_usd(price)}"
        if cpu is not None and price >= abs(gpu.cost_usd.value - cpu.cost_usd.value):
            settle += ", more than the difference that is predicted"
    limited = preferences.deadline_seconds is not None or preferences.max_cost_usd is not None
    if limited and not amount.whole:
        notes = [*notes, f"The limits were held against {amount.unit}: the length of the job is not known."]
    table = pareto(offers, preferences)
    for wanted in (cpu, gpu):
        if wanted is not None and all(wanted is not p for p in table):
            table = tuple(sorted([*table, wanted], key=lambda p: p.wall_seconds.value))
    sentence = _sentence(
        choice, chosen, here, cpu, gpu, amount, preferences, (speedup, premium, even, probability), settle, nowhere
    )
    return Verdict(
        choice=choice,
        sentence=sentence,
        unit=amount.unit,
        here=here,
        best_cpu=cpu,
        best_gpu=gpu,
        recommended=chosen,
        speedup=speedup,
        premium=premium,
        break_even=even,
        probability_gpu_cheaper=probability,
        settle=settle,
        table=table,
        notes=(*notes, *amount.notes),
    )


def _choose(
    here: Prediction, cpu: Prediction | None, gpu: Prediction | None, preferences: Preferences, amount: Amount
) -> tuple[Choice, Prediction | None]:
    """This machine, if it is done in minutes, or no later than what one would pay for; else the better offer."""
    choice, chosen = _choose_rented(cpu, gpu, preferences)
    if preferences.deadline_seconds is not None and here.wall_seconds.value > preferences.deadline_seconds:
        return choice, chosen
    rented = [p for p in (cpu, gpu) if p is not None]
    worth = preferences.value_of_time_usd_per_hour > 0 and weight(here, preferences) <= min(
        (weight(p, preferences) for p in rented), default=math.inf
    )
    unhurried = preferences.objective is not Objective.FASTEST
    minutes = amount.whole and unhurried and here.wall_seconds.value <= HERE_MINUTES_SECONDS
    if minutes or worth or chosen is None or here.wall_seconds.value <= chosen.wall_seconds.value:
        return Choice.HERE, here
    return choice, chosen


def _choose_rented(
    cpu: Prediction | None, gpu: Prediction | None, preferences: Preferences
) -> tuple[Choice, Prediction | None]:
    rented = [p for p in (cpu, gpu) if p is not None]
    if cpu is None and gpu is None:
        return Choice.NOWHERE, None
    if cpu is None or gpu is None:
        only = cpu if gpu is None else gpu
        assert only is not None  # noqa: S101 - one of the two is
        return (Choice.CPU if gpu is None else Choice.GPU), only
    if preferences.objective is Objective.FASTEST:
        faster = min(rented, key=lambda p: p.wall_seconds.value)
        return (Choice.GPU if faster is gpu else Choice.CPU), faster
    if preferences.objective is Objective.BALANCED:
        better = min(rented, key=lambda p: weight(p, preferences) * p.wall_seconds.value)
        return (Choice.GPU if better is gpu else Choice.CPU), better
    ratio = weight(gpu, preferences) / weight(cpu, preferences)
    better = gpu if ratio < 1 else cpu
    if CLOSE_LOW < ratio < CLOSE_HIGH or _unsure(better, cpu, gpu):
        return Choice.TOO_CLOSE, better
    return (Choice.GPU if better is gpu else Choice.CPU), better


def _unsure(better: Prediction, cpu: Prediction, gpu: Prediction) -> bool:
    """Whether a GPU figure from the benchmark table is too wide to tell the sides apart."""
    if gpu.provenance is not Provenance.BENCHMARKED:
        return False
    return probability_cheaper(better, cpu if better is gpu else gpu) < MIN_CONFIDENCE


def _common_reason(offers: Sequence[Prediction]) -> str:
    """Why no GPU will do, if it is the same for all that were looked at and none of the user's limits."""
    reasons = {p.infeasible for p in offers if p.candidate.is_gpu}
    return reasons.pop() if len(reasons) == 1 else ""


def describe(prediction: Prediction) -> str:
    """``gcp g2-standard-4 (L4), us-central1, on-demand``."""
    offer = prediction.candidate.offer
    if offer is None:
        return "this machine"
    gpu = ""
    if offer.accelerator is not None:
        count = offer.accelerator.count
        times = "" if count == 1 else f"{count:g}x "
        gpu = f" ({times}{offer.accelerator.name})"
    return (
        f"{offer.provider} {offer.instance_type}{gpu}, {offer.region}, {offer.purchase_option.value.replace('_', '-')}"
    )


def money(prediction: Prediction) -> str:
    """``$0.92 [0.74-1.15]``."""
    cost = prediction.cost_usd
    return f"{format_usd(cost.value)} [{format_usd(cost.low)[1:]}-{format_usd(cost.high)[1:]}]"


def _sentence(
    choice: Choice,
    chosen: Prediction | None,
    here: Prediction,
    cpu: Prediction | None,
    gpu: Prediction | None,
    amount: Amount,
    preferences: Preferences,
    figures: tuple[float | None, float | None, float | None, float | None],
    settle: str,
    nowhere: str,
) -> str:
    speedup, premium, even, probability = figures
    per = "" if amount.whole else f" for {amount.unit}"
    if choice is Choice.NOWHERE:
        limits = []
        if preferences.deadline_seconds is not None:
            limits.append(f"the deadline of {format_duration(preferences.deadline_seconds)}")
        if preferences.max_cost_usd is not None:
            limits.append(f"the limit of {format_usd(preferences.max_cost_usd)}")
        kept = " and ".join(limits) or "what the script needs"
        return f"No offer meets {kept}. Here it would take {format_duration(here.wall_seconds.value)}."
    assert chosen is not None  # noqa: S101 - only NOWHERE has none
    time = format_duration(chosen.wall_seconds.value)
    if choice is Choice.HERE:
        rented = [p for p in (cpu, gpu) if p is not None]
        quickest = min(rented, key=lambda p: p.wall_seconds.value, default=None)
        other = (
            f" Renting would take {format_duration(quickest.wall_seconds.value)} on {describe(quickest)}, boot included."
            if quickest
            else ""
        )
        return f"Just run it here: {time}, $0.{other}"
    where = f"{describe(chosen)}: {time}, {money(chosen)}{per}."
    if speedup is None or premium is None or even is None or probability is None or cpu is None or gpu is None:
        side = "GPU" if choice is Choice.GPU else "CPU"
        missing = "CPU" if side == "GPU" else "GPU"
        if nowhere:
            return f"Run it on a {side}: {where} No GPU will do: {nowhere}."
        return f"Run it on a {side}: {where} No {missing} offer is possible within the limits."
    pays = "no speed-up would make it pay" if math.isinf(even) else f"it would pay from {format_ratio(even)}"
    faster = (
        f"{format_ratio(speedup)} faster than the best CPU ({cpu_name(cpu)})"
        if speedup >= 1
        else f"{format_ratio(1 / speedup)} slower than the best CPU ({cpu_name(cpu)})"
    )
    if choice is Choice.GPU:
        return f"Run it on a GPU: {where} {faster} for {format_ratio(premium)} the price; {pays}."
    if choice is Choice.CPU:
        return (
            f"Run it on a CPU: {where} The best GPU ({describe(gpu)}) is only {format_ratio(speedup)} as fast for"
            f" {format_ratio(premium)} the price and would cost {money(gpu)}; {pays}."
        )
    advice = f" {settle[:1].upper()}{settle[1:]}." if settle else ""
    return (
        f"Too close to call on cost: GPU {describe(gpu)} {money(gpu)} in {format_duration(gpu.wall_seconds.value)},"
        f" CPU {describe(cpu)} {money(cpu)} in {format_duration(cpu.wall_seconds.value)}{per};"
        f" the GPU is cheaper with {probability:.0%} and {faster}.{advice}"
    )


def cpu_name(prediction: Prediction) -> str:
    """``c7a.2xlarge``."""
    return prediction.candidate.offer.instance_type if prediction.candidate.offer else "this machine"

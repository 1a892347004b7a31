"""From predictions to an answer: the best offers, which side to take, and the sentence that says so. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from costgpu.estimator.cost import GPU_READY_SECONDS, billed_usd, expected_usd_per_hour, hourly_usd
from costgpu.estimator.interval import BUSY_SHARE, Z80, probability_less
from costgpu.estimator.scope import Scope
from costgpu.estimator.spot import ruled_out_notes
from costgpu.estimator.throughput import pays_from
from costgpu.estimator.verdict_sentence import describe, verdict_sentence
from costgpu.models.prediction import Choice, Objective, PaysFrom, Prediction, Provenance, Range, Verdict
from costgpu.units import format_duration, format_usd

# Cost ratios between which the side is right 79 % of the time. Source: benchmarks/README.md
CLOSE_LOW, CLOSE_HIGH = 0.5, 2.0
# Below this the 80 % interval of the ratio of the costs holds 1: the predictions do not tell which side is the cheaper.
MIN_CONFIDENCE = 0.90
# Of offers whose costs differ by less than this, the faster one is the better; of times, the cheaper one.
NEAR_TIE = {Objective.CHEAPEST: 1.10, Objective.FASTEST: 1.02, Objective.BALANCED: 1.0}
HERE_MINUTES_SECONDS = 600.0  # this machine is the answer if it is done in minutes
WORTH_A_ROW = 0.95  # a dearer offer is shown if it takes less than this of the time of the next cheaper one
MEASURE_SECONDS = 60.0  # of training on the instance that would settle a close call


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """What the user wants; a limit is None where there is none."""

    objective: Objective = Objective.CHEAPEST
    deadline_seconds: float | None = None
    max_cost_usd: float | None = None
    value_of_time_usd_per_hour: float = 0.0  # what an hour of waiting is worth to the user; 0 for nothing
    rows: int = 10  # length of the table, without those of `instance_types`
    instance_types: tuple[str, ...] = ()  # types to show whatever beats them

    @property
    def limits(self) -> str:
        """Return the deadline and the cost limit in words; empty without any."""
        limits = []
        if self.deadline_seconds is not None:
            limits.append(f"the deadline of {format_duration(self.deadline_seconds)}")
        if self.max_cost_usd is not None:
            limits.append(f"the limit of {format_usd(self.max_cost_usd)}")
        return " and ".join(limits)


def effective_cost(prediction: Prediction, preferences: Preferences) -> float:
    """Return the cost in USD of the work that all offers are compared by, with what the user's waiting is worth."""
    waiting = prediction.wall_seconds.value / 3600 * preferences.value_of_time_usd_per_hour
    return (prediction.cost_usd.value + waiting) * prediction.work_share


def work_seconds(prediction: Prediction) -> float:
    """Wall-clock seconds for the work that all offers are compared by."""
    return prediction.wall_seconds.value * prediction.work_share


def allowed(prediction: Prediction, preferences: Preferences) -> bool:
    """Return whether it can run there within the user's limits."""
    if prediction.infeasible:
        return False
    if preferences.deadline_seconds is not None and prediction.wall_seconds.value > preferences.deadline_seconds:
        return False
    return preferences.max_cost_usd is None or prediction.cost_usd.value <= preferences.max_cost_usd


def best(predictions: Sequence[Prediction], preferences: Preferences) -> Prediction | None:
    """Return the best of them by the objective, within the limits; None if there is none."""
    possible = [p for p in predictions if allowed(p, preferences)]
    if not possible:
        return None
    least = min(_measure(p, preferences) for p in possible)
    close = [p for p in possible if _measure(p, preferences) <= least * NEAR_TIE[preferences.objective]]
    if preferences.objective is Objective.FASTEST:
        return min(close, key=lambda p: (p.cost_usd.value, work_seconds(p)))
    return min(close, key=lambda p: (work_seconds(p), p.cost_usd.value))


def _measure(prediction: Prediction, preferences: Preferences) -> float:
    """Return what is to be small by the objective: time, cost, or their product."""
    if preferences.objective is Objective.FASTEST:
        return work_seconds(prediction)
    cost = effective_cost(prediction, preferences)
    return cost * work_seconds(prediction) if preferences.objective is Objective.BALANCED else cost


def probability_cheaper(one: Prediction, other: Prediction, preferences: Preferences | None = None) -> float:
    """P(cost of `one` < cost of `other`) if their times err independently, and prices do not.

    What counts of each interval is the side on which the order would change.

    Args:
        preferences: To compare effective costs; None for costs in money alone.
    """
    wanted = preferences or Preferences()
    cost, other_cost = effective_cost(one, wanted), effective_cost(other, wanted)
    if cost > other_cost:
        return 1 - probability_cheaper(other, one, preferences)
    ratio = _compared_seconds(other).over(_compared_seconds(one))
    return probability_less(cost, other_cost, math.log(ratio.value / ratio.low) / Z80)


def _compared_seconds(prediction: Prediction) -> Range:
    return prediction.wall_seconds if prediction.time_limit is None else prediction.work_seconds


def break_even(cpu: Prediction, gpu: Prediction) -> float:
    """Return the speed-up from which the GPU is the cheaper, its boot and set-up included; inf if none would do.

    p_gpu (o_gpu + T_cpu / S) = p_cpu (o_cpu + T_cpu), solved for S.
    """
    gpu_rate = expected_usd_per_hour(gpu)
    cpu_rate = expected_usd_per_hour(cpu)
    run = cpu.work_seconds.value
    seconds = cpu_rate * (cpu.overhead_seconds + run) / gpu_rate - gpu.overhead_seconds
    return run / seconds if seconds > 0 else math.inf


def pareto(predictions: Sequence[Prediction], preferences: Preferences) -> tuple[Prediction, ...]:
    """Return the predictions within the limits that no other beats in both cost and time, fastest first."""
    possible = sorted(
        (p for p in predictions if allowed(p, preferences)),
        key=lambda p: (p.cost_usd.value * p.work_share, work_seconds(p)),
    )
    front: list[Prediction] = []
    for p in possible:
        if not front or work_seconds(p) < work_seconds(front[-1]) * WORTH_A_ROW:
            front.append(p)
    front.reverse()
    if len(front) <= preferences.rows:
        return tuple(front)
    keep = [round(i * (len(front) - 1) / max(1, preferences.rows - 1)) for i in range(preferences.rows)]
    return tuple(front[i] for i in dict.fromkeys(keep))


def decide(
    scope: Scope,
    here: Prediction,
    offers: Sequence[Prediction],
    preferences: Preferences,
    notes: Sequence[str],
    disturbed_share: float = 0.0,
) -> Verdict:
    """Return the verdict over this machine and the predictions of all offers.

    Args:
        disturbed_share: Share of the script's time that other programs took while it was measured.
    """
    cpu = best([p for p in offers if not p.candidate.is_gpu], preferences)
    gpu = best([p for p in offers if p.candidate.is_gpu], preferences)
    choice, chosen = choose(here, cpu, gpu, preferences, scope)
    if preferences.limits and not scope.whole:
        notes = [*notes, f"The limits were held against {scope.unit}: the length of the job is not known."]
    if cpu is None or gpu is None:
        notes = [*notes, *ruled_out_notes(offers)]
    table = _with_rows(pareto(offers, preferences), [p for p in (cpu, gpu) if p is not None])
    asked = tuple(
        best(group, preferences) or min(group, key=lambda p: (bool(p.infeasible), p.cost_usd.value))
        for group in by_type(offers, preferences.instance_types)
    )
    notes = [*notes, *_notes_of_asked(asked, preferences)]
    if here.infeasible:
        notes = [*notes, f"This machine will not do: it {here.infeasible}."]
    verdict = Verdict(
        choice=choice,
        sentence="",
        unit=scope.unit,
        here=here,
        best_cpu=cpu,
        best_gpu=gpu,
        recommended=chosen,
        speedup_range=None,
        premium=None,
        break_even=None,
        probability_gpu_cheaper=None,
        settle=_measurement(cpu, gpu) if choice is Choice.TOO_CLOSE else "",
        table=table,
        notes=(*notes, *scope.notes),
    )
    if cpu is not None and gpu is not None:
        verdict = replace(
            verdict,
            speedup_range=cpu.work_seconds.over(gpu.work_seconds),
            premium=expected_usd_per_hour(gpu) / expected_usd_per_hour(cpu),
            break_even=break_even(cpu, gpu),
            probability_gpu_cheaper=probability_cheaper(gpu, cpu),
        )
    if not scope.whole:
        verdict = replace(verdict, pays_from=_pays_from(verdict, scope))
    why_no_gpu = _common_reason(offers) if gpu is None else ""
    rented = _choose_rented(cpu, gpu, preferences)[1]
    sentence = verdict_sentence(
        verdict,
        limits=preferences.limits,
        why_no_gpu=why_no_gpu,
        rented=rented,
        best_cpu=_superlative("CPU", cpu, offers, preferences),
        best_gpu=_superlative("GPU", gpu, offers, preferences),
    )
    headline = ""
    if disturbed_share > BUSY_SHARE:
        headline = sentence
        sentence += f" This machine was busy: other programs took {disturbed_share:.0%} of the script's time."
    shown = _with_rows(table, [p for p in asked if not p.infeasible])
    return replace(verdict, sentence=sentence, headline=headline, table=shown, asked=asked)


def by_type(offers: Sequence[Prediction], instance_types: Sequence[str]) -> list[list[Prediction]]:
    """Group the predictions of the types named by provider and type."""
    wanted = {name.lower() for name in instance_types}
    found: dict[tuple[str, str], list[Prediction]] = {}
    for p in offers:
        if p.offer is not None and p.offer.instance_type.lower() in wanted:
            found.setdefault((p.offer.provider, p.offer.instance_type), []).append(p)
    return list(found.values())


def _notes_of_asked(asked: Sequence[Prediction], preferences: Preferences) -> list[str]:
    """Say why types that the user named are not to be had, or not recommended."""
    found = {p.offer.instance_type.lower() for p in asked if p.offer is not None}
    missing = [name for name in preferences.instance_types if name.lower() not in found]
    return [
        *(f"{describe(p)} will not do: {p.infeasible}." for p in asked if p.infeasible),
        *(
            f"{describe(p)} does not meet {preferences.limits}."
            for p in asked
            if not p.infeasible and not allowed(p, preferences)
        ),
        *(f"{name} will not do: no network between several of them is known." for name in missing),
    ]


def _with_rows(table: Sequence[Prediction], more: Sequence[Prediction]) -> tuple[Prediction, ...]:
    new = [p for p in more if all(p is not row for row in table)]
    return tuple(sorted([*table, *new], key=work_seconds))


def _superlative(side: str, found: Prediction | None, offers: Sequence[Prediction], preferences: Preferences) -> str:
    """Name what `best` has found: ``the cheapest CPU``, ``one of the fastest GPUs within the limits``."""
    if found is None:
        return ""
    within = " within the limits" if preferences.limits else ""
    if preferences.objective is Objective.BALANCED:
        return f"the {side} of the best balance{within}"
    fastest = preferences.objective is Objective.FASTEST
    word = "fastest" if fastest else "cheapest"
    if preferences.value_of_time_usd_per_hour and not fastest:
        within += ", waiting included"
    rivals = [p for p in offers if p.candidate.is_gpu is found.candidate.is_gpu and allowed(p, preferences)]
    amounts = [_measure(p, preferences) for p in (found, *rivals)]
    return f"the {word} {side}{within}" if amounts[0] <= min(amounts) else f"one of the {word} {side}s{within}"


def _pays_from(verdict: Verdict, scope: Scope) -> tuple[PaysFrom, ...]:
    """Return what is recommended (or else the best GPU) against this machine, and the best GPU against the best CPU."""
    cpu, gpu, chosen = verdict.best_cpu, verdict.best_gpu, verdict.recommended
    rented = chosen if chosen is not None and chosen.candidate.offer is not None else gpu or cpu
    pairs = [(rented, None if verdict.here.infeasible else verdict.here), (gpu, cpu)]
    unit = ("epoch", scope.steps[-1]) if scope.epochs[-1] else ("step", 1.0)
    found = [pays_from(one, other, unit) for one, other in pairs if one is not None and other and not other.infeasible]
    return tuple(one for one in found if one is not None)


def _measurement(cpu: Prediction | None, gpu: Prediction | None) -> str:
    """Return the measurement that would settle a close call; empty where the GPU was measured already."""
    if cpu is None or gpu is None or gpu.provenance is Provenance.MEASURED:
        return ""
    price = billed_usd(GPU_READY_SECONDS + MEASURE_SECONDS, hourly_usd(gpu.candidate))
    words = f"a minute of it on {describe(gpu)} would settle it for about {format_usd(price)}"
    if price >= abs(gpu.cost_usd.value - cpu.cost_usd.value):
        words += ", more than the difference that is predicted"
    return words


def choose(
    here: Prediction, cpu: Prediction | None, gpu: Prediction | None, preferences: Preferences, scope: Scope
) -> tuple[Choice, Prediction | None]:
    """Return this machine, if it is done in minutes, or no later than what one would pay for; else the better offer."""
    choice, chosen = _choose_rented(cpu, gpu, preferences)
    if here.infeasible:
        return choice, chosen
    if preferences.deadline_seconds is not None and here.wall_seconds.value > preferences.deadline_seconds:
        return choice, chosen
    rented = [p for p in (cpu, gpu) if p is not None]
    worth = preferences.value_of_time_usd_per_hour > 0 and effective_cost(here, preferences) <= min(
        (effective_cost(p, preferences) for p in rented), default=math.inf
    )
    unhurried = preferences.objective is not Objective.FASTEST
    minutes = scope.whole and unhurried and here.wall_seconds.value <= HERE_MINUTES_SECONDS
    if minutes or worth or chosen is None or work_seconds(here) <= work_seconds(chosen):
        return Choice.HERE, here
    return choice, chosen


def _choose_rented(
    cpu: Prediction | None, gpu: Prediction | None, preferences: Preferences
) -> tuple[Choice, Prediction | None]:
    rented = [p for p in (cpu, gpu) if p is not None]
    if not rented:
        return Choice.NOWHERE, None
    better = min(rented, key=lambda p: _measure(p, preferences))
    if preferences.objective is Objective.CHEAPEST and cpu is not None and gpu is not None:
        one, other = effective_cost(cpu, preferences), effective_cost(gpu, preferences)
        sure = probability_cheaper(better, cpu if better is gpu else gpu, preferences)
        if CLOSE_LOW * one < other < CLOSE_HIGH * one or sure < MIN_CONFIDENCE:
            return Choice.TOO_CLOSE, better
    return (Choice.GPU if better is gpu else Choice.CPU), better


def _common_reason(offers: Sequence[Prediction]) -> str:
    """Return why no GPU will do, if it is the same for all that were looked at and none of the user's limits.

    Of a training on several GPUs, where each place says how it would fit: why not the machine with the most memory.
    """

    def accelerator_gib(prediction: Prediction) -> float:
        chips = prediction.offer.accelerator if prediction.offer is not None else None
        return prediction.candidate.nodes * chips.count * chips.memory_gib if chips is not None else 0.0

    gpus = [p for p in offers if p.candidate.is_gpu]
    reasons = {p.infeasible for p in gpus}
    if len(reasons) > 1 and "" not in reasons and any(p.gpus > 1 for p in gpus):
        return max(gpus, key=lambda p: (-p.candidate.nodes, accelerator_gib(p))).infeasible
    return reasons.pop() if len(reasons) == 1 else ""

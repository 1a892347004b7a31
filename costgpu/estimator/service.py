"""A script as a service at a steady rate of requests: on which machines, at what cost a month, how busy, how fast. Pure.

    machines = ceil(R / (0.65 mu)),  u = R / (machines mu),  wait = u / (2 mu (1 - u))

R requests per second, mu what one machine can do. The wait is that of a queue with random arrivals and steady service
times (M/D/1), each machine with its own share of the requests. Batches are what is served: R / b a second, of b items
each. One fills in (b - 1) / (2 R / machines) on average. Nothing is promised of autoscaling: all machines run all month.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from costgpu.estimator.advice.changes import with_items
from costgpu.estimator.cost import hourly_usd
from costgpu.estimator.interval import CPU_OTHER_FAMILY
from costgpu.estimator.predict import predict
from costgpu.estimator.prepared import Workload
from costgpu.estimator.throughput import inference_phase
from costgpu.estimator.verdict import by_type
from costgpu.estimator.verdict_sentence import amount, describe
from costgpu.models.offer import PurchaseOption
from costgpu.models.prediction import Choice, Objective, Prediction, Provenance, Range, Service, ServicePlan, Verdict
from costgpu.models.provider_costs import HOURS_PER_MONTH
from costgpu.units import format_duration, format_frequency, format_percent, format_usd

HEADROOM = 0.65  # share of its capacity that a machine is planned for: assumed, usual practice
NEAR_TIE = 1.02  # of plans whose costs differ by less than this, the one with the sooner answer is the better
ASSUMED = (
    f"Requests are taken to come at random times, at the same rate all month ({HOURS_PER_MONTH} h); machines are planned"
    f" for {HEADROOM:.0%} of what they can do. A load balancer, standby machines and autoscaling are not in it."
)
FULL_BATCHES = (
    "An answer waits until the script's batch is full: that its items can be taken one by one could not be seen. At a low"
    " rate that is most of the time."
)
SPOT = "Spot machines may be taken away at any time: they suit batch jobs, not a service."


def plan(prediction: Prediction, rate: float) -> ServicePlan | None:
    """Return the machines of one kind for `rate` items per second; None where it cannot run, and for training."""
    phase = inference_phase(prediction)
    if phase is None or phase.unit is None or prediction.infeasible or phase.sustained_seconds.low <= 0:
        return None
    seconds, items = phase.sustained_seconds, phase.unit.items
    price = hourly_usd(prediction.candidate)

    def machines_at(unit_seconds: float) -> int:
        return max(1, math.ceil(rate / items / (HEADROOM / unit_seconds) - 1e-9))

    usual, quick, slow = (
        HOURS_PER_MONTH * (machines_at(unit_seconds) * price)
        for unit_seconds in (seconds.value, seconds.low, seconds.high)
    )
    machines, capacity = machines_at(seconds.value), 1 / seconds.value
    used = rate / items / (machines * capacity)
    wait = used / (2 * capacity * (1 - used)) + (items - 1) * machines / (2 * rate)
    return ServicePlan(
        prediction=prediction,
        machines=machines,
        capacity=Range(value=items / seconds.value, low=items / seconds.high, high=items / seconds.low),
        utilisation=used,
        answer_seconds=wait + seconds.value,
        wait_seconds=wait,
        batch=items,
        usd_per_month=Range(value=usual, low=quick, high=slow),
    )


def service(
    rate: float,
    here: Sequence[Prediction],
    offers: Sequence[Prediction],
    objective: Objective = Objective.CHEAPEST,
    instance_types: Sequence[str] = (),
) -> Service | None:
    """Return what it takes to answer `rate` items per second; None for training.

    Args:
        here: Predictions for this machine, one for each batch that is worth a thought.
        offers: The same for all offers.
        instance_types: Types to show whatever beats them.
    """
    phase = inference_phase(here[0])
    if phase is None or phase.unit is None:
        return None
    plans = _plans(offers, rate)
    named = [_best(_plans(group, rate), objective) for group in by_type(offers, instance_types)]
    cpu = _best([one for one in plans if not one.prediction.candidate.is_gpu], objective)
    gpu = _best([one for one in plans if one.prediction.candidate.is_gpu], objective)
    local = [one for one in _plans(here, rate) if one.machines == 1]
    choice, chosen = _choose(cpu, gpu, objective)
    spot = any(
        one is not None
        and one.prediction.candidate.offer is not None
        and one.prediction.candidate.offer.purchase_option is PurchaseOption.SPOT
        for one in (cpu, gpu)
    )
    mine = _best(local, Objective.FASTEST)
    return Service(
        rate_per_second=rate,
        item=phase.unit.item,
        choice=choice,
        sentence=_sentence(rate, phase.unit.item, choice, chosen, cpu, gpu, mine),
        here=mine,
        best_cpu=cpu,
        best_gpu=gpu,
        recommended=chosen,
        notes=(ASSUMED, SPOT) if spot else (ASSUMED,),
        asked=tuple(one for one in named if one is not None),
    )


def _plans(places: Sequence[Prediction], rate: float) -> list[ServicePlan]:
    return [found for place in places if (found := plan(place, rate)) is not None]


def serve(
    workload: Workload,
    rate: float,
    here: Prediction,
    offers: Sequence[Prediction],
    objective: Objective = Objective.CHEAPEST,
    instance_types: Sequence[str] = (),
) -> Service | None:
    """Return the machines that answer `rate` items per second, in the script's batches or one by one.

    Only the last phase of inference is served: what the script trains or infers before need not fit the machines.

    Args:
        here: Prediction for this machine.
        offers: Predictions for the offers.
        instance_types: Types to show whatever beats them.
    """
    served = _served(workload)
    if served is None:
        return None
    mine, others = [here], list(offers)
    if served is not workload:
        mine, others = [predict(served, here.candidate)], [predict(served, place.candidate) for place in offers]
    unit = served.profile.phases[-1].unit
    items = unit.items or 1.0
    if unit.independent and items > 1:
        single = with_items(served, 1 / items)
        mine.append(_never_measured(predict(single, here.candidate)))
        others += [predict(single, place.candidate) for place in offers]
    answer = service(rate, mine, others, objective, instance_types)
    alone = unit.independent or items <= 1
    return answer if alone or answer is None else replace(answer, notes=(*answer.notes, FULL_BATCHES))


def _served(workload: Workload) -> Workload | None:
    """Return the workload with its last phase of inference alone; None without one."""
    profile, scope, calibration = workload.profile, workload.scope, workload.calibration
    last = max((n for n, phase in enumerate(profile.phases) if not phase.unit.trains), default=None)
    if last is None or len(profile.phases) == 1:
        return None if last is None else workload
    return replace(
        workload,
        profile=replace(profile, phases=[profile.phases[last]]),
        scope=replace(
            scope,
            steps=(scope.steps[last],),
            epochs=(scope.epochs[last],),
            fixed=scope.fixed[last : last + 1],
            limits=scope.limits[last : last + 1],
        ),
        passes=[workload.passes[last]],
        splits=[workload.splits[last]],
        calibration=None if calibration is None else replace(calibration, ratios=(calibration.ratios[last],)),
    )


def _never_measured(here: Prediction) -> Prediction:
    """Return the prediction for this machine with a batch that it did not run: by the model, as for another CPU."""
    return replace(
        here,
        provenance=Provenance.MODELLED,
        phases=tuple(
            replace(phase, step_seconds=_wider(phase.step_seconds), sustained_seconds=_wider(phase.sustained_seconds))
            for phase in here.phases
        ),
    )


def _wider(seconds: Range) -> Range:
    modelled = CPU_OTHER_FAMILY.around(seconds.value)
    return replace(seconds, low=min(seconds.low, modelled.low), high=max(seconds.high, modelled.high))


def as_served(verdict: Verdict, answer: Service) -> Verdict:
    """Return the verdict with the service's answer and machines, where that was the question."""
    return replace(
        verdict,
        choice=answer.choice,
        sentence=answer.sentence,
        headline="",
        best_cpu=answer.best_cpu.prediction if answer.best_cpu is not None else None,
        best_gpu=answer.best_gpu.prediction if answer.best_gpu is not None else None,
        recommended=answer.recommended.prediction if answer.recommended is not None else None,
        speedup_range=None,
        premium=None,
        break_even=None,
        probability_gpu_cheaper=None,
        settle="",
        notes=(*verdict.notes, *answer.notes),
        pays_from=(),
    )


def _best(plans: Sequence[ServicePlan], objective: Objective) -> ServicePlan | None:
    if not plans:
        return None
    if objective is Objective.FASTEST:
        return min(plans, key=lambda one: (one.answer_seconds, one.usd_per_month.value))
    if objective is Objective.BALANCED:
        return min(plans, key=lambda one: one.answer_seconds * one.usd_per_month.value)
    least = min(one.usd_per_month.value for one in plans)
    near = [one for one in plans if one.usd_per_month.value <= least * NEAR_TIE]
    return min(near, key=lambda one: (one.answer_seconds, one.usd_per_month.value))


def _choose(
    cpu: ServicePlan | None, gpu: ServicePlan | None, objective: Objective
) -> tuple[Choice, ServicePlan | None]:
    """Return the better side; too close to call where the intervals of the costs leave it open."""
    if cpu is None or gpu is None:
        one = cpu or gpu
        return (Choice.NOWHERE if one is None else Choice.CPU if one is cpu else Choice.GPU), one
    better = _best([cpu, gpu], objective)
    assert better is not None  # noqa: S101 - there are two
    other = gpu if better is cpu else cpu
    if objective is Objective.CHEAPEST and better.usd_per_month.high > other.usd_per_month.low:
        return Choice.TOO_CLOSE, better
    return (Choice.CPU if better is cpu else Choice.GPU), better


def _sentence(
    rate: float,
    item: str,
    choice: Choice,
    chosen: ServicePlan | None,
    cpu: ServicePlan | None,
    gpu: ServicePlan | None,
    here: ServicePlan | None,
) -> str:
    load = format_frequency(rate, item)
    if chosen is None:
        return f"No offer can serve {load}."
    if choice is Choice.TOO_CLOSE:
        words = f"Too close to call on cost for {load}: GPU {_words(gpu)}; CPU {_words(cpu)}."
    else:
        other, side = (gpu, "GPU") if choice is Choice.CPU else (cpu, "CPU")
        words = f"Serve {load} on a {choice.value.upper()}: {_words(chosen)}."
        words += f" The best {side} is {_words(other)}." if other is not None else f" No {side} offer is possible."
    if here is not None:
        modelled = here.prediction.provenance is Provenance.MODELLED
        single = " (one by one, which was not measured)" if modelled else ""
        words += f" This machine would carry it as well, at {format_percent(here.utilisation)} use{single}."
    return words


def _words(one: ServicePlan | None) -> str:
    """``2 x aws g4dn.xlarge (T4), us-east-1, on-demand: $790 [790-1185] a month, 41 % used, an answer in 120 ms``."""
    if one is None:
        return "none"
    usd = one.usd_per_month
    month = format_usd(usd.value) if usd.low == usd.high else amount(usd)
    return (
        f"{one.machines} x {describe(one.prediction)}, {month} a month, {format_percent(one.utilisation)} used,"
        f" an answer in {format_duration(one.answer_seconds)} on average"
    )

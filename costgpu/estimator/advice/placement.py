"""Advice that changes where the job runs, or what runs there: spot, region, instance, preprocessing elsewhere. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from costgpu.estimator.advice.changes import starts_epoch, traced, with_setup, without_epoch_starts
from costgpu.estimator.advice.context import AdviceContext, cheapest_of_each_type, error_between
from costgpu.estimator.cost import CPU_READY_SECONDS, billed_usd, hourly_usd
from costgpu.estimator.interval import Z80
from costgpu.estimator.memory import need_gib
from costgpu.estimator.prepared import Workload
from costgpu.estimator.spot import advice_words, at_best_interval
from costgpu.estimator.verdict import best
from costgpu.models.offer import PurchaseOption
from costgpu.models.prediction import Advice, AdviceKind, Prediction
from costgpu.units import format_duration, format_free, format_usd

START_SECONDS = 60.0  # of a set-up, that are imports and building the model: they stay on the training machine
LAUNCH_BOUND = 0.3  # share of a step's launches and host work from which a larger GPU is idle
MEMORY_UNUSED = 0.5  # of the accelerator's memory
PRICES = "the prices of the snapshot"
SMALL_ERROR = 0.02  # of a ratio in which only a price changes


def preprocessing(context: AdviceContext) -> Advice | None:
    """Return what the script does before its first step, done before on a cheap CPU machine."""
    workload = context.workload
    movable = workload.profile.setup_seconds - START_SECONDS
    loads_model = all(not phase.unit.trains for phase in workload.profile.phases)
    if not workload.scope.whole or movable <= 0 or loads_model:
        return None
    return _moved(
        context,
        AdviceKind.PREPROCESSING,
        with_setup(workload, START_SECONDS),
        movable,
        f"Its first {format_duration(movable)} (before the first step) done before, on a cheap CPU machine",
    )


def between_epochs(context: AdviceContext) -> Advice | None:
    """Return what the script does again before every epoch, done once and kept."""
    workload = context.workload
    phases = zip(workload.profile.phases, workload.scope.epochs, strict=True)
    again = [
        (extra.seconds_each, epochs / max(extra.every, 1e-9))
        for phase, epochs in phases
        for extra in phase.extras
        if starts_epoch(extra)
    ]
    once = sum(seconds for seconds, times in again if times > 1)
    if once <= 0:
        return None
    persistent = any(phase.data.workers for phase in workload.profile.phases)
    hint = ", persistent_workers=True" if persistent else ""
    return _moved(
        context,
        AdviceKind.BETWEEN_EPOCHS,
        without_epoch_starts(workload),
        once,
        f"The {format_duration(once)} of work before every epoch done once and kept{hint}",
    )


def _moved(context: AdviceContext, kind: AdviceKind, changed: Workload, seconds: float, action: str) -> Advice | None:
    """Return the advice to do `seconds` of work on the cheapest CPU machine that can, and not on the GPU machine."""
    before = context.before
    if not before.candidate.is_gpu:
        return None
    cheap = min(
        (place.candidate for place in context.offers if not place.candidate.is_gpu and not place.infeasible),
        key=hourly_usd,
        default=None,
    )
    if cheap is None or cheap.offer is None:
        return None
    wall = CPU_READY_SECONDS + seconds
    cost = billed_usd(wall, hourly_usd(cheap))
    note = (
        f"On {cheap.offer.provider} {cheap.offer.instance_type} it costs {format_usd(cost)}, once for all later runs;"
        f" here it took {format_duration(seconds)} and {format_free()}."
    )
    return context.advice(
        kind,
        action,
        context.after(changed, before),
        other_usd=cost,
        other_seconds=wall,
        basis="what it took here",
        notes=[note],
        at_most=True,
    )


def other_instance(context: AdviceContext, wider: Sequence[Prediction]) -> Advice | None:
    """Return another accelerator, fewer of them or a smaller host, among what the user's options had left out."""
    before, was = context.before, context.before.offer
    others = [
        place
        for place in cheapest_of_each_type(wider, None)
        if place.candidate.is_gpu
        and place.offer is not None
        and was is not None
        and (place.offer.provider, place.offer.instance_type) != (was.provider, was.instance_type)
    ]
    found = best(others, context.preferences)
    if found is None:
        return None
    return context.advice(
        AdviceKind.OTHER_INSTANCE,
        f"{_instance(before, found)}, which your options left out",
        found,
        basis=PRICES + " and the model",
        notes=_why_smaller(context.workload, before),
    )


def _instance(before: Prediction, after: Prediction) -> str:
    """Return the change of machine in words: ``An L4 instead of an A100``, ``A smaller host for the L4``."""
    one, other = before.offer, after.offer
    chip = other.accelerator if other is not None else None
    was = one.accelerator if one is not None else None
    gpus, had = after.candidate.nodes * (chip.count if chip else 0), before.candidate.nodes * (was.count if was else 0)
    if chip is None or other is None or one is None:
        return "Another machine"
    if was is None:
        return f"A GPU ({chip.name}) instead of a CPU"
    if chip.name != was.name:
        return f"{_chips(gpus, chip.name)} instead of {_chips(had, was.name)}"
    if gpus != had:
        unused = ", of which the script uses one" if before.gpus <= 1 else ""
        return f"{gpus:g}x {chip.name} instead of {had:g}x{unused}"
    size = "smaller" if other.vcpus < one.vcpus else "cheaper"
    return f"A {size} host for the {chip.name} ({other.instance_type})"


def _chips(count: float, name: str) -> str:
    return name if count == 1 else f"{count:g}x {name}"


def _why_smaller(workload: Workload, before: Prediction) -> list[str]:
    """Return which part of the recommended accelerator lies idle."""
    step, offer = sum(before.terms.values()), before.offer
    chip = offer.accelerator if offer is not None else None
    if chip is None or step <= 0:
        return []
    found = []
    idle = sum(before.terms.get(name, 0.0) for name in ("calls", "host", "copy", "loading", "waiting")) / step
    if idle > LAUNCH_BOUND:
        found.append(f"The {chip.name} waits for its host {100 * idle:.0f} % of a step.")
    if traced(workload):
        need = need_gib(workload.profile, workload.execution)
        if need < MEMORY_UNUSED * chip.memory_gib:
            found.append(f"The job needs {need:.1f} of its {chip.memory_gib:g} GiB.")
    return found


def region(context: AdviceContext, wider: Sequence[Prediction]) -> Advice | None:
    """Return the same instance type where it is cheapest, among the regions that the user's options had left out."""
    before, was = context.before, context.before.offer
    if was is None:
        return None
    same = [
        place
        for place in wider
        if (offer := place.offer) is not None
        and offer.region != was.region
        and (offer.provider, offer.instance_type, offer.purchase_option, place.candidate.nodes)
        == (was.provider, was.instance_type, was.purchase_option, before.candidate.nodes)
    ]
    found = best(same, context.preferences)
    if found is None or found.offer is None:
        return None
    return context.advice(
        AdviceKind.REGION,
        f"The same {was.instance_type} in {found.offer.region}",
        found,
        sigma=SMALL_ERROR,
        basis=PRICES,
        notes=["Moving the data there is not counted."],
    )


def spot_machine(context: AdviceContext, spot: Sequence[Prediction]) -> Advice | None:
    """Spot machines, where they win clearly with what interruptions add; with checkpoints, if none was seen."""
    before, offer = context.before, context.before.offer
    if offer is None or offer.purchase_option is PurchaseOption.SPOT:
        return None
    last = context.workload.profile.phases[-1]
    infers = not last.unit.trains
    places = [
        at_best_interval(place)
        if not infers and place.interruptions is not None and place.interruptions.interval_seconds is None
        else place
        for place in cheapest_of_each_type(spot, None)
        if place.offer is not None and place.offer.purchase_option is PurchaseOption.SPOT
    ]
    first = best(places, context.preferences)
    same = [
        place
        for place in places
        if place.offer is not None
        and (place.offer.instance_type, place.candidate.nodes) == (offer.instance_type, before.candidate.nodes)
        and not place.infeasible
    ]
    for found in [*([first] if first is not None else []), *same]:
        as_written = next(place for place in spot if place.candidate is found.candidate)
        action, notes = advice_words(
            as_written, found, infers=infers, timed=bool(last.step.count), whole=context.workload.scope.whole
        )
        advice = context.advice(
            AdviceKind.SPOT,
            action,
            found,
            sigma=math.hypot(error_between(before, found), _rate_error(found)),
            basis="spot prices, which change, and assumed interruptions",
            notes=notes,
        )
        if advice is not None:
            return advice
    return None


def _rate_error(place: Prediction) -> float:
    """Return the standard deviation of the logarithm of the time that the error of the interruption rate causes."""
    found, factor = place.interruptions, place.interruption_factor
    if found is None or found.undisturbed_seconds.high <= 0 or factor <= 0:
        return 0.0
    return max(0.0, math.log(found.wall_seconds.high / found.undisturbed_seconds.high / factor)) / Z80

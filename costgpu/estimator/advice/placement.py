"""Advice that changes where the job runs, or what runs there: spot, region, instance, preprocessing, memory. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from costgpu.estimator.advice.changes import starts_epoch, traced, with_setup, without_epoch_starts
from costgpu.estimator.advice.context import AdviceContext, cheapest_of_each_type
from costgpu.estimator.advice.several_gpus import sharded_place
from costgpu.estimator.advice.spot import spot_machine
from costgpu.estimator.cost import CPU_READY_SECONDS, billed_usd, hourly_usd
from costgpu.estimator.feasibility import incompatible, required_accelerator_gib
from costgpu.estimator.gpu import precision_of
from costgpu.estimator.inference.memory import what_fits
from costgpu.estimator.prepared import Workload
from costgpu.estimator.verdict import best
from costgpu.estimator.verdict_sentence import describe
from costgpu.models.prediction import Advice, AdviceKind, Prediction
from costgpu.units import format_duration, format_free, format_usd

START_SECONDS = 60.0  # of a set-up, that are imports and building the model: they stay on the training machine
LAUNCH_BOUND = 0.3  # share of a step's launches and host work from which a larger GPU is idle
MEMORY_UNUSED = 0.5  # of the accelerator's memory
PRICES = "the prices of the snapshot"
MEMORY_OF_INFERENCE = "weights, key-value cache and activations, with a margin"
MEMORY = "parameters, gradients, optimizer state and saved tensors, with a margin of a quarter"
WRAP = "The script must wrap its model: torch.distributed.fsdp.fully_shard() of each block, then of the model."
FITS = {"as written": "as written", "half": "in half precision"}
SMALL_ERROR = 0.02  # of a ratio in which only a price changes


def place_advice(
    context: AdviceContext, wider: Sequence[Prediction], spot: Sequence[Prediction]
) -> Iterator[Advice | None]:
    """Yield everything that another place, or less work on this one, would save; None where it saves nothing."""
    yield preprocessing(context)
    yield between_epochs(context)
    yield other_instance(context, wider)
    yield region(context, wider)
    yield spot_machine(context, spot)
    yield does_not_fit(context, wider)


def preprocessing(context: AdviceContext) -> Advice | None:
    """Return what the script does before its first step, done before on a cheap CPU machine."""
    workload, before = context.workload, context.before
    movable = workload.profile.setup_seconds - START_SECONDS
    loads_model = all(not phase.unit.trains for phase in workload.profile.phases)
    if before is None or not workload.scope.whole or movable <= 0 or loads_model:
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
    if before is None or not before.candidate.is_gpu:
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
    before = context.before
    if before is None or context.free:
        return None
    was = before.offer
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
        need = need_gib(workload)
        if need < MEMORY_UNUSED * chip.memory_gib:
            found.append(f"The job needs {need:.1f} of its {chip.memory_gib:g} GiB.")
    return found


def region(context: AdviceContext, wider: Sequence[Prediction]) -> Advice | None:
    """Return the same instance type where it is cheapest, among the regions that the user's options had left out."""
    before = context.before
    was = before.offer if before is not None else None
    if was is None:
        return None
    same = [
        place
        for place in wider
        if (offer := place.offer) is not None
        and offer.region != was.region
        and before is not None
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


def need_gib(workload: Workload) -> float:
    """Accelerator memory that the job needs, with the margin."""
    precision = precision_of(workload.profile.framework)
    return max(required_accelerator_gib(phase, precision, workload.execution) for phase in workload.profile.phases)


def does_not_fit(context: AdviceContext, wider: Sequence[Prediction]) -> Advice | None:
    """Return the cheapest accelerator that holds the job, or, where none does, the number of them that would."""
    if not context.workload.profile.ranks.alone:
        return _sharded_instead(context, wider)
    if not traced(context.workload):
        return None
    gpus = [place for place in context.offers if place.candidate.is_gpu]
    need = need_gib(context.workload)
    chips = [place.offer.accelerator for place in gpus if place.offer is not None]
    too_small = any(chip is not None and chip.memory_gib < need for chip in chips)
    if not gpus or any(not place.infeasible for place in gpus) or not too_small:
        return None
    head = f"It needs {need:.1f} GiB on one accelerator"
    one = best([place for place in wider if place.candidate.is_gpu], context.preferences)
    if one is not None:
        action = f"{head}: {describe(one)} has them"
        if context.before is None:
            return _unpriced(action, None, one)
        return context.advice(AdviceKind.DOES_NOT_FIT, action, one, basis=MEMORY)
    if smaller := _made_to_fit(context.workload, [*gpus, *wider]):
        action = f"{head}, more than any offer has"
        return _unpriced(action, context.before, None, smaller, basis=MEMORY_OF_INFERENCE)
    if shared := sharded_place(context.workload, [*gpus, *wider], context.preferences):
        return _unpriced(
            f"{head}, more than any offer has; under FSDP it fits {describe(shared)}: about"
            f" {format_duration(shared.wall_seconds.value)} and {format_usd(shared.cost_usd.value)}",
            context.before,
            shared if context.before is None else None,
            WRAP,
        )
    several = [p for p in [*gpus, *wider] if _together(p, need) and _software_runs(context.workload, p)]
    if not several:
        action = f"{head}, more than any offer has, and more than the accelerators of any offer together"
        return _unpriced(action, context.before, None)
    cheapest = min(several, key=lambda place: hourly_usd(place.candidate))
    return _unpriced(
        f"{head}, more than any offer has; the cheapest that hold it together: {describe(cheapest)}",
        context.before,
        None,
        "The script must shard its model over them (FSDP, DeepSpeed), which costgpu does not do for it.",
        f"Time and cost there are not known; it is {format_usd(hourly_usd(cheapest.candidate))} an hour.",
    )


def _sharded_instead(context: AdviceContext, wider: Sequence[Prediction]) -> Advice | None:
    """FSDP for a training in several processes of which each holds more than any GPU; None if it fits, or shards already."""
    scheme = context.workload.profile.ranks.scheme
    gpus = [place for place in [*context.offers, *wider] if place.candidate.is_gpu]
    if scheme.shards_parameters or not scheme.predicted or not gpus or any(not place.infeasible for place in gpus):
        return None
    shared = sharded_place(context.workload, gpus, context.preferences)
    if shared is None:
        return None
    return _unpriced(
        f"It fits no GPU under {scheme.phrase}; under FSDP it fits {describe(shared)}: about"
        f" {format_duration(shared.wall_seconds.value)} and {format_usd(shared.cost_usd.value)}",
        context.before,
        shared if context.before is None else None,
        WRAP,
    )


def _made_to_fit(workload: Workload, places: Sequence[Prediction]) -> str:
    """Return the cheapest GPU that inference would fit after a change of batch or precision, and the change; else empty."""
    if any(phase.unit.trains for phase in workload.profile.phases):
        return ""
    for place in sorted(places, key=lambda place: hourly_usd(place.candidate)):
        offer = place.offer
        if offer is None or offer.accelerator is None or not _software_runs(workload, place):
            continue
        each = [
            {fit.change: fit.batch for fit in what_fits(phase, workload.execution, offer.accelerator.memory_gib)}
            for phase in workload.profile.phases
        ]
        words = [
            FITS.get(change, f"with {change} weights") + (f" at {batch:.0%} of the batch" if batch < 1 else "")
            for change in each[0]
            if all(change in one for one in each) and (batch := min(one[change] for one in each))
        ]
        if words:
            return f"On {describe(place)} it fits {' or '.join(words)}."
    return ""


def _unpriced(
    action: str, before: Prediction | None, after: Prediction | None, *notes: str, basis: str = MEMORY
) -> Advice:
    """Advice on what a job needs that names no saving."""
    return Advice(
        kind=AdviceKind.DOES_NOT_FIT,
        action=action,
        saving_usd=0.0,
        saving_seconds=0.0,
        before=before,
        after=after,
        basis=basis,
        notes=notes,
    )


def _together(place: Prediction, need: float) -> bool:
    offer = place.offer
    chips = offer.accelerator if offer is not None else None
    return chips is not None and chips.count >= 2 and chips.count * chips.memory_gib >= need


def _software_runs(workload: Workload, place: Prediction) -> bool:
    spec = place.candidate.accelerator
    return spec is not None and not incompatible(spec, place.candidate, workload.profile.framework)

"""A workload on all GPUs of a candidate: its steps, their number, memory and efficiency. Pure.

`step` knows what one process takes for its share of the batch; `multi_gpu` what it takes several of them together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from costgpu.estimator.cpu import host_cores
from costgpu.estimator.feasibility import MARGIN, RUNTIME_GIB, required_accelerator_gib
from costgpu.estimator.gpu import Precision, precision_of
from costgpu.estimator.inference.steps import Step
from costgpu.estimator.interval import Interval
from costgpu.estimator.multi_gpu.constants import CHECKPOINTING_TIME, LOADER_SHARE
from costgpu.estimator.multi_gpu.interval import scaling_interval
from costgpu.estimator.multi_gpu.layouts import Layout, held_under, layouts
from costgpu.estimator.multi_gpu.memory import GIB, memory_gib
from costgpu.estimator.multi_gpu.ranks import ONE, group_on
from costgpu.estimator.multi_gpu.step_time import Group, StepSeconds, communication_seconds, step_seconds, window_share
from costgpu.estimator.multi_gpu.steps import keeps_global_batch, scope_with
from costgpu.estimator.multi_gpu.volume import bytes_per_step
from costgpu.estimator.multi_gpu.words import how_it_fits, layout_words, need_words
from costgpu.estimator.prepared import Workload
from costgpu.estimator.resize import resized, with_optimizer_share
from costgpu.estimator.scope import Scope
from costgpu.estimator.step import loading_seconds, step_on, trains_alone
from costgpu.estimator.training_memory import TrainingBytes, training_bytes
from costgpu.models.offer import AcceleratorSpec
from costgpu.models.parallelism import Parallelism, Scaling, Scheme
from costgpu.models.prediction import Candidate
from costgpu.models.workload import Phase

UNKNOWN_VOLUME = "how much its processes exchange in a step is not known: measure it there"
WHOLE_UNITS = "how large the units of its model are is not known: all of it is taken to be gathered at once"
ONCE_COMPUTED = frozenset({"copy", "waiting", "host"})  # terms of a step that checkpointing does not repeat
CLEARLY_FASTER = (
    0.9  # a way to spread a model that is harder to write has to take less than this of the time: our choice
)


@dataclass(slots=True)
class ScaledStep:
    """One step of a phase on all GPUs."""

    step: Step
    single_seconds: float  # of a step on one GPU with all samples of the measured batch, loading included
    efficiency: float = 1.0
    spread: Interval = field(default_factory=lambda: Interval(1.0, 1.0))  # what several GPUs add to the interval
    parts: StepSeconds | None = None  # None with one GPU
    input_seconds: float = 0.0
    mfu: float | None = None


@dataclass(slots=True)
class SeveralGpus:
    """What the GPUs of a candidate make of a workload whose processes work together."""

    group: Group
    scope: Scope
    steps: list[ScaledStep]
    unknown: str = ""  # why it cannot run there, or not be predicted; empty if it can
    too_large: str = ""  # why it does not fit the memory of the GPUs; empty if it does
    notes: list[str] = field(default_factory=list)
    scaling: Scaling | None = None  # None with one GPU


@dataclass(frozen=True, slots=True)
class _Place:
    """What a step is predicted for."""

    candidate: Candidate
    group: Group
    parallelism: Parallelism
    layout: Layout | None  # None for a script, which has chosen


def on_several(workload: Workload, candidate: Candidate) -> SeveralGpus | None:
    """Return what all GPUs of the candidate make of it; None for a script of one process on one machine, which uses one."""
    profile = workload.profile
    if trains_alone(profile) and candidate.nodes == 1:
        return None
    offer = candidate.offer
    if offer is None:
        return _on_group(workload, candidate)
    machine = (offer.provider, offer.instance_type, offer.vcpus, offer.memory_gib, offer.accelerator)
    key = (machine, candidate.nodes, candidate.interconnect)
    if key not in workload.known:
        workload.known[key] = _on_group(workload, candidate)
    found: SeveralGpus = workload.known[key]
    return found


def _on_group(workload: Workload, candidate: Candidate) -> SeveralGpus:
    parallelism = workload.profile.parallelism
    group = group_on(parallelism, candidate)
    if parallelism is None or isinstance(group, str):
        reason = group if isinstance(group, str) else ""
        single = [_single(workload, index, candidate) for index in range(len(workload.profile.phases))]
        return SeveralGpus(ONE, workload.scope, single, unknown=reason)
    chosen: list[Layout | None] = [None]
    if parallelism.chosen and candidate.is_gpu:
        chosen = [*layouts(group, workload.profile.phases[-1].micro_batches)]
    places = [
        _Place(candidate, group, layout.of(parallelism) if layout is not None else parallelism, layout)
        for layout in chosen
    ]
    if len(places) > 1:
        needs = [_needs(workload, place) for place in places]
        memory = candidate.offer.accelerator.memory_gib if candidate.offer and candidate.offer.accelerator else 0.0
        fitting = [place for place, need in zip(places, needs, strict=True) if max(need) * MARGIN <= memory]
        if not fitting:
            return _in_full(workload, places[min(range(len(places)), key=lambda index: max(needs[index]))])
        return _simplest([_in_full(workload, place) for place in fitting])
    return _in_full(workload, places[0])


def _simplest(found: Sequence[SeveralGpus]) -> SeveralGpus:
    """Return the fastest; DDP, which is the easiest to write, unless another way is clearly faster."""

    def seconds(one: SeveralGpus) -> float:
        easy = one.scaling is None or one.scaling.scheme is Scheme.DDP
        return _seconds(one) * (CLEARLY_FASTER if easy else 1.0)

    return min(found, key=seconds)


def _seconds(found: SeveralGpus) -> float:
    return sum(sum(one.step.terms.values()) * steps for one, steps in zip(found.steps, found.scope.steps, strict=True))


def _in_full(workload: Workload, place: _Place) -> SeveralGpus:
    """Return everything about the workload there."""
    group, parallelism = place.group, place.parallelism
    scope, notes = scope_with(workload.scope, parallelism, group.gpus)
    found = SeveralGpus(group, scope, [], notes=notes)
    needs = _needs(workload, place) if place.candidate.is_gpu else []
    found.too_large = _too_large(workload, place, needs)
    for index in range(len(workload.profile.phases)):
        step = _scaled(workload, index, place)
        if isinstance(step, str):
            found.unknown = found.unknown or step
            step = _single(workload, index, place.candidate)
        found.steps.append(step)
    each, count = group.gpus // group.nodes, int(place.candidate.accelerator_count)
    if 1 <= each < count:
        notes.append(f"it uses {each} of the {count} GPUs of a machine")
    if group.gpus > 1 and parallelism.scheme.shards_parameters and not parallelism.largest_unit_parameters:
        notes.append(WHOLE_UNITS)
    links = place.candidate.interconnect
    if group.nodes > 1 and links is not None and links.all_interfaces_gbit and links.network_gbit:
        notes.append(
            f"costgpu run gives each machine one network interface, {links.network_gbit:g} of {links.all_interfaces_gbit:g}"
            " Gbit/s: predicted with that one"
        )
    if place.layout is not None:
        notes.append(layout_words(place.layout, group.gpus))
    if group.gpus > 1:
        found.scaling = _scaling(workload, found, place, max(needs, default=0.0))
    return found


def _scaling(workload: Workload, found: SeveralGpus, place: _Place, need: float) -> Scaling:
    last, layout = found.steps[-1], place.layout
    parts = last.parts or StepSeconds(alone=last.single_seconds)
    changed = found.scope.steps != workload.scope.steps
    size = workload.profile.phases[-1].data.batch_size
    return Scaling(
        gpus=place.group.gpus,
        nodes=place.group.nodes,
        scheme=place.parallelism.scheme,
        efficiency=last.efficiency,
        efficiency_low=min(last.efficiency, last.efficiency / last.spread.high),
        efficiency_high=min(1.0, last.efficiency / last.spread.low),
        steps=sum(found.scope.steps) if changed else None,
        communication_seconds=parts.communication,
        straggler_seconds=parts.stragglers,
        input_seconds=last.input_seconds,
        memory_gib=need or None,
        mfu=last.mfu,
        strong=keeps_global_batch(place.parallelism),
        checkpointed=layout is not None and layout.checkpointed,
        rank_batch=layout.sequences * (size or 1) if layout is not None else None,
    )


def _single(workload: Workload, index: int, candidate: Candidate) -> ScaledStep:
    step = step_on(workload, index, candidate)
    return ScaledStep(step, sum(step.terms.values()))


def _share(phase: Phase, place: _Place) -> tuple[float, float] | str:
    """Return samples and micro-batches of a step of one process over those measured; or why they cannot be divided so."""
    parallelism, gpus = place.parallelism, place.group.gpus
    if place.layout is not None:
        if gpus * place.layout.sequences > phase.micro_batches:
            return f"a step has {phase.micro_batches:,.0f} sequences, which {gpus} GPUs cannot share"
        return 1 / gpus, 1 / (gpus * place.layout.sequences)
    if not keeps_global_batch(parallelism) or not phase.unit.trains:
        return 1.0, 1.0
    factor = max(1, parallelism.measured_ranks) / gpus
    micro = phase.micro_batches * factor
    if phase.micro_batches > 1 and micro >= 1:
        return factor, factor  # as many samples in a micro-batch, and fewer of those
    batch = parallelism.rank_batch or phase.data.batch_size
    if batch is None:
        return factor, 1.0
    share = math.floor(batch * factor + 1e-9)
    if share < 1:
        whole = batch * max(1, parallelism.measured_ranks)
        return f"its global batch of {whole:g} cannot be divided among {gpus} GPUs"
    return share / batch, 1.0


def _uneven_notes(phase: Phase, place: _Place, share: tuple[float, float]) -> list[str]:
    """Return a remark where the GPUs do not divide the batch evenly: scripts leave some of it out, or refuse to start."""
    batch = place.parallelism.rank_batch or phase.data.batch_size
    if place.layout is not None or not keeps_global_batch(place.parallelism) or not phase.unit.trains:
        return []
    ranks, gpus = max(1, place.parallelism.measured_ranks), place.group.gpus
    whole, what = (batch, "samples") if share[1] == 1 else (phase.micro_batches, "micro-batches")
    if whole is None or ranks * whole % gpus == 0:
        return []
    return [f"{gpus} GPUs do not divide the {ranks * whole:g} {what} of a step evenly: some scripts refuse that"]


def _needs(workload: Workload, place: _Place) -> list[float]:
    """GiB that each GPU needs in each phase, without a margin."""
    group, precision, found = place.group, precision_of(workload.profile.framework), []
    for index, phase in enumerate(workload.profile.phases):
        if not phase.unit.trains:
            found.append(required_accelerator_gib(phase, precision, workload.execution) / MARGIN)
        elif group.gpus > 1:
            held = _held(workload, index, place)
            found.append(memory_gib(held, place.parallelism, group.gpus, group.gpus // group.nodes))
        else:
            found.append(_held(workload, index, place).total / GIB + RUNTIME_GIB)
    return found


def _too_large(workload: Workload, place: _Place, needs: Sequence[float]) -> str:
    """Return why it does not fit the memory of the GPUs, and how it would; empty if it does, or there are none."""
    offer = place.candidate.offer
    if offer is None or offer.accelerator is None:
        return ""
    memory, gpus = offer.accelerator.memory_gib, place.group.gpus
    for index, need in enumerate(needs):
        if need * MARGIN > memory:
            reason = need_words(need * MARGIN, memory, place.parallelism, gpus)
            if not workload.profile.phases[index].unit.trains:
                return reason
            half = precision_of(workload.profile.framework).half is not None
            return reason + how_it_fits(_held(workload, index, place), place.parallelism, memory, gpus, half=half)
    return ""


def _held(workload: Workload, index: int, place: _Place) -> TrainingBytes:
    phase = workload.profile.phases[index]
    share = _share(phase, place)
    samples, micro = (1.0, 1.0) if isinstance(share, str) else share
    precision = precision_of(workload.profile.framework)
    held = training_bytes(
        replace(phase, saved_tensor_bytes=round(phase.saved_tensor_bytes * samples / micro)), precision
    )
    if place.layout is None:
        return held
    units = place.parallelism.largest_unit_parameters
    return held_under(place.layout, held, place.parallelism.parameters / units if units else 1.0)


def _scaled(workload: Workload, index: int, place: _Place) -> ScaledStep | str:
    """One step of a phase on all GPUs; or why it cannot be told."""
    candidate, group, parallelism, layout = place.candidate, place.group, place.parallelism, place.layout
    phase_here = workload.profile.phases[index]
    share = _share(phase_here, place)
    if isinstance(share, str):
        return share
    shards = group.gpus // group.nodes if parallelism.scheme is Scheme.HSDP else group.gpus
    sized = with_optimizer_share(
        resized(workload, index, *share), index, shards if parallelism.scheme.shards_optimizer else 1
    )
    phase = sized.profile.phases[index]
    core_share = min(1.0, _vcpus_each(candidate, group))
    one = step_on(sized, index, candidate, core_share)
    lost = 0.0 if core_share == 1 else sum(one.terms.values()) - sum(step_on(sized, index, candidate).terms.values())
    terms = dict(one.terms)
    loading = terms.pop("loading", 0.0)
    checkpointed = layout is not None and layout.checkpointed
    if checkpointed:
        again = {name: seconds for name, seconds in terms.items() if name not in ONCE_COMPUTED}
        terms |= {name: seconds * CHECKPOINTING_TIME for name, seconds in again.items()}
    alone = sum(terms.values())
    single = alone + loading - lost
    mfu = _mfu(sized, index, candidate.accelerator)
    if group.gpus == 1:
        step = replace(one, terms={**terms, "loading": loading} if "loading" in one.terms else terms)
        return ScaledStep(step, single, mfu=mfu / single if mfu and single > 0 else None)
    exchanged = 0.0
    if phase.unit.trains:
        volume = bytes_per_step(_sized_parallelism(parallelism, share[1], phase), phase.micro_batches)
        if volume is None:
            return UNKNOWN_VOLUME
        exchanged = communication_seconds(volume, group)
    window = window_share(parallelism.scheme, phase.micro_batches, checkpointed=checkpointed)
    together = step_seconds(alone, group, exchanged, window)
    cores_each = min(host_cores(candidate), LOADER_SHARE * _vcpus_each(candidate, group))
    waits = loading_seconds(phase, together.seconds, cores_each) if "loading" in one.terms else 0.0
    seconds = together.seconds + waits
    if layout is None and keeps_global_batch(parallelism):
        single = _whole_batch_seconds(workload, index, place)
        efficiency = min(1.0, single / (group.gpus * seconds))
    else:
        efficiency = min(1.0, single / seconds)
    timed = phase.data.fetch_seconds_per_batch is not None or not phase.data.batches_per_step or not phase.step.count
    spread, reasons = scaling_interval(seconds, efficiency, group, parallelism.scheme, loader_measured=timed)

    def end(factor: float, other: float) -> float:
        return (step_seconds(alone * factor, group, exchanged, window).seconds * other + waits * factor) / seconds

    interval = Interval(end(one.interval.low, spread.low), end(one.interval.high, spread.high))
    remarks = [*_loader_notes(phase, candidate, group), *_uneven_notes(phase_here, place, share)]
    terms |= {"communication": together.communication, "stragglers": together.stragglers, "loading": waits}
    return ScaledStep(
        replace(one, terms=terms, interval=interval, notes=[*one.notes, *reasons, *remarks]),
        single if layout is None else single * group.gpus,
        efficiency=efficiency,
        spread=spread,
        parts=together,
        input_seconds=waits,
        mfu=mfu / seconds if mfu and seconds > 0 else None,
    )


def _sized_parallelism(parallelism: Parallelism, micro: float, phase: Phase) -> Parallelism:
    """Return the parallelism with the reductions of a step of other micro-batches, and its optimizers' parameters."""
    trained = parallelism.trained_parameters or sum(one.parameters for one in phase.optimizers)
    reductions = parallelism.reductions_per_step
    return replace(
        parallelism,
        trained_parameters=trained,
        reductions_per_step=reductions if reductions <= 1 else max(1.0, reductions * micro),
    )


def _whole_batch_seconds(workload: Workload, index: int, place: _Place) -> float:
    """Return the seconds of a step of one GPU that takes the whole global batch."""
    share = _share(workload.profile.phases[index], replace(place, group=ONE))
    if isinstance(share, str):
        return 0.0
    return sum(step_on(resized(workload, index, *share), index, place.candidate).terms.values())


def _vcpus_each(candidate: Candidate, group: Group) -> float:
    """VCPUs of a machine for each process on it."""
    vcpus = candidate.offer.vcpus if candidate.offer is not None else 1
    return vcpus * group.nodes / group.gpus


def _loader_notes(phase: Phase, candidate: Candidate, group: Group) -> list[str]:
    each = group.gpus // group.nodes
    wanted = each * phase.data.workers
    if candidate.offer is None or wanted <= candidate.offer.vcpus:
        return []
    return [f"its {each} processes start {wanted} workers for data, on {candidate.offer.vcpus} vCPUs"]


def _mfu(workload: Workload, index: int, spec: AcceleratorSpec | None) -> float | None:
    """Seconds that the FLOPs of one process's step would take at the peak of the unit for them; None if not known."""
    flops = workload.works[index].total_flops
    peak = _peak(spec, precision_of(workload.profile.framework)) if spec is not None else None
    return flops / peak if peak and flops else None


def _peak(spec: AcceleratorSpec, precision: Precision) -> float | None:
    """FLOP/s of the unit that most arithmetic of such a precision is meant for; None without one."""
    if precision.half is not None:
        half = spec.bf16_tensor_tflops if precision.half == "bfloat16" else spec.fp16_tensor_tflops
        return half * 1e12 if half else None
    if precision.matmul_tf32 and spec.tf32_tensor_tflops:
        return spec.tf32_tensor_tflops * 1e12
    return spec.fp32_tflops * 1e12

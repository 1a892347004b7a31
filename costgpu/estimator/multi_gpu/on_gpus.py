"""A workload on all GPUs of a candidate that it uses: its steps, their number, memory and efficiency. Pure.

The door of this room: a script of one process is a group of one GPU. `step` knows what one process takes for its share of
the batch, the other modules here what several of them take together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from costgpu.estimator.cpu import host_cores
from costgpu.estimator.fit import NeedError, fit_probability, misfit
from costgpu.estimator.gpu import precision_of
from costgpu.estimator.interval import Interval
from costgpu.estimator.measured_memory import resized_memory
from costgpu.estimator.memory import MemoryNeed, memory_need
from costgpu.estimator.multi_gpu.layouts import (
    ONE,
    Layout,
    group_on,
    held_under,
    keeps_global_batch,
    layouts,
    memory_gib,
    scope_with,
)
from costgpu.estimator.multi_gpu.network import Group, bytes_per_step, communication_seconds
from costgpu.estimator.multi_gpu.step_time import (
    CHECKPOINTING_TIME,
    RENDEZVOUS_SECONDS,
    scaling_interval,
    step_seconds,
    window_share,
)
from costgpu.estimator.multi_gpu.words import how_it_fits, place_notes, step_notes, where_words
from costgpu.estimator.prepared import Workload
from costgpu.estimator.resize import resized, with_optimizer_share
from costgpu.estimator.scope import Scope
from costgpu.estimator.step import Step, loading_seconds, step_on
from costgpu.models.offer import AcceleratorSpec
from costgpu.models.parallelism import Parallelism, Scaling, Scheme
from costgpu.models.prediction import Candidate
from costgpu.models.workload import Phase

UNKNOWN_VOLUME = "how much its processes exchange in a step is not known: measure it there"
ONCE_COMPUTED = frozenset({"copy", "waiting", "host"})  # terms of a step that checkpointing does not repeat
# A way to spread a model that is harder to write has to take less than this of the time: our choice.
CLEARLY_FASTER = 0.9
LOADER_SHARE = 0.9  # of a machine's vCPUs, that its loaders get. Source: the rows of `step_time`


@dataclass(slots=True)
class StepOnGpus:
    """One step of a phase on all GPUs."""

    step: Step
    single_seconds: float  # of a step on one GPU with all samples of the measured batch, loading included
    scaling: Scaling | None = None  # None with one GPU


@dataclass(slots=True)
class OnGpus:
    """What the GPUs of a candidate make of a workload whose processes work together."""

    group: Group
    scope: Scope
    steps: list[StepOnGpus]
    unknown: str = ""  # why it cannot run there, or not be predicted; empty if it can
    too_large: str | None = None  # why it does not fit the GPUs, empty if it does; None for one process, as any memory
    notes: list[str] = field(default_factory=list)
    scaling: Scaling | None = None  # None with one GPU

    @property
    def rendezvous_seconds(self) -> float:
        """Return the seconds that come on top of the script's set-up until its processes have met."""
        return RENDEZVOUS_SECONDS if self.scaling is not None else 0.0


@dataclass(frozen=True, slots=True)
class _Place:
    """What a step is predicted for."""

    candidate: Candidate
    group: Group
    parallelism: Parallelism
    layout: Layout | None  # None for a script, which has chosen

    @property
    def vcpus_each(self) -> float:
        """VCPUs of a machine for each process on it."""
        vcpus = self.candidate.offer.vcpus if self.candidate.offer is not None else 1
        return vcpus * self.group.nodes / self.group.gpus

    @property
    def divides(self) -> bool:
        """Return whether its processes divide the global batch of a script."""
        return self.layout is None and keeps_global_batch(self.parallelism)


def on_gpus(workload: Workload, candidate: Candidate) -> OnGpus:
    """Return what all GPUs of the candidate that it can use make of the workload."""
    offer, alone = candidate.offer, workload.profile.ranks.alone and candidate.nodes == 1
    if offer is None or alone:
        return _on_group(workload, candidate)
    machine = (offer.provider, offer.instance_type, offer.vcpus, offer.memory_gib, offer.accelerator)
    key = (machine, candidate.nodes, candidate.interconnect)
    if key not in workload.known:
        workload.known[key] = _on_group(workload, candidate)
    found: OnGpus = workload.known[key]
    return found


def _on_group(workload: Workload, candidate: Candidate) -> OnGpus:
    parallelism = workload.profile.ranks
    group = group_on(parallelism, candidate)
    if parallelism.alone or isinstance(group, str):
        single = [_single(workload, index, candidate) for index in range(len(workload.profile.phases))]
        if isinstance(group, str):
            return OnGpus(ONE, workload.scope, single, unknown=group, too_large="")
        return OnGpus(ONE, workload.scope, single)
    if not parallelism.chosen or not candidate.is_gpu:
        return _in_full(workload, _Place(candidate, group, parallelism, None))
    places = [
        _Place(candidate, group, replace(parallelism, scheme=layout.scheme), layout)
        for layout in layouts(group, workload.profile.phases[-1].micro_batches)
    ]
    needs = [max(gib * error.margin for gib, error in _needs(workload, place)) for place in places]
    fitting = [place for place, need in zip(places, needs, strict=True) if need <= candidate.room_gib]
    if not fitting:
        return _in_full(workload, places[needs.index(min(needs))])

    def seconds(one: OnGpus) -> float:
        """Return its time; DDP, which is the easiest to write, counts less, so that others must be clearly faster."""
        easy = one.scaling is None or one.scaling.scheme is Scheme.DDP
        steps = zip(one.steps, one.scope.steps, strict=True)
        return (CLEARLY_FASTER if easy else 1.0) * sum(sum(s.step.terms.values()) * count for s, count in steps)

    return min((_in_full(workload, place) for place in fitting), key=seconds)


def _in_full(workload: Workload, place: _Place) -> OnGpus:
    """Return everything about the workload there."""
    group, parallelism, layout = place.group, place.parallelism, place.layout
    scope, notes = scope_with(workload.scope, parallelism, group.gpus)
    notes += place_notes(parallelism, layout, group, place.candidate)
    needs = _needs(workload, place) if place.candidate.is_gpu else []
    found = OnGpus(group, scope, [], too_large=_too_large(workload, place, needs), notes=notes)
    for index in range(len(workload.profile.phases)):
        step = _scaled(workload, index, place)
        if isinstance(step, str):
            found.unknown = found.unknown or step
            step = _single(workload, index, place.candidate)
        found.steps.append(step)
    if group.gpus > 1:
        size = workload.profile.phases[-1].data.batch_size
        known = found.steps[-1].scaling or Scaling(
            gpus=group.gpus,
            nodes=group.nodes,
            scheme=parallelism.scheme,
            efficiency=1.0,
            efficiency_low=1.0,
            efficiency_high=1.0,
        )
        found.scaling = replace(
            known,
            steps=sum(scope.steps) if scope.steps != workload.scope.steps else None,
            memory_gib=max((gib for gib, _ in needs), default=0.0) or None,
            strong=keeps_global_batch(parallelism),
            checkpointed=layout is not None and layout.checkpointed,
            rank_batch=layout.sequences * (size or 1) if layout is not None else None,
        )
    return found


def _single(workload: Workload, index: int, candidate: Candidate) -> StepOnGpus:
    step = step_on(workload, index, candidate)
    return StepOnGpus(step, sum(step.terms.values()) or workload.profile.phases[index].step.seconds)


def _share(phase: Phase, place: _Place) -> tuple[float, float] | str:
    """Return samples and micro-batches of a step of one process over those measured; or why they cannot be divided so."""
    parallelism, gpus = place.parallelism, place.group.gpus
    if place.layout is not None:
        if gpus * place.layout.sequences > phase.micro_batches:
            return f"a step has {phase.micro_batches:,.0f} sequences, which {gpus} GPUs cannot share"
        return 1 / gpus, 1 / (gpus * place.layout.sequences)
    if not place.divides or not phase.unit.trains:
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


# ----------------------------------------------------------------------------------------------------------- memory


def need_and_fit(workload: Workload, candidate: Candidate) -> tuple[int, float, float] | None:
    """Return the GPUs that work there, the GiB that each needs, and the probability that it fits; None if it cannot run."""
    group = group_on(workload.profile.ranks, candidate)
    if isinstance(group, str):
        return None
    needs = _needs(workload, _Place(candidate, group, workload.profile.ranks, None))
    probability = min(fit_probability(gib, candidate.room_gib, error) for gib, error in needs)
    return group.gpus, max(gib for gib, _ in needs), probability


def _needs(workload: Workload, place: _Place) -> list[tuple[float, NeedError]]:
    """Return the GiB that each GPU needs in each phase, and how far that may be off."""
    group, found = place.group, []
    for index, phase in enumerate(workload.profile.phases):
        held = _held(workload, index, place)
        several = group.gpus > 1 and phase.unit.trains
        gib = memory_gib(held, place.parallelism, group.gpus, group.each) if several else held.gib
        found.append((gib, held.error))
    return found


def _too_large(workload: Workload, place: _Place, needs: Sequence[tuple[float, NeedError]]) -> str:
    """Return why it does not fit the memory of the GPUs, and how it would; empty if it does, or there are none."""
    offer = place.candidate.offer
    if offer is None or offer.accelerator is None:
        return ""
    memory, gpus = place.candidate.room_gib, place.group.gpus
    for index, (gib, error) in enumerate(needs):
        if reason := misfit(gib, memory, error, where_words(place.parallelism, gpus)):
            if not workload.profile.phases[index].unit.trains:
                return reason
            half = precision_of(workload.profile.framework).half is not None
            return reason + how_it_fits(_held(workload, index, place), place.parallelism, memory, gpus, half=half)
    return ""


def _held(workload: Workload, index: int, place: _Place) -> MemoryNeed:
    phase = workload.profile.phases[index]
    share = _share(phase, place)
    samples, micro = (1.0, 1.0) if isinstance(share, str) else share
    saved, memory = round(phase.saved_tensor_bytes * samples / micro), workload.profile.memory
    held = memory_need(
        replace(phase, saved_tensor_bytes=saved),
        workload.execution_of(phase),
        resized_memory(memory, samples / micro) if memory is not None else None,
        workload.profile.ranks,
    )
    if place.layout is None:
        return held
    units = place.parallelism.largest_unit_parameters
    return held_under(place.layout, held, place.parallelism.parameters / units if units else 1.0)


# ------------------------------------------------------------------------------------------------------------- time


def _scaled(workload: Workload, index: int, place: _Place) -> StepOnGpus | str:
    """One step of a phase on all GPUs; or why it cannot be told."""
    candidate, group, parallelism, layout = place.candidate, place.group, place.parallelism, place.layout
    share = _share(workload.profile.phases[index], place)
    if isinstance(share, str):
        return share
    shards = group.each if parallelism.scheme is Scheme.HSDP else group.gpus
    sized = with_optimizer_share(
        resized(workload, index, *share), index, shards if parallelism.scheme.shards_optimizer else 1
    )
    phase = sized.profile.phases[index]
    core_share = min(1.0, place.vcpus_each)
    one = step_on(sized, index, candidate, core_share)
    lost = 0.0 if core_share == 1 else sum(one.terms.values()) - sum(step_on(sized, index, candidate).terms.values())
    terms = dict(one.terms)
    loading = terms.pop("loading", 0.0)
    checkpointed = layout is not None and layout.checkpointed
    if checkpointed:
        terms = {name: s * (1.0 if name in ONCE_COMPUTED else CHECKPOINTING_TIME) for name, s in terms.items()}
    alone = sum(terms.values())
    single = alone + loading - lost
    if group.gpus == 1:
        step = replace(one, terms={**terms, "loading": loading} if "loading" in one.terms else terms)
        return StepOnGpus(step, single)
    exchanged = 0.0
    if phase.unit.trains:
        volume = bytes_per_step(_sized_parallelism(parallelism, share[1], phase), phase.micro_batches)
        if volume is None:
            return UNKNOWN_VOLUME
        exchanged = communication_seconds(volume, group)
    window = window_share(parallelism.scheme, phase.micro_batches, checkpointed=checkpointed)
    together = step_seconds(alone, group, exchanged, window)
    cores_each = min(host_cores(candidate), LOADER_SHARE * place.vcpus_each)
    waits = loading_seconds(phase, together.seconds, cores_each) if "loading" in one.terms else 0.0
    seconds = together.seconds + waits
    if place.divides:
        single = _whole_batch_seconds(workload, index, place)
        efficiency = min(1.0, single / (group.gpus * seconds))
    else:
        efficiency = min(1.0, single / seconds)
    timed = phase.data.fetch_seconds_per_batch is not None or not phase.data.batches_per_step or not phase.step.count
    spread, reasons = scaling_interval(seconds, efficiency, group, parallelism.scheme, loader_measured=timed)

    def end(factor: float, other: float) -> float:
        return (step_seconds(alone * factor, group, exchanged, window).seconds * other + waits * factor) / seconds

    interval = Interval(end(one.interval.low, spread.low), end(one.interval.high, spread.high))
    remarks = step_notes(workload.profile.phases[index], parallelism, group, candidate, share[1])
    terms |= {"communication": together.communication, "stragglers": together.stragglers, "loading": waits}
    peak_seconds = _peak_seconds(sized, index, candidate.accelerator)
    return StepOnGpus(
        replace(one, terms=terms, interval=interval, notes=[*one.notes, *reasons, *remarks]),
        single if layout is None else single * group.gpus,
        Scaling(
            gpus=group.gpus,
            nodes=group.nodes,
            scheme=parallelism.scheme,
            efficiency=efficiency,
            efficiency_low=min(efficiency, efficiency / spread.high),
            efficiency_high=min(1.0, efficiency / spread.low),
            communication_seconds=together.communication,
            straggler_seconds=together.stragglers,
            input_seconds=waits,
            mfu=peak_seconds / seconds if peak_seconds and seconds > 0 else None,
        ),
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


def _peak_seconds(workload: Workload, index: int, spec: AcceleratorSpec | None) -> float | None:
    """Return the seconds of one process's FLOPs of a step at the peak of the unit for them; None if not known."""
    flops, precision = workload.units[index].work.total_flops, precision_of(workload.profile.framework)
    if spec is None:
        return None
    tflops: float | None = spec.fp32_tflops
    if precision.half is not None:
        tflops = spec.bf16_tensor_tflops if precision.half == "bfloat16" else spec.fp16_tensor_tflops
    elif precision.matmul_tf32:
        tflops = spec.tf32_tensor_tflops or tflops
    return flops / (tflops * 1e12) if tflops and flops else None

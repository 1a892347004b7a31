"""What one unit of a phase computes: a training step, a batch that is scored, or a prompt batch that is answered. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from costgpu.estimator.gpu import Execution, foreign_optimizer
from costgpu.estimator.op_costs import ATTENTION_FORWARD, work_of
from costgpu.estimator.roofline import FORWARD, TRAINING, GpuTerms, HostCpu, Roofline, gpu_terms
from costgpu.estimator.work import POINTWISE, Work, counted_work
from costgpu.models.offer import AcceleratorSpec
from costgpu.models.workload import Generation, GpuPath, OpRow, OptimizerFacts, Phase

# Times that a decode moves its cache, as scripts do without an engine: attention reads it, and `cat` copies it.
CACHE_PASSES = 3.0


@dataclass(frozen=True, slots=True)
class Pass:
    """A training step, or forward passes of one kind in a unit."""

    work: Work
    times: float = 1.0  # passes of this kind in one unit
    decode: bool = False  # whether it is the decode of a language model


@dataclass(frozen=True, slots=True)
class UnitWork:
    """What one unit computes on any machine."""

    passes: tuple[Pass, ...]  # one prefill and then the decodes of a generation; one pass of anything else
    items: float | None = None  # items of it; None if that cannot be told, or if it trains
    own_seconds: float | None = None  # seconds of the script's own Python in it; None if not measured
    model: Roofline = FORWARD  # how a GPU takes it
    optimizers: Sequence[OptimizerFacts] = ()  # those that make an update in it

    @property
    def work(self) -> Work:
        """Return the work of all its passes."""
        first, *others = (
            one.work if one.times == 1 else one.work.scaled(size=one.times, launches=one.times) for one in self.passes
        )
        return reduce(Work.plus, others, first)

    def scaled(self, batch: float) -> UnitWork:
        """Return the unit with so many times the items; the script's own Python is taken to stay, as launches do."""
        return replace(
            self,
            passes=tuple(replace(one, work=one.work.scaled(size=batch)) for one in self.passes),
            items=None if self.items is None else self.items * batch,
        )


def passes_of(phase: Phase) -> tuple[Pass, ...]:
    """Return what a unit of the phase computes."""
    unit, generation = phase.unit, phase.unit.generation
    if phase.gpu is GpuPath.COUNTED and phase.totals is not None:
        return (Pass(counted_work(phase.totals)),)
    if generation is None or not generation.traced_decodes:
        foreign = foreign_optimizer(phase)
        return (Pass(work_of(phase.ops, phase.trace_steps, optimizer_ops=foreign, statistics=unit.trains)),)
    decode = [row for row in phase.ops if row.phase == "decode"]
    prefill = [row for row in phase.ops if row.phase != "decode"]
    work = _at_mean_context(work_of(decode, generation.traced_decodes, statistics=False), decode, generation)
    first = Pass(work_of(prefill, phase.trace_steps, statistics=False))
    return first, Pass(work, generation.decodes, decode=True)


def unit_of(phase: Phase, passes: tuple[Pass, ...] = ()) -> UnitWork:
    """Return the unit of a phase.

    Args:
        passes: What it computes; empty for `passes_of` the phase.
    """
    return UnitWork(
        passes or passes_of(phase),
        phase.unit.items,
        phase.host_seconds_per_step or None,
        TRAINING if phase.unit.trains else FORWARD,
        phase.optimizers if phase.unit.trains else (),
    )


def pass_terms(
    unit: UnitWork, spec: AcceleratorSpec, execution: Execution, *, host_speed: float = 1.0
) -> list[GpuTerms]:
    """Return the terms of one pass of each kind: of a generation the prefill's and one decode's.

    Args:
        host_speed: Speed of one core of the GPU's host, of a current GPU instance's.
    """
    launched = sum(one.times * one.work.kernels for one in unit.passes)
    shares = [one.work.kernels / launched if launched else 1 / len(unit.passes) for one in unit.passes]
    hosts = [HostCpu(host_speed, None if unit.own_seconds is None else unit.own_seconds * share) for share in shares]
    return [
        gpu_terms(one.work, spec, execution, unit.model, optimizers=unit.optimizers, host=host)
        for one, host in zip(unit.passes, hosts, strict=True)
    ]


def unit_terms(unit: UnitWork, spec: AcceleratorSpec, execution: Execution, *, host_speed: float = 1.0) -> GpuTerms:
    """Return the terms of one unit on a GPU, copies and data loading apart."""
    return terms_of(unit, pass_terms(unit, spec, execution, host_speed=host_speed))


def terms_of(unit: UnitWork, passes: Sequence[GpuTerms]) -> GpuTerms:
    """Return the terms of a unit from those of one pass of each kind."""
    whole = passes[0]
    for one, terms in zip(unit.passes[1:], passes[1:], strict=True):
        whole = whole.plus(terms, one.times)
    return whole


def mean_context(generation: Generation) -> float:
    """Return the tokens in the cache at the middle decode."""
    return generation.prompt_tokens + generation.new_tokens / 2


def _at_mean_context(work: Work, rows: Iterable[OpRow], generation: Generation) -> Work:
    """One traced decode, moved to the middle of the answer: only the cache grows."""
    traced = traced_context(rows)
    if not traced or not generation.cache_bytes_per_token:
        return work
    more = mean_context(generation) - traced
    dtype = max(work.moved, key=lambda key: work.moved[key])[1] if work.moved else "float16"
    extra = CACHE_PASSES * generation.cache_bytes_per_token * generation.sequences * more
    work.moved[POINTWISE, dtype] = max(0.0, work.moved.get((POINTWISE, dtype), 0.0) + extra)
    width = 0.5 if dtype == "float32" else 1.0  # of the cache under autocast
    work.autocast_moved[POINTWISE] = max(0.0, work.autocast_moved.get(POINTWISE, 0.0) + width * extra)
    return work


def traced_context(rows: Iterable[OpRow]) -> float:
    """Return the tokens in the cache of the traced decode, by the keys of its attention; 0 if they cannot be told."""
    lengths: dict[int, int] = {}
    for row in rows:
        if row.op in ATTENTION_FORWARD and len(row.inputs) > 1 and len(row.inputs[1][0]) >= 2:
            length = row.inputs[1][0][-2]
            lengths[length] = lengths.get(length, 0) + row.count
    return float(max(lengths, key=lambda length: lengths[length])) if lengths else 0.0

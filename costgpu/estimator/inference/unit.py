"""What one unit of a phase of inference computes: a batch that is scored, or a prompt batch that is answered. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from costgpu.estimator.gpu import precision_of
from costgpu.estimator.inference.gpu import Execution, ForwardTerms, Runtime, forward_terms
from costgpu.estimator.op_costs import ATTENTION_FORWARD, work_of
from costgpu.estimator.work import POINTWISE, Work, counted_work
from costgpu.models.offer import AcceleratorSpec
from costgpu.models.workload import Framework, Generation, GpuPath, OpRow, Phase

# Times that a decode moves its cache, as scripts do without an engine: attention reads it, and `cat` copies it.
CACHE_PASSES = 3.0


@dataclass(frozen=True, slots=True)
class Pass:
    """Forward passes of one kind in a unit."""

    work: Work
    times: float = 1.0  # passes of this kind in one unit
    decode: bool = False  # whether it is the decode of a language model


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit of inference."""

    passes: tuple[Pass, ...]  # the prefill and then the decode of a generation; one pass of anything else
    items: float | None = None  # items of it; None if that cannot be told
    own_seconds: float | None = None  # seconds of the script's own Python in it here; None if not measured

    def scaled(self, batch: float) -> Unit:
        """Return the unit with so many times the items; the script's own Python is taken to stay, as launches do."""
        return replace(
            self,
            passes=tuple(replace(one, work=one.work.scaled(size=batch)) for one in self.passes),
            items=None if self.items is None else self.items * batch,
        )


def unit_of(phase: Phase) -> Unit:
    """Return the unit of a phase of inference."""
    items, generation = phase.unit.items, phase.unit.generation
    own = phase.host_seconds_per_step if phase.step.count and phase.host_seconds_per_step > 0 else None
    if phase.gpu is GpuPath.COUNTED and phase.totals is not None:
        return Unit((Pass(counted_work(phase.totals)),), items, own)
    if generation is None or not generation.traced_decodes:
        return Unit((Pass(work_of(phase.ops, phase.trace_steps, statistics=False)),), items, own)
    decode = [row for row in phase.ops if row.phase == "decode"]
    prefill = [row for row in phase.ops if row.phase != "decode"]
    work = _at_mean_context(work_of(decode, generation.traced_decodes, statistics=False), decode, generation)
    first = Pass(work_of(prefill, phase.trace_steps, statistics=False))
    return Unit((first, Pass(work, generation.decodes, decode=True)), items, own)


def execution_of(framework: Framework) -> Execution:
    """Return how a script runs on a GPU as it is written."""
    runtime = Runtime.COMPILED if framework.compiled else Runtime.EAGER
    return Execution(precision_of(framework), runtime=runtime)


def pass_terms(
    unit: Unit, spec: AcceleratorSpec, execution: Execution, *, host_speed: float = 1.0
) -> list[ForwardTerms]:
    """Return the terms of one pass of each kind: of a generation the prefill's and one decode's.

    Args:
        host_speed: Speed of one core of the GPU's host, of a current GPU instance's.
    """
    launched = sum(one.times * one.work.kernels for one in unit.passes)
    own = unit.own_seconds / launched if unit.own_seconds is not None and launched else None
    return [
        forward_terms(
            one.work,
            spec,
            execution,
            own=None if own is None else own * one.work.kernels,
            host_speed=host_speed,
        )
        for one in unit.passes
    ]


def unit_terms(unit: Unit, spec: AcceleratorSpec, execution: Execution, *, host_speed: float = 1.0) -> ForwardTerms:
    """Return the terms of one unit on a GPU, copies and data loading apart."""
    whole = None
    for one, terms in zip(unit.passes, pass_terms(unit, spec, execution, host_speed=host_speed), strict=True):
        whole = terms.times(one.times) if whole is None else whole.plus(terms, one.times)
    assert whole is not None  # noqa: S101 - a unit has a pass
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
    return work


def traced_context(rows: Iterable[OpRow]) -> float:
    """Return the tokens in the cache of the traced decode, by the keys of its attention; 0 if they cannot be told."""
    lengths: dict[int, int] = {}
    for row in rows:
        if row.op in ATTENTION_FORWARD and len(row.inputs) > 1 and len(row.inputs[1][0]) >= 2:
            length = row.inputs[1][0][-2]
            lengths[length] = lengths.get(length, 0) + row.count
    return float(max(lengths, key=lambda length: lengths[length])) if lengths else 0.0

"""One unit of a phase of inference on a candidate: seconds by term, interval and notes for `estimator.predict`. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from costgpu.estimator.gpu import copy_seconds
from costgpu.estimator.inference.cpu import (
    ABSOLUTE,
    ABSOLUTE_UNMEASURED,
    HalfUnit,
    half_unit,
    unit_seconds_on_cpu,
    unit_terms_on_cpu,
)
from costgpu.estimator.inference.gpu import Execution, forward_interval
from costgpu.estimator.inference.unit import Unit, pass_terms, unit_terms
from costgpu.estimator.interval import Interval
from costgpu.estimator.work import HALF_TYPES
from costgpu.models.offer import AcceleratorSpec, CpuSpec
from costgpu.models.prediction import Provenance
from costgpu.models.workload import OpRow, Phase


@dataclass(slots=True)
class Step:
    """One step, or one unit of inference, on a candidate; `unknown` says why it cannot be told, empty if it can."""

    terms: dict[str, float]  # seconds
    interval: Interval
    notes: list[str]
    provenance: Provenance = Provenance.MODELLED
    unknown: str = ""
    prefill_share: float | None = None  # of a unit that generates tokens; None if this place's is not known


def on_gpu(
    unit: Unit, phase: Phase, execution: Execution, spec: AcceleratorSpec, *, year: int, host_speed: float = 1.0
) -> Step:
    """One unit of a phase of inference on a GPU.

    Args:
        execution: How it runs there.
        year: Year of the prediction, to tell a new architecture.
        host_speed: Speed of one core of the GPU's host, of a current GPU instance's.
    """
    found = unit_terms(unit, spec, execution, host_speed=host_speed)
    interval, notes = forward_interval(found, spec, execution, year=year)
    terms = {
        "compute": found.compute,
        "on-chip": found.on_chip,
        "memory": found.memory,
        "launch": found.launch,
        "calls": found.host,
        "copy": copy_seconds(phase, spec),
    }
    passes = pass_terms(unit, spec, execution, host_speed=host_speed)
    share = _first_share([one.times * each.seconds for one, each in zip(unit.passes, passes, strict=True)])
    return Step(terms, interval, [*notes, *found.notes], prefill_share=share)


def on_cpu_in_half(
    unit: Unit, phase: Phase, cpu: CpuSpec, vcpus: int, other: str = "", *, own: float | None = None
) -> Step | None:
    """One unit of a model in half precision on a cloud CPU; None if the model is in another type.

    What was measured here is of no use for it: this CPU may or may not have units for that type.

    Args:
        other: Type that the model is converted to; empty for its own.
        own: Seconds of the script's own Python in it there; None for as many as here.
    """
    if phase.unit.weights_dtype not in HALF_TYPES:
        return None
    dtype = other or phase.unit.weights_dtype
    notes = [f"{dtype} on a CPU: from its peak, not from what was measured here"]
    interval, has = ABSOLUTE, half_unit(cpu, dtype) if dtype in HALF_TYPES else None
    if has is HalfUnit.NONE:
        notes.append(f"no units for {dtype}: this model would be faster in float32 there")
    elif has is HalfUnit.UNMEASURED:
        interval = ABSOLUTE_UNMEASURED
        notes.append(f"how fast {dtype} is on such a CPU was not measured")
    host = phase.host_seconds_per_step if own is None else own
    terms = {**unit_terms_on_cpu(unit, cpu, vcpus, dtype), "host": host}
    share = _first_share([unit_seconds_on_cpu(Unit((one,)), cpu, vcpus, dtype) for one in unit.passes])
    return Step(terms, interval, notes, prefill_share=share)


def _first_share(seconds: list[float]) -> float | None:
    """Return the prefill's share of a unit that has decodes as well."""
    whole = sum(seconds)
    return seconds[0] / whole if len(seconds) > 1 and whole > 0 else None


def unit_rows(phase: Phase) -> list[OpRow]:
    """Return the rows of a phase's trace, its decodes as often as the units of the trace make them."""
    generation = phase.unit.generation
    if generation is None or not generation.traced_decodes:
        return phase.ops
    factor = generation.decodes * max(1, phase.trace_steps) / generation.traced_decodes
    return [
        replace(row, count=max(1, round(row.count * factor))) if row.phase == "decode" else row for row in phase.ops
    ]

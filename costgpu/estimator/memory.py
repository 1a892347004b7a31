"""Accelerator memory of one process, by what it is for, and what would fit where it does not. Pure.

    measured:  GiB = most that the allocator would reserve + 1
    training:  GiB = weights + gradients + optimizer + activations + 1
    inference: GiB = weights + 1.05 cache + activations + 1

A training whose storages were measured needs no formula, and no word on its precision: its bytes are of the types that it
ran with.

A training keeps its activations for the backward pass. Bytes of a trained parameter: 16 in fp32 with Adam, 18 under
autocast, 12 with SGD and momentum (benchmarks/README.md). The cache of inference is the keys and values of every token of
every sequence, and its activations are the most that was alive at once in the traced unit, a prefill's logits with it.
Checked on Llama-2 7B in fp16 (batch 64, 768 tokens): 65.0 GB computed, 65.1 GB measured, with the cache held twice as
transformers did before its release 4.36.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from costgpu.estimator.fit import BY_STORAGES, NeedError
from costgpu.estimator.gpu import ADAM_FAMILY, Execution, execution_of
from costgpu.estimator.measured_memory import HALF_SHARE, held_bytes
from costgpu.estimator.work import HALF_TYPES
from costgpu.models.parallelism import ONE_PROCESS, Parallelism, Scheme
from costgpu.models.workload import MeasuredMemory, Phase, WorkloadProfile

GIB = 2**30
# A need by formula fits if so many times it is below the memory: of a training (benchmarks/README.md), and of inference
# whose activations are not known.
BY_FORMULA = NeedError.of_margin(1.25)
BY_TRACE = NeedError.of_margin(1.10)  # the same, of inference whose activations are known: assumed
NEAR = 2.0  # times a need by formula: further off it fits, or does not, whatever is measured
RUNTIME_GIB = 1.0  # CUDA context and workspaces. Source: benchmarks/README.md
CACHE_BYTES = 1.05
# Under autocast with an optimizer of Adam's family, per trained parameter: weights with a cached half copy, gradients, and
# two moments. Source: benchmarks/README.md.
AMP_WEIGHT_BYTES, GRADIENT_BYTES, ADAM_BYTES = 6.0, 4.0, 8.0
# Bytes of weights over those in half precision. Source: INFERENCE study (2026-11).
QUANTIZED_BYTES = {"int8": 0.55, "int4": 0.34}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeed:
    """Bytes on an accelerator of one process that holds the whole model."""

    weights: float  # frozen ones and copies in half precision included
    gradients: float = 0.0
    optimizer: float = 0.0
    cache: float = 0.0  # keys and values of all tokens, 0 unless it generates
    activations: float  # of one micro-batch, kept for the backward pass; of inference, the most alive at once
    trained: float = 0.0  # number of parameters that take gradients
    # bytes that each of several processes gathers or copies at a time, measured; None where that is computed
    gathered: float | None = None
    gathered_under: Scheme = Scheme.SINGLE  # scheme that `gathered` is for
    error: NeedError = BY_FORMULA

    @property
    def states(self) -> float:
        """Return what does not grow with the batch, bytes."""
        return self.weights + self.gradients + self.optimizer

    @property
    def gib(self) -> float:
        """Return all of it without the margin, GiB."""
        return (self.states + self.cache + self.activations + (self.gathered or 0.0)) / GIB + RUNTIME_GIB

    @property
    def gib_with_margin(self) -> float:
        """Return the memory that programs must get of an accelerator, GiB."""
        return self.gib * self.error.margin


@dataclass(frozen=True, slots=True)
class Fit:
    """A change with which a phase fits an accelerator."""

    change: str  # ``as written``, ``half``, ``int8`` or ``int4``
    batch: float  # largest batch, times the script's; at most 1 is of interest where the script does not fit


def memory_need(
    phase: Phase,
    execution: Execution,
    memory: MeasuredMemory | None = None,
    parallelism: Parallelism = ONE_PROCESS,
    *,
    quantized: str = "",
) -> MemoryNeed:
    """Return what one process holds in a phase on an accelerator.

    Args:
        memory: What was measured of the process, which a training holds as it is; None for the formula.
        parallelism: How the process that was measured trained with others.
        quantized: ``int8`` or ``int4`` for weights that are quantized to it; the computation is then in half precision.
    """
    unit, made, casts = phase.unit, phase.unit.generation, execution.precision.half is not None
    if unit.trains:
        trained = float(sum(o.parameters for o in phase.optimizers))
        if memory is not None:
            held = held_bytes(memory, phase, parallelism)
            return MemoryNeed(
                weights=held.weights,
                gradients=held.gradients,
                optimizer=held.optimizer,
                activations=held.rest,
                trained=trained,
                gathered=held.gathered,
                gathered_under=parallelism.measured_scheme or parallelism.scheme,
                error=BY_STORAGES,
            )
        weights = float(phase.model_bytes or 4 * trained)
        optimizer = float(sum(o.state_bytes for o in phase.optimizers))
        if casts and any(o.name in ADAM_FAMILY for o in phase.optimizers):
            weights, optimizer = AMP_WEIGHT_BYTES * trained + phase.frozen_bytes, ADAM_BYTES * trained
        return MemoryNeed(
            weights=weights,
            gradients=GRADIENT_BYTES * trained,
            optimizer=optimizer,
            activations=float(phase.saved_tensor_bytes) * (HALF_SHARE if casts else 1.0),
            trained=trained,
        )
    wide = unit.weights_dtype not in HALF_TYPES
    weights, cache, activations = float(phase.model_bytes), 0.0, float(unit.activation_bytes)
    if made is not None:
        cache = CACHE_BYTES * made.cache_bytes_per_token * made.sequences * (made.prompt_tokens + made.new_tokens)
    if wide and (execution.weights is not None or quantized):
        weights, cache, activations = weights / 2, cache / 2, activations / 2
    elif wide and casts:
        weights, cache, activations = weights * 1.5, cache / 2, activations / 2  # fp32 and the casts that are kept
    return MemoryNeed(
        weights=weights * QUANTIZED_BYTES.get(quantized, 1.0),
        cache=cache,
        activations=activations,
        error=BY_TRACE if unit.activation_bytes > 0 else BY_FORMULA,
    )


def needs_of(profile: WorkloadProfile, execution: Execution | None = None) -> list[MemoryNeed]:
    """Return what one process of a script holds in each phase.

    Args:
        execution: How its inference runs there; None for as it is written.
    """
    written = execution_of(profile.framework)
    return [
        memory_need(
            phase, written if execution is None or phase.unit.trains else execution, profile.memory, profile.ranks
        )
        for phase in profile.phases
    ]


def need_gib(profile: WorkloadProfile, execution: Execution | None = None) -> float:
    """Return the memory that programs must get of an accelerator for a script, GiB: with a margin, the most of its phases.

    Args:
        execution: How its inference runs there; None for as it is written.
    """
    return max(need.gib_with_margin for need in needs_of(profile, execution))


def is_near(profile: WorkloadProfile, rooms_gib: Iterable[float]) -> bool:
    """Return whether a training's need by formula is so near the memory of some accelerator that it is worth measuring.

    Args:
        rooms_gib: Memory that programs get of each kind, GiB.
    """
    needs = zip(profile.phases, needs_of(profile), strict=True)
    need = max((one.gib for phase, one in needs if phase.unit.trains and phase.ops), default=0.0)
    return profile.memory is None and any(room / NEAR <= need <= room * NEAR for room in rooms_gib)


def largest_batch(need: MemoryNeed, memory_gib: float) -> float:
    """Largest batch that fits, times the script's; 0 if the weights alone do not, infinite if nothing grows."""
    room = (memory_gib / need.error.margin - RUNTIME_GIB) * GIB - need.states - (need.gathered or 0.0)
    grows = need.cache + need.activations
    if room <= 0:
        return 0.0
    return room / grows if grows > 0 else math.inf


def what_fits(phase: Phase, execution: Execution, memory_gib: float) -> tuple[Fit, ...]:
    """Return the changes with which a phase fits so much memory, least change first, each with its largest batch."""
    half = replace(execution, weights="float16")
    wide = phase.unit.weights_dtype not in HALF_TYPES
    tried = [("as written", memory_need(phase, execution))]
    if wide and execution.weights is None:
        tried.append(("half", memory_need(phase, half)))
    tried += [(name, memory_need(phase, half, quantized=name)) for name in QUANTIZED_BYTES]
    least = 1.0 / phase.unit.items if phase.unit.items else 1.0  # one item
    return tuple(Fit(name, batch) for name, need in tried if (batch := largest_batch(need, memory_gib)) >= least)

"""Accelerator memory of one process, by what it is for, and what would fit where it does not. Pure.

    training:  GiB = weights + gradients + optimizer + activations + 1
    inference: GiB = weights + 1.05 cache + activations + 1

A training keeps its activations for the backward pass. Bytes of a trained parameter: 16 in fp32 with Adam, 18 under
autocast, 12 with SGD and momentum (benchmarks/README.md). The cache of inference is the keys and values of every token of
every sequence, and its activations are the most that was alive at once in the traced unit, a prefill's logits with it.
Checked on Llama-2 7B in fp16 (batch 64, 768 tokens): 65.0 GB computed, 65.1 GB measured, with the cache held twice as
transformers did before its release 4.36.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from costgpu.estimator.gpu import ADAM_FAMILY, Execution, execution_of
from costgpu.estimator.work import HALF_TYPES
from costgpu.models.workload import Phase, WorkloadProfile

GIB = 2**30
# It fits if so many times the need is below the memory: of a training (benchmarks/README.md), and of inference whose
# activations are not known.
MARGIN = 1.25
MARGIN_TRACED = 1.10  # the same, of inference whose activations are known: assumed
RUNTIME_GIB = 1.0  # CUDA context and workspaces. Source: benchmarks/README.md
CACHE_BYTES = 1.05
# Under autocast with an optimizer of Adam's family, per trained parameter: weights with a cached half copy, gradients, and
# two moments. Source: benchmarks/README.md.
AMP_WEIGHT_BYTES, GRADIENT_BYTES, ADAM_BYTES = 6.0, 4.0, 8.0
HALF_SHARE = 0.5  # of the bytes kept for the backward pass, under autocast
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
    margin: float = MARGIN  # factor of the need that an accelerator must have

    @property
    def states(self) -> float:
        """Return what does not grow with the batch, bytes."""
        return self.weights + self.gradients + self.optimizer

    @property
    def gib(self) -> float:
        """Return all of it without the margin, GiB."""
        return (self.states + self.cache + self.activations) / GIB + RUNTIME_GIB

    @property
    def gib_with_margin(self) -> float:
        """Return the memory that an accelerator must have, GiB."""
        return self.gib * self.margin


@dataclass(frozen=True, slots=True)
class Fit:
    """A change with which a phase fits an accelerator."""

    change: str  # ``as written``, ``half``, ``int8`` or ``int4``
    batch: float  # largest batch, times the script's; at most 1 is of interest where the script does not fit


def memory_need(phase: Phase, execution: Execution, *, quantized: str = "") -> MemoryNeed:
    """Return what one process holds in a phase on an accelerator.

    Args:
        quantized: ``int8`` or ``int4`` for weights that are quantized to it; the computation is then in half precision.
    """
    unit, made, casts = phase.unit, phase.unit.generation, execution.precision.half is not None
    if unit.trains:
        trained = float(sum(o.parameters for o in phase.optimizers))
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
        margin=MARGIN_TRACED if unit.activation_bytes > 0 else MARGIN,
    )


def need_gib(profile: WorkloadProfile, execution: Execution | None = None) -> float:
    """Return the memory that an accelerator must have for a script, GiB: with a margin, the most of its phases.

    Args:
        execution: How its inference runs there; None for as it is written.
    """
    written = execution_of(profile.framework)
    held = [
        memory_need(phase, written if execution is None or phase.unit.trains else execution) for phase in profile.phases
    ]
    return max(need.gib_with_margin for need in held)


def largest_batch(need: MemoryNeed, memory_gib: float) -> float:
    """Largest batch that fits, times the script's; 0 if the weights alone do not, infinite if nothing grows."""
    room = (memory_gib / need.margin - RUNTIME_GIB) * GIB - need.states
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

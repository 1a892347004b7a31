"""Accelerator memory of inference, and what would fit where it does not. Pure.

    GiB = weights + 1.05 cache + activations + 1

The cache is the keys and values of every token of every sequence. Activations are the most that was alive at once in the
traced unit, a prefill's logits with it; no tensor is kept for a backward pass. Checked on Llama-2 7B in fp16 (batch 64,
768 tokens): 65.0 GB computed, 65.1 GB measured, with the cache held twice as transformers did before its release 4.36.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from costgpu.estimator.gpu import Execution
from costgpu.estimator.work import HALF_TYPES
from costgpu.models.workload import Phase

GIB = 2**30
MARGIN = 1.10  # it fits if so many times the need is below the memory: assumed
MARGIN_UNTRACED = 1.25  # the same, where activations are not known
RUNTIME_BYTES = 1.0 * GIB  # CUDA context and workspaces
CACHE_BYTES = 1.05
# Bytes of weights over those in half precision. Source: INFERENCE study (2026-11).
QUANTIZED_BYTES = {"int8": 0.55, "int4": 0.34}


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Memory of one unit on an accelerator, bytes."""

    weights: float
    cache: float  # keys and values of all tokens, 0 unless it generates
    activations: float
    traced: bool  # whether activations are known

    @property
    def gib(self) -> float:
        """Return all of it without the margin, GiB."""
        return (self.weights + self.cache + self.activations + RUNTIME_BYTES) / GIB

    @property
    def gib_with_margin(self) -> float:
        """Return the memory that an accelerator must have, GiB."""
        return self.gib * (MARGIN if self.traced else MARGIN_UNTRACED)

    def times(self, batch: float) -> MemoryNeed:
        """Return the need with so many times the items."""
        return replace(self, cache=self.cache * batch, activations=self.activations * batch)


@dataclass(frozen=True, slots=True)
class Fit:
    """A change with which a phase fits an accelerator."""

    change: str  # ``as written``, ``half``, ``int8`` or ``int4``
    batch: float  # largest batch, times the script's; at most 1 is of interest where the script does not fit


def memory_need(phase: Phase, execution: Execution, *, quantized: str = "") -> MemoryNeed:
    """Return the need of a phase of inference.

    Args:
        quantized: ``int8`` or ``int4`` for weights that are quantized to it; the computation is then in half precision.
    """
    unit, made = phase.unit, phase.unit.generation
    if unit.trains:
        raise ValueError("only a phase of inference has this need")
    wide = unit.weights_dtype not in HALF_TYPES
    weights, cache, activations = float(phase.model_bytes), 0.0, float(unit.activation_bytes)
    if made is not None:
        cache = CACHE_BYTES * made.cache_bytes_per_token * made.sequences * (made.prompt_tokens + made.new_tokens)
    if wide and (execution.weights is not None or quantized):
        weights, cache, activations = weights / 2, cache / 2, activations / 2
    elif wide and execution.precision.half is not None:
        weights, cache, activations = weights * 1.5, cache / 2, activations / 2  # fp32 and the casts that are kept
    return MemoryNeed(
        weights * QUANTIZED_BYTES.get(quantized, 1.0), cache, activations, traced=unit.activation_bytes > 0
    )


def largest_batch(need: MemoryNeed, memory_gib: float) -> float:
    """Largest batch that fits, times the script's; 0 if the weights alone do not, infinite if nothing grows."""
    room = memory_gib * GIB / (MARGIN if need.traced else MARGIN_UNTRACED) - RUNTIME_BYTES - need.weights
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

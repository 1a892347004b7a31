"""The batch to recommend on a GPU, and what it brings. Pure.

Other changes (precision, layout, runtime) are predictions of the unit with another `Execution`.
"""

from __future__ import annotations

from dataclasses import dataclass

from costgpu.estimator.inference.gpu import Execution
from costgpu.estimator.inference.unit import Unit, unit_terms
from costgpu.models.offer import AcceleratorSpec

SATURATED = 0.89  # share of the best throughput that a recommended batch reaches
MOST_BATCH = 2.0**16  # times the script's batch
LEAST_SECONDS = 1e-9  # of a unit of which no work is known
# Speed of int8 and int4 weights in Hugging Face models over half precision: 0.65-0.9 (INFERENCE study, 2026-11).
QUANTIZED_SPEED = 0.75


@dataclass(frozen=True, slots=True)
class Option:
    """A unit with another batch, on one GPU."""

    batch: float  # items of a unit, times the script's
    seconds: float  # of one unit of that batch
    gpu_use: float  # share of them in which the GPU computes
    gain: float  # throughput over that as written
    items_per_second: float | None  # None if the items of a unit are not known


def throughput(
    unit: Unit, spec: AcceleratorSpec, execution: Execution, batch: float = 1.0, *, copy: float = 0.0
) -> float:
    """Return the units of the script's size per second, with `batch` times the items in one; never falls with `batch`.

    Args:
        copy: Seconds to copy the items of one unit to the GPU.
    """
    seconds = unit_terms(unit.scaled(batch), spec, execution).seconds + copy * batch
    return batch / max(seconds, LEAST_SECONDS)


def saturating_batch(unit: Unit, spec: AcceleratorSpec, execution: Execution, *, copy: float = 0.0) -> float:
    """Return the batch, times the script's, that reaches 89 % of the best throughput.

    A net of one pass whose weights are small reaches it at about 1.1 H / g items, g being the device seconds of one.
    """
    wanted = SATURATED * throughput(unit, spec, execution, MOST_BATCH, copy=copy)
    low, high = 1.0 / MOST_BATCH, MOST_BATCH
    while high / low > 1.01:
        middle = (low * high) ** 0.5
        if throughput(unit, spec, execution, middle, copy=copy) < wanted:
            low = middle
        else:
            high = middle
    return high


def best_batch(
    unit: Unit, spec: AcceleratorSpec, execution: Execution, *, largest: float = MOST_BATCH, copy: float = 0.0
) -> Option:
    """Return the batch to recommend: the one that nearly saturates the GPU, and fits, but not less than the script's.

    Args:
        largest: Largest batch that fits, times the script's (`memory.largest_batch`).
    """
    batch = max(1.0, min(saturating_batch(unit, spec, execution, copy=copy), largest))
    if unit.items is not None and unit.items >= 1:  # powers of two, as people choose them
        batch = max(1.0, _power(unit.items * batch) / unit.items)
    terms = unit_terms(unit.scaled(batch), spec, execution)
    seconds = max(terms.seconds + copy * batch, LEAST_SECONDS)
    return Option(
        batch=batch,
        seconds=seconds,
        gpu_use=terms.device / seconds,
        gain=batch / seconds / throughput(unit, spec, execution, copy=copy),
        items_per_second=unit.items * batch / seconds if unit.items is not None else None,
    )


def _power(items: float) -> float:
    """Return the largest power of two that is not above it."""
    power = 1.0
    while 2 * power <= items:
        power *= 2
    return power

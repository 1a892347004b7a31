"""The batch to recommend on a GPU. Pure.

Other changes (precision, layout, runtime) are predictions of the unit with another `Execution`.
"""

from __future__ import annotations

import math

from costgpu.estimator.gpu import Execution
from costgpu.estimator.unit_work import UnitWork, unit_terms
from costgpu.models.offer import AcceleratorSpec

SATURATED = 0.89  # share of the best throughput that a recommended batch reaches
MOST_BATCH = 2.0**16  # times the script's batch
LEAST_SECONDS = 1e-9  # of a unit of which no work is known


def throughput(unit: UnitWork, spec: AcceleratorSpec, execution: Execution, batch: float = 1.0) -> float:
    """Return the units of the script's size per second, with `batch` times the items in one; never falls with `batch`."""
    return batch / max(unit_terms(unit.scaled(batch), spec, execution).seconds, LEAST_SECONDS)


def saturating_batch(unit: UnitWork, spec: AcceleratorSpec, execution: Execution) -> float:
    """Return the batch, times the script's, that reaches 89 % of the best throughput.

    A net of one pass whose weights are small reaches it at about 1.1 H / g items, g being the device seconds of one.
    """
    wanted = SATURATED * throughput(unit, spec, execution, MOST_BATCH)
    low, high = 1.0 / MOST_BATCH, MOST_BATCH
    while high / low > 1.01:
        middle = (low * high) ** 0.5
        if throughput(unit, spec, execution, middle) < wanted:
            low = middle
        else:
            high = middle
    return high


def best_batch(unit: UnitWork, spec: AcceleratorSpec, execution: Execution, *, largest: float = MOST_BATCH) -> float:
    """Return the batch to recommend, times the script's: one that nearly saturates the GPU and is at most `largest`."""
    batch = max(1.0, min(saturating_batch(unit, spec, execution), largest))
    if unit.items is not None and unit.items >= 1:  # powers of two, as people choose them
        batch = max(1.0, 2.0 ** math.floor(math.log2(unit.items * batch)) / unit.items)
    return batch

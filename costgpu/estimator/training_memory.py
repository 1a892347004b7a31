"""Bytes that one process holds while it trains, by what they are for. Pure.

Bytes of a trained parameter: 16 in fp32 with Adam, 18 under autocast, 12 with SGD and momentum. Source:
benchmarks/README.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from costgpu.estimator.gpu import ADAM_FAMILY, Precision
from costgpu.models.workload import Phase

# Under autocast with an optimizer of Adam's family, per trained parameter: weights with a cached half copy, gradients, and
# two moments. Source: benchmarks/README.md.
AMP_WEIGHT_BYTES, GRADIENT_BYTES, ADAM_BYTES = 6.0, 4.0, 8.0
HALF_SHARE = 0.5  # of the bytes kept for the backward pass, under autocast


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBytes:
    """Bytes of one process that holds the whole model."""

    weights: float  # frozen ones and copies in half precision included
    gradients: float
    optimizer: float
    activations: float  # of one micro-batch, kept for the backward pass
    trained: float  # number of parameters that take gradients

    @property
    def states(self) -> float:
        """Return everything but the activations."""
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> float:
        """Return the sum of the parts."""
        return self.states + self.activations


def training_bytes(phase: Phase, precision: Precision) -> TrainingBytes:
    """Return what one process holds in a phase of training on an accelerator."""
    trained = float(sum(o.parameters for o in phase.optimizers))
    gradients = GRADIENT_BYTES * trained
    saved = float(phase.saved_tensor_bytes) * (HALF_SHARE if precision.half is not None else 1.0)
    weights = float(phase.model_bytes or 4 * trained)
    optimizer = float(sum(o.state_bytes for o in phase.optimizers))
    if precision.half is not None and any(o.name in ADAM_FAMILY for o in phase.optimizers):
        weights, optimizer = AMP_WEIGHT_BYTES * trained + phase.frozen_bytes, ADAM_BYTES * trained
    return TrainingBytes(weights=weights, gradients=gradients, optimizer=optimizer, activations=saved, trained=trained)

"""Seconds of a step on one GPU from those that were measured on several. Pure."""

from __future__ import annotations

from costgpu.estimator.multi_gpu.constants import FITTED, StepConstants
from costgpu.estimator.multi_gpu.step_time import Group, step_seconds

LEAST_EFFICIENCY = 0.02  # of a measurement that can be inverted
HALVINGS = 60


def alone_seconds(
    measured: float, group: Group, communication: float, window: float, constants: StepConstants = FITTED
) -> float:
    """Return the seconds of the same work on one GPU, by bisection, as `step_seconds` grows with them.

    Args:
        measured: Seconds of a step on the group, without loading of data.
        communication: Seconds of its collectives if nothing hid them.
        window: Share of the step of one GPU that can hide them.
        constants: Fitted constants.

    Returns:
        At least 2 % of `measured`, where the formula says that communication takes all of it.
    """
    if group.gpus <= 1:
        return measured
    low, high = LEAST_EFFICIENCY * measured, measured
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if step_seconds(middle, group, communication, window, constants).seconds < measured:
            low = middle
        else:
            high = middle
    return high

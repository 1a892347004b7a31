"""Fits the constants of the GPU model on measured rows, with some rows left out.

The constants are those of `costgpu.estimator.roofline` and one factor for all hosts. A fit minimises the mean absolute
logarithm of predicted over measured time, with a light pull towards the constants of the calibration study, so that a
constant that the remaining rows say nothing of keeps the study's figure.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from benchmarks.rows import PRECISIONS, Row, family
from costgpu.estimator.gpu import Execution
from costgpu.estimator.roofline import OVERLAP, TRAINING, call_seconds, device_sums

# The calibration study's figures (447 rows, 2026-11); the unusual, grouped and host ones are of this form.
STUDY = {
    "flops": 1.02,
    "matmul/half": 0.0023,
    "matmul/tf32": 0.0046,
    "matmul/fp32": 0.0082,
    "conv/half": 0.0183,
    "conv3x3/half": 0.0061,
    "half_nhwc": 0.0008,
    "conv/tf32": 0.012,
    "conv/fp32": 0.016,
    "grouped/fp32": 0.05,
    "conv_unusual/half": 0.034,
    "moved": 1.08,
    "loaded": 0.5,
    "unaligned": 4.8,
    "depthwise": 28.0,
    "depthwise_nhwc": 10.7,
    "grouped_wide/half_nhwc": 10.0,
    "kernels": 13e-6,
}
SHIPPED = {name: seconds for name, (_, seconds) in TRAINING.seconds.items()}
NAMES = list(SHIPPED)
SET_BY_ONE = "grouped_wide/half_nhwc"  # one network tells it: a fit that takes it along only moves the others
PULL, SQUARES = 0.05, 0.3  # weights of the pull and of squared errors, beside absolute ones
FAMILIES = ("inception", "resnext", "resnet", "densenet", "efficientnet", "convnext", "vit", "deit", "vgg", "mnasnet")
FAMILIES += ("shufflenet", "squeezenet", "swin", "bert", "gpt")
SAME_FAMILY = {"resnext": "resnet", "deit": "vit"}


def model_family(row: Row) -> str:
    """Models with the same blocks count as one."""
    name = row.model.partition(":")[2] or row.model
    found = next((word for word in FAMILIES if word in name), re.split(r"\d|_", name)[0])
    return SAME_FAMILY.get(found, found)


class Table:
    """Rows as arrays: the model's sums, the seconds of the host and of the copy, and what was measured."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        executions = [Execution(PRECISIONS[r.precision]) for r in rows]
        sums = [
            device_sums(r.work, r.spec, one, TRAINING, r.optimizers) for r, one in zip(rows, executions, strict=True)
        ]
        self.sums = np.array([[one.get(name, 0.0) for name in NAMES] for one in sums])
        calls = [
            call_seconds(r.work, one, TRAINING, optimizers=r.optimizers, host=r.host)
            for r, one in zip(rows, executions, strict=True)
        ]
        self.host, self.copy = np.array(calls), np.array([r.copy_seconds for r in rows])
        self.measured = np.array([r.seconds for r in rows])

    def predict(self, constants: np.ndarray, chosen: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Seconds of the chosen rows; the last constant is the factor of the host."""
        device, host = self.sums[chosen] @ constants[:-1], self.host[chosen] * constants[-1]
        return (device**OVERLAP + host**OVERLAP) ** (1 / OVERLAP) + self.copy[chosen]

    def fit(self, chosen: np.ndarray) -> np.ndarray:
        """Constants for the chosen rows, by coordinate search from the study's."""
        start = np.array([*(STUDY[name] for name in NAMES), 1.0])
        logs = np.log(self.measured[chosen])
        told = [name != SET_BY_ONE and self.sums[chosen, k].any() for k, name in enumerate(NAMES)]
        free = [k for k, free in enumerate([*told, True]) if free]

        def loss(constants: np.ndarray) -> float:
            errors = np.log(self.predict(constants, chosen)) - logs
            pull = np.mean(np.log(constants[free] / start[free]) ** 2)
            return float(np.abs(errors).mean() + SQUARES * (errors * errors).mean() + PULL * pull)

        best, least, step = start, loss(start), 0.3
        while step > 0.02:
            moved = False
            for k in free:
                for factor in (1 + step, 1 / (1 + step)):
                    trial = best.copy()
                    trial[k] *= factor
                    if (value := loss(trial)) < least - 1e-6:
                        best, least, moved = trial, value, True
            if not moved:
                step /= 2
        return best

    def shipped(self) -> np.ndarray:
        """Predictions with the constants that are shipped."""
        return self.predict(np.array([*SHIPPED.values(), 1.0]))

    def left_out(self, *keys: Callable[[Row], str]) -> np.ndarray:
        """Predictions of each row by constants fitted on the rows that share none of its keys."""
        groups = [np.array([key(row) for row in self.rows]) for key in keys]
        found = np.zeros(len(self.rows))
        for values in sorted(set(zip(*groups, strict=True))):
            same = [group == value for group, value in zip(groups, values, strict=True)]
            mine, others = np.logical_and.reduce(same), ~np.logical_or.reduce(same)
            found[mine] = self.predict(self.fit(others), mine)
        return found


def layout(row: Row) -> str:
    """Channels-last convolutions in half precision have constants of their own."""
    return row.layout


LEFT_OUT: dict[str, tuple[Callable[[Row], str], ...]] = {
    "chip family left out": (family,),
    "model family left out": (model_family,),
    "both left out": (family, model_family),
    "layout left out": (layout,),
}
assert SHIPPED.keys() == STUDY.keys()

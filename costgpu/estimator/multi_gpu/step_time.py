"""Seconds of one optimizer step on several GPUs, from those of one of them that does the same work. Pure.

    t_N = t_1 (1 + a + b log2(nodes)) + max(Tc - h W, u Tc) + min(latency, t_1)       N > 1;   t_1 for N = 1
    Tc  = (N-1)/N V / B          V bytes of a step (`volume`), B bytes per second (`links`)

t_1 with all its micro-batches and without loading of data; W the seconds in which communication can hide: of DDP and
ZeRO-1 and -2 the backward pass of the last micro-batch, of FSDP and ZeRO-3 the whole step. It holds for weak scaling:
every GPU does the work that the single one did. Measured error: docs/accuracy.md; not valid for sharding over more than
128 GPUs, offloading to the host, local SGD, and several jobs on one machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from costgpu.estimator.multi_gpu.constants import (
    BACKWARD_SHARE,
    BACKWARD_SHARE_CHECKPOINTED,
    FITTED,
    StepConstants,
)
from costgpu.estimator.multi_gpu.links import Links
from costgpu.estimator.multi_gpu.volume import Volume
from costgpu.models.parallelism import Scheme


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSeconds:
    """One optimizer step on several GPUs, by cause."""

    alone: float  # seconds of the same work on one GPU
    communication: float = 0.0  # exposed: not hidden behind computing
    stragglers: float = 0.0  # waiting for the slowest rank, and latency

    @property
    def seconds(self) -> float:
        """Return the seconds of the step."""
        return self.alone + self.communication + self.stragglers

    @property
    def efficiency(self) -> float:
        """Throughput over that of one GPU times their number, above 0 to 1."""
        return self.alone / self.seconds if self.seconds > 0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The GPUs of a training and what lies between them."""

    gpus: int  # over all machines
    nodes: int
    links: Links | None  # None with one GPU


def window_share(scheme: Scheme, micro_batches: float, *, checkpointed: bool = False) -> float:
    """Return the share of a step of one GPU that can hide communication."""
    if scheme.shards_parameters:
        return 1.0
    return (BACKWARD_SHARE_CHECKPOINTED if checkpointed else BACKWARD_SHARE) / max(1.0, micro_batches)


def communication_seconds(volume: Volume, group: Group) -> float:
    """Return the seconds of the collectives of a step if nothing hid them."""
    links = group.links
    if group.gpus <= 1 or links is None:
        return 0.0
    if not volume.between or group.nodes <= 1:
        return (group.gpus - 1) / group.gpus * volume.all_ranks / links.slowest
    each = group.gpus / group.nodes
    within = 0.0 if links.local is None else (each - 1) / each * volume.all_ranks / links.local
    network = links.network or links.slowest
    return within + (group.nodes - 1) / group.nodes * volume.between / network


def step_seconds(
    alone: float, group: Group, communication: float, window: float, constants: StepConstants = FITTED
) -> StepSeconds:
    """One step on the group.

    Args:
        alone: Seconds of the same work on one GPU, without loading of data.
        communication: Seconds of its collectives if nothing hid them (`communication_seconds`).
        window: Share of `alone` that can hide them (`window_share`).
        constants: Fitted constants.
    """
    if group.gpus <= 1:
        return StepSeconds(alone=alone)
    share = constants.stragglers + constants.stragglers_per_doubling * math.log2(max(1, group.nodes))
    hidden = constants.hiding * window * alone
    return StepSeconds(
        alone=alone,
        communication=max(communication - hidden, constants.never_hidden * communication),
        stragglers=alone * share + min(constants.latency_seconds, alone),
    )

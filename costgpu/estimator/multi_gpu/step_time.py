"""Seconds of one optimizer step on several GPUs, from those of one of them that does the same work. Pure.

    t_N = t_1 (1 + a + b log2(nodes)) + max(Tc - h W, u Tc) + min(latency, t_1)       N > 1;   t_1 for N = 1
    Tc  = (N-1)/N V / B          V bytes of a step, B bytes per second (`network`)

t_1 with all its micro-batches and without loading of data; W the seconds in which communication can hide: of DDP and
ZeRO-1 and -2 the backward pass of the last micro-batch, of FSDP and ZeRO-3 the whole step. It holds for weak scaling:
every GPU does the work that the single one did. Measured error: docs/accuracy.md; not valid for sharding over more than
128 GPUs, offloading to the host, local SGD, and several jobs on one machine.

Source of the fitted constants: 1,136 public pairs of throughputs on 1 to 1,024 GPUs, mostly 2 to 64 (tools/facts/
multi_gpu_rows.csv, read 2026-11; benchmarks/accuracy_multi.py replays them). Bandwidths of links and networks are in
pricing/data/interconnects.csv.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from costgpu.estimator.interval import Interval
from costgpu.estimator.multi_gpu.network import Group
from costgpu.models.parallelism import Scheme


@dataclass(frozen=True, slots=True, kw_only=True)
class StepConstants:
    """What one step on several GPUs is made of, beside the step of one GPU; fitted on the public rows."""

    stragglers: float = 0.015  # share of the step: waiting for the slowest rank, and kernels that share the chip
    stragglers_per_doubling: float = 0.011  # the same, for every doubling of the machines
    never_hidden: float = 0.58  # share of the communication that no computing hides: last bucket, late buckets
    hiding: float = 0.5  # share of the window that hides communication
    latency_seconds: float = 0.005  # of a step, at most its seconds on one GPU; fitted on steps of 0.05 to 2.5 s


FITTED = StepConstants()

# Share of a step of one GPU in which gradients come up and can be reduced beside it: backward is two thirds of a step,
# three quarters if activations are computed again (Chen et al. 2016, arXiv:1604.06174: one more forward pass).
BACKWARD_SHARE, BACKWARD_SHARE_CHECKPOINTED = 2 / 3, 3 / 4
# What full activation checkpointing makes of a step: one more forward pass, a third of forward and backward.
CHECKPOINTING_TIME = 1.33
# Seconds from the first process to the first step that come on top with several: rendezvous and the first collective, 5 to
# 60 s in public logs; assumed.
RENDEZVOUS_SECONDS = 20.0

# 80 % interval of the seconds of a step on several GPUs over those predicted, by predicted efficiency: least efficiency,
# interval. Source: the fitted rows, by efficiency (2026-11).
INTERVAL_BY_EFFICIENCY = (
    (0.95, Interval(0.97, 1.07)),
    (0.90, Interval(0.95, 1.10)),
    (0.80, Interval(0.94, 1.15)),
    (0.60, Interval(0.90, 1.15)),
    (0.00, Interval(0.62, 1.15)),
)
EXTRAPOLATED_HIGH = 0.05  # added to the upper end where the link's bandwidth is extrapolated from nccl-tests
ASSUMED_LINK, ASSUMED_LINK_EIGHT = Interval(0.7, 1.6), Interval(0.6, 2.0)  # up to 7 GPUs, and from 8 on
NETWORK_INTERVALS = {
    "rdma": Interval(0.93, 1.15),
    "efa": Interval(0.93, 1.15),
    "efa-host-staged": Interval(0.8, 1.3),
    "tcpx": Interval(0.8, 1.3),
    "tcp": Interval(0.6, 1.6),
}
SHORT_STEP_SECONDS, SHORT_STEP_HIGH = 0.050, 1.1  # no rows: latency and the host decide, not bandwidth
TINY_STEP_SECONDS, TINY_STEP_HIGH = 0.020, 1.3
UNMEASURED_LOADER_HIGH = 1.25  # a job that reads its data with a loader that was not timed
DATA_PARALLEL_HIGH = 1.5  # torch.nn.DataParallel copies the model and gathers the outputs in every step
MOST_SHARDED_GPUS = 128  # full sharding over more of them is bound by latency, which is not modelled
MOST_SHARDED_HIGH = 2.0


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


def window_share(scheme: Scheme, micro_batches: float, *, checkpointed: bool = False) -> float:
    """Return the share of a step of one GPU that can hide communication."""
    if scheme.shards_parameters:
        return 1.0
    return (BACKWARD_SHARE_CHECKPOINTED if checkpointed else BACKWARD_SHARE) / max(1.0, micro_batches)


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


def scaling_interval(
    seconds: float, efficiency: float, group: Group, scheme: Scheme, *, loader_measured: bool = True
) -> tuple[Interval, list[str]]:
    """Return the 80 % interval of the seconds of a step over those predicted, and the reasons for its width.

    It is what several GPUs add to the interval of a step on one of them.

    Args:
        seconds: Predicted seconds of the step.
        efficiency: Predicted efficiency.
        group: The GPUs.
        scheme: How the model is spread.
        loader_measured: Whether the loading of its data was timed, or it loads none.
    """
    links = group.links
    if group.gpus <= 1 or links is None:
        return Interval(1.0, 1.0), []
    interval = next(one for least, one in INTERVAL_BY_EFFICIENCY if efficiency >= least)
    reasons = []
    if links.basis == "assumed":
        interval = ASSUMED_LINK_EIGHT if group.each >= 8 else ASSUMED_LINK
        reasons.append("the link between its GPUs goes through the host, and differs between machines")
    elif links.basis == "extrapolated":
        interval = Interval(interval.low, interval.high + EXTRAPOLATED_HIGH)
    if group.nodes > 1:
        interval = interval.covering(NETWORK_INTERVALS[links.network_kind])
        if links.network_kind == "tcp":
            reasons.append("machines that reach each other by TCP alone, which trainings use very differently")
    if seconds < SHORT_STEP_SECONDS:
        interval = interval.stretched(high=TINY_STEP_HIGH if seconds < TINY_STEP_SECONDS else SHORT_STEP_HIGH)
        reasons.append("steps so short on several GPUs are not among the public measurements")
    if scheme is Scheme.DATA_PARALLEL:
        interval = interval.stretched(high=DATA_PARALLEL_HIGH)
        reasons.append("torch.nn.DataParallel copies the model in every step: DistributedDataParallel does not")
    if scheme.shards_parameters and scheme is not Scheme.HSDP and group.gpus > MOST_SHARDED_GPUS:
        interval = interval.stretched(high=MOST_SHARDED_HIGH)
        reasons.append(f"full sharding over more than {MOST_SHARDED_GPUS} GPUs is bound by latency")
    if not loader_measured:
        interval = interval.stretched(high=UNMEASURED_LOADER_HIGH)
        reasons.append("how fast its data can be loaded for several GPUs was not measured")
    return interval, reasons

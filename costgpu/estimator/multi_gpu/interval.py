"""The 80 % interval that several GPUs add to that of a step on one of them. Pure."""

from __future__ import annotations

from costgpu.estimator.interval import Interval
from costgpu.estimator.multi_gpu.constants import (
    ASSUMED_LINK,
    ASSUMED_LINK_EIGHT,
    DATA_PARALLEL_HIGH,
    EXTRAPOLATED_HIGH,
    INTERVAL_BY_EFFICIENCY,
    MOST_SHARDED_GPUS,
    NETWORK_INTERVALS,
    SHORT_STEP_HIGH,
    SHORT_STEP_SECONDS,
    TINY_STEP_HIGH,
    TINY_STEP_SECONDS,
    UNMEASURED_LOADER_HIGH,
)
from costgpu.estimator.multi_gpu.step_time import Group
from costgpu.models.parallelism import Scheme


def scaling_interval(
    seconds: float, efficiency: float, group: Group, scheme: Scheme, *, loader_measured: bool = True
) -> tuple[Interval, list[str]]:
    """Return what the seconds of a step on the group may be over those predicted, and the reasons for the width.

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
        interval = ASSUMED_LINK_EIGHT if group.gpus // group.nodes >= 8 else ASSUMED_LINK
        reasons.append("the link between its GPUs goes through the host, and differs between machines")
    elif links.basis == "extrapolated":
        interval = Interval(interval.low, interval.high + EXTRAPOLATED_HIGH)
    if group.nodes > 1:
        network = NETWORK_INTERVALS[links.network_kind]
        interval = interval.covering(network)
        if links.network_kind == "tcp":
            reasons.append("machines that reach each other by TCP alone, which trainings use very differently")
    if seconds < TINY_STEP_SECONDS:
        interval = interval.stretched(high=TINY_STEP_HIGH)
    elif seconds < SHORT_STEP_SECONDS:
        interval = interval.stretched(high=SHORT_STEP_HIGH)
    if seconds < SHORT_STEP_SECONDS:
        reasons.append("steps so short on several GPUs are not among the public measurements")
    if scheme is Scheme.DATA_PARALLEL:
        interval = interval.stretched(high=DATA_PARALLEL_HIGH)
        reasons.append("torch.nn.DataParallel copies the model in every step: DistributedDataParallel does not")
    if scheme.shards_parameters and scheme is not Scheme.HSDP and group.gpus > MOST_SHARDED_GPUS:
        interval = interval.stretched(high=2.0)
        reasons.append(f"full sharding over more than {MOST_SHARDED_GPUS} GPUs is bound by latency")
    if not loader_measured:
        interval = interval.stretched(high=UNMEASURED_LOADER_HIGH)
        reasons.append("how fast its data can be loaded for several GPUs was not measured")
    return interval, reasons

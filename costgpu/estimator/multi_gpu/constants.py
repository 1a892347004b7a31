"""Every constant of the prediction of several GPUs, with its source. Pure.

Source of the fitted ones: 1,136 public pairs of throughputs on 1 to 1,024 GPUs, mostly 2 to 64 (tools/facts/
multi_gpu_rows.csv, read 2026-11; benchmarks/accuracy_multi.py replays them). Bandwidths of links and networks are in
pricing/data/interconnects.csv.
"""

from __future__ import annotations

from dataclasses import dataclass

from costgpu.estimator.interval import Interval


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

# Share of a machine's vCPUs that its loaders get. Source: as the interval's.
LOADER_SHARE = 0.9

# Memory of each GPU.
BUCKET_BYTES = 4.0  # DDP's buckets: one more copy of the gradients (PyTorch's documentation of gradient_as_bucket_view)
GATHERED_UNITS = 2.0  # unsharded units at a time: one in use, one prefetched (PyTorch's documentation of FSDP)
SEVERAL_RUNTIME_GIB = 2.0  # CUDA context, workspaces and NCCL's buffers: 1 to 2 GiB; 1 on one GPU
NODE_COUNTS = (2, 4, 8, 16, 32, 64)  # numbers of machines that are looked at beside one

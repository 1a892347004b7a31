"""What a change adds to a run and no prediction knows: kernels that cast, workers that start. Pure.

A saving that does not survive its overhead is not advised. Overheads are upper ends, not means.
"""

from __future__ import annotations

from costgpu.estimate.advice.changes import uses_loader
from costgpu.estimate.cpu import host_cores
from costgpu.estimate.gpu import LAUNCH_SECONDS
from costgpu.estimate.op_tables import ATTENTION_FORWARD, MATMUL
from costgpu.estimate.predict import Workload
from costgpu.models.prediction import Prediction
from costgpu.models.workload import Phase

# Autocast casts each weight and, at worst, one input of each matrix product, convolution and attention, forward and
# backward. Source: torch's autocast op lists ("ops that can autocast to float16", docs of torch 2.x).
CASTS_PER_OP, CASTS_PER_WEIGHT = 2.0, 2.0
# GradScaler looks at every gradient once (foreach) and waits for the answer.
SCALER_KERNELS = 10.0
CASTING = MATMUL | ATTENTION_FORWARD | {"aten::convolution"}
# CPU time of a batch on its way from a worker (queue and shared memory), and of a worker from fork to exit, which are
# the start of an epoch. Source: benchmarks/advice.py toll, on two Zen 3 cores (torch 2.13, 2026-11-21): 0.5-0.7 ms for
# 1 kB to 1.5 MB (busy: 0.7-1.1), and 0.10-0.14 s.
HANDOVER_SECONDS = 1e-3
WORKER_START_SECONDS = 0.12


def cast_seconds(workload: Workload) -> float:
    """Launching the casts of mixed precision, over the whole run."""
    total = 0.0
    for phase, steps in zip(workload.profile.phases, workload.scope.steps, strict=True):
        total += steps * LAUNCH_SECONDS * _casts(phase)
    return total


def _casts(phase: Phase) -> float:
    ops = sum(row.count for row in phase.ops if row.phase == "forward" and row.op in CASTING) / max(
        1, phase.trace_steps
    )
    weights = sum(one.tensors * one.updates_per_step for one in phase.optimizers) * phase.micro_batches
    return CASTS_PER_OP * ops + CASTS_PER_WEIGHT * weights + SCALER_KERNELS


def worker_seconds(workload: Workload, workers: int, after: Prediction) -> float:
    """Workers that start, batches that are handed over, and, without a GPU, cores that the training wants as well."""
    total = 0.0
    profile, scope = workload.profile, workload.scope
    for phase, steps, epochs in zip(profile.phases, scope.steps, scope.epochs, strict=True):
        data = phase.data
        if not uses_loader(data) or data.workers >= workers:
            continue
        total += WORKER_START_SECONDS * (workers - data.workers) * max(1.0, epochs)
        if data.workers == 0:
            total += HANDOVER_SECONDS * data.batches_per_step * steps
        if after.candidate.offer is not None and not after.candidate.is_gpu:
            work = (data.fetch_seconds_per_batch or 0.0) * data.batches_per_step
            total += steps * work / host_cores(after.candidate)
    return total

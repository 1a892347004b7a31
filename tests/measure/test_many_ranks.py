"""Scripts that train in several processes, measured as rank 0 of them: what is told, counted, and found of the scheme."""

import math
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from costgpu.measure.session import Outcome, Request
from costgpu.models.parallelism import BatchScaling, Parallelism, Scheme
from costgpu.models.workload import TotalKind, WorkloadProfile
from costgpu.workflows.estimate.measure import script_request
from costgpu.workflows.estimate.request import EstimateRequest
from costgpu.workflows.reporter import LogReporter
from tests.measure.harness import profile_of

pytestmark = pytest.mark.torch

RANKS, SAMPLES, BATCH, EPOCHS = 4, 762, 16, 500
WIDTH = 8
PARAMETERS = WIDTH * 32 + 32 + 32 + 1  # of two linear layers


def launched(line: str, workdir: Path, steps: int = 30) -> Request:
    """What `costgpu estimate LINE` measures, where it is typed in `workdir`."""
    words = [str(workdir / word) if word.endswith(".py") else word for word in shlex.split(line)]
    asked = EstimateRequest(command=tuple(words), workdir=str(workdir))
    return replace(script_request(asked, LogReporter(), steps), measure_for_seconds=600.0, start_limit_seconds=300.0)


def measured(script: str, line: str, workdir: Path) -> tuple[WorkloadProfile, Parallelism, Outcome]:
    (workdir / "train.py").write_text(script)
    profile, outcome = profile_of(launched(line, workdir), workdir)
    assert profile.parallelism is not None
    return profile, profile.parallelism, outcome


def bytes_of(found: Parallelism, op: str, dtype: str = "float32") -> float:
    """Of the calls of one collective in a step."""
    return sum(one.bytes_per_step for one in found.collectives if (one.op, one.dtype) == (op, dtype))


DDP = """
import argparse, contextlib, os, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--sync-always", action="store_true")
parser.add_argument("--half", action="store_true")
parser.add_argument("--hook", action="store_true")
parser.add_argument("--all-data", action="store_true")
parser.add_argument("--strong", action="store_true")
options = parser.parse_args()
dist.init_process_group("nccl")
world = dist.get_world_size()
assert (dist.get_rank(), world) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
everybody = [None] * world
dist.all_gather_object(everybody, {"rank": dist.get_rank()})
assert everybody == [{"rank": 0}] * world
total = torch.tensor([2.0, 3.0])
dist.all_reduce(total)
assert total.tolist() == [2.0 * world, 3.0 * world]
batch_size = 16
if options.strong:
    batch_size = 64 // world
data = TensorDataset(torch.randn(762, 8))
sampler = None if options.all_data else DistributedSampler(data)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Linear(32, 1))
dtype = torch.bfloat16 if options.half else torch.float32
model = DistributedDataParallel(model.to(dtype))
if options.hook:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
    model.register_comm_hook(None, fp16_compress_hook)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(500):
    loader = DataLoader(data, batch_size=batch_size, sampler=sampler)
    for number, (batch,) in enumerate(loader):
        last = (number + 1) % options.accumulate == 0
        with contextlib.nullcontext() if last or options.sync_always else model.no_sync():
            model(batch.to(dtype)).sum().backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
    dist.barrier()
"""


@pytest.mark.parametrize(
    "launcher", ["torchrun --nproc-per-node 4", "python -m torch.distributed.run --nproc-per-node 2 --nnodes 1:2"]
)
def test_a_launcher_starts_rank_0_of_all(launcher: str, tmp_path: Path) -> None:
    profile, found, outcome = measured(DDP, f"{launcher} train.py", tmp_path)
    each = math.ceil(SAMPLES / (RANKS * BATCH))
    total = profile.phases[-1].total
    assert (total.kind, total.steps, total.steps_per_epoch) == (TotalKind.EXACT, EPOCHS * each, each)
    assert (found.scheme, found.processes, found.measured_ranks) == (Scheme.DDP, RANKS, RANKS)
    assert found.how.startswith("DistributedDataParallel at train.py:")
    assert (found.parameters, found.trained_parameters) == (PARAMETERS, PARAMETERS)
    assert bytes_of(found, "all_reduce") == pytest.approx(4 * PARAMETERS)
    assert (found.gradient_bytes, found.reductions_per_step) == (4, 1)
    assert (found.batch, found.rank_batch, found.epoch_samples) == (BatchScaling.PER_RANK, BATCH, SAMPLES)
    assert found.sampler_distributed is True
    assert found.needs_gpu_backend
    assert found.elastic is ("1:2" in launcher)
    assert any(f"measured as rank 0 of {RANKS}" in note for note in profile.notes)
    assert outcome.programs == []


@pytest.mark.parametrize(("option", "reductions"), [("", 1), ("--sync-always", 4)])
def test_accumulation_with_and_without_no_sync(option: str, reductions: int, tmp_path: Path) -> None:
    line = f"torchrun --nproc-per-node {RANKS} train.py --accumulate 4 {option}"
    profile, found, _ = measured(DDP, line, tmp_path)
    assert profile.phases[-1].micro_batches == 4
    assert found.reductions_per_step == reductions
    assert bytes_of(found, "all_reduce") == pytest.approx(4 * PARAMETERS * reductions)


@pytest.mark.parametrize(("option", "dtype"), [("--half", "bfloat16"), ("--hook", "float16")])
def test_gradients_of_two_bytes(option: str, dtype: str, tmp_path: Path) -> None:
    _, found, _ = measured(DDP, f"torchrun --nproc-per-node {RANKS} train.py {option}", tmp_path)
    assert found.gradient_bytes == 2
    assert bytes_of(found, "all_reduce", dtype) == pytest.approx(2 * PARAMETERS)


def test_a_loader_that_is_not_distributed(tmp_path: Path) -> None:
    profile, found, _ = measured(DDP, f"torchrun --nproc-per-node {RANKS} train.py --all-data", tmp_path)
    assert found.sampler_distributed is False
    assert profile.phases[-1].total.steps_per_epoch == math.ceil(SAMPLES / BATCH)
    assert any("Every rank walks the whole data set" in note for note in profile.notes)


def test_a_batch_that_is_divided_by_the_ranks(tmp_path: Path) -> None:
    _, found, _ = measured(DDP, f"torchrun --nproc-per-node {RANKS} train.py --strong", tmp_path)
    assert (found.batch, found.rank_batch) == (BatchScaling.GLOBAL, 64 // RANKS)


def test_one_per_gpu_is_measured_as_one_of_eight(tmp_path: Path) -> None:
    _, found, _ = measured(DDP, "torchrun --nproc-per-node gpu train.py", tmp_path)
    assert (found.processes, found.measured_ranks) == (None, 8)

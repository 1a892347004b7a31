"""Scripts that train in several processes, measured as rank 0 of them: what is told, counted, and found of the scheme."""

import math
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from costgpu.errors import ScriptCrashed
from costgpu.measure.failures import explain
from costgpu.measure.session import Outcome, Request
from costgpu.models.parallelism import BatchScaling, Parallelism, Scheme
from costgpu.models.workload import TotalKind, WorkloadProfile
from costgpu.workflows.estimate.measure import script_request
from costgpu.workflows.estimate.request import EstimateRequest
from costgpu.workflows.reporter import LogReporter
from tests.measure.harness import HERE, profile_of, run

pytestmark = [pytest.mark.torch, pytest.mark.slow]

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
parser.add_argument("--local_rank", type=int, default=-1)  # which the oldest launcher gives
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
    "launcher",
    [
        "torchrun --nproc-per-node 4",
        pytest.param("python -m torch.distributed.run --nproc-per-node 2 --nnodes 1:2", marks=pytest.mark.frameworks),
        pytest.param("python -m torch.distributed.launch --nproc_per_node=4", marks=pytest.mark.frameworks),
    ],
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


@pytest.mark.frameworks
@pytest.mark.parametrize(("option", "reductions"), [("", 1), ("--sync-always", 4)])
def test_accumulation_with_and_without_no_sync(option: str, reductions: int, tmp_path: Path) -> None:
    line = f"torchrun --nproc-per-node {RANKS} train.py --accumulate 4 {option}"
    profile, found, _ = measured(DDP, line, tmp_path)
    assert profile.phases[-1].micro_batches == 4
    assert found.reductions_per_step == reductions
    assert bytes_of(found, "all_reduce") == pytest.approx(4 * PARAMETERS * reductions)


@pytest.mark.frameworks
@pytest.mark.parametrize(("option", "dtype"), [("--half", "bfloat16"), ("--hook", "float16")])
def test_gradients_of_two_bytes(option: str, dtype: str, tmp_path: Path) -> None:
    _, found, _ = measured(DDP, f"torchrun --nproc-per-node {RANKS} train.py {option}", tmp_path)
    assert found.gradient_bytes == 2
    assert bytes_of(found, "all_reduce", dtype) == pytest.approx(2 * PARAMETERS)


@pytest.mark.frameworks
def test_a_loader_that_is_not_distributed(tmp_path: Path) -> None:
    profile, found, _ = measured(DDP, f"torchrun --nproc-per-node {RANKS} train.py --all-data", tmp_path)
    assert found.sampler_distributed is False
    assert profile.phases[-1].total.steps_per_epoch == math.ceil(SAMPLES / BATCH)
    assert any("Every rank walks the whole data set" in note for note in profile.notes)


@pytest.mark.frameworks
def test_a_batch_that_is_divided_by_the_ranks(tmp_path: Path) -> None:
    _, found, _ = measured(DDP, f"torchrun --nproc-per-node {RANKS} train.py --strong", tmp_path)
    assert (found.batch, found.rank_batch) == (BatchScaling.GLOBAL, 64 // RANKS)


@pytest.mark.frameworks
def test_one_per_gpu_is_measured_as_one_of_eight(tmp_path: Path) -> None:
    _, found, _ = measured(DDP, "torchrun --nproc-per-node gpu train.py", tmp_path)
    assert (found.processes, found.measured_ranks) == (None, 8)


LAYERS, INNER = 3, 64
SHARDED = """
import os, sys
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
world = dist.get_world_size()

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, x):
        return x + self.second(self.first(x).relu())

model = nn.Sequential(nn.Linear(8, 64), *[Block() for _ in range(3)], nn.Linear(64, 8))
way, strategy = sys.argv[1:]
if way == "fsdp":
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = FullyShardedDataParallel(
        model,
        sharding_strategy=getattr(ShardingStrategy, strategy),
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        mixed_precision=precision,
        use_orig_params=True,
    )
else:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    options = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}
    if strategy == "HYBRID_SHARD":
        options["mesh"] = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
    options["reshard_after_forward"] = strategy != "SHARD_GRAD_OP"
    for block in model[1:4]:
        fully_shard(block, **options)
    fully_shard(model, **{**options, "reshard_after_forward": False})  # as torch does by itself
optimizer = torch.optim.AdamW(model.parameters())
for step in range(600):
    model(torch.randn(16, 8)).float().pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
IN_BLOCK = 2 * 64 * 128 + 128 + 64
IN_ROOT = (8 * 64 + 64) + (64 * 8 + 8)


@pytest.mark.parametrize(
    ("way", "strategy", "scheme", "gathers"),
    [
        pytest.param("fsdp", "FULL_SHARD", Scheme.FSDP, 2, marks=pytest.mark.frameworks),
        pytest.param("fsdp", "SHARD_GRAD_OP", Scheme.FSDP_GRAD_OP, 1, marks=pytest.mark.frameworks),
        ("fully_shard", "FULL_SHARD", Scheme.FSDP, 2),
        pytest.param("fully_shard", "SHARD_GRAD_OP", Scheme.FSDP_GRAD_OP, 1, marks=pytest.mark.frameworks),
        pytest.param("fully_shard", "HYBRID_SHARD", Scheme.HSDP, 2, marks=pytest.mark.frameworks),
    ],
)
def test_sharded_parameters(way: str, strategy: str, scheme: Scheme, gathers: int, tmp_path: Path) -> None:
    line = f"torchrun --nproc-per-node {RANKS} train.py {way} {strategy}"
    profile, found, _ = measured(SHARDED, line, tmp_path)
    parameters = LAYERS * IN_BLOCK + IN_ROOT
    assert (found.scheme, found.parameters, found.trained_parameters) == (scheme, parameters, parameters)
    assert (found.gathered_bytes, found.reduced_bytes) == (2, 4)
    gathered = gathers * LAYERS * IN_BLOCK + IN_ROOT  # the root's own parameters stay between the passes
    assert bytes_of(found, "all_gather", "bfloat16") == pytest.approx(2 * gathered, rel=0.001)
    assert bytes_of(found, "reduce_scatter") == pytest.approx(4 * parameters, rel=0.001)
    shards = RANKS // 2 if scheme is Scheme.HSDP else RANKS
    if scheme is Scheme.HSDP:  # each shard is reduced between the replicas
        assert bytes_of(found, "all_reduce") == pytest.approx(4 * parameters / shards, rel=0.01)
    assert found.largest_unit_parameters == IN_BLOCK
    assert found.reductions_per_step == 1
    (updated,) = profile.phases[-1].optimizers
    assert updated.parameters == parameters  # of all ranks together


SPAWN = """
import os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def train(rank, world_size):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "29500"
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(7000):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).sum().backward()
        optimizer.step()

if __name__ == "__main__":
    if sys.argv[1] == "spawn":
        mp.spawn(train, args=(3,), nprocs=3)
    else:
        mp.set_start_method("spawn")
        processes = [mp.Process(target=train, args=(rank, 3)) for rank in range(3)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
"""


@pytest.mark.parametrize("way", ["spawn", pytest.param("processes", marks=pytest.mark.frameworks)])
def test_processes_that_the_script_starts(way: str, tmp_path: Path) -> None:
    profile, found, outcome = measured(SPAWN, f"python train.py {way}", tmp_path)
    assert (profile.phases[-1].total.kind, profile.phases[-1].total.steps) == (TotalKind.EXACT, 7000)
    assert outcome.record is not None
    assert outcome.record["torch"] is not None
    assert outcome.record["torch"]["processes"] == 3
    assert (found.scheme, found.launcher, found.processes, found.measured_ranks) == (Scheme.DDP, "", 3, 3)
    assert found.fixed_processes
    assert not found.needs_gpu_backend
    assert bytes_of(found, "all_reduce") == pytest.approx(4 * 5)


@pytest.mark.frameworks
def test_a_torch_that_cannot_do_it_is_measured_as_one(tmp_path: Path) -> None:
    broken = DDP.replace("parser =", "torch.distributed.Backend._plugins.clear()\nparser =", 1)
    profile, found, _ = measured(broken, f"torchrun --nproc-per-node {RANKS} train.py", tmp_path)
    assert (found.scheme, found.processes, found.measured_ranks) == (Scheme.DDP, RANKS, 1)
    assert profile.phases[-1].total.steps_per_epoch == math.ceil(SAMPLES / BATCH)
    assert any("could not be stood in for" in note for note in profile.notes)


@pytest.mark.parametrize(
    ("where", "raised"),
    [
        ("script", "assert 30 % world == 0"),
        pytest.param("torch", "torch.nn.Linear(world, 1)(torch.ones(1))", marks=pytest.mark.frameworks),
    ],
)
def test_a_world_that_the_script_does_not_take(where: str, raised: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(DDP.replace("batch_size = 16", f"batch_size = 16\n{raised}", 1))
    asked = launched(f"torchrun --nproc-per-node {RANKS} train.py", tmp_path)
    outcome = run(asked, tmp_path)
    error = explain(outcome, asked, HERE)
    assert isinstance(error, ScriptCrashed)
    assert f"rank 0 of {RANKS}" in error.hint
    assert outcome.record is not None
    assert outcome.record["raised_in"] == where
    again = run(asked, tmp_path, alone=True)
    assert explain(again, asked, HERE) is None
    assert again.record is not None
    assert again.record["ranks"]["measured"] == 1

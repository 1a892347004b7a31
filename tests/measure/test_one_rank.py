"""Scripts that train in several processes, measured as one rank; a first step that outlasts the window; what sleeps."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from costgpu.measure.session import Request
from costgpu.models.workload import TotalKind
from costgpu.workflows.estimate.measure import script_request
from costgpu.workflows.estimate.request import EstimateRequest
from costgpu.workflows.reporter import LogReporter
from tests.measure.harness import profile_of, request

pytestmark = [pytest.mark.torch, pytest.mark.frameworks]


def launched(line: str, workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Request:
    """What `costgpu estimate LINE` measures, where it is typed in `workdir`."""
    monkeypatch.chdir(workdir)
    asked = EstimateRequest(command=tuple(shlex.split(line)))
    return replace(script_request(asked, LogReporter(), 60), measure_for_seconds=600.0, start_limit_seconds=300.0)


DDP = """
import argparse, os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--local_rank", type=int, default=-1)
options = parser.parse_args()
assert os.path.exists("here") and options.local_rank in (-1, 0)
dist.init_process_group("nccl", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
data = TensorDataset(torch.randn(640, 8))
sampler = DistributedSampler(data)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(options.epochs):
    sampler.set_epoch(epoch)
    for (batch,) in DataLoader(data, batch_size=16, sampler=sampler):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    dist.barrier()
"""


@pytest.mark.parametrize(
    "launcher",
    ["torchrun --standalone --nproc-per-node 4", "python -m torch.distributed.launch --nproc_per_node=4"],
)
def test_a_launcher_starts_one_rank(launcher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").touch()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "ddp.py").write_text(DDP)
    asked = launched(f"{launcher} src/ddp.py --epochs 500", tmp_path, monkeypatch)
    profile, outcome = profile_of(asked, tmp_path)
    total = profile.phases[-1].total
    assert (total.kind, total.steps, total.steps_per_epoch) == (TotalKind.EXACT, 500 * 10, 10)
    assert asked.launch is not None
    assert "4 processes" in asked.launch.asked
    assert any("rank 0 of 4" in note for note in profile.notes)
    assert outcome.programs == []


SPAWNS = """
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
        mp.spawn(train, args=(4,), nprocs=4)
    else:
        mp.set_start_method("spawn")
        processes = [mp.Process(target=train, args=(rank, 4)) for rank in range(4)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
"""


@pytest.mark.parametrize("way", ["spawn", "processes"])
def test_processes_that_a_script_starts_itself(way: str, tmp_path: Path) -> None:
    profile, outcome = profile_of(request(SPAWNS, way, workdir=tmp_path), tmp_path)
    total = profile.phases[-1].total
    assert (total.kind, total.steps) == (TotalKind.EXACT, 7000)
    assert outcome.record is not None
    assert outcome.record["torch"] is not None
    assert outcome.record["torch"]["processes"] == 4


SLOW = """
import time
import torch
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(100):
    for batch in range(8):
        loss = model(torch.randn(32, 64)).sum()
        until = time.thread_time() + 0.2
        while time.thread_time() < until:
            pass
        loss.backward()
        if batch % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
"""


def test_a_first_step_that_outlasts_the_window_is_the_trace(tmp_path: Path) -> None:
    profile, _ = profile_of(request(SLOW, workdir=tmp_path, steps=1, seconds=0.5), tmp_path)
    (phase,) = profile.phases
    assert (phase.steps_observed, phase.step.count, phase.step.traced_only) == (2, 1, False)
    assert (phase.total.steps, phase.micro_batches, phase.trace_steps) == (200, 4, 1)
    assert {row.phase for row in phase.ops} == {"forward", "backward", "optimizer"}
    layers = [row.count for row in phase.ops if (row.op, row.phase) == ("aten::addmm", "forward")]
    assert sum(layers) == 2 * 4, "two layers in four micro-batches, in rows of their own where weights are first cast"
    assert phase.model_bytes == 4 * (64 * 64 + 64 + 64 + 1)


LBFGS = """
import time
import torch
model = torch.nn.Linear(64, 1)
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=6, tolerance_grad=0, tolerance_change=0)
x, y = torch.randn(256, 64), torch.randn(256, 1)

def closure():
    optimizer.zero_grad()
    loss = (model(x) - y).pow(2).mean()
    until = time.thread_time() + 0.25
    while time.thread_time() < until:
        pass
    loss.backward()
    return loss

optimizer.step(closure)
"""


def test_one_step_in_all_is_an_answer(tmp_path: Path) -> None:
    profile, _ = profile_of(request(LBFGS, workdir=tmp_path), tmp_path)
    (phase,) = profile.phases
    assert (phase.total.kind, phase.total.steps, phase.trace_steps) == (TotalKind.EXACT, 1, 1)
    assert phase.step.mean_seconds >= 1.0
    assert {row.phase for row in phase.ops if row.op == "aten::addmm"} == {"forward"}
    assert any("Only its first step was seen" in note for note in profile.notes)


SLEEPS = """
import time
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(9000):
    time.sleep(0.02)
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
"""


def test_a_script_that_sleeps_says_so(tmp_path: Path) -> None:
    profile, _ = profile_of(request(SLEEPS, workdir=tmp_path), tmp_path)
    (phase,) = profile.phases
    assert 0 < phase.waiting_seconds_per_step <= phase.step.mean_seconds
    assert phase.host_seconds_per_step < phase.waiting_seconds_per_step

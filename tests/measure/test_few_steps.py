"""A first step that outlasts the window, a script of one step, and one that sleeps."""

from pathlib import Path

import pytest

from costgpu.models.workload import TotalKind
from tests.measure.harness import profile_of, request

pytestmark = [pytest.mark.torch, pytest.mark.frameworks]


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


TWICE = """
import time
import torch
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for seconds in (0.2, 0.02):
    for batch in range(4):
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass
        model(torch.randn(8, 16)).sum().backward()
    optimizer.step()
"""


def test_a_slow_first_step_that_is_taken_after_all_is_one_step(tmp_path: Path) -> None:
    """The second one was quick, so that another was to be traced, and the script ended before."""
    profile, _ = profile_of(request(TWICE, workdir=tmp_path, seconds=0.5), tmp_path)
    (phase,) = profile.phases
    assert (phase.steps_observed, phase.trace_steps, phase.micro_batches) == (2, 1, 4)
    assert sum(row.count for row in phase.ops if (row.op, row.phase) == ("aten::addmm", "forward")) == 4


EVALUATED_FIRST = """
import torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(16, 1)
def loader(items, size):
    return DataLoader(TensorDataset(torch.randn(items, 16)), batch_size=size)
def evaluate():
    model.eval()
    with torch.no_grad():
        for (x,) in loader(2000, 250):
            model(x)
    model.train()
evaluate()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
(x,) = next(iter(loader(64, 16)))
for step in range(40):
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
    if step % 10 == 9:
        evaluate()
"""


def test_a_batch_that_was_drawn_after_an_evaluation_is_that_of_the_training(tmp_path: Path) -> None:
    profile, _ = profile_of(request(EVALUATED_FIRST, workdir=tmp_path), tmp_path)
    assert [phase.data.batch_size for phase in profile.phases if phase.unit.trains] == [16]


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

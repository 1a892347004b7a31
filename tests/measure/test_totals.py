"""The number of steps of real scripts, found while they run, against the truth."""

from pathlib import Path
from textwrap import dedent

import pytest

from costgpu.models.workload import Phase, TotalKind, WorkloadProfile
from tests.measure.harness import profile_of, request

pytestmark = [pytest.mark.torch, pytest.mark.frameworks]

PREAMBLE = """
import itertools
import torch
from torch import nn
model = nn.Linear(16, 1)
data = torch.randn(1000, 16)
"""
ACCUMULATION = """
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(3000):
        for i, x in enumerate([torch.randn(8, 16) for _ in range(42)]):
            (model(x).square().mean() / 4).backward()
            if (i + 1) % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
    """
# nanoGPT's loop: micro-steps, an evaluation every so often, and a bound on a counter at the end of `while True`.
COUNTER = """
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    iter_num, max_iters = 0, 600000
    @torch.no_grad()
    def estimate_loss():
        model.eval()
        loss = sum(model(torch.randn(8, 16)).square().mean().item() for _ in range(20)) / 20
        model.train()
        return loss
    while True:
        if iter_num % 2000 == 0:
            print(iter_num, estimate_loss())
        for _ in range(3):
            model(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        iter_num += 1
        if iter_num > max_iters:
            break
    """
CLOSURE = """
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5)
    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(data), data[:, :1])
        loss.backward()
        return loss
    for _ in range(7000):
        optimizer.step(closure)
    """
NO_OPTIMIZER = """
    weight = torch.randn(16, 1, requires_grad=True)
    def batches(values, size):
        for start in range(0, len(values), size):
            yield values[start : start + size]
    for epoch in range(250):
        for x in batches(data, 100):
            (x @ weight).square().mean().backward()
            with torch.no_grad():
                weight -= 0.01 * weight.grad
                weight.grad = None
    """
# A head is trained first, everything afterwards, by the same function.
TWO_PHASES = """
    whole, batches = nn.Sequential(nn.Linear(16, 16), model), [torch.randn(8, 16) for _ in range(50)]
    def train(parameters, epochs):
        optimizer = torch.optim.SGD(parameters, lr=0.01)
        for _ in range(epochs):
            for phase in ["train", "val"]:
                for x in batches:
                    if phase == "train":
                        optimizer.zero_grad()
                        whole(x).square().mean().backward()
                        optimizer.step()
    train(model.parameters(), epochs=2000)
    train(whole.parameters(), epochs=3000)
    """
# A critic that steps five times for each step of the generator.
TWO_OPTIMIZERS = """
    generator, critic = nn.Linear(8, 16), nn.Linear(16, 1)
    optimizer_g = torch.optim.RMSprop(generator.parameters())
    optimizer_c = torch.optim.RMSprop(critic.parameters())
    n_critic = 5
    for epoch in range(400):
        for i in range(100):
            optimizer_c.zero_grad()
            (critic(generator(torch.randn(4, 8)).detach()) - critic(torch.randn(4, 16))).mean().backward()
            optimizer_c.step()
            if i % n_critic == 0:
                optimizer_g.zero_grad()
                (-critic(generator(torch.randn(4, 8)))).mean().backward()
                optimizer_g.step()
    """

# Bars that come before the training: a library's own, and one of the script's own around what it prepares.
PREPARES = """
    import os, sys
    from tqdm import tqdm
    folder = os.path.join(os.getcwd(), "site-packages")
    os.makedirs(folder)
    with open(os.path.join(folder, "kernels.py"), "w") as file:
        file.write("from tqdm import tqdm\\nfor i in tqdm(range(337)): sum(range(100))\\n")
    sys.path.insert(0, folder)
    import kernels
    items = [item for item in tqdm(range(250), desc="Preparing")]
    def train():
        import torch
        model = torch.nn.Linear(16, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(600):
            model(torch.randn(8, 16)).square().mean().backward()
            optimizer.step()
    train()
    """


def measured(source: str, folder: Path) -> tuple[WorkloadProfile, Phase]:
    profile, _ = profile_of(request(PREAMBLE + dedent(source), workdir=folder), folder)
    return profile, profile.phases[-1]


@pytest.mark.parametrize(
    ("source", "steps", "per_epoch"),
    [
        pytest.param(ACCUMULATION, 3000 * 10, None, id="accumulation"),
        pytest.param(COUNTER, 600_001, None, id="counter"),
        pytest.param(CLOSURE, 7000, None, id="closure"),
        pytest.param(NO_OPTIMIZER, 250 * 10, 10, id="no optimizer"),
    ],
)
def test_total_is_exact(source: str, steps: int, per_epoch: int | None, tmp_path: Path) -> None:
    _, phase = measured(source, tmp_path)
    assert (phase.total.kind, phase.total.steps) == (TotalKind.EXACT, steps), phase.total
    assert per_epoch in (None, phase.total.steps_per_epoch)


def test_the_total_is_what_a_whole_run_takes(tmp_path: Path) -> None:
    arguments = ["--epochs", "5"]
    cut, _ = profile_of(request("loader.py", *arguments, workdir=tmp_path), tmp_path)
    whole, _ = profile_of(request("loader.py", *arguments, steps=None, workdir=tmp_path), tmp_path)
    assert (cut.ended, whole.ended) == (False, True)
    assert cut.phases[-1].total.steps == whole.phases[-1].steps_observed == 5 * 20


def test_two_phases_are_both_counted(tmp_path: Path) -> None:
    profile, phase = measured(TWO_PHASES, tmp_path)
    assert phase.total.steps == 2000 * 50
    assert [later.steps for later in profile.later_phases] == [3000 * 50]


def test_bars_before_the_training_are_not_the_job(tmp_path: Path) -> None:
    """Neither a library's bar nor one around the preparation, although no framework has been imported yet."""
    profile, _ = profile_of(request(dedent(PREPARES), workdir=tmp_path), tmp_path)
    total = profile.phases[-1].total
    assert (len(profile.phases), total.kind, total.steps) == (1, TotalKind.EXACT, 600)


def test_two_optimizers_are_one_step_and_the_trace_holds_a_whole_turn(tmp_path: Path) -> None:
    _, phase = measured(TWO_OPTIMIZERS, tmp_path)
    assert (phase.total.kind, phase.total.steps, phase.total.steps_per_epoch) == (TotalKind.EXACT, 400 * 100, 100)
    assert phase.optimizers[0].updates_per_step == pytest.approx(1)
    assert phase.optimizers[1].updates_per_step == pytest.approx(0.2, rel=0.1)
    assert phase.trace_steps in (1, 5)


def test_workers_are_seen_and_ended(tmp_path: Path) -> None:
    profile, outcome = profile_of(request("loader.py", "--workers", "2", workdir=tmp_path), tmp_path)
    assert profile.phases[-1].data.workers == 2
    assert profile.phases[-1].data.fetch_seconds_per_batch is not None
    assert outcome.returncode == 0

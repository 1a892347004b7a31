"""A script that is measured while other programs use the cores: how its threads wait, and what is timed when."""

from pathlib import Path
from typing import Any

import pytest

from costgpu.measure import script as script_module
from costgpu.measure.session import Request
from tests.measure.harness import HERE, request

pytestmark = pytest.mark.torch

TRAINING = """
import os
import torch
print("threads wait", os.environ.get("OMP_WAIT_POLICY"), os.environ.get("KMP_BLOCKTIME"))
weight = torch.zeros(4, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(30):
    optimizer.zero_grad()
    (weight * 2).sum().backward()
    optimizer.step()
"""
FIGURES = {"gemm_gflops": [90.0], "conv_gflops": [70.0], "copy_gbps": [9.0], "calls": [2e5]}


@pytest.fixture
def training(tmp_path: Path) -> Request:
    path = tmp_path / "train.py"
    path.write_text(TRAINING)
    return request(str(path), workdir=tmp_path)


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, dict[str, str]]]:
    """Windows and variables of each micro-benchmark; the second one is the faster."""
    found: list[tuple[int, dict[str, str]]] = []

    def time_torch(_python: object, windows: int, threads: dict[str, str]) -> dict[str, Any]:
        found.append((windows, dict(threads)))
        rates = {name: [len(found) * rate for rate in rates] for name, rates in FIGURES.items()}
        return {**rates, "threads": 2, "single_thread_mbps": 15.0 * len(found)}

    monkeypatch.setattr(script_module, "time_torch", time_torch)
    return found


def log_of(asked: Request, cache: Path) -> str:
    profile, outcome = script_module.measure_script(asked, HERE, cache, lambda *_: None)
    machine = profile.machine
    assert (machine.gemm_gflops, machine.conv_gflops, machine.single_thread_mbps) == (180, 140, 30), "the best windows"
    assert machine.gemm_gflops_low == 90
    return outcome.log.read_text()


def test_threads_wait_where_others_use_the_cores(
    training: Request, tmp_path: Path, timed: list[tuple[int, dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setattr(script_module, "busy_share", lambda: 0.9)
    assert "threads wait PASSIVE 0" in log_of(training, tmp_path)
    before, after = script_module.WINDOWS_BEFORE, script_module.WINDOWS_AFTER
    assert timed == [(before, script_module.WAIT_PASSIVELY), (after, script_module.WAIT_PASSIVELY)]


def test_what_the_user_says_of_threads_holds(
    training: Request, tmp_path: Path, timed: list[tuple[int, dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    monkeypatch.setattr(script_module, "busy_share", lambda: 0.9)
    assert "threads wait ACTIVE 0" in log_of(training, tmp_path)
    assert len(timed) == 2


def test_on_a_quiet_machine_nothing_is_said_to_the_threads(
    training: Request, tmp_path: Path, timed: list[tuple[int, dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setattr(script_module, "busy_share", lambda: 0.1)
    assert "threads wait None None" in log_of(training, tmp_path)
    assert [variables for _, variables in timed] == [{}, {}]

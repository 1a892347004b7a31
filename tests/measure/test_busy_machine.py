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


@pytest.mark.parametrize(
    ("busy", "said", "words"),
    [(0.9, "", "PASSIVE 0"), (0.9, "ACTIVE", "ACTIVE 0"), (0.1, "", "None None")],
    ids=["where others use the cores", "as the user says", "on a quiet machine"],
)
def test_how_threads_wait(
    busy: float,
    said: str,
    words: str,
    training: Request,
    tmp_path: Path,
    timed: list[tuple[int, dict[str, str]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if said:
        monkeypatch.setenv("OMP_WAIT_POLICY", said)
    monkeypatch.setattr(script_module, "busy_share", lambda: busy)
    profile, outcome = script_module.measure_script(training, HERE, tmp_path, lambda *_: None)
    machine = profile.machine
    assert (machine.gemm_gflops, machine.conv_gflops, machine.single_thread_mbps) == (180, 140, 30), "the best windows"
    assert machine.gemm_gflops_low == 90
    assert f"threads wait {words}" in outcome.log.read_text()
    assert [windows for windows, _ in timed] == [script_module.WINDOWS_BEFORE, script_module.WINDOWS_AFTER]
    if not said:
        assert [variables for _, variables in timed] == [script_module.WAIT_PASSIVELY if busy > 0.5 else {}] * 2

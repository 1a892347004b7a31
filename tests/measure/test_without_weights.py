"""Scripts measured without weights: the same ops and memory as when they are computed, and nothing of their size written."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from costgpu.estimator.gpu import execution_of
from costgpu.estimator.roofline import GpuTerms
from costgpu.estimator.unit_work import pass_terms, passes_of, terms_of, unit_of
from costgpu.measure import measure_memory, session
from costgpu.measure import script as script_module
from costgpu.measure.session import Outcome
from costgpu.models.workload import MemoryKind, TotalKind, WorkloadProfile
from costgpu.pricing.hardware import accelerators
from tests.measure.harness import HERE, SCRIPTS, profile_of, request
from tests.measure.test_gpu_only import measured, ways

__all__ = ["ways"]

pytestmark = [pytest.mark.torch, pytest.mark.frameworks]
GIB = 2**30
OF_A_GPU = {  # dropout with a mask of its own type is a CPU's
    *("aten::native_dropout", "aten::native_dropout_backward"),
    *("aten::bernoulli_", "aten::div_", "aten::empty_like", "aten::mul"),
}


def both(tmp_path: Path) -> tuple[WorkloadProfile, WorkloadProfile, Outcome]:
    """Profiles of a model that fits, with and without weights, as on a GPU."""
    asked = request("without_weights/two_layers.py", workdir=tmp_path, steps=5)
    real, _ = profile_of(asked, tmp_path / "real", fake_cuda=True)
    shapes, outcome = profile_of(asked, tmp_path / "shapes", weights="none")
    return real, shapes, outcome


def gpu_terms_of(profile: WorkloadProfile, name: str) -> GpuTerms:
    """A step on a GPU."""
    unit = unit_of(profile.phases[0], passes_of(profile.phases[0]))
    return terms_of(unit, pass_terms(unit, accelerators()[name], execution_of(profile.framework)))


def test_a_model_that_fits_has_the_same_ops_and_length(tmp_path: Path) -> None:
    real, shapes, outcome = both(tmp_path)

    def rows(profile: WorkloadProfile) -> dict[str, float]:
        found: dict[str, float] = {}
        for row in profile.phases[0].ops:
            key = json.dumps([row.op, row.phase, [one[::2] for one in row.inputs], [one[::2] for one in row.outputs]])
            found[key] = found.get(key, 0.0) + row.count / profile.phases[0].trace_steps
        return found

    differing = {key.split('"')[1] for key in rows(real).keys() ^ rows(shapes).keys() if '"optimizer"' not in key}
    assert differing == OF_A_GPU
    for name in ("L4", "H100"):
        found = [gpu_terms_of(profile, name) for profile in (real, shapes)]
        assert found[1].device_seconds == pytest.approx(found[0].device_seconds, rel=0.03)
        assert found[1].calls_alone == pytest.approx(found[0].calls_alone, rel=0.03)
    assert [phase.total.steps for phase in (real.phases[0], shapes.phases[0])] == [40, 40]
    assert shapes.phases[0].total.kind is TotalKind.EXACT
    assert shapes.without_weights
    assert not real.without_weights
    assert shapes.memory is not None
    assert outcome.record is not None
    for peak in shapes.memory.peaks:
        assert sum(peak.kinds.values()) == peak.bytes
    highest = shapes.memory.highest
    assert highest is not None
    weights = sum(4 * one.parameters for one in shapes.phases[0].optimizers)
    assert weights <= highest.kinds[MemoryKind.WEIGHTS] < 1.02 * weights
    assert 2 * weights <= highest.kinds[MemoryKind.STATES] < 2.04 * weights
    assert shapes.memory.reserved_bytes >= shapes.memory.peak_bytes > shapes.memory.steady_bytes

    asked = request("without_weights/two_layers.py", workdir=tmp_path)
    again = measure_memory(asked, HERE, tmp_path / "again", lambda seconds, stepping: None, real)
    assert again == replace(real, memory=shapes.memory), "what was timed stays"


def test_its_peaks_are_those_of_computing_it_to_the_byte(tmp_path: Path) -> None:
    script = SCRIPTS / "without_weights" / "same_peak.py"
    root = Path(session.__file__).parents[2]
    done = subprocess.run([HERE.path, script, root], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    shapes, computed = json.loads(done.stdout.splitlines()[-1])
    assert shapes == computed
    assert shapes["backward"] > 0


def test_values_are_answered_and_what_would_be_saved_is_not_written(tmp_path: Path) -> None:
    asked = request("without_weights/values.py", workdir=tmp_path, steps=4)
    profile, outcome = profile_of(asked, tmp_path / "cache", weights="none")
    memory = profile.memory
    assert memory is not None
    assert memory.peak_bytes > 3 * GIB, "weights, gradients and momentum"
    assert profile.phases[0].total.steps == 30
    assert profile.peak_rss_bytes is not None
    assert profile.peak_rss_bytes < GIB
    assert outcome.changes.written_bytes < 10_000_000
    assert any("chose shapes" in note for note in profile.notes)


def test_what_is_too_large_is_measured_again(
    tmp_path: Path, ways: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "free_memory_bytes", lambda: 2**20)
    profile = measured("without_weights/two_layers.py", tmp_path)
    assert ways == [{}, {"weights": "none"}]
    assert profile.without_weights
    assert profile.phases[0].total.steps == 40


OPTIMIZERS_IN_THE_BACKWARD_PASS = """
import torch
net = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(6)])
optimizers = {value: torch.optim.AdamW([value]) for value in net.parameters()}
def step(value):
    optimizers[value].step()
    optimizers[value].zero_grad()
for value in net.parameters():
    value.register_post_accumulate_grad_hook(step)
for _ in range(70):
    net(torch.randn(16, 512)).square().mean().backward()
"""


def test_optimizers_that_step_inside_of_the_backward_pass_are_one_step(tmp_path: Path) -> None:
    asked = request(OPTIMIZERS_IN_THE_BACKWARD_PASS, workdir=tmp_path, steps=5)
    profile, _ = profile_of(asked, tmp_path / "cache", weights="none")
    (phase,) = profile.phases
    assert (phase.total.steps, phase.micro_batches) == (70, 1)
    assert sum(one.parameters for one in phase.optimizers) == 6 * (512 * 512 + 512)
    assert sum(row.count for row in phase.ops if row.op == "aten::addmm") == 6 * phase.trace_steps


SIX_PARTS = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(512, 512) for _ in range(4)])
    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        self.penalty = x.square().mean()
        return x
net = Net().train()
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(30):
    for part in range(6):
        loss = net(torch.randn(64, 512)).square().mean() / 6
        if PENALTY:
            loss = loss + net.penalty
        loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
"""


def test_equal_parts_of_a_step_are_told_by_the_second_one(tmp_path: Path) -> None:
    """And all of them make the same step as when each is computed."""
    asked = request(SIX_PARTS.replace("PENALTY", "False"), workdir=tmp_path, steps=4)
    short, outcome = profile_of(asked, tmp_path / "short", weights="none")
    whole, _ = profile_of(asked, tmp_path / "whole", weights="none", every_part=True)
    assert outcome.record is not None
    assert outcome.record["memory"] is not None
    assert outcome.record["memory"]["skipped"] >= 4 * 4
    counts = [
        {(row.op, row.phase): row.count / profile.phases[0].trace_steps for row in profile.phases[0].ops}
        for profile in (short, whole)
    ]
    assert counts[0] == counts[1]
    assert short.memory is not None
    assert whole.memory is not None
    assert short.memory.reserved_bytes == whole.memory.reserved_bytes
    for profile in (short, whole):
        assert (profile.phases[0].total.steps, profile.phases[0].micro_batches) == (30, 6)


def test_a_script_that_needs_every_part_is_measured_again(tmp_path: Path, ways: list[dict[str, Any]]) -> None:
    """Here the loss has a part that the model has kept, and whose graph is gone."""
    asked = replace(request(SIX_PARTS.replace("PENALTY", "True"), workdir=tmp_path, steps=4), weights="none")
    profile, _ = script_module.measure_script(asked, HERE, tmp_path / "cache", lambda *_: None)
    assert ways == [{}, {"every_part": True}]
    assert profile.phases[0].micro_batches == 6

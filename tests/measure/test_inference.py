"""PyTorch scripts that only run models forward: found without being asked, with their units and what they compute."""

from pathlib import Path

import pytest

from costgpu.measure.probe.frameworks.framework import NOTHING
from costgpu.models.workload import ExtraKind, GpuPath, Phase, TotalKind
from tests.measure.harness import profile_of, request

pytestmark = [pytest.mark.torch, pytest.mark.slow]
CONVOLUTIONS = 3


def scored(folder: Path, way: str, shape: str, steps: int = 8) -> Phase:
    profile, _ = profile_of(request("score.py", way, shape, workdir=folder, steps=steps), folder)
    assert len(profile.phases) == 1
    return profile.phases[0]


@pytest.mark.parametrize(
    ("way", "shape", "steps", "items"),
    [
        ("no_grad", "loader", 3 * 101, 10),
        ("inference_mode", "array", 126, 8),
        ("nothing", "forward", 700, 1),
    ],
)
def test_a_script_that_only_scores_is_inference(tmp_path: Path, way: str, shape: str, steps: float, items: int) -> None:
    phase = scored(tmp_path, way, shape)
    assert (phase.total.kind, phase.total.steps) == (TotalKind.EXACT, steps)
    assert (phase.unit.items, phase.unit.item) == (items, "image")
    assert phase.unit.independent
    assert phase.gpu is GpuPath.TRACED
    assert {op.phase for op in phase.ops} == {"forward"}
    assert sum(op.count for op in phase.ops if op.op == "aten::convolution") == CONVOLUTIONS
    assert phase.unit.activation_bytes >= items * 8 * 16 * 16 * 4
    assert (phase.optimizers, phase.saved_tensor_bytes) == ([], 0)
    assert phase.step.count >= 5


def test_one_token_after_the_other_counts_no_items(tmp_path: Path) -> None:
    phase = scored(tmp_path, "no_grad", "words")
    assert (phase.total.steps, phase.unit.name, phase.unit.items) == (300, "call", None)


def test_several_models_are_one_unit(tmp_path: Path) -> None:
    phase = scored(tmp_path, "no_grad", "several")
    assert phase.total.steps == 1003
    assert sum(op.count for op in phase.ops if op.op == "aten::convolution") == 5 * CONVOLUTIONS


def test_a_loop_beside_a_model_is_not_inference(tmp_path: Path) -> None:
    profile, _ = profile_of(request("score.py", "eval", "numpy", workdir=tmp_path), tmp_path)
    assert profile.phases[0].unit.trains
    assert (profile.phases[0].gpu, profile.phases[0].gpu_reason) == (GpuPath.NONE, NOTHING)
    assert profile.phases[0].total.steps == 200000


def test_training_stays_training_and_what_follows_it_is_a_phase(tmp_path: Path) -> None:
    profile, _ = profile_of(request("score.py", "eval", "train", workdir=tmp_path, steps=None), tmp_path)
    training, scoring = profile.phases
    assert (training.unit.trains, training.total.steps) == (True, 3 * 50)
    assert {op.phase for op in training.ops} == {"forward", "backward", "optimizer"}
    assert scoring.total.steps == 126
    assert ExtraKind.VALIDATION not in {extra.kind for extra in scoring.extras}

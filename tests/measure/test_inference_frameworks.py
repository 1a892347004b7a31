"""Inference by the libraries that people use: their own loops over batches, generation, and `predict`."""

from pathlib import Path

import pytest

from costgpu.models.workload import GpuPath, Phase, TotalKind
from tests.measure.harness import SCRIPTS, profile_of, request
from tests.measure.test_frameworks import needs

FRAMEWORKS = SCRIPTS / "frameworks"
pytestmark = [pytest.mark.torch, pytest.mark.frameworks]
PROMPTS, TOKENS, LAYERS, HEADS, HEAD_SIZE = 50, 9, 3, 2, 8  # of generate.py


def inferred(folder: Path, script: str, *arguments: str, trained: tuple[str, ...] = ()) -> Phase:
    """The phase of inference, after trainings in these units."""
    profile, _ = profile_of(request(FRAMEWORKS / script, *arguments, workdir=folder, steps=8), folder)
    assert [(one.unit.name, one.unit.trains) for one in profile.phases[:-1]] == [(unit, True) for unit in trained]
    assert not profile.phases[-1].unit.trains
    return profile.phases[-1]


@pytest.mark.parametrize("way", ["generate", "loop"])
def test_generation_is_a_prefill_and_decodes(tmp_path: Path, way: str) -> None:
    needs("transformers")
    phase = inferred(tmp_path, "generate.py", way)
    made = phase.unit.generation
    assert made is not None
    assert (phase.unit.name, phase.total.kind, phase.total.steps) == ("prompt batch", TotalKind.EXACT, PROMPTS)
    assert (made.sequences, made.prompt_tokens, made.new_tokens, made.decodes) == (4, 12, TOKENS, TOKENS - 1)
    assert (made.most_new_tokens, made.traced_decodes) == (TOKENS, 1)
    assert (made.layers, made.cache_bytes_per_token) == (LAYERS, 2 * LAYERS * HEADS * HEAD_SIZE * 4)
    matrices = {
        part: sum(op.count for op in phase.ops if op.op == "aten::mm" and op.phase == part)
        for part in ("prefill", "decode")
    }
    assert {op.phase for op in phase.ops} == set(matrices)
    assert matrices == {"prefill": 7 * LAYERS + 1, "decode": 7 * LAYERS + 1}  # and the head


@pytest.mark.parametrize(
    ("package", "way", "steps", "items"),
    [("lightning", "predict", 500, 10), ("transformers", "evaluate", 625, 8), ("pipeline", "list", 250, 16)],
)
def test_the_loops_of_libraries(tmp_path: Path, package: str, way: str, steps: float, items: float) -> None:
    needs({"pipeline": "transformers"}.get(package, package))
    phase = inferred(tmp_path, "predict_loops.py", package, way)
    assert (phase.total.kind, phase.total.steps) == (TotalKind.EXACT, steps)
    assert phase.unit.items == items
    assert (phase.gpu, phase.trace_steps) == (GpuPath.TRACED, 1)
    assert phase.label.startswith("predict_loops.py:")


@pytest.mark.parametrize(
    ("way", "package", "gpu", "steps", "items"),
    [
        ("keras-predict", "keras", GpuPath.COUNTED, 200 * 20, 32),
        ("keras-evaluate", "keras", GpuPath.COUNTED, 200 * 40, 16),
        ("jax", "flax", GpuPath.COUNTED, 10000, 64),
        ("sklearn", "sklearn", GpuPath.NONE, 3000, 200),
        ("xgboost", "xgboost", GpuPath.NONE, 3000, 640),
    ],
)
def test_predictions_of_other_frameworks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, package: str, gpu: GpuPath, steps: float, items: float
) -> None:
    needs(package, "jax")
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    phase = inferred(tmp_path, "predictors.py", way, trained=("tree",) if way == "sklearn" else ())
    assert (phase.total.kind, phase.total.steps) == (TotalKind.EXACT, steps)
    assert (phase.gpu, phase.unit.items) == (gpu, items)
    if phase.totals is not None:  # 16 inputs, 64 neurons, one result, forward only
        assert phase.totals.flops == pytest.approx(2 * items * (16 * 64 + 64))
    else:
        assert "no measured figure" in phase.gpu_reason

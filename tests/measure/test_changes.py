"""A script that runs again with a change that saves memory: what the change takes away, and what stays as it was."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from costgpu.estimator.advice.less_memory import computes_again
from costgpu.measure import measure_changed
from costgpu.models.memory_change import Changes, MemoryChange
from costgpu.models.workload import MemoryKind, WorkloadProfile
from tests.measure.harness import HERE, has, profile_of, request

pytestmark = [pytest.mark.torch, pytest.mark.frameworks]
STEPS = 3
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "vocab_size": 1000,
}


def held(profile: WorkloadProfile, kind: MemoryKind) -> int:
    """The most bytes of a kind in any phase."""
    assert profile.memory is not None
    return max(peak.kinds.get(kind, 0) for peak in profile.memory.peaks)


def changed(
    script: str, before: WorkloadProfile, tmp_path: Path, *changes: MemoryChange
) -> tuple[WorkloadProfile, tuple[str, ...]] | None:
    asked = request(script, workdir=tmp_path, steps=STEPS)
    return measure_changed(asked, HERE, tmp_path / "changed", lambda seconds, stepping: None, before, changes)


def unchanged(script: str, tmp_path: Path) -> WorkloadProfile:
    return profile_of(request(script, workdir=tmp_path, steps=STEPS), tmp_path / "before", weights="none")[0]


def test_checkpoints_states_in_8_bits_and_half_of_each_text(tmp_path: Path) -> None:
    before = unchanged("without_weights/deep.py", tmp_path)
    run = partial(changed, "without_weights/deep.py", before, tmp_path)
    found = run(MemoryChange.CHECKPOINTING, MemoryChange.EIGHT_BIT_STATES)
    assert found is not None
    after, how = found
    assert how == ("torch.utils.checkpoint.checkpoint() around each Layer", "bitsandbytes.optim.AdamW8bit")
    assert held(after, MemoryKind.ACTIVATIONS) < 0.35 * held(before, MemoryKind.ACTIVATIONS)
    assert not computes_again(before.phases[0])
    assert computes_again(after.phases[0])
    assert after.phases[0].total == before.phases[0].total
    table, others = 2048 * 128, before.phases[0].optimizers[0].parameters - 2048 * 128
    least = 8 * table + 2 * others
    assert least <= after.phases[0].optimizers[0].state_bytes < 1.05 * least, "those of the embedding stay as they are"

    halves = run(MemoryChange.HALF_SEQUENCES)
    assert halves is not None
    assert halves[1] == ("256 tokens",)
    ratio = held(halves[0], MemoryKind.ACTIVATIONS) / held(before, MemoryKind.ACTIVATIONS)
    assert 0.45 < ratio < 0.55
    assert held(halves[0], MemoryKind.STATES) == held(before, MemoryKind.STATES)


def test_where_there_is_nothing_to_change_nothing_is_said(tmp_path: Path) -> None:
    """One layer, SGD, and no loader."""
    asked = request("without_weights/values.py", workdir=tmp_path, steps=STEPS)
    every = "+".join(MemoryChange)
    _, outcome = profile_of(replace(asked, change=every), tmp_path / "cache", weights="none")
    assert outcome.record is not None
    assert outcome.record["changed"] == {}


def model_in(folder: Path) -> None:
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(CONFIG))


def shares(before: WorkloadProfile, after: WorkloadProfile) -> dict[MemoryKind, float]:
    return {kind: held(after, kind) / held(before, kind) for kind in (MemoryKind.WEIGHTS, MemoryKind.STATES)}


@pytest.mark.skipif(not has("peft"), reason="peft is not installed")
def test_adapters_are_trained_instead_of_pretrained_weights(tmp_path: Path) -> None:
    model_in(tmp_path)
    before = unchanged("without_weights/pretrained.py", tmp_path)
    cases: list[tuple[Changes, float]] = [((MemoryChange.LORA,), 0.5)]
    if has("bitsandbytes"):
        cases.append(((MemoryChange.QLORA, MemoryChange.CHECKPOINTING), 0.15))
    for changes, weights in cases:
        found: Any = changed("without_weights/pretrained.py", before, tmp_path, *changes)
        assert found is not None
        after, how = found
        assert "peft.LoraConfig" in how[0]
        assert ("load_in_4bit" in how[0]) == (MemoryChange.QLORA in changes)
        assert shares(before, after)[MemoryKind.STATES] < 0.1
        assert weights - 0.05 < shares(before, after)[MemoryKind.WEIGHTS] < weights + 0.1
        assert after.phases[0].frozen_bytes > 0.8 * after.phases[0].model_bytes

"""One PyTorch script with validation, checkpoints and a DataLoader, from its start to the profile."""

from pathlib import Path

import pytest

from costgpu.models.workload import ExtraKind, Rhythm, TotalKind
from tests.measure.harness import profile_of, request

pytestmark = pytest.mark.torch


def test_a_training_script_is_measured_unmodified(tmp_path: Path) -> None:
    profile, outcome = profile_of(request("loader.py", workdir=tmp_path), tmp_path)
    phase = profile.phases[-1]
    assert (phase.total.kind, phase.total.steps, phase.total.steps_per_epoch) == (TotalKind.EXACT, 500 * 20, 20)
    kinds = {extra.kind: extra for extra in phase.extras}
    assert kinds[ExtraKind.VALIDATION].rhythm is Rhythm.EPOCH
    assert kinds[ExtraKind.VALIDATION].every == pytest.approx(1)
    assert outcome.record is not None
    saves = [event for event in outcome.record["phases"][-1]["special"].values() if "save" in event]
    assert saves, "checkpoints are timed, even where they are too short to be listed"
    assert phase.data.batches_per_step == pytest.approx(1, abs=0.1)
    assert phase.data.batch_size == 32
    assert phase.data.fetch_seconds_per_batch is not None
    assert "validation" not in {op.phase for op in phase.ops}
    assert {op.phase for op in phase.ops} == {"forward", "backward", "optimizer"}
    assert phase.optimizers[0].parameters == 16 * 64 + 64 + 64 + 1
    assert phase.saved_tensor_bytes > 0
    assert outcome.survivors == 0

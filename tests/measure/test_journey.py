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
    saved = kinds[ExtraKind.CHECKPOINT]
    assert (saved.rhythm, saved.measured) == (Rhythm.EPOCH, True)
    assert saved.every == pytest.approx(1)
    assert phase.data.batches_per_step == pytest.approx(1, abs=0.1)
    assert phase.data.batch_size == 32
    assert phase.data.fetch_seconds_per_batch is not None
    assert "validation" not in {op.phase for op in phase.ops}
    assert {op.phase for op in phase.ops} == {"forward", "backward", "optimizer"}
    assert phase.optimizers[0].parameters == 16 * 64 + 64 + 64 + 1
    assert phase.saved_tensor_bytes > 0
    assert outcome.survivors == 0


LONG_EPOCHS = """
import torch
net = torch.nn.Linear(100, 1000)
optimizer = torch.optim.Adam(net.parameters())
for epoch in range(5):
    for step in range(100_000):
        optimizer.zero_grad()
        net(torch.randn(32, 100)).pow(2).mean().backward()
        optimizer.step()
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")
    picture.save("epoch.png")
"""


def test_a_checkpoint_that_was_not_reached_is_read_in_the_source(tmp_path: Path) -> None:
    script = tmp_path / "long_epochs.py"
    script.write_text(LONG_EPOCHS)
    profile, _ = profile_of(request(script, steps=20, workdir=tmp_path), tmp_path)
    (saved,) = [extra for extra in profile.phases[-1].extras if extra.kind is ExtraKind.CHECKPOINT]
    assert (saved.rhythm, saved.every, saved.measured) == (Rhythm.EPOCH, 1, False)
    assert saved.seconds_each == pytest.approx(3 * 4 * 101_000 / 200e6, rel=0.01), "weights and Adam's state"
    assert saved.note.startswith("line 10, not reached")

"""What the probe makes of Lightning's own calls."""

from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.measure.probe.frameworks.lightning_hooks import LightningHooks


@pytest.mark.parametrize(("file", "name"), [("lr_finder", "_lr_find"), ("batch_size_scaling", "_scale_batch_size")])
@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_steps_of_a_tuner_are_preparation(package: str, file: str, name: str) -> None:
    told: list[str] = []
    recorder: Any = SimpleNamespace(
        tuning_begins=lambda: told.append("begins"), tuning_ends=lambda: told.append("ends")
    )
    make: Any = LightningHooks
    module = SimpleNamespace(**{name: lambda trainer: (trainer, list(told))})
    make(recorder).callbacks()[f"{package}.tuner.{file}"](module)
    assert getattr(module, name)("trainer") == ("trainer", ["begins"])
    assert told == ["begins", "ends"]

"""Steps and what comes beside them, in words."""

from dataclasses import replace
from typing import Any

import pytest

from costgpu.models.workload import Extra, ExtraKind, Phase, Rhythm, Unit
from costgpu.render.phrases import extra_phrase, steps_phrase
from tests.unit.estimator import inferring


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        (inferring.scoring(), "1,000 batches of 64 images"),
        (inferring.scoring(1), "1,000 batches of 1 image"),
        (inferring.chat(1, 300, name="prompt"), "300 prompts, 128 new tokens each"),
        (replace(inferring.scoring(), unit=Unit(name="batch")), "1,000 batches"),
        (
            replace(inferring.scoring(), total=replace(inferring.known(1000), steps_per_epoch=500.0)),
            "1,000 batches of 64 images in 2 epochs",
        ),
    ],
)
def test_units_in_words(phase: Phase, words: str) -> None:
    assert steps_phrase(phase) == words


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"kind": ExtraKind.VALIDATION, "rhythm": Rhythm.EPOCH}, "validation 2 s every epoch"),
        ({"kind": ExtraKind.CHECKPOINT, "every": 500, "measured": False}, "checkpoint 2 s every 500 steps (inferred)"),
        ({"rhythm": Rhythm.RUN}, "other 2 s once"),
        ({"rhythm": Rhythm.EPOCH, "every": 2}, "other 2 s every 2 epochs"),
    ],
)
def test_extras_in_words(facts: dict[str, Any], words: str) -> None:
    other = Extra(kind=ExtraKind.OTHER, seconds_each=2.0, rhythm=Rhythm.STEPS)
    assert extra_phrase(replace(other, **facts)) == words

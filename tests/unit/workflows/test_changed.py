"""Which scripts run again with a change, and what comes of runs that fail."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from costgpu.measure import Interpreter, Request
from costgpu.models.memory_change import MemoryChange
from costgpu.models.workload import WorkloadProfile
from costgpu.workflows.estimate import changed
from costgpu.workflows.estimate.changed import changes_tried
from costgpu.workflows.estimate.measure import ProfileSource
from tests.unit.estimator.advisable import ANY, gpu, judged, phase, product, profile, workload_of
from tests.unit.estimator.builders import lora_memory
from tests.unit.workflows.reporter import ListReporter

SCRIPT = Request(script=Path("/work/train.py"), module=None, arguments=[], workdir=Path("/work"))
MEASURED = profile(phase(product(4096, 20)), memory=lora_memory(), without_weights=True)
TWO = ((MemoryChange.LORA,), (MemoryChange.CHECKPOINTING, MemoryChange.EIGHT_BIT_STATES))


def tried(found: ProfileSource, reporter: ListReporter, monkeypatch: pytest.MonkeyPatch, *, works: bool) -> Any:
    """What comes of two changes, of which the first fails, as do both unless one `works`."""

    def measured(*given: Any) -> Any:
        before: WorkloadProfile
        before, changes = given[-2:]
        return (replace(before, setup_seconds=1.0), ("so", "so")) if works and len(changes) == 2 else None

    monkeypatch.setattr(changed, "worth_a_run", lambda *_: TWO)
    monkeypatch.setattr(changed, "interpreter_of", lambda *_: Interpreter("python", "3", "tests"))
    monkeypatch.setattr(changed, "measure_changed", measured)
    workload = workload_of(found.profile)
    verdict, offers = judged(workload, [gpu("A100", 4.0)])
    return changes_tried(workload, found, None, verdict, offers, ANY, reporter)


def test_a_change_that_cannot_be_measured_is_named_and_the_next_one_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    reporter = ListReporter()
    (found,) = tried(ProfileSource(MEASURED, None, None, SCRIPT), reporter, monkeypatch, works=True)
    assert found.changes == TWO[1]
    assert found.how == ("so", "so")
    assert found.workload.profile.setup_seconds == 1.0
    assert reporter.notes == ["What it saves to train LoRA adapters instead of all weights could not be measured."]


@pytest.mark.parametrize(
    "found",
    [
        ProfileSource(MEASURED, None, None),  # a saved profile
        ProfileSource(replace(MEASURED, without_weights=False), None, None, SCRIPT),
    ],
)
def test_nothing_else_runs_again(found: ProfileSource, monkeypatch: pytest.MonkeyPatch) -> None:
    reporter = ListReporter()
    assert tried(found, reporter, monkeypatch, works=True) == []
    assert reporter.notes == []


def test_runs_for_which_there_is_no_time_are_named_and_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    reporter = ListReporter()
    slow = replace(MEASURED, wall_seconds=60.0)
    assert tried(ProfileSource(slow, None, None, SCRIPT), reporter, monkeypatch, works=True) == []
    assert len(reporter.notes) == 2
    assert reporter.notes[0].startswith(
        "A run of train.py takes 60 s, so this was not tried: to checkpoint activations"
    )
    assert reporter.notes[1].endswith("could not be measured."), "of the first, for which there is time"

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


def tried(
    found: ProfileSource, reporter: ListReporter, monkeypatch: pytest.MonkeyPatch, *, works: bool, seconds: float = 0.0
) -> Any:
    """What comes of two changes, of which the first fails, as do both unless one `works`, after so many seconds each."""
    now = [0.0]

    def measured(*given: Any) -> Any:
        now[0] += seconds
        before: WorkloadProfile
        before, changes = given[-2:]
        return (replace(before, setup_seconds=1.0), ("so", "so")) if works and len(changes) == 2 else None

    monkeypatch.setattr(changed, "monotonic", lambda: now[0])
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


@pytest.mark.parametrize(
    ("before", "seconds", "made"), [(60.0, 60.0, 1), (20.0, 75.0, 1), (20.0, 30.0, 2), (91.0, 1.0, 0)]
)
def test_runs_for_which_there_is_no_time_are_named_and_not_made(
    before: float, seconds: float, made: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Be it by what the first run took, or by what those with changes take."""
    reporter, slow = ListReporter(), replace(MEASURED, wall_seconds=before)
    found = tried(ProfileSource(slow, None, None, SCRIPT), reporter, monkeypatch, works=True, seconds=seconds)
    assert len(found) == max(0, made - 1), "the first fails"
    named = [note for note in reporter.notes if note.startswith("More runs of train.py would take longer than 90 s")]
    assert len(named) == (made < 2)
    assert all("checkpoint activations" in note for note in named)

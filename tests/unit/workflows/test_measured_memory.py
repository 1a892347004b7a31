"""Which scripts run once more for what they hold on a GPU."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.estimator.memory import is_near
from costgpu.measure import Interpreter, Request
from costgpu.measure.isolation.levels import Isolation
from costgpu.models.workload import Unit, WorkloadProfile
from costgpu.workflows.estimate import measure
from tests.unit.estimator.advisable import phase, product, profile
from tests.unit.estimator.builders import lora_memory
from tests.unit.workflows.reporter import ListReporter

GIB = 2**30
SCRIPT = Request(script=Path("/home/ada/train.py"), module=None, arguments=[], workdir=Path("/home/ada"))


def activations(size: int, *ops: Any) -> WorkloadProfile:
    """A training that holds so much, and 1 GiB of CUDA, by formula."""
    return profile(replace(phase(*ops), optimizers=[], model_bytes=0, saved_tensor_bytes=size))


MEASURED = activations(10 * GIB, product(4096, 20))


def measured(
    request: Request,
    found: WorkloadProfile,
    monkeypatch: pytest.MonkeyPatch,
    isolation: Isolation = Isolation.WRITE_PROTECTED,
) -> WorkloadProfile:
    outcome: Any = SimpleNamespace(isolation=isolation)
    monkeypatch.setattr(measure, "interpreter_of", lambda *_: Interpreter("python", "3", "tests"))
    monkeypatch.setattr(measure, "measure_script", lambda *_: (found, outcome))
    monkeypatch.setattr(measure, "measure_memory", lambda *given: replace(given[-1], memory=lora_memory()))
    return measure.run_measurement(request, None, ListReporter())[0]


def test_a_training_that_is_near_the_memory_of_some_gpu_is_measured_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(SCRIPT, MEASURED, monkeypatch)
    assert found == replace(MEASURED, memory=lora_memory())


@pytest.mark.parametrize(
    ("request_", "found"),
    [
        (replace(SCRIPT, weights="real"), MEASURED),
        (SCRIPT, replace(MEASURED, framework=replace(MEASURED.framework, device="cuda"))),
        (SCRIPT, activations(GIB // 2, product(4096, 20))),
    ],
    ids=["told", "on a GPU", "small"],
)
def test_nothing_else_is(request_: Request, found: WorkloadProfile, monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured(request_, found, monkeypatch).memory is None


def test_a_script_that_really_writes_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured(SCRIPT, MEASURED, monkeypatch, Isolation.COPY).memory is None


def test_near_is_a_factor_of_two_to_both_sides() -> None:
    assert [is_near(MEASURED, [room]) for room in (5.0, 6.0, 21.0, 23.0)] == [False, True, True, False]
    assert not is_near(replace(MEASURED, memory=lora_memory()), [11.0])
    assert not is_near(activations(10 * GIB), [11.0]), "no op of it was seen"
    runs = replace(MEASURED.phases[0], unit=Unit(trains=False), model_bytes=100 * GIB)
    assert is_near(replace(MEASURED, phases=[*MEASURED.phases, runs]), [11.0]), "whatever it runs besides"

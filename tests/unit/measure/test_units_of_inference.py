"""Units of inference as they are noted, on a clock of the test's own and with stand-ins for torch."""

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.measure.probe import recorder
from costgpu.measure.probe.inference.phase import Inference
from costgpu.measure.profile.waiting import waiting_of_phase
from tests.unit.measure.records import phase

make_recorder: Any = recorder.Recorder  # for Python 3.8, without types
make_units: Any = Inference


class Script:
    """Calls a model every second, and is never on a core."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.now = 0.0
        clocks = dict.fromkeys(("recorder.clock", "schedstat.clock"), lambda: self.now)
        still = dict.fromkeys(("schedstat.cpu_clock", "schedstat.run_delay"), lambda: 0.0)
        threads = {"activity.state_of": lambda *thread: "S", "activity.waits_outside": lambda *thread: True}
        for name, value in (clocks | still | threads).items():
            monkeypatch.setattr("costgpu.measure.probe." + name, value)
        files = SimpleNamespace(real_open=io.open, scratch=str(folder))
        self.seen = seen = make_recorder({"measure_for": 1000.0, "weights": "real"}, files, None)
        seen.loop_stack = SimpleNamespace(snapshot=lambda frame: [], frames=lambda frame: [])
        no_trainings = SimpleNamespace(look_from=lambda *known, libraries: None)
        seen.upcoming_work = SimpleNamespace(read=lambda *known, training: ([], [], []), trainings=no_trainings)
        seen.module_hooks = SimpleNamespace(narrow=lambda modules: None)
        self.now, self.frame = 1.0, sys._getframe()
        self.units = make_units(self.frame, (0, 1), looped=True, began=self.now, preceded=None)
        self.units.untraceable = "there is no torch"
        seen.phase_begins(self.units)

    def call(self, seconds: float = 1.0) -> None:
        """Begin a unit, whose call of the model takes so long, and look twice at the threads."""
        self.units.end_unit(self.seen, self.frame, self.now)
        self.units.call_ended(self.now + seconds)
        self.seen.activity.look()
        self.seen.activity.look()
        self.now += 1.0


def test_looks_into_units_are_looks_into_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = Script(monkeypatch, tmp_path)
    for number in range(12):
        script.call()
        if number == 6:
            script.seen.saved(0.1)
    found, (seconds, waits, blocked, run_delay) = script.seen.activity.record(), script.units.whole_intervals(100)
    assert found["off"] == 2 * 10, "of the third unit, which shows that they are the job, and those after it"
    assert found["step_off"] == found["step_alone"] == 2 * 8, "not of one with a checkpoint, or of one that goes on"
    assert (waits, run_delay) == ([0.0] * 10, [0.0] * 10)
    assert waiting_of_phase(phase(seconds=seconds, blocked=blocked), range(10), found) == pytest.approx(1.0)


@pytest.mark.parametrize(("calls", "seconds"), [(1, 0.5), (2, 0.25)])
def test_what_has_hardly_a_unit_is_timed_by_its_call(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, calls: int, seconds: float
) -> None:
    script = Script(monkeypatch, tmp_path)
    for number in range(calls):
        script.call(0.5 / (number + 1))
    script.units.close(script.seen)
    assert script.units.whole_intervals(100) == [[seconds], [0.0], [0.0], [0.0]]

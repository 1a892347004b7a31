"""What waits is told from what computes, and from what has no core."""

from typing import Any

import pytest

from costgpu.measure.log.counters import ProgressLog
from costgpu.measure.log.lines import Line
from costgpu.measure.log.series import read_record
from costgpu.measure.probe.activity import Activity
from costgpu.measure.profile.neighbours import neighbours_of
from costgpu.measure.profile.waiting import notes_of_queue, waiting_of_phase, waiting_share
from tests.unit.measure.records import build, phase, record, result, shot


def activity(**other: Any) -> Any:
    """Ten seconds, of which one on a core, unless said otherwise."""
    looks = {"looks": 50, "off": 45, "alone": 45, "quiet": 45, "step_off": 45, "step_alone": 45}
    queue = {"main_run_delay": 0.0, "run_delay": 0.0, "children_cpu": 0.0, "neighbours_cpu": 0.0, "stolen": 0.0}
    return {"wall": 10.0, "cpu": 1.0, "main_cpu": 1.0} | queue | looks | other


def notes(seen: Any) -> list[str]:
    return notes_of_queue(seen, neighbours_of(seen, 2))


def test_a_machine_without_a_free_core_is_told() -> None:
    assert notes(activity(main_run_delay=1.0)) == notes(None) == []
    assert "Other programs took 84% of" in notes(activity(main_run_delay=8.4, run_delay=8.4, neighbours_cpu=16.0))[0]
    (own,) = notes(activity(main_run_delay=8.4, run_delay=8.4, children_cpu=16.0))
    assert "no core for 84% of the time, since processes of its own" in own


FEW = {"looks": 2, "off": 2, "alone": 1, "quiet": 1, "step_off": 2, "step_alone": 1}
SHARES = [
    (activity(), 0.9),
    (activity(main_run_delay=4.0), 0.5),  # a busy neighbour
    (activity(alone=0, quiet=0, cpu=9.0), 0.0),  # other threads compute
    (activity(quiet=0), 0.0),  # a pool of processes does
    (activity(quiet=9), 0.18),
    (activity(cpu=5.5, **FEW), 0.45),
    (activity(cpu=30.0, **FEW), 0.0),
    (activity(main_cpu=9.8, cpu=9.8), 0.0),  # barriers
    (activity(wall=0.0), 0.0),
    (None, 0.0),
]


@pytest.mark.parametrize(("seen", "share"), SHARES)
def test_share_of_the_time_in_which_nothing_computes(seen: Any, share: float) -> None:
    assert waiting_share(seen) == pytest.approx(share)


def raw(**other: Any) -> Any:
    return phase(shot(11), seconds=[0.1] * 10, blocked=[0.08] * 10) | other


@pytest.mark.parametrize(
    ("step", "seen", "seconds"),
    [
        (raw(), activity(), 0.08),
        (raw(), activity(step_alone=9), 0.016),
        (raw(), activity(step_alone=0), 0.0),  # what waits does so between epochs
        (raw(), activity(step_off=2, step_alone=0), 0.0),
        (raw(), activity(step_off=0, step_alone=0), 0.08),  # a policy acts in each step, which is none of its own
        (raw(blocked=[0.0] * 10), activity(step_off=0, step_alone=0), 0.0),  # nothing waits but between epochs
        (raw(special={str(i): {"save": 0.025} for i in range(10)}), activity(step_off=0, step_alone=0), 0.06),
        (raw(), activity(off=2, alone=2, step_off=2, step_alone=2, cpu=1.0), 0.08),
        (raw(blocked=[0.004] * 10), activity(), 0.0),
        (raw(blocked=[0.08] * 9 + [9.0], seconds=[0.1] * 9 + [9.0]), activity(), (0.08 * 9 + 0.3) / 10),
        (raw(device="cuda"), activity(), 0.0),
        (raw(), None, 0.0),
        (raw(blocked=[]), activity(), 0.0),
    ],
)
def test_what_a_step_waits(step: Any, seen: Any, seconds: float) -> None:
    assert waiting_of_phase(step, range(10), seen) == pytest.approx(seconds)


def test_a_phase_of_torch_says_what_it_waits() -> None:
    profile = build(result(raw(), activity=activity()))
    assert profile.phases[0].waiting_seconds_per_step == pytest.approx(0.08)


def test_a_series_splits_into_waiting_and_one_core() -> None:
    fit = record("series", seconds=[0.1] * 12)
    profile = build(record("series_result", series=[fit], activity=activity(), cpu_seconds=1.0, peak_rss_bytes=1))
    (found,) = profile.phases
    assert found.waiting_seconds_per_step == pytest.approx(0.09)
    assert found.host_seconds_per_step == pytest.approx(0.01)


def test_a_program_known_by_its_lines_waits_and_works_on_one_core() -> None:
    log = ProgressLog()
    for n in range(9):
        log.read(Line(f"step {n}/90", n * 0.2))
    seen = activity(cores=4, main_cpu=0.0, off=50, alone=0, quiet=45)
    reading, unlooked = (read_record(log, ended=False, wall_seconds=10.0, activity=one) for one in (seen, None))
    assert reading is not None
    assert unlooked is not None
    (found,) = build(reading[0]).phases
    assert found.waiting_seconds_per_step == pytest.approx(0.18)
    assert found.host_seconds_per_step == pytest.approx(0.02)
    (unseen,) = build(unlooked[0]).phases
    assert unseen.waiting_seconds_per_step == unseen.host_seconds_per_step == 0


def test_the_activity_of_this_process_is_read() -> None:
    seen = Activity()
    sum(range(100_000))
    seen.look()
    found = seen.record()
    assert found["wall"] > 0
    assert found["looks"] == 1
    assert found["looks"] >= found["off"] >= found["alone"] >= found["quiet"]


def test_looks_between_epochs_and_into_a_loader_are_no_looks_into_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("costgpu.measure.probe.activity.state_of", lambda pid, thread: "S")
    monkeypatch.setattr("costgpu.measure.probe.activity.waits_outside", lambda pid, thread: True)
    seen = Activity()
    for in_step, plain in ((True, False), (False, True), (True, True)):
        seen.look(in_step=in_step)
        seen.end_interval(plain=plain)
    found = seen.record()
    assert (found["off"], found["alone"]) == (3, 3)
    assert (found["step_off"], found["step_alone"]) == (1, 1)

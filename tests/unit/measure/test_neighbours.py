"""What other programs took of a measurement, and the times without it: what must hold, and the busy machine of the study."""

import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.measure.probe import schedstat
from costgpu.measure.probe.activity import Activity
from costgpu.measure.probe.interval import shared_out
from costgpu.measure.profile.neighbours import MOST, Neighbours, neighbours_of, neighbours_of_program
from tests.unit.estimator import builders
from tests.unit.measure.records import build, phase, record, result, shot


def activity(**other: Any) -> Any:
    """A hundred seconds of one thread on a quiet machine of two cores, unless said otherwise."""
    looks = {"looks": 500, "off": 0, "alone": 0, "quiet": 0, "step_off": 0, "step_alone": 0}
    queue = {"main_run_delay": 0.0, "run_delay": 0.0, "children_cpu": 0.0, "neighbours_cpu": 0.0, "stolen": 0.0}
    return {"wall": 100.0, "cores": 2, "cpu": 100.0, "main_cpu": 100.0} | queue | looks | other


def timed(seconds: float, *, blocked: float = 0.0, run_delay: float = 0.0, wait: float = 0.0, **other: Any) -> Any:
    """Twelve equal steps."""
    times = {"waits": [wait] * 12, "blocked": [blocked] * 12, "run_delay": [run_delay] * 12}
    return phase(shot(13), seconds=[seconds] * 12) | times | {"loader": None} | other


QUIET = activity()
# One thread, two threads that block for each other, and two that spin, beside four busy loops on two cores: CPU seconds
# and seconds in the queue as they were measured for 100 s (benchmarks/README.md, 2026-11-25).
ALONE = activity(cpu=39.0, main_cpu=39.0, main_run_delay=61.0, run_delay=61.0, neighbours_cpu=160.0)
LOOKS = {"looks": 500, "off": 80, "alone": 0, "quiet": 0, "step_off": 80, "step_alone": 0}
PASSIVE = activity(cpu=55.0, main_cpu=28.0, main_run_delay=55.0, run_delay=108.0, neighbours_cpu=145.0, **LOOKS)
ACTIVE = activity(cpu=66.0, main_cpu=33.0, main_run_delay=67.0, run_delay=134.0, neighbours_cpu=134.0)


def test_a_quiet_machine_changes_nothing() -> None:
    found = neighbours_of(QUIET, 2)
    raw = timed(0.1, blocked=0.01)
    assert found.share == 0
    assert found.undisturbed(raw) == raw
    assert neighbours_of(None, 2) == neighbours_of(activity(wall=0.0), 2) == Neighbours()


@pytest.mark.parametrize(
    ("seen", "threads", "step", "quiet"),
    [
        (ALONE, 1, timed(0.338, run_delay=0.671), 0.34),
        (PASSIVE, 2, timed(2.097, blocked=0.807, run_delay=2.503), 1.29),
        (ACTIVE, 2, timed(2.434, run_delay=4.962), 1.25),
    ],
)
def test_four_busy_loops_on_two_cores(seen: Any, threads: int, step: Any, quiet: float) -> None:
    found = neighbours_of(seen, threads)
    assert found.undisturbed(step)["seconds"] == pytest.approx([quiet] * 12, rel=0.1)
    assert found.share > 0.6


def test_its_own_processes_are_no_neighbours() -> None:
    """Workers of a loader on the cores that train: no cloud machine of that size would be without them."""
    found = neighbours_of(activity(main_run_delay=30.0, run_delay=30.0, main_cpu=70.0, children_cpu=90.0), 1)
    assert (found.queue, found.share) == (0, 0)
    assert found.undisturbed(timed(0.1, run_delay=0.04))["seconds"] == pytest.approx([0.14] * 12)


def test_what_other_virtual_machines_took_is_taken_off() -> None:
    found = neighbours_of(activity(stolen=25.0, cpu=75.0, main_cpu=75.0), 1)
    assert found.stolen == pytest.approx(0.25)
    assert found.undisturbed(timed(0.1))["seconds"] == pytest.approx([0.075] * 12)


def test_a_system_that_tells_no_queue_keeps_its_times_and_says_that_it_was_busy() -> None:
    silent = activity(main_cpu=0.0, cpu=60.0, neighbours_cpu=130.0)
    found = neighbours_of(silent, 1)
    assert found == Neighbours(share=130 / 190)
    assert found.undisturbed(timed(0.1)) == timed(0.1)
    assert neighbours_of(activity(main_cpu=0.0, cpu=60.0, neighbours_cpu=30.0), 1) == Neighbours(), "a core was free"


def test_a_loaders_waits_are_those_of_fed_workers() -> None:
    loader = {"workers": 2, "fetch_seconds": 1.0, "fetch_waits": 0.0, "fetch_run_delay": 3.0, "fetches": 10}
    found = replace(neighbours_of(ALONE, 1), queue=1.0)
    told = found.undisturbed(timed(0.1, wait=0.08, loader=loader))
    assert told["waits"] == pytest.approx([0.02] * 12)
    assert told["seconds"] == pytest.approx([0.04] * 12)
    own = {"workers": 0, "fetch_seconds": 1.0, "fetch_waits": 2.0, "fetch_run_delay": 0.0, "fetches": 10}
    read = found.undisturbed(timed(0.1, loader=own))["loader"]
    assert read is not None
    assert read["fetch_seconds"] == pytest.approx(1.0 + (1 - found.lost) * 2.0), "what it waited for a disk stays"


def test_validation_is_as_much_shorter_as_the_steps() -> None:
    raw = timed(2.0, run_delay=4.0, special={"3": {"validation": 9.0, "opened": 1}})
    told = neighbours_of(ACTIVE, 2).undisturbed(raw)
    ratio = told["seconds"][0] / 2.0
    assert told["special"]["3"] == {"validation": pytest.approx(9.0 * ratio), "opened": 1}


shares = st.floats(0, 1)


@given(shares, shares, shares, shares, shares, shares, st.floats(1e-6, 1e3), st.floats(0, 1), st.floats(0, 1))
def test_nothing_is_taken_twice(
    queue: float,
    lost: float,
    team: float,
    spinning: float,
    stolen: float,
    waiting: float,
    seconds: float,
    off: float,
    wait: float,
) -> None:
    found = Neighbours(queue, lost, team, spinning, stolen, waiting)
    wait, blocked = wait * seconds / 2, off * seconds / 2
    told = found.undisturbed(timed(seconds, blocked=blocked, wait=wait, run_delay=seconds))
    assert told["seconds"][0] >= (1 - MOST) * (seconds - wait - blocked) - 1e-9
    assert 0 <= told["blocked"][0] <= blocked
    assert told["seconds"][0] <= seconds + (1 - queue) * seconds + 1e-9


def test_what_was_looked_at_for_a_moment_tells_nothing_of_the_steps() -> None:
    moment = activity(wall=0.01, cpu=0.002, main_cpu=0.001, main_run_delay=0.004, run_delay=0.01, neighbours_cpu=0.01)
    assert neighbours_of(moment, 2) == neighbours_of_program(moment, 2) == Neighbours()


def test_a_program_that_is_watched_from_outside() -> None:
    beside = activity(cpu=33.0, run_delay=67.0, neighbours_cpu=160.0, main_cpu=0.0)
    assert neighbours_of_program(beside, 2).share == pytest.approx(0.67)
    crowded = activity(cpu=190.0, run_delay=200.0, neighbours_cpu=0.0)
    assert neighbours_of_program(crowded, 2).share == 0, "its own threads"
    asleep = activity(cpu=0.1, run_delay=2.0, neighbours_cpu=160.0)
    assert neighbours_of_program(asleep, 2).share == pytest.approx(0.02), "it sleeps, and loses hardly anything"
    starting = activity(cpu=10.0, run_delay=25.0, neighbours_cpu=160.0, looks=20, off=20, quiet=17)
    assert neighbours_of_program(starting, 2) == Neighbours(), "what starts beside a loop that sleeps lengthens nothing"
    assert neighbours_of_program(None, 2) == Neighbours()


def test_a_series_without_what_others_took() -> None:
    known = builders.phase(step=builders.step_times(3.0))
    assert Neighbours(queue=1.0, share=0.5).undisturbed_phase(known).step == builders.step_times(1.5)
    assert Neighbours(share=0.5).undisturbed_phase(known) == known, "known to be busy, and not by how much"


def test_a_busy_machine_is_told_and_its_times_are_as_on_a_quiet_one() -> None:
    busy = build(result(timed(2.434, run_delay=4.962), activity=ACTIVE, torch={"threads": 2}))
    assert busy.phases[0].step.seconds == pytest.approx(1.25, rel=0.1)
    assert busy.machine.disturbed_share > 0.6
    assert any("Other programs took" in note for note in busy.notes)
    fit = record("series", seconds=[0.3] * 12)
    trees = build(record("series_result", series=[fit], activity=ALONE, cpu_seconds=1.0, peak_rss_bytes=1))
    assert trees.phases[0].step.seconds == pytest.approx(0.3 * (1 - trees.machine.disturbed_share))


def test_the_queue_is_shared_out_between_the_loader_and_what_the_thread_waits_for() -> None:
    """Ten seconds without a core: four of them queued, two in the loader, and eight for something else."""
    interval = shared_out((11.0, 5.0, 4.0), wait=3.0, loader_blocked=2.0, answered=1.0)
    assert interval == pytest.approx((10.0, 3.0 - 0.4 * 2.0, 0.6 * 8.0, 4.0))
    assert shared_out((1.0, 1.0, 0.0), wait=0.2, loader_blocked=0.0) == (1.0, 0.2, 0.0, 0.0)
    assert shared_out((0.1, 0.1, 9.9), wait=0.0, loader_blocked=0.0)[2] == 0, "a busy neighbour is no waiting"


# ------------------------------------------------------------------------------------------------ what the kernel says


def test_a_lap_leaves_out_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    now, queue = iter((10.0, 13.0)), iter((1.0, 3.0))
    monkeypatch.setattr(schedstat, "clock", lambda: next(now))
    monkeypatch.setattr(schedstat, "run_delay", lambda: next(queue))
    monkeypatch.setattr(schedstat, "cpu_clock", lambda: 0.0)
    assert schedstat.Lap().end() == (1.0, 0.0, 2.0)


def test_a_wait_between_two_readings_takes_nothing_of_what_was_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread lost its core for 0.1 s after the queue was read and before the clock was, or the other way round."""
    now, queue, cpu = iter((10.0, 10.02)), iter((1.0, 1.1)), iter((5.0, 5.02))
    monkeypatch.setattr(schedstat, "clock", lambda: next(now))
    monkeypatch.setattr(schedstat, "run_delay", lambda: next(queue))
    monkeypatch.setattr(schedstat, "cpu_clock", lambda: next(cpu))
    worked, _, waited = schedstat.Lap().end()
    assert worked == pytest.approx(0.02)
    assert waited == pytest.approx(0.0)


@pytest.mark.parametrize("text", ["", "1", "x y 3", "5 -1"])
def test_a_system_that_does_not_tell(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(schedstat, "read", lambda _: text)
    monkeypatch.setattr(schedstat, "threads_of", lambda _: [])
    assert schedstat.thread_times("self")[0] in (0.0, 5e-9)
    assert schedstat.machine_times() is None
    assert schedstat.busy_share(0.0) == 0.0
    worked, _, run_delay = schedstat.Lap().end()
    assert worked >= 0
    assert run_delay >= 0


def test_a_clock_that_jumps_back_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter((10.0, 4.0))
    monkeypatch.setattr(schedstat, "clock", lambda: next(now))
    assert schedstat.Lap().end()[0] == 0.0


def test_the_cores_of_this_process_alone_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "cpu 9 9 9 9 9 9 9 9 0 0\ncpu0 100 0 50 999 0 0 0 20 0 0\ncpu1 700 0 0 0 0 0 0 0 0 0\nintr 1\n"
    monkeypatch.setattr(schedstat, "read", lambda _: lines)
    monkeypatch.setattr(schedstat, "own_cores", lambda: frozenset({0}))
    assert schedstat.machine_times() == (1.5, 0.2)
    monkeypatch.setattr(schedstat, "read", lambda _: "cpu0 1 2 3\n")
    assert schedstat.machine_times() is None


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="Linux")
def test_this_kernel_tells_cpu_seconds_of_threads() -> None:
    """The layout of the files, held against the clocks of the C library."""
    began, before = time.thread_time(), schedstat.thread_times("thread-self")[0]
    while time.thread_time() - began < 0.05:
        pass
    assert schedstat.thread_times("thread-self")[0] - before >= 0.03
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    assert str(os.getpid()) in schedstat.threads_of("self")
    seen = Activity()
    assert set(seen.record()) >= set(activity()), "what the tests above make up is what the probe writes"

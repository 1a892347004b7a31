"""What a measurement tells of this machine, ends on it and leaves there."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from costgpu.measure.host_info import flops_per_cycle, local_accelerators
from costgpu.measure.probe import microbenchmark
from costgpu.measure.process_tree import end_everything

benchmark: Any = microbenchmark  # for Python 3.8, without types


@pytest.mark.parametrize(
    ("info", "flops"),
    [
        ("vendor_id\t: GenuineIntel\nflags\t\t: fpu sse2 avx avx2 avx512f\n", 64),
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx avx2 avx512f\n", 32),
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx avx2 avx512f avx512_vp2intersect\n", 64),
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx avx2 fma\n", 32),
        ("flags\t\t: fpu avx\n", 16),
        ("flags\t\t: fpu sse2\n", 8),
        ("Features\t: fp asimd\n", 16),
        ("Features\t: fp asimd sve\n", 32),
    ],
)
def test_flops_of_a_cycle(info: str, flops: float) -> None:
    assert flops_per_cycle(info) == flops


def test_gpus_by_their_drivers_own_words(tmp_path: Path) -> None:
    assert local_accelerators(tmp_path / "none") == []
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "information").write_text("Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 77\n")
    assert local_accelerators(tmp_path) == ["NVIDIA A100-SXM4-40GB"] * 2


class FakeLap:
    """A clock that only work moves; of it the thread had no core for some, and others of its process for some."""

    now = lost = waited = 0.0

    def __init__(self) -> None:
        self.since, self.before = FakeLap.now, FakeLap.lost

    def end(self) -> tuple[float, float, float]:
        run_delay = FakeLap.lost - self.before
        worked = FakeLap.now - self.since - run_delay
        return worked, worked - FakeLap.waited, run_delay


@pytest.fixture
def lap(monkeypatch: pytest.MonkeyPatch) -> type[FakeLap]:
    FakeLap.now = FakeLap.lost = FakeLap.waited = 0.0
    clock = SimpleNamespace(Lap=FakeLap, clock=lambda: FakeLap.now, run_delay=lambda: 0.0, run_delay_of_all=lambda: 0.0)
    monkeypatch.setattr("costgpu.measure.probe.microbenchmark.schedstat", clock)
    return FakeLap


def test_windows_are_sorted_rates(lap: type[FakeLap]) -> None:
    def work() -> None:
        lap.now += 0.001 * (1 + int(lap.now * 7) % 3)

    for rates in benchmark.by_turns({"one": (work, 1e6), "other": (work, 2e6)}, 5, 0.1).values():
        assert rates == sorted(rates)
        assert len(rates) == 5


def test_who_disturbs_for_a_moment_slows_some_windows_of_each_work_and_all_of_none(lap: type[FakeLap]) -> None:
    """For a third of the time: as long as one of three works would take without turns."""

    def work() -> None:
        lap.now += 0.003 if 0.1 <= lap.now < 0.22 else 0.001

    for rates in benchmark.by_turns(dict.fromkeys("abc", (work, 1e6)), 12, 0.01).values():
        assert rates[0] < 0.4
        assert rates[-1] == pytest.approx(1.0)


def test_a_window_is_as_long_as_its_work_however_busy_the_machine_is(
    lap: type[FakeLap], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work() -> None:
        lap.now += 0.004
        lap.lost += 0.002

    assert benchmark.window(work, 1e6, 0.1) == pytest.approx(0.5), "half of it without a core"
    run_delay = iter((0.0, 0.02))
    monkeypatch.setattr(benchmark.schedstat, "run_delay_of_all", lambda: next(run_delay))
    lap.waited = 0.02
    assert benchmark.window(work, 1e6, 0.1) > 0.6, "the other thread had none"


@pytest.mark.parametrize("path", ["", "1"])
def test_it_runs_as_a_script_wherever_its_folder_is_not_on_the_path(path: str) -> None:
    """PYTHONSAFEPATH keeps the script's folder off the path, and what is first there is the user's own."""
    command = [sys.executable, benchmark.__file__, "1", "0.01"]
    environment = {**os.environ, "PYTHONSAFEPATH": path}
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout)["copy_gbps"]


def test_the_copy_of_several_threads_counts_all_of_them() -> None:
    copy = benchmark.copier(2)
    began = time.perf_counter()
    copy()
    assert benchmark.COPY_BYTES / (time.perf_counter() - began) > 1e6


def test_one_thread_of_plain_code_is_timed() -> None:
    assert benchmark.plain_text() == benchmark.plain_text(), "the same text each time"
    assert 0 < benchmark.single_thread_mbps() < 1000


def test_a_python_without_bzip2_times_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bz2", None)
    assert benchmark.single_thread_mbps() == 0.0


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[str]]:
    """A child from before that starts one of its own when it is told to."""
    script = "read line; sleep 60 & echo $!; wait"
    process = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        yield process
        for each in psutil.Process(process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        process.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="needs sh")
def test_what_a_child_from_before_starts_meanwhile_lives_on(worker: subprocess.Popen[str]) -> None:
    before = {process.pid for process in psutil.Process().children()}
    with subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60"]) as script:
        assert worker.stdin is not None
        print("now", file=worker.stdin, flush=True)
        theirs = psutil.Process(int(worker.stdout.readline()))
        orphan = subprocess.Popen(["sleep", "60"])  # as a daemon that was adopted
        ended = end_everything(script.pid, "no-such-marker", before)
    assert not psutil.pid_exists(orphan.pid)
    orphan.wait()  # says 0: it was waited for already
    assert ended >= 1
    assert theirs.is_running()
    assert theirs.status() != psutil.STATUS_ZOMBIE

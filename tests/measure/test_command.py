"""Real programs that print their progress in real time: shell, awk and Python, good ones and bad ones."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from costgpu import errors
from costgpu.measure.host_info import HostSpeed, measure_host
from costgpu.measure.isolation.levels import Isolation
from costgpu.measure.log import command as module
from costgpu.measure.log.command import measure_command
from costgpu.measure.profile_file import load_profile, save_profile
from costgpu.measure.session import Outcome
from costgpu.models.workload import GpuPath, TotalKind, WorkloadProfile
from tests.measure.harness import running
from tests.unit.measure.records import MACHINE

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="needs sh")]


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark of the machine has a test of its own."""
    monkeypatch.setattr(module, "measure_host", lambda: HostSpeed(machine=MACHINE, how="as given", measured=True))


@pytest.fixture
def no_child_left() -> Iterator[None]:
    """Nothing that was started is alive after the test."""
    before = set(psutil.Process().children())
    yield
    started = [child for child in psutil.Process().children() if child not in before]
    left = [process for child in started for process in (child, *child.children(recursive=True))]
    assert [process for process in left if process.status() != psutil.STATUS_ZOMBIE] == []


def measure(
    *argv: str, place: Path, seconds: float = 2.0, limit: float = 30.0, pattern: str | None = None, kind: str = ""
) -> tuple[WorkloadProfile, Outcome]:
    """A short measurement."""
    return measure_command(
        argv,
        place,
        place / "cache",
        lambda seconds, stepping: None,
        pattern=pattern,
        kind=kind,
        measure_for_seconds=seconds,
        start_limit_seconds=limit,
    )


def python(source: str, place: Path) -> list[str]:
    script = place / "program.py"
    script.write_text(source)
    return [sys.executable, str(script)]


FOR_EVER = 'i=0; while true; do i=$((i+1)); echo "step $i/1000 loss 0.3"; sleep 0.11; done'
FIVES = 'i=0; while true; do i=$((i+5)); echo "tock $i of 9000"; sleep 0.11; done'
# `seq` and `tr` block their output into pipes; only their own buffers are in question, not the shell's.
BUFFERED = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo $i; sleep 0.11; done | sed 's/^/Iteration /; s/$/, loss = 1/'"
BAR = """
import sys, time
for n in range(1001):
    sys.stderr.write('\\r%3d%%|%-10s| %d/1000 [00:00<00:01, 20.0it/s]' % (n / 10, '#' * (n // 100), n))
    sys.stderr.flush()
    time.sleep(0.055)
"""
NO_TEXT = """
import sys, time
for n in range(10000):
    sys.stdout.buffer.write(bytes(range(256)) * 40 + b'\\nstep %d of 10000\\n' % n)
    sys.stdout.buffer.flush()
    time.sleep(0.055)
"""


def test_a_shell_loop(tmp_path: Path, no_child_left: None) -> None:
    profile, outcome = measure("sh", "-c", FOR_EVER, place=tmp_path)
    (phase,) = profile.phases
    assert 0.1 <= phase.step.mean_seconds < 0.3
    assert (phase.total.kind, phase.total.steps) == (TotalKind.EXACT, 1000)
    assert phase.gpu is GpuPath.NONE
    assert "--like" in phase.gpu_reason
    assert (profile.framework.name, profile.framework.python, profile.script) == ("log lines", "", "sh")
    assert outcome.isolation is not Isolation.COPY
    assert outcome.timed_out
    assert not profile.ended
    assert profile.peak_rss_bytes
    assert outcome.log.read_text().startswith("step 1/1000")
    save_profile(profile, tmp_path / "profile.json")
    assert load_profile(tmp_path / "profile.json") == profile


@pytest.mark.skipif(shutil.which("stdbuf") is None, reason="needs stdbuf")
def test_a_program_of_c_that_buffers_is_read_line_by_line(tmp_path: Path) -> None:
    profile, _ = measure("sh", "-c", BUFFERED, place=tmp_path)
    assert profile.framework.name == "caffe"
    assert 0.1 <= profile.phases[0].step.mean_seconds < 0.3
    assert not any("blocks" in note for note in profile.notes)


@pytest.mark.parametrize(("source", "total"), [(BAR, 1000), (NO_TEXT, 10000)], ids=["carriage returns", "no text"])
def test_python_whose_output_has_no_plain_lines(source: str, total: int, tmp_path: Path, no_child_left: None) -> None:
    profile, _ = measure(*python(source, tmp_path), place=tmp_path, kind="mlp")
    (phase,) = profile.phases
    assert 0.05 <= phase.step.mean_seconds < 0.2
    assert phase.total.steps == total
    assert (phase.gpu, phase.kind) == (GpuPath.TABLE, "mlp")


def test_awk_with_caffes_lines_that_ends_by_itself(tmp_path: Path) -> None:
    source = (
        'echo "max_iter: 60"; for i in 0 10 20 30 40 50; do '
        'echo "I1121 1 solver.cpp:239] Iteration $i (50 iter/s, 0.2s/10 iters), loss = 1"; sleep 0.2; done'
    )
    profile, outcome = measure("sh", "-c", source, place=tmp_path, seconds=20.0)
    total = profile.phases[0].total
    assert (profile.ended, outcome.timed_out) == (True, False)
    assert (total.kind, total.steps) == (TotalKind.EXACT, 60)
    assert profile.phases[0].step.mean_seconds == pytest.approx(0.02, rel=0.5)
    assert profile.wall_seconds >= 1.2


def test_the_users_pattern(tmp_path: Path) -> None:
    profile, _ = measure("sh", "-c", FIVES, place=tmp_path, pattern=r"tock (?P<step>\d+) of (?P<total>\d+)")
    assert profile.phases[0].total.steps == 9000
    assert 0.02 <= profile.phases[0].step.mean_seconds < 0.06


def written(outcome: Outcome, path: Path) -> str:
    """What the program wrote to a file that is as it was."""
    assert outcome.changes.folder is not None
    return (outcome.changes.folder / path.relative_to("/")).read_text()


STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
wait = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)  # ' + sys.argv[0]
subprocess.Popen([sys.executable, '-c', wait])
subprocess.Popen([sys.executable, '-c', wait], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            time.sleep(1)
    os._exit(0)
for n in range(10000):
    print('iter', n)
    time.sleep(0.055)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="daemons are adopted on Linux only")
def test_what_ignores_sigterm_and_forks_is_ended(tmp_path: Path, no_child_left: None) -> None:
    profile, outcome = measure(*python(STUBBORN, tmp_path), place=tmp_path)
    assert outcome.survivors >= 3
    assert running(str(tmp_path)) == []
    assert 0.05 <= profile.phases[0].step.mean_seconds < 0.2


@pytest.mark.usefixtures("copy_on_write")
def test_it_is_asked_to_end_before_it_is_ended(tmp_path: Path) -> None:
    trap = "trap 'echo removed > lock; exit 1' TERM; "
    _, outcome = measure("sh", "-c", trap + FOR_EVER, place=tmp_path)
    assert written(outcome, tmp_path / "lock") == "removed\n"


@pytest.mark.usefixtures("copy_on_write")
def test_it_runs_where_it_should_with_an_empty_stdin(tmp_path: Path) -> None:
    source = 'pwd > where; cat > input; for i in 1 2 3 4 5 6 7; do echo "iter $i"; sleep 0.1; done'
    _, outcome = measure("sh", "-c", source, place=tmp_path)
    assert written(outcome, tmp_path / "where").strip() == str(tmp_path.resolve())
    assert written(outcome, tmp_path / "input") == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache"]


def test_a_program_of_the_folder_and_one_that_may_not_run(tmp_path: Path) -> None:
    program = tmp_path / "train.sh"
    program.write_text("#!/bin/sh\nfor i in 1 2 3 4 5 6 7; do echo iter $i; sleep 0.1; done\n")
    with pytest.raises(errors.ScriptNotFound, match="may not be executed") as caught:
        measure("./train.sh", place=tmp_path)
    assert "sh ./train.sh" in caught.value.hint
    with pytest.raises(errors.ScriptNotFound) as caught:
        measure("train.sh", place=tmp_path)
    assert "./train.sh" in caught.value.hint
    program.chmod(0o755)
    profile, _ = measure("./train.sh", "--fast", place=tmp_path)
    assert (profile.script, profile.arguments) == ("train.sh", ["--fast"])


QUIET = "for i in 1 2 3; do echo 'all is well'; sleep 0.05; done; sleep 60"
CASES: list[tuple[str, type[errors.CostGpuError], str]] = [
    ("sleep 60", errors.NoProgressLines, "printed nothing in 3 s"),
    ("true", errors.NoProgressLines, "printed nothing and ended"),
    (QUIET, errors.NoProgressLines, "printed 3 lines"),
    ("echo data is missing; exit 3", errors.ScriptCrashed, "data is missing"),
    ("echo step 1/9; sleep 0.2; echo step 2/9; exit 3", errors.ScriptCrashed, "ended with status 3"),
    ("echo step 1/9", errors.NothingToMeasure, "1 line of progress: step 1/9"),
    ("echo step 1/9; sleep 60", errors.NoTrainingStep, "none further on"),
    ("kill -SEGV $$", errors.KilledBySignal, "SIGSEGV"),
    ("kill -KILL $$", errors.KilledBySignal, "SIGKILL"),
    ("echo 'F1121 Cannot use GPU in CPU-only Caffe: check mode.'; exit 134", errors.NeedsCuda, "CPU-only Caffe"),
]


@pytest.mark.parametrize(("source", "kind", "words"), CASES, ids=[f"{k.__name__}-{w[:20]}" for _, k, w in CASES])
def test_each_failure_has_its_own_error_and_a_hint(
    source: str, kind: type[errors.CostGpuError], words: str, tmp_path: Path, no_child_left: None
) -> None:
    waits = kind in (errors.NoTrainingStep, errors.NoProgressLines)
    with pytest.raises(errors.CostGpuError) as caught:
        measure("sh", "-c", source, place=tmp_path, limit=3.0 if waits else 30.0)
    assert type(caught.value) is kind, caught.value
    assert words in caught.value.message
    assert caught.value.hint


def test_a_pattern_that_never_matches_says_what_there_was(tmp_path: Path) -> None:
    with pytest.raises(errors.NoProgressLines, match="matches none") as caught:
        measure("sh", "-c", QUIET, place=tmp_path, limit=3.0, pattern=r"round (\d+)")
    assert "printed 3 lines" in caught.value.message
    assert "all is well" in caught.value.message
    assert "output.log" in caught.value.hint


def test_a_pattern_whose_step_is_no_number(tmp_path: Path) -> None:
    with pytest.raises(errors.NoProgressLines, match="no number"):
        measure("sh", "-c", "echo all is well", place=tmp_path, pattern=r"all (\w+)")


def test_a_wrong_pattern_or_no_command_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError):
        measure("sh", "-c", "touch ran", place=tmp_path, pattern="(")
    with pytest.raises(errors.UsageError):
        measure(place=tmp_path)
    with pytest.raises(errors.ScriptNotFound, match="no program 'no-such-program'"):
        measure("no-such-program", place=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_crash_after_enough_progress_is_only_noted(tmp_path: Path) -> None:
    source = "for i in 1 2 3 4 5 6 7; do echo step $i/90; sleep 0.1; done; exit 124"
    profile, _ = measure("sh", "-c", source, place=tmp_path, seconds=20.0)
    assert not profile.ended
    assert profile.phases[0].total.steps == 90
    assert any("status 124" in note for note in profile.notes)


def test_ctrl_c_ends_it(tmp_path: Path, no_child_left: None) -> None:
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        measure("sh", "-c", FOR_EVER, place=tmp_path, seconds=60.0)
    timer.join()
    assert time.monotonic() - start < 30


def test_this_machine_without_torch() -> None:
    plain = measure_host()
    assert 0 < plain.machine.gemm_gflops_low <= plain.machine.gemm_gflops
    assert plain.machine.copy_gbps > 0
    assert plain.machine.op_seconds < 0.01
    assert plain.machine.memory_gib > 0.1
    assert "NumPy" in plain.how


def test_a_python_without_numpy_measures_the_copy_and_says_that_the_rest_is_computed(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    plain = measure_host(threads=1, python=str(bare / "bin" / "python"))
    assert not plain.measured
    assert "not measured" in plain.how
    assert plain.machine.gemm_gflops > 1
    assert 0 < plain.machine.gemm_gflops_low <= plain.machine.gemm_gflops
    assert plain.machine.copy_gbps > 0
    assert plain.machine.threads == 1


def test_no_interpreter_at_all_is_no_failure() -> None:
    assert measure_host(python="/no/such/python").machine.gemm_gflops > 1

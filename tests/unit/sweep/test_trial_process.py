"""One trial as a process: what it prints, how it ends, and that nothing of it goes on. No Ray."""

import math
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from costgpu.sweep.bundle import PROGRAM, tuner_file
from costgpu.sweep.tuner import trial_process
from costgpu.sweep.tuner.matcher import Matcher
from costgpu.sweep.tuner.saving import is_saving
from costgpu.sweep.tuner.trial_process import ALL_REPORTS, TrialProcess, is_told, trial_name
from tests.until import until

Trial = Callable[..., tuple[TrialProcess, list[dict[str, Any]]]]


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    """Starts a trial of a script; returns it and the events that it tells."""
    (tmp_path / PROGRAM).parent.mkdir()
    (tmp_path / PROGRAM).write_bytes(tuner_file())
    spec: dict[str, Any] = {
        "folder": "costgpu-runs/x",
        "program": PROGRAM,
        "python": sys.executable,
        "metric": "loss=(.*)",
    }
    spec |= {"mode": "min", "trials": 12, "grace": 20.0, "outputs": []}

    def start(script: str, *, argv: tuple[str, ...] = ("train.py",), **more: Any) -> Any:
        (tmp_path / "train.py").write_text(textwrap.dedent(script))
        events: list[dict[str, Any]] = []
        one = TrialProcess({**spec, **more.pop("spec", {})}, 3, list(argv), str(tmp_path), events.append, **more)
        one.start()
        return one, events

    return start


def finish(one: TrialProcess) -> dict[str, Any]:
    """Steps until the trial is over."""
    while not (result := one.step())["done"]:
        pass
    return result


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_values_log_and_end(trial: Trial, tmp_path: Path) -> None:
    one, events = trial(
        """
        import sys
        print("loss=0.5"); print("loss=nan"); print("other"); sys.stderr.write("loss=0.25\\r10%|loss=0.3\\n")
        open("out.txt", "w").write("x")
        """
    )
    assert finish(one) == {"reports": 4, "done": True, "value": 0.3}
    assert [event["value"] for event in events if event["event"] == "report"] == ["0.5", "nan", "0.25", "0.3"]
    end = events[-1]
    assert (end["status"], end["exit_code"], end["best"], end["best_report"], end["last"]) == (
        *("succeeded", 0, "0.25", 3),
        "0.3",
    )
    folder = tmp_path / "costgpu-runs/x/trial-03"
    assert sorted(path.name for path in folder.iterdir()) == ["log.txt", "out.txt"]
    assert "other" in (folder / "log.txt").read_text()


def test_a_fast_script_is_seen_report_by_report(trial: Trial) -> None:
    """ASHA compares trials at the same report, however far ahead of Ray they are."""
    one, _ = trial("for n in range(300):\n    print('loss=%d' % n)\n")
    seen = []
    while not (result := one.step())["done"]:
        seen.append((result["reports"], result.get("value")))
    numbers = [number for number, _ in seen if number]
    assert sorted(set(numbers)) == list(range(1, 301))
    assert all(value == number - 1 for number, value in seen if number)


def test_a_script_that_fails_is_quoted(trial: Trial) -> None:
    one, events = trial("print('loss=1')\nraise SystemError('no room for it')\n")
    finish(one)
    assert (events[-1]["status"], events[-1]["exit_code"]) == ("failed", 1)
    assert "no room for it" in events[-1]["tail"]


def test_a_script_without_the_metric(trial: Trial) -> None:
    one, events = trial("print('good bye')\n")
    assert "value" not in finish(one)
    assert (events[-1]["status"], events[-1]["tail"]) == ("no_metric", "good bye")


@pytest.mark.parametrize(
    "pattern", [r"\d+/\d+ .*loss: *([0-9.]+)", r"(?:\w+ )*loss: ([0-9.]+)", r"loss[=:]\s*([-+]?\d+(?:\.\d+)?)"]
)
def test_a_pattern_with_repeats_reads_a_long_line_to_its_end(trial: Trial, pattern: str) -> None:
    bar = "391/391 [" + "=" * 300 + "] - 12s 31ms/step - accuracy: 0.51 - "
    one, _ = trial(f"print({bar!r} + 'loss: 0.25')\n", spec={"metric": pattern})
    assert finish(one)["value"] == 0.25


def test_lines_that_take_the_pattern_for_ever_are_passed_over(trial: Trial) -> None:
    script = "print('loss: 2')\nprint('a' * 50)\nprint('loss: 1')\n"
    one, events = trial(script, spec={"metric": r"^(?:(?:a|aa)*b|loss: (\d))"})
    assert finish(one)["value"] == 1.0
    assert events[-1]["status"] == "succeeded"


def test_a_script_of_nothing_else_is_ended(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_process, "MOST_COSTLY_LINES", 1)
    script = "import time\nprint('a' * 50, flush=True)\ntime.sleep(600)\n"
    one, events = trial(script, spec={"metric": r"^(?:a|aa)*(b)"})
    finish(one)
    assert events[-1]["status"] == "failed"
    assert "--metric took too long for a line of 50 characters." in events[-1]["tail"]


def test_a_signal_to_all_of_a_job_loses_no_value(tmp_path: Path) -> None:
    (tmp_path / "tuner.pyz").write_bytes(tuner_file())
    matcher = Matcher(str(tmp_path / "tuner.pyz"), "loss=(.*)")
    assert matcher.find("other") is None
    assert matcher._process is not None
    matcher._process.send_signal(signal.SIGTERM)
    assert matcher.find("loss=1") == 1.0
    matcher.close()


def test_nothing_is_read_in_the_rest_of_a_line_without_an_end(trial: Trial) -> None:
    script = "import sys\nsys.stdout.write('x' * 3_000_000 + 'loss=1' + 'x' * 3_000_000 + 'loss=2\\nloss=3\\n')\n"
    one, _ = trial(script)
    assert finish(one) == {"reports": 1, "done": True, "value": 3.0}


def test_an_interpreter_that_is_not_there(trial: Trial) -> None:
    one, events = trial("", spec={"python": "/nowhere/python"})
    finish(one)
    assert (events[-1]["status"], events[-1]["exit_code"]) == ("failed", 127)
    assert "/nowhere/python" in events[-1]["tail"]


STUBBORN = """
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
{how}
print("pids", os.getpid(), child.pid)
print("loss=1", flush=True)
time.sleep(600)
"""
SAVES = """
def end(*_):
    open("saved", "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
"""


def pids_of(tmp_path: Path) -> list[int]:
    words = (tmp_path / "costgpu-runs/x/trial-03/log.txt").read_text().split()
    return [int(words[1]), int(words[2])]


def test_a_trial_that_is_ended_may_save_and_takes_its_children_along(trial: Trial, tmp_path: Path) -> None:
    one, events = trial(STUBBORN.format(how=SAVES))
    assert one.step()["reports"] == 1
    one.end()
    one.end()
    assert [event["event"] for event in events].count("end") == 1
    assert (events[-1]["status"], events[-1]["reports"]) == ("stopped", 1)
    assert (tmp_path / "costgpu-runs/x/trial-03/saved").exists()
    until(lambda: not any(map(alive, pids_of(tmp_path))))


def test_a_trial_that_does_not_listen_is_killed(trial: Trial, tmp_path: Path) -> None:
    one, events = trial(STUBBORN.format(how="signal.signal(signal.SIGTERM, signal.SIG_IGN)"), spec={"grace": 0.05})
    one.step()
    one.end()
    assert (events[-1]["status"], events[-1]["exit_code"]) == ("stopped", 137)
    until(lambda: not any(map(alive, pids_of(tmp_path))))


WRITES = """
import os, time
half = open("model.pt", "w")
half.write("ha"); half.flush()
print("loss=1", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
half.write("lf"); half.close()
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which files a process has open")
def test_a_file_that_a_trial_is_writing_becomes_whole(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "costgpu-runs/x/trial-03"

    def looked(group: int, below: str, now: float) -> bool:
        found = is_saving(group, below, now, quiet_seconds=math.inf)
        if found:
            (folder / "go").touch()
        return found

    monkeypatch.setattr(trial_process, "is_saving", looked)
    one, events = trial(WRITES)
    one.step()
    one.end()
    assert (folder / "model.pt").read_text() == "half"
    assert (events[-1]["status"], events[-1]["exit_code"]) == ("stopped", 143)


def test_a_file_that_is_written_for_ever_is_not_waited_for(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_process, "is_saving", lambda *_: True)
    one, events = trial(WRITES, spec={"grace": 0.05})
    one.step()
    one.end()
    assert events[-1]["status"] == "stopped"


def test_a_script_does_not_outlive_the_process_that_started_it(trial: Trial, tmp_path: Path) -> None:
    """Ray kills its processes without a word; the script is told by the kernel."""
    (tmp_path / "train.py").write_text(STUBBORN.format(how=""))
    starter = (
        f"import subprocess, sys, os; p = subprocess.Popen([sys.executable, {str(tmp_path / PROGRAM)!r}, 'launch',"
        f" str(os.getpid()), sys.executable, {str(tmp_path / 'train.py')!r}], stdout=subprocess.PIPE);"
        "print(p.stdout.readline().decode(), flush=True); os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", starter], stdout=subprocess.PIPE, text=True, check=True)
    script, child = map(int, done.stdout.split()[1:])
    until(lambda: not alive(script))
    os.kill(child, 9)


def test_files_of_another_machine_travel_in_pieces(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_process, "CHUNK_BYTES", 10)
    one, events = trial("print('loss=1')\nopen('out.bin', 'wb').write(bytes(25))\nopen('empty', 'w')\n", remote=True)
    finish(one)
    pieces = [event for event in events if event["event"] == "file"]
    assert [(each["path"], each["first"], len(each["data"])) for each in pieces] == [
        ("empty", True, 0),
        ("log.txt", True, 7),
        *(("out.bin", True, 10), ("out.bin", False, 10), ("out.bin", False, 5)),
    ]
    assert events[-1]["event"] == "end", "a trial is over when its files have come"


def test_a_curve_has_few_points_however_often_a_script_reports() -> None:
    assert all(map(is_told, range(1, ALL_REPORTS + 1)))
    assert sum(map(is_told, range(1, 1_000_001))) < 4 * ALL_REPORTS * 3


def test_names_sort_like_numbers() -> None:
    assert [trial_name(number, 120) for number in (7, 12, 120)] == ["trial-007", "trial-012", "trial-120"]
    assert trial_name(3, 4) == "trial-03"

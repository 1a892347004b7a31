"""One trial as a process: what it prints, how it ends, and that nothing of it goes on. No Ray."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from costgpu.portable.processes import process
from costgpu.sweep.tuner import trial_process
from costgpu.sweep.tuner.trial_process import ALL_REPORTS, MOST_COSTLY_LINES, TrialProcess, is_told, trial_name
from tests.until import until

Trial = Callable[..., TrialProcess]


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    """Starts a trial of a script."""
    spec: dict[str, Any] = {"folder": "costgpu-runs/x", "python": sys.executable, "metric": "loss=(.*)"}
    spec |= {"mode": "min", "trials": 12, "grace": 20.0, "outputs": [], "argv": ["train.py"], "template": None}

    def start(script: str, *, send: Any = None, **spec_more: Any) -> TrialProcess:
        (tmp_path / "train.py").write_text(textwrap.dedent(script))
        one = TrialProcess({**spec, **spec_more}, 3, {"lr": "1"}, str(tmp_path), send)
        one.start()
        return one

    return start


def finish(one: TrialProcess) -> dict[str, Any]:
    """Steps until the trial is over."""
    while not (result := one.step())["done"]:
        pass
    return result


def test_values_log_and_end(trial: Trial, tmp_path: Path) -> None:
    one = trial(
        """
        import sys
        print("loss=0.5"); print("loss=nan"); print("other"); sys.stderr.write("loss=0.25\\r10%|loss=0.3\\n")
        open("out.txt", "w").write("x")
        """
    )
    end = finish(one)
    assert (end["reports"], end["value"]) == (4, 0.3)
    assert (end["status"], end["exit_code"], end["best"], end["best_report"], end["last"]) == (
        "succeeded",
        0,
        0.25,
        3,
        0.3,
    )
    folder = tmp_path / "costgpu-runs/x/trial-03"
    assert sorted(path.name for path in folder.iterdir()) == ["log.txt", "out.txt"]
    assert "other" in (folder / "log.txt").read_text()


def test_a_fast_script_is_seen_report_by_report(trial: Trial) -> None:
    """ASHA compares trials at the same report, however far ahead of Ray they are."""
    one = trial("for n in range(300):\n    print('loss=%d' % n)\n")
    seen = []
    while not (result := one.step())["done"]:
        seen.append((result["reports"], result.get("value")))
    numbers = [number for number, _ in seen if number]
    assert sorted(set(numbers)) == list(range(1, 301))
    assert all(value == number - 1 for number, value in seen if number)


@pytest.mark.parametrize(
    ("script", "more", "status", "code", "said"),
    [
        ("print('loss=1')\nraise SystemError('no room for it')\n", {}, "failed", 1, "no room for it"),
        ("print('good bye')\n", {}, "no_metric", 0, "good bye"),
        ("", {"python": "/nowhere/python"}, "failed", 127, "/nowhere/python cannot be started"),
    ],
)
def test_the_last_words_of_a_trial_without_a_good_end(
    trial: Trial, script: str, more: dict[str, str], status: str, code: int, said: str
) -> None:
    end = finish(trial(script, **more))
    assert (end["status"], end["exit_code"]) == (status, code)
    assert said in end["tail"]


def test_lines_that_take_the_pattern_for_ever_are_passed_over(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_process, "LINE_SECONDS", 0.05)
    lines = ["loss: 2", *["a" * 50] * 3, "loss: 1"]
    end = finish(trial(f"print(*{lines}, sep='\\n')\n", metric=r"^(?:(?:a|aa)*b|loss: (\d))"))
    assert (end["value"], end["status"]) == (1.0, "succeeded")


def test_a_script_of_nothing_else_is_ended(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_process, "LINE_SECONDS", 0.05)
    script = f"import time\nfor _ in range({MOST_COSTLY_LINES}):\n    print('a' * 50, flush=True)\ntime.sleep(600)\n"
    end = finish(trial(script, metric=r"^(?:a|aa)*(b)"))
    assert end["status"] == "failed"
    assert "--metric took too long for a line of 50 characters." in end["tail"]


def test_nothing_is_read_in_the_rest_of_a_line_without_an_end(trial: Trial) -> None:
    script = "import sys\nsys.stdout.write('x' * 3_000_000 + 'loss=1' + 'x' * 3_000_000 + 'loss=2\\nloss=3\\n')\n"
    one = trial(script)
    end = finish(one)
    assert (end["reports"], end["value"]) == (1, 3.0)


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


@pytest.mark.parametrize(
    ("how", "grace", "code"),
    [(SAVES, 20.0, 0), ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", 0.05, 137)],
    ids=["it may save", "it does not listen"],
)
def test_a_trial_that_is_ended_takes_its_children_along(
    trial: Trial, tmp_path: Path, how: str, grace: float, code: int
) -> None:
    one = trial(STUBBORN.format(how=how), grace=grace)
    assert one.step()["reports"] == 1
    one.end()
    one.end()
    assert (one.end_words["status"], one.end_words["exit_code"]) == ("stopped", code)
    assert (tmp_path / "costgpu-runs/x/trial-03/saved").exists() is (code == 0)
    until(lambda: not any(map(process, pids_of(tmp_path))))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of the end of its parent")
def test_a_script_does_not_outlive_the_process_that_started_it(trial: Trial, tmp_path: Path) -> None:
    """Ray kills its processes without a word; the script is told by the kernel."""
    one = trial("")
    finish(one)
    (tmp_path / "train.py").write_text(STUBBORN.format(how=""))
    starter = (
        "import os; from costgpu.sweep.tuner.trial_process import TrialProcess;"
        f"one = TrialProcess({one.spec!r}, 3, {{}}, {str(tmp_path)!r}); one.start();"
        "exec('while not one.reports: one.step()'); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", starter], check=True)
    script, child = pids_of(tmp_path)
    until(lambda: process(script) is None)
    os.kill(child, 9)


def test_files_of_another_machine_travel_in_pieces(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_process, "CHUNK_BYTES", 10)
    pieces: list[tuple[Any, ...]] = []
    script = "print('loss=1')\nopen('out.bin', 'wb').write(bytes(25))\nopen('empty', 'w')\n"
    finish(trial(script, send=lambda *piece: pieces.append(piece)))
    folder = "costgpu-runs/x/trial-03"
    assert [(path, first, len(data)) for path, data, _, first in pieces] == [
        (f"{folder}/empty", True, 0),
        (f"{folder}/log.txt", True, 7),
        *((f"{folder}/out.bin", first, size) for first, size in ((True, 10), (False, 10), (False, 5))),
    ]


def test_a_curve_has_few_points_however_often_a_script_reports() -> None:
    assert all(map(is_told, range(1, ALL_REPORTS + 1)))
    assert sum(map(is_told, range(1, 1_000_001))) < 4 * ALL_REPORTS * 3


def test_names_sort_like_numbers() -> None:
    assert [trial_name(number, 120) for number in (7, 12, 120)] == ["trial-007", "trial-012", "trial-120"]
    assert trial_name(3, 4) == "trial-03"

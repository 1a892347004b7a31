"""`costgpu sweep` as a user meets it: what it refuses, what it plans, and sweeps on this machine under a real Ray."""

import csv
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

from costgpu.models.job import EndReason
from costgpu.models.run import RunState
from costgpu.workflows.sweep import find_ray
from tests.cli.here import Here, Result, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="this machine as a machine needs Linux")

TUNED = (Path(__file__).parent.parent / "scripts" / "cli" / "tuned.py").read_text()
METRIC = ("--metric", "val_loss=([0-9.]+)")
SWEEP = ("sweep", "--no-estimate", "--python", sys.executable)
GRID = ("--grid", "lr=0.001,0.01")
MANY = ",".join(map(str, range(100)))

BAD: list[tuple[tuple[str, ...], int, str]] = [
    ((*GRID, *METRIC), 2, "Which script?"),
    ((*METRIC, "train.py"), 2, "Which settings"),
    ((*GRID, "train.py"), 2, "By which number"),
    ((*GRID, "--metric", "loss", "train.py"), 2, "has no group"),
    ((*GRID, *METRIC, "--mode", "low", "train.py"), 2, "none of min, max"),
    ((*GRID, *METRIC, "--asha-max", "5", "train.py"), 2, "--asha-max is for --asha"),
    ((*GRID, *METRIC, "--args", "--rate {x}", "train.py"), 2, "no parameter of the sweep"),
    ((*GRID, *METRIC, "--param", "x=0..1", "train.py"), 2, "--random 20"),
    ((*GRID, *METRIC, "nope.py"), 21, "no script nope.py"),
    ((*GRID, *METRIC, "--infra", "local", "bash", "x.sh"), 2, "A trial is a Python script"),
    ((*GRID, *METRIC, "--infra", "local", "--gpus", "L4:1", "train.py"), 2, "cannot be chosen on this machine"),
    ((*GRID, *METRIC, "torchrun", "train.py"), 2, "A trial is one process"),
    ((*GRID, *METRIC, "--max-cost", "5 EUR", "train.py"), 2, "only USD"),
]


@pytest.mark.parametrize(("words", "code", "said"), BAD)
def test_what_cannot_be_meant_is_refused_before_anything_is_made(
    here: Here, words: tuple[str, ...], code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find_ray, "_has_ray", lambda _: True)
    here.write("train.py", TUNED)
    result = here.told(*SWEEP, *words)
    result.check(code, out="", err=said)
    assert not here.data.exists() or not list(here.data.iterdir())


def test_without_ray_it_says_how_to_get_it(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_ray, "_has_ray", lambda _: False)
    here.write("train.py", TUNED)
    here.told(*SWEEP, *GRID, *METRIC, "train.py").check(
        25, out="", err=["needs Ray Tune", "pip install 'costgpu[ray]'"]
    )


def test_ten_thousand_settings_are_asked_about(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_ray, "_has_ray", lambda _: True)
    here.write("train.py", TUNED)
    result = here.told(*SWEEP, "--grid", f"lr={MANY}", "--grid", f"seed={MANY}", *METRIC, "train.py")
    result.check(7, out="", err=["Run 10,000 trials (how long they take is not known)?", "hint: Add -y"])
    assert not here.runs()


def test_a_plan_for_programs(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_ray, "_has_ray", lambda _: True)
    here.write("train.py", TUNED)
    words = ("--dry-run", "--json", *GRID, "--random", "2", "--param", "seed=0..9", "--asha", *METRIC, "train.py")
    document = json.loads(here.told(*SWEEP, *words).check(0, err="").out)
    assert (document["schema"], document["sweep"]["trials"]) == ("costgpu.plan", 4)
    assert document["sweep"]["asha"] == {"grace": 1, "factor": 4, "most": None}
    assert document["plan"]["spec"]["argv"][0] == ".costgpu/tuner.pyz"


def test_rented_machines_get_ray() -> None:
    assert find_ray.setup_with_ray("", users=True).startswith("python3 -c 'import ray.tune'")
    assert find_ray.setup_with_ray("make data", users=True).startswith("( make data\n) && { python3")
    ours = find_ray.setup_with_ray("export PATH=/env", users=False)
    assert ours.startswith("export PATH=/env && { python3"), "what the set-up puts on the path is found"


Ran = dict[str, tuple[Here, Result]]
SWEEPS = {
    "asha": (
        *("--grid", "lr=0.001,0.01,0.1,0.5,1,7", "--grid", "seed=1,2"),
        *("--asha", "--asha-factor", "2", "--concurrent", "2", *METRIC, "train.py"),
    ),
    "no_metric": (*GRID, "--metric", "accuracy=([0-9.]+)", "--json", "train.py"),
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    """Each on a computer of its own; two at the same time, for each has a Ray of its own."""

    def carry_out(name: str) -> tuple[Here, Result]:
        place = Here.make(tmp_path_factory.getbasetemp() / f"sweep-{name}")
        place.write("train.py", TUNED)
        return place, place.costgpu(*SWEEP, *SWEEPS[name])

    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(SWEEPS, pool.map(carry_out, SWEEPS), strict=True))
    yield found
    for place, _ in found.values():
        place.close()


def results_of(here: Here) -> Path:
    (folder,) = (here.project / "costgpu-runs").iterdir()
    return folder


def table_of(here: Here) -> list[dict[str, str]]:
    return list(csv.DictReader((results_of(here) / "trials.csv").read_text().splitlines()))


@pytest.mark.slow
@pytest.mark.frameworks
@pytest.mark.skipif(find_spec("ray") is None, reason="sweeps need Ray")
class TestUnderRay:
    def test_twelve_trials_with_asha(self, ran: Ran) -> None:
        here, result = ran["asha"]
        result.check(0, out=["12 trials: ", "Best: lr=0.01 seed=1, val_loss 0.1677 at report 6."])
        rows = table_of(here)
        statuses = {row["trial"]: row["status"] for row in rows}
        assert [statuses["trial-06"], statuses["trial-12"]] == ["failed", "failed"]
        assert statuses["trial-02"] == "succeeded"
        stopped = [row for row in rows if row["status"] == "stopped"]
        assert 2 <= len(stopped) <= 9
        assert all(int(row["reports"]) < 6 for row in stopped)
        assert "the learning rate 7 is too high" in result.err
        folder = results_of(here)
        assert (folder / "trial-02/checkpoints/model.pt").read_text() == "0.01"
        assert not list(folder.glob("trial-*/train.py")), "what was sent does not come home twelve times"
        assert "val_loss=0.1677" in (folder / "trial-02/log.txt").read_text()
        assert "<svg" in (folder / "sweep.html").read_text()
        here.quiet()
        view = here.last()
        assert (view.state, view.reason) == (RunState.CLOSED, EndReason.SUCCEEDED)
        assert not (here.project / ".costgpu").exists()

    def test_a_metric_that_never_appears_ends_it(self, ran: Ran) -> None:
        here, result = ran["no_metric"]
        assert result.code == 34
        document = json.loads(result.out)
        assert (document["schema"], document["sweep"]["outcome"]) == ("costgpu.sweep", "no_metric")
        assert [trial["status"] for trial in document["sweep"]["trials"]] == ["no_metric", "not_started"]
        assert (document["error"]["type"], document["error"]["exit_code"]) == ("NoMetric", 34)
        assert "without a line that matches accuracy=([0-9.]+)" in result.err
        assert "epoch 5 val_loss=" in result.err, "the script's last lines"
        here.quiet()

    def test_what_is_ended_early_keeps_what_there_is(self, here: Here) -> None:
        here.write("train.py", TUNED)
        child = here.start(*SWEEP, *GRID, "--concurrent", "2", *METRIC, "train.py", "--epochs", "100000")
        until(lambda: all(said(here, f'"report", "trial": {{"number": {number},') for number in (1, 2)), 120)
        here.costgpu("cancel", "-y", here.last().run_id).check(0)
        out, err = child.communicate()
        assert child.returncode == 64, err
        assert b"2 ended early" in out
        assert [row["status"] for row in table_of(here)] == ["ended", "ended"]
        folder = results_of(here)
        assert [path.read_text() for path in folder.glob("trial-*/saved.txt")] == ["at the end"] * 2
        assert (folder / "sweep.html").exists()
        here.quiet()

    def test_a_sweep_is_left_and_attached_to(self, here: Here) -> None:
        here.write("train.py", TUNED)
        words = (*GRID, "--detach", *METRIC, "train.py", "--epochs", "20")
        here.costgpu(*SWEEP, *words).check(0, err="Detached. Run ")
        until(lambda: said(here, '"report"'), 120)
        here.costgpu("attach", here.last().run_id).check(0, out=["2 trials: 2 finished.", "Best: lr=0.01"])
        assert (results_of(here) / "sweep.html").exists()
        here.quiet()


def said(here: Here, text: str) -> bool:
    """Whether the tuner of some sweep of this computer has written this."""
    logs = (here.data / "machines").glob("local-*/stdout.log")
    return any(text.encode() in path.read_bytes() for path in logs)

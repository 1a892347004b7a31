"""What `costgpu run` and its like do where the measured script has read files that would not travel."""

import io
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import costgpu
from costgpu.cli.run import agree_on_inputs
from costgpu.errors import NotConfirmed, SyncRefused
from costgpu.measure.profile_file import save_profile
from costgpu.models.footprint import FileUse, Footprint
from costgpu.workflows.reporter import LogReporter
from costgpu.workflows.runs.queue import enqueue
from costgpu.workflows.runs.request import RunRequest
from costgpu.workflows.runs.start import planned_run, start_run
from costgpu.workflows.sweep import find_ray
from tests.cli.here import LOCAL, Here, told
from tests.unit.estimator import verdicts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="this machine as a machine needs Linux")

MEASURED = (*LOCAL, "--profile", "../measured.json")
SCRIPT = "import os\nprint(os.path.exists('last.pt'), len(open('data/set.pt').read()))\n"
FILES = {"train.py": SCRIPT, "last.pt": "x" * 300, "data/set.pt": "x" * 5000, ".gitignore": "*.pt\n"}
NAMED = "The script reads what would not travel: data/set.pt 5.0 kB (.gitignore), last.pt 300 bytes (.gitignore)."
OPTIONS = (
    "Send it too: --include data/set.pt --include last.pt;"
    " or go on without it: --exclude data/set.pt --exclude last.pt."
)


def fill(project: Path) -> None:
    (project / "data").mkdir(parents=True)
    for name, text in FILES.items():
        (project / name).write_text(text)
    read = [FileUse(path=name, size=len(text)) for name, text in FILES.items() if name != ".gitignore"]
    footprint = Footprint(read=read, written_outside=[FileUse(path="/scratch/a.pt", size=7)])
    save_profile(replace(verdicts.profile(), footprint=footprint), project.parent / "measured.json")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fill(tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


@pytest.mark.parametrize("more", [("--yes",), ("--json",), ("--detach",), ("--queue", "--yes"), ()])
def test_nobody_is_there_to_decide(project: Path, more: Sequence[str]) -> None:
    err = " ".join(told(*MEASURED, *more, "train.py").check(56, out="").err.split())
    assert (
        "stays here though the script reads it: data/set.pt 5.0 kB (.gitignore), last.pt 300 bytes (.gitignore)" in err
    )
    assert f"costgpu: {NAMED} hint: {OPTIONS}" in err


def test_a_plan_that_is_only_shown_says_what_is_refused(project: Path) -> None:
    result = told(*MEASURED, "--dry-run", "--json", "train.py").check(0)
    assert f"With --yes this would be refused. {NAMED}\nhint: {OPTIONS}" in result.err
    plan = json.loads(result.out)["plan"]
    assert plan["inputs"]["staying"][0] == {
        "path": "data/set.pt",
        "size": 5000,
        "files": 1,
        "why": ".gitignore",
        "sendable": True,
    }
    assert plan["largest"][0]["path"] == "data/set.pt"


@pytest.mark.parametrize(
    ("more", "files", "notes"),
    [
        (("--include", "*.pt"), 4, 0),
        (("--include", "data", "--exclude", "last.pt"), 3, 1),
        (("--exclude", "*.pt"), 2, 1),
        (("--exclude", "./data/", "--include", "{project}/last.pt"), 3, 1),
    ],
)
def test_a_person_has_decided(project: Path, more: Sequence[str], files: int, notes: int) -> None:
    words = [one.format(project=project) for one in more]
    result = told(*MEASURED, *words, "--dry-run", "--json", "train.py").check(0, err="")
    plan = json.loads(result.out)["plan"]
    assert (plan["files"], plan["inputs"]["staying"], len(plan["notes"])) == (files, [], notes)


def test_what_decides_nothing_is_told_before_anything_is_measured(project: Path) -> None:
    words = ("run", "--infra", "local", "--python", sys.executable)
    err = told(*words, "--include", "*.bin", "train.py").check(2, err="--include *.bin matches nothing in").err
    assert "Measuring" not in err
    told(*words, "--exclude", "train.py", "--no-estimate", "train.py").check(2, err="leaves out the script itself")
    told(*words, "--exclude", "*.py", "--no-estimate", "-m", "train").check(
        2, err="leaves out the script itself, train.py"
    )


def test_without_a_measurement_the_plan_says_so(project: Path) -> None:
    said = " ".join(told(*LOCAL, "--dry-run", "train.py").check(0).out.split())
    assert "2 files, 81 bytes; left out: .gitignore (2); the largest of these: data/set.pt 5.0 kB, last.pt" in said
    assert "; what the script reads was not measured" in said


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal(text))


def request(**more: Any) -> RunRequest:
    return RunRequest(
        command=("train.py",), infra=("local",), profile="../measured.json", python=sys.executable, **more
    )


@pytest.mark.parametrize(("answer", "files"), [("s\n", 4), ("W\n", 2), ("\n", None), ("y\n", None), ("", None)])
def test_a_person_is_asked_once(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str, files: int | None
) -> None:
    typed(monkeypatch, answer)
    with planned_run(request(), LogReporter()) as (context, planned):
        if files is None:
            with pytest.raises(NotConfirmed, match="Not launched; nothing was spent"):
                agree_on_inputs(context, planned, asks=True)
            return
        agreed = agree_on_inputs(context, planned, asks=True)
        err = capsys.readouterr().err
        assert NAMED in err
        assert "Send it too (s), go on without it (w), or stop? [s/w/N] " in err
        assert agreed.plan.files == files
        assert agree_on_inputs(context, agreed, asks=False) is agreed


def test_nothing_starts_undecided(project: Path) -> None:
    with planned_run(request(queue=True), LogReporter()) as (context, planned):
        with pytest.raises(SyncRefused, match="would not travel"):
            start_run(context, planned, None, run_id="a")  # type: ignore[arg-type]
        with pytest.raises(SyncRefused, match="would not travel"):
            enqueue(context, planned, None, "a")  # type: ignore[arg-type]
        assert not context.ledger.open_runs()
    with pytest.raises(SyncRefused) as error:
        costgpu.run("train.py", infra="local", profile="../measured.json", python=sys.executable)
    assert error.value.hint == OPTIONS


def test_the_machine_gets_what_was_included(here: Here) -> None:
    here.project.rmdir()
    fill(here.project)
    result = here.costgpu(*MEASURED, "--yes", "--include", "data", "--exclude", "last.pt", "train.py")
    result.check(0, out="False 5000\n", err="Left out by name, though the script reads it: last.pt 300 bytes")
    here.quiet()
    assert (here.last().spec.include, here.last().spec.exclude) == (("data",), ("last.pt",))


def test_a_sweep_is_refused_and_told_alike(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_ray, "_has_ray", lambda _: True)
    words = (
        "sweep",
        "--grid",
        "lr=1,2",
        "--metric",
        "x=([0-9]+)",
        "--profile",
        "../measured.json",
        "--python",
        sys.executable,
    )
    told(*words, "--yes", "train.py").check(56, out="", err=[NAMED, OPTIONS])
    decided = told(*words, "--include", "data", "--exclude", "last.pt", "--dry-run", "--json", "train.py").check(
        0, err=""
    )
    spec = json.loads(decided.out)["plan"]["spec"]
    assert (spec["include"], spec["exclude"]) == (["data"], ["last.pt"])

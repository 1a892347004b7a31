"""Events of a tuner: written, read back, and read where they are damaged."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest

from costgpu.sweep.metric import Mode
from costgpu.sweep.results import Results, TrialStatus
from costgpu.sweep.tuner.records import MARK, PROGRESS, TABLE, Records
from costgpu.workflows.sweep.results import results_at_home

SETTINGS = [{"lr": "1e-4", "seed": "1"}, {"lr": "1e-4", "seed": "2"}, {"lr": "3e-4", "seed": "1"}]


def result(reports: int, last: float, best: float | None, **more: object) -> dict[str, Any]:
    """What Tune is told by a trial."""
    return {"reports": reports, "last": last, "best": best, "best_report": reports, "seconds": 1.0, **more}


def told(records: Records) -> None:
    """A sweep of three trials: one finishes, one is beaten, one fails."""
    for number, setting in enumerate(SETTINGS, start=1):
        records.start(number, setting)
    records.report(1, result(1, 0.5, 0.5))
    records.report(2, result(1, math.inf, None))
    records.report(2, result(1, math.inf, None))
    records.report(1, result(2, 0.25, 0.25, exit_code=0))
    records.report(3, {"reports": 0, "seconds": 1.0, "exit_code": 1, "host": "node-3"})
    records.end(1, "succeeded")
    records.end(2, "stopped")
    records.end(3, "failed", "why")
    records.write({"event": "over", "outcome": "finished", "detail": "", "at": 9.0})
    records.close()


def test_events_become_results_and_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told(Records(str(tmp_path / "x"), ["lr", "seed"], 4))
    lines = capsys.readouterr().out.splitlines()
    assert [line.removeprefix(MARK) for line in lines] == (tmp_path / "x" / PROGRESS).read_text().splitlines()
    results = results_at_home({"folder": "x", "trials": 4, "mode": "min"}, tmp_path)
    assert results is not None
    first, second, third, fourth = results.trials
    assert [trial.setting for trial in results.trials] == [*SETTINGS, {}]
    assert (first.status, first.best, first.best_report, first.seconds) == (TrialStatus.SUCCEEDED, 0.25, 2, 1.0)
    assert first.curve == [(1, 0.5, 1.0), (2, 0.25, 1.0)]
    assert (second.status, second.best, second.last) == (TrialStatus.STOPPED, None, None)
    assert (second.reports, second.curve) == (1, [])
    assert (third.status, third.tail, third.host) == (TrialStatus.FAILED, "why", "node-3")
    assert fourth.status is TrialStatus.NOT_STARTED
    assert results.best is first
    assert results.outcome == "finished"
    rows = list(csv.DictReader((tmp_path / "x" / TABLE).read_text().splitlines()))
    assert [(row["trial"], row["lr"], row["seed"], row["status"], row["best"]) for row in rows] == [
        ("trial-01", "1e-4", "1", "succeeded", "0.25"),
        ("trial-02", "1e-4", "2", "stopped", ""),
        ("trial-03", "3e-4", "1", "failed", ""),
        ("trial-04", "", "", "not_started", ""),
    ]


def event(kind: str, **known: object) -> str:
    return json.dumps({"event": kind, "trial": {"number": 1, **known}})


def test_the_best_of_reports_that_were_not_told_counts() -> None:
    results = Results(3, Mode.MIN)
    results.feed(event("report", reports=1024, last=0.5, best=0.5, best_report=1024, seconds=1.0))
    results.feed(event("end", status="stopped", reports=1024, last=1.0, best=0.25, best_report=1001))
    assert (results.trials[0].best, results.trials[0].best_report) == (0.25, 1001)


def test_a_trial_that_starts_again_begins_afresh() -> None:
    results = Results(3, Mode.MIN)
    results.feed(event("start", status="running"))
    results.feed(event("report", reports=1, last=0.1, best=0.1, best_report=1, seconds=1.0))
    assert [trial.best for trial in results.ranked] == [0.1]
    results.feed(event("start", status="running"))
    assert results.ranked == []
    assert results.trials[0].curve == []


@pytest.mark.parametrize(
    "line",
    [
        "{no json",
        "[]",
        '{"event": "end", "trial": {"number": 9}}',
        '{"event": "end", "trial": {"number": 1, "status": "odd"}}',
        '{"event": "report", "trial": {"number": 1, "last": NaN}}',
        '{"event": "report", "trial": 1, "report": 1, "value": "0.5"}',
    ],
)
def test_a_line_that_is_no_event_changes_nothing(line: str) -> None:
    results = Results(3, Mode.MIN)
    assert results.feed(line) is None
    assert results == Results(3, Mode.MIN)

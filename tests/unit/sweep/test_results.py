"""Events of a tuner: written, read back, and read where they are damaged."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.sweep.metric import Mode
from costgpu.sweep.results import Results, TrialStatus, read_results
from costgpu.sweep.tuner.records import MARK, PROGRESS, TABLE, Records
from tests.properties import examples

SETTINGS = [{"lr": "1e-4", "seed": "1"}, {"lr": "1e-4", "seed": "2"}, {"lr": "3e-4", "seed": "1"}]
END: dict[str, Any] = {"event": "end", "exit_code": 0, "seconds": 2.5, "reports": 2, "best_report": 2, "tail": ""}


def result(reports: int, last: str, best: str | None, **more: object) -> dict[str, Any]:
    """What Tune is told by a trial."""
    return {"reports": reports, "last": last, "best": best, "best_report": reports, "seconds": 1.0, **more}


def told(records: Records) -> None:
    """A sweep of three trials: one finishes, one is beaten, one fails."""
    for number, setting in enumerate(SETTINGS, start=1):
        records.start(number, setting)
    records.report(1, result(1, "0.5", "0.5"))
    records.report(2, result(1, "inf", None))
    records.report(2, result(1, "inf", None))
    records.report(1, result(2, "0.25", "0.25", exit_code=0))
    records.report(3, {"reports": 0, "seconds": 1.0, "exit_code": 1, "host": "node-3"})
    records.end(1, "succeeded")
    records.end(2, "stopped")
    records.end(3, "failed", "why")
    records.write({"event": "over", "outcome": "finished", "detail": "", "at": 9.0})
    records.close()


def test_events_become_results_and_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told(Records(str(tmp_path / "x"), ["lr", "seed"], 4))
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith(MARK) for line in lines)
    assert [line.removeprefix(MARK) for line in lines] == (tmp_path / "x" / PROGRESS).read_text().splitlines()
    results = read_results(4, Mode.MIN, lines)
    first, second, third, fourth = results.trials
    assert [trial.setting for trial in results.trials] == [*SETTINGS, {}]
    assert (first.status, first.best, first.best_report, first.seconds) == (TrialStatus.SUCCEEDED, 0.25, 2, 1.0)
    assert first.curve == [(1, 0.5, 1.0), (2, 0.25, 1.0)]
    assert (second.status, second.best, second.last) == (TrialStatus.STOPPED, None, float("inf"))
    assert len(second.curve) == 1, "a heartbeat is no report"
    assert (third.status, third.tail, third.host) == (TrialStatus.FAILED, "why", "node-3")
    assert fourth.status is TrialStatus.NOT_STARTED
    assert results.best is first
    assert (results.outcome, results.over_at) == ("finished", 9.0)
    rows = list(csv.DictReader((tmp_path / "x" / TABLE).read_text().splitlines()))
    assert [(row["trial"], row["lr"], row["seed"], row["status"], row["best"]) for row in rows] == [
        ("trial-01", "1e-4", "1", "succeeded", "0.25"),
        ("trial-02", "1e-4", "2", "stopped", ""),
        ("trial-03", "3e-4", "1", "failed", ""),
        ("trial-04", "", "", "not_started", ""),
    ]


def test_the_best_of_reports_that_were_not_told_counts() -> None:
    results = Results(3, Mode.MIN)
    results.feed(json.dumps({"event": "report", "trial": 1, "report": 1024, "value": "0.5", "seconds": 1}))
    results.feed(json.dumps({**END, "trial": 1, "status": "stopped", "best": "0.25", "best_report": 1001, "last": "1"}))
    assert (results.trials[0].best, results.trials[0].best_report) == (0.25, 1001)


def test_a_trial_that_starts_again_begins_afresh() -> None:
    results = Results(3, Mode.MIN)
    for event in ({"event": "start"}, {"event": "report", "report": 1, "value": "0.1", "seconds": 1}):
        results.feed(json.dumps({**event, "trial": 1}))
    assert [trial.best for trial in results.ranked] == [0.1]
    results.feed(json.dumps({"event": "start", "trial": 1}))
    assert results.ranked == []
    assert results.trials[0].curve == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = (
    "trial",
    "report",
    "value",
    "seconds",
    "status",
    "exit_code",
    "reports",
    "last",
    "tail",
    "host",
    "settings",
    "outcome",
    "at",
)
EVENTS = st.fixed_dictionaries(
    {"event": st.sampled_from(["start", "report", "end", "begin", "over"]) | JSON},
    optional={key: st.integers(0, 4) | JSON for key in KEYS},
)


@given(events=st.lists(EVENTS | JSON, max_size=8), mode=st.sampled_from(Mode))
@examples(300)
def test_no_line_of_a_machine_breaks_the_reader(events: list[Any], mode: Mode) -> None:
    results = Results(3, mode)
    for event in events:
        results.feed(json.dumps(event))
    results.feed("{no json")
    assert len(results.trials) == 3
    ranked = [trial.best for trial in results.ranked]
    assert ranked == sorted((value for value in ranked if value is not None), reverse=mode is Mode.MAX)

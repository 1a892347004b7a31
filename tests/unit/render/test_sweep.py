"""What a person reads of a sweep at 80 columns, its page, and what a program reads of it."""

import json

from costgpu.errors import NoFiniteMetric, NoMetric, TrialsFailed
from costgpu.render.html.page import report_html
from costgpu.render.html.sweep_page import sweep_report
from costgpu.render.text.sweep import (
    live_rows,
    outcome_error,
    results_text,
)
from costgpu.sweep.metric import Metric, Mode
from costgpu.sweep.results import Results
from tests.unit.render.html_page import EVIL, Page, harmless
from tests.unit.render.runs import NOW
from tests.unit.render.sweeps import METRIC, results


def test_every_line_has_room_at_80_columns() -> None:
    found = results("a very long value that nobody would write, and that goes on and on")
    metric = "a_very_long_name_of_a_metric"
    for text in ("\n".join(live_rows(found, metric, 9)), results_text(found, metric, "costgpu-runs/x")):
        assert all(len(line) <= 80 for line in text.splitlines())


def test_a_metric_that_never_appeared() -> None:
    found = results()
    found.detail = "good bye"
    assert outcome_error(found, METRIC) is None
    found.outcome = "no_metric"
    error = outcome_error(found, METRIC)
    assert isinstance(error, NoMetric)
    assert "without a line that matches val_loss=([0-9.]+)" in error.message
    assert error.message.endswith("good bye")
    assert "--metric" in error.hint
    found.outcome = "failed"
    error = outcome_error(found, METRIC)
    assert isinstance(error, TrialsFailed)
    assert error.message.endswith("E: 3e-4")


def test_a_metric_that_is_never_finite() -> None:
    found = Results(2, Mode.MIN)
    for number in (1, 2):
        trial = {"number": number, "status": "succeeded", "exit_code": 0, "reports": 1, "last": None}
        found.feed(json.dumps({"event": "end", "trial": trial}))
    found.feed(json.dumps({"event": "over", "outcome": "finished", "at": 1.0}))
    assert isinstance(outcome_error(found, METRIC), NoFiniteMetric)
    found.feed(json.dumps({"event": "report", "trial": {"number": 1, "reports": 2, "last": 3.0, "best": 3.0}}))
    assert outcome_error(found, METRIC) is None


def page_of(found: Results, metric: Metric = METRIC, title: str = "x") -> Page:
    return harmless(report_html(sweep_report(found, metric, title=title, at=NOW)))


def test_the_best_curve_is_drawn_last() -> None:
    styles = [attributes.get("class") for tag, attributes in page_of(results()).tags if tag == "polyline"]
    assert styles == ["curve", "curve best"] * 2, "wide and narrow"


def test_the_page_is_safe_whatever_a_script_prints() -> None:
    assert "alert(1)" in page_of(results(EVIL), title=EVIL).text


def test_the_page_of_a_sweep_without_values() -> None:
    assert "No trial has printed a line that matches" in page_of(Results(1, Mode.MAX)).text


def test_values_far_apart_get_a_logarithmic_axis_and_equal_ones_any() -> None:
    for values in ([1000.0, 0.001], [5.0, 5.0], [0.0, 0.0], [-1.0, 1e6]):
        found = results()
        for number, value in enumerate(values, start=2):
            trial = {"number": 3, "reports": number, "last": value, "best": min(values), "seconds": 1.0}
            found.feed(json.dumps({"event": "report", "trial": trial}))
        page_of(found)

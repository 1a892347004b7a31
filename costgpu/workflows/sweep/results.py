"""What came home of a sweep: its results, and the page made of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from costgpu.errors import UsageError
from costgpu.files import FileKind, write_whole
from costgpu.portable.files import open_regular
from costgpu.render.html.page import report_html
from costgpu.render.html.sweep_page import sweep_report
from costgpu.sweep.metric import Metric, Mode
from costgpu.sweep.results import Results
from costgpu.sweep.tuner.records import PROGRESS

PAGE = "sweep.html"
_PAGE_FILE = FileKind(most_bytes=0, error=UsageError, write_hint="The other results are there.")


def metric_of(spec: dict[str, Any]) -> Metric:
    """Return the metric that a tuner was told."""
    return Metric(pattern=spec["metric"], mode=Mode(spec["mode"]))


def results_of(spec: dict[str, Any], lines: Iterable[str] = ()) -> Results:
    """Return the results that the events of a tuner tell of, as far as they have come."""
    results = Results(spec["trials"], Mode(spec["mode"]))
    for line in lines:
        results.feed(line)
    return results


def results_at_home(spec: dict[str, Any], workdir: Path) -> Results | None:
    """Return what the events tell that came home; None if none did."""
    try:
        with open_regular(workdir / spec["folder"] / PROGRESS) as stream:
            return results_of(spec, stream.read().decode("utf-8", "replace").splitlines())
    except OSError:
        return None


def write_page(results: Results, spec: dict[str, Any], workdir: Path, now: datetime) -> Path | None:
    """Write the page beside the other results; None if there are none."""
    folder = workdir / str(spec["folder"])
    if not folder.is_dir():
        return None
    title = f"Sweep of {' '.join(spec['argv'])}"
    text = report_html(sweep_report(results, metric_of(spec), title=title, at=now))
    write_whole(folder / PAGE, [text], _PAGE_FILE, replace=True)
    return folder / PAGE

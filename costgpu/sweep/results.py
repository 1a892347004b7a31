"""What came of a sweep, read from the events that its tuner writes. Pure.

The events come from a machine, and a script of the user's may have written lines that look like them: whatever does not
fit is left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from costgpu.sweep.metric import Mode
from costgpu.sweep.space import Setting
from costgpu.sweep.tuner.metric import is_better
from costgpu.sweep.tuner.records import MARK

MOST_POINTS = 4096  # of a curve
LONGEST_TEXT = 4000


class TrialStatus(StrEnum):
    """State of a trial."""

    NOT_STARTED = "not_started"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    STOPPED = "stopped"  # by ASHA: others were better
    FAILED = "failed"
    NO_METRIC = "no_metric"  # it ended by itself, and never printed the metric
    ENDED = "ended"  # with the whole sweep, before its own end


@dataclass(slots=True, kw_only=True)
class Trial:
    """One trial, as far as it has come."""

    number: int  # from 1
    setting: Setting = field(default_factory=dict)  # empty until it starts: Ray Tune draws it
    status: TrialStatus = TrialStatus.NOT_STARTED
    host: str = ""
    curve: list[tuple[int, float, float]] = field(default_factory=list)  # report, value, seconds since its start
    reports: int = 0
    best: float | None = None  # never nan or infinite
    best_report: int = 0
    last: float | None = None
    seconds: float | None = None  # None until its end
    exit_code: int | None = None
    tail: str = ""  # last lines of one that failed


@dataclass(slots=True)
class Results:
    """A sweep, as far as it has come.

    Attributes:
        trials: By number; `feed` keeps them up to date.
        outcome: ``finished``, ``failed``, ``no_metric`` or ``ended``; empty until its end.
    """

    size: int  # number of trials
    mode: Mode
    trials: list[Trial] = field(init=False)
    outcome: str = ""
    detail: str = ""
    began_at: float | None = None  # Unix time by the machine's clock
    over_at: float | None = None

    def __post_init__(self) -> None:
        self.trials = [Trial(number=number) for number in range(1, self.size + 1)]

    def feed(self, line: str) -> Trial | None:
        """Take one event; the trial that it is about, if it is about one, and fits."""
        try:
            event = json.loads(line)
        except ValueError:
            return None
        if not isinstance(event, dict):
            return None
        if event.get("event") == "begin":
            self.began_at = _number(event.get("at"))
        elif event.get("event") == "over":
            self.outcome, self.detail = _text(event.get("outcome")), _text(event.get("detail"))
            self.over_at = _number(event.get("at"))
        number = event.get("trial")
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= len(self.trials):
            return None
        trial = self.trials[number - 1]
        kind = event.get("event")
        if kind == "start":
            told = event.get("settings")
            setting = {_text(name): _text(value) for name, value in told.items()} if isinstance(told, dict) else {}
            trial = self.trials[number - 1] = Trial(number=number, setting=setting, status=TrialStatus.RUNNING)
        elif kind == "report":
            self._report(trial, event)
        elif kind == "end":
            _end(trial, event)
        else:
            return None
        return trial

    def _report(self, trial: Trial, event: dict[str, Any]) -> None:
        value, seconds, report = (_number(event.get(key)) for key in ("value", "seconds", "report"))
        if value is None or report is None or not math.isfinite(report):
            return
        trial.reports, trial.last = int(report), value
        if is_better(value, trial.best, self.mode.value):
            trial.best, trial.best_report = value, trial.reports
        if len(trial.curve) < MOST_POINTS:
            trial.curve.append((trial.reports, value, seconds or 0.0))

    @property
    def ranked(self) -> list[Trial]:
        """Trials with a best value, the best first."""
        found = [trial for trial in self.trials if trial.best is not None]
        sign = 1 if self.mode is Mode.MIN else -1
        return sorted(found, key=lambda trial: (sign * (trial.best or 0.0), trial.number))

    @property
    def best(self) -> Trial | None:
        """Return the best trial; None as long as there is no value."""
        return min(self.ranked[:1], key=lambda trial: trial.number, default=None)

    def count(self, *statuses: TrialStatus) -> int:
        """Count the trials with one of these states."""
        return sum(trial.status in statuses for trial in self.trials)


def _end(trial: Trial, event: dict[str, Any]) -> None:
    try:
        trial.status = TrialStatus(_text(event.get("status")))
    except ValueError:
        trial.status = TrialStatus.FAILED
    code, reports = _number(event.get("exit_code")), _number(event.get("reports"))
    trial.exit_code = None if code is None or not math.isfinite(code) else int(code)
    trial.seconds = _number(event.get("seconds"))
    if reports is not None and math.isfinite(reports):
        trial.reports = max(trial.reports, int(reports))
    last, best, best_report = (_number(event.get(key)) for key in ("last", "best", "best_report"))
    trial.last = trial.last if last is None else last
    if best is not None and math.isfinite(best) and best_report is not None and math.isfinite(best_report):
        trial.best, trial.best_report = best, int(best_report)  # of all reports, and not only of those that were told
    trial.tail, trial.host = _text(event.get("tail")), _text(event.get("host"))


def _number(value: object) -> float | None:
    """Return a number, or the text of one: JSON has no nan."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _text(value: object) -> str:
    return value[:LONGEST_TEXT] if isinstance(value, str) else ""


def read_results(size: int, mode: Mode, lines: Iterable[str]) -> Results:
    """Return the results that a file of events, or a log with marked lines, tells of."""
    results = Results(size, mode)
    for line in lines:
        results.feed(line.removeprefix(MARK))
    return results

"""What came of a sweep, read from the events that its tuner writes. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum

from costgpu.border import read
from costgpu.sweep.metric import Mode
from costgpu.sweep.space import Setting


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
    best: float | None = None
    best_report: int = 0
    last: float | None = None  # None if it is not finite
    seconds: float | None = None  # since its start
    exit_code: int | None = None
    tail: str = ""  # last lines of one that failed


@dataclass(slots=True, kw_only=True)
class TunerEvent:
    """A line of the tuner's: the sweep begins or is over, or what is known of a trial after its start, report or end."""

    event: str
    trial: Trial | None = None
    at: float | None = None  # Unix time by the machine's clock
    outcome: str = ""
    detail: str = ""


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

    def __post_init__(self) -> None:
        self.trials = [Trial(number=number) for number in range(1, self.size + 1)]

    def feed(self, line: str) -> Trial | None:
        """Take one event, or nothing of a line that is none; return the trial that it is about."""
        try:
            event = read(TunerEvent, json.loads(line), ValueError)
        except ValueError:
            return None
        if event.event == "begin":
            self.began_at = event.at
        elif event.event == "over":
            self.outcome, self.detail = event.outcome, event.detail
        trial = event.trial
        if trial is None or not 1 <= trial.number <= self.size:
            return None
        if event.event != "start":
            trial.curve = self.trials[trial.number - 1].curve
        if event.event == "report" and trial.last is not None:
            trial.curve.append((trial.reports, trial.last, trial.seconds or 0.0))
        self.trials[trial.number - 1] = trial
        return trial

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

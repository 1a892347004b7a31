"""What the tuner writes down: an event a line, and a table of all trials."""

from __future__ import annotations

import csv
import json
import os
import time
from typing import Any, Dict, List, Sequence

from .metric import is_finite
from .trial_process import trial_name

MARK = "costgpu-sweep "
"""Begins every line of stdout that is an event and not words for people."""
PROGRESS, TABLE = "progress.jsonl", "trials.csv"
COLUMNS = ("status", "best", "best_report", "last", "reports", "seconds", "exit_code", "host")


class Records:
    """The events of a sweep, in its folder and on stdout.

    Attributes:
        trials: What is known of each trial, by number.
    """

    def __init__(self, folder: str, names: Sequence[str], count: int) -> None:
        self.folder, self.names = folder, names
        os.makedirs(folder, exist_ok=True)
        self._progress = open(os.path.join(folder, PROGRESS), "w", encoding="utf-8")
        self.trials: List[Dict[str, Any]] = [
            {"number": number, "status": "not_started", "setting": {}} for number in range(1, count + 1)
        ]
        self.write({"event": "begin", "at": time.time()})

    def start(self, number: int, setting: Dict[str, str]) -> None:
        """Record that a trial starts, or starts again."""
        self.trials[number - 1] = {"number": number, "reports": 0, "status": "running", "setting": setting}
        self._tell("start", number)

    def report(self, number: int, result: Dict[str, Any]) -> None:
        """Record what a trial has reported; a result without a new value of the metric is no event."""
        trial = self.trials[number - 1]
        is_new = result["reports"] > trial["reports"]
        trial.update({key: result[key] for key in COLUMNS[1:] if key in result})
        if is_new:
            self._tell("report", number)

    def end(self, number: int, status: str, tail: str = "") -> None:
        """Record the end of a trial."""
        self.trials[number - 1].update(status=status, tail=tail)
        self._tell("end", number)

    def _tell(self, event: str, number: int) -> None:
        known = self.trials[number - 1].items()
        trial = {key: None if isinstance(value, float) and not is_finite(value) else value for key, value in known}
        self.write({"event": event, "trial": trial})

    def write(self, event: Dict[str, Any]) -> None:
        """Write any event to the folder and to stdout."""
        line = json.dumps(event)
        self._progress.write(line + "\n")
        self._progress.flush()
        print(MARK + line, flush=True)

    def close(self) -> None:
        """Write the table of all trials."""
        self._progress.close()
        with open(os.path.join(self.folder, TABLE), "w", encoding="utf-8", newline="") as stream:
            rows = csv.writer(stream, lineterminator="\n")
            rows.writerow(["trial", *self.names, *COLUMNS])
            for trial in self.trials:
                setting = [trial["setting"].get(name, "") for name in self.names]
                told = [trial.get(key) for key in COLUMNS]  # None becomes nothing
                rows.writerow([trial_name(trial["number"], len(self.trials)), *setting, *told])

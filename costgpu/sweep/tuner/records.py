"""What the tuner writes down: an event a line, and a table of all trials."""

from __future__ import annotations

import csv
import json
import os
import time
from typing import Any, Dict, List, Sequence

from .trial_process import trial_name

MARK = "costgpu-sweep "
"""Begins every line of stdout that is an event and not words for people."""
PROGRESS, TABLE = "progress.jsonl", "trials.csv"
OWN_COLUMNS = ("status", "best", "best_report", "last", "reports", "seconds", "exit_code", "host")


class Records:
    """The events of a sweep, in its folder and on stdout.

    Attributes:
        trials: What is known of each trial, by number.
    """

    def __init__(self, folder: str, names: Sequence[str], count: int) -> None:
        self.folder, self.names = folder, names
        os.makedirs(folder, exist_ok=True)
        self._progress = open(os.path.join(folder, PROGRESS), "w", encoding="utf-8")
        self.trials: List[Dict[str, Any]] = [{"status": "not_started", "settings": {}} for _ in range(count)]
        self.write({"event": "begin", "trials": count, "at": time.time()})

    def start(self, number: int, setting: Dict[str, str]) -> None:
        """Record that a trial starts, or starts again."""
        self.trials[number - 1] = {"status": "running", "settings": setting, "reports": 0}
        self.write({"event": "start", "trial": number, "settings": setting, "at": time.time()})

    def report(self, number: int, result: Dict[str, Any]) -> None:
        """Record what a trial has reported; a result without a new value of the metric is no event."""
        trial = self.trials[number - 1]
        is_new = result["reports"] > trial["reports"]
        trial.update({key: result[key] for key in OWN_COLUMNS[1:] if key in result})
        if is_new:
            told = {"report": result["reports"], "value": result["last"], "seconds": result["seconds"]}
            self.write({"event": "report", "trial": number, **told})

    def end(self, number: int, status: str, tail: str = "") -> None:
        """Record the end of a trial."""
        trial = self.trials[number - 1]
        trial["status"] = status
        told = {key: trial.get(key) for key in OWN_COLUMNS}
        self.write({"event": "end", "trial": number, **told, "tail": tail})

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
            rows.writerow(["trial", *self.names, *OWN_COLUMNS])
            for number, trial in enumerate(self.trials, start=1):
                setting = [trial["settings"].get(name, "") for name in self.names]
                told = ["" if trial.get(key) is None else trial[key] for key in OWN_COLUMNS]
                rows.writerow([trial_name(number, len(self.trials)), *setting, *told])

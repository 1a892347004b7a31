"""What the tuner writes down: an event a line, the files of trials on other machines, and a table of all trials."""

from __future__ import annotations

import csv
import json
import os
import time
from typing import Any, Dict, List, Sequence

from .trial_process import Event, trial_name

MARK = "costgpu-sweep "
"""Begins every line of stdout that is an event and not words for people."""
PROGRESS, TABLE = "progress.jsonl", "trials.csv"
OWN_COLUMNS = ("status", "best", "best_report", "last", "reports", "seconds", "exit_code", "host")


class Records:
    """The events of a sweep, in its folder and on stdout.

    Attributes:
        trials: What is known of each trial, by number.
    """

    def __init__(self, folder: str, settings: Sequence[Dict[str, str]]) -> None:
        self.folder, self.settings = folder, settings
        os.makedirs(folder, exist_ok=True)
        self._progress = open(os.path.join(folder, PROGRESS), "w", encoding="utf-8")
        self.trials: List[Dict[str, Any]] = [{"status": "not_started"} for _ in settings]
        self.write({"event": "begin", "trials": len(settings), "at": time.time()})

    def take(self, event: Event, ending: bool = False) -> None:
        """Write an event of a trial down.

        Args:
            ending: Whether the whole sweep is being ended: a trial that is stopped now was not beaten by others.
        """
        number = event["trial"]
        if event["event"] == "file":
            self._store(event)
            return
        if event["event"] == "start":
            event = {**event, "settings": self.settings[number - 1]}
            self.trials[number - 1] = {"status": "running", "host": event["host"]}
        elif event["event"] == "report":
            self.trials[number - 1]["reports"] = event["report"]
        elif event["event"] == "end":
            if ending and event["status"] == "stopped":
                event = {**event, "status": "ended"}
            self.trials[number - 1].update({key: event[key] for key in OWN_COLUMNS if key in event})
        self.write(event)

    def lost(self, number: int) -> None:
        """Record a trial that will not tell its end: its machine, or Ray's process on it, is gone."""
        tail = "The machine or the process that ran this trial was lost."
        event = {"event": "end", "trial": number, "status": "failed", "exit_code": None, "tail": tail}
        self.take({**event, "seconds": None, "reports": 0, "best": None, "best_report": 0, "last": None})

    def write(self, event: Event) -> None:
        """Write any event to the folder and to stdout."""
        line = json.dumps(event)
        self._progress.write(line + "\n")
        self._progress.flush()
        print(MARK + line, flush=True)

    def _store(self, event: Event) -> None:
        path = os.path.join(self.folder, trial_name(event["trial"], len(self.settings)), event["path"])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb" if event["first"] else "ab") as stream:
            stream.write(event["data"])
        os.chmod(path, event["mode"])

    def close(self) -> None:
        """Write the table of all trials."""
        self._progress.close()
        names = list(self.settings[0])
        with open(os.path.join(self.folder, TABLE), "w", encoding="utf-8", newline="") as stream:
            rows = csv.writer(stream, lineterminator="\n")
            rows.writerow(["trial", *names, *OWN_COLUMNS])
            for number, (setting, trial) in enumerate(zip(self.settings, self.trials), start=1):
                told = ["" if trial.get(key) is None else trial[key] for key in OWN_COLUMNS]
                rows.writerow([trial_name(number, len(self.settings)), *(setting[name] for name in names), *told])

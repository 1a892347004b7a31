"""A person who watches a sweep: a live table at a terminal, a line for each trial in a log."""

from __future__ import annotations

import sys
from typing import Any

from costgpu.cli.live_line import LiveLine
from costgpu.cli.terminal_observer import Terminal
from costgpu.clock import Clock
from costgpu.models.job import LogStream
from costgpu.render.text.sweep import end_text, live_rows, progress_text
from costgpu.sweep.results import TrialStatus
from costgpu.sweep.tuner.records import MARK
from costgpu.workflows.sweep.results import metric_of, results_of


class SweepTerminal(Terminal):
    """Turns the tuner's events into a table; what else it says goes to stderr.

    Attributes:
        spec: What the tuner was told.
        metric: By which trials are compared.
        results: As far as the events tell.
    """

    def __init__(self, clock: Clock, spec: dict[str, Any], *, ask: bool | None = None) -> None:
        super().__init__(clock, data_to_stderr=True, ask=ask)
        self.spec, self.metric, self.results = spec, metric_of(spec), results_of(spec)
        self._line = LiveLine(sys.stderr, lambda most: live_rows(self.results, self.metric.name, most))
        self._pending = b""

    def output(self, stream: LogStream, data: bytes) -> None:
        """Events are taken; everything else is shown as it is."""
        if stream is LogStream.STDERR:
            super().output(stream, data)
            return
        *lines, self._pending = (self._pending + data).split(b"\n")
        mark = MARK.encode()
        for line in lines:
            if not line.startswith(mark):
                super().output(stream, line + b"\n")
                continue
            trial = self.results.feed(line[len(mark) :].decode("utf-8", "replace"))
            if trial is None or trial.status in (TrialStatus.RUNNING, TrialStatus.NOT_STARTED):
                continue
            if not self._line.works or trial.status is TrialStatus.FAILED:
                self.note(end_text(trial, self.results, self.metric.name))
        if lines and self._line.works:
            self._line.show(progress_text(self.results, self.metric.name))

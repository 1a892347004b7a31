"""One trial: the user's script as a process of its own, what it prints, and its end."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional

from .matcher import LineTooCostly, Matcher
from .metric import is_better
from .saving import is_saving
from .trial_folder import LOG, TrialFolder

HEARTBEAT_SECONDS = 1.0  # a step ends after this time, with or without news: only then can a trial be stopped
SAVE_POLL_SECONDS = 0.02
DRAIN_SECONDS = 2.0  # for what is still in the pipe when the script has ended
TAIL_LINES, TAIL_CHARACTERS = 15, 2000
CHUNK_BYTES = 1 << 20
MOST_COSTLY_LINES = 10  # for its metric, of a trial; then it ends, as most likely every line is
ALL_REPORTS = 512  # of a trial are told one by one; of more, about half as many for each doubling

Event = Dict[str, Any]


def is_told(report: int) -> bool:
    """Return whether a report is an event of its own: a curve needs no more points than that."""
    return report <= ALL_REPORTS or report % (1 << (report.bit_length() - ALL_REPORTS.bit_length() + 1)) == 0


class TrialProcess:
    """Starts with `start`; then `step` until it says ``done``, or `end` before that.

    Args:
        spec: What the sweep is to do, as `bundle.tuner_spec` makes it.
        number: Number of the trial, from 1.
        argv: The script and its arguments for this trial.
        work: Folder with the files that were sent.
        emit: Takes events; those of a trial on another machine than the tuner also carry its files there.
        remote: Whether this is another machine.
        host: Name of this machine.
    """

    def __init__(
        self,
        spec: Dict[str, Any],
        number: int,
        argv: List[str],
        work: str,
        emit: Callable[[Event], None],
        remote: bool = False,
        host: str = "",
    ) -> None:
        self.spec, self.number, self.argv, self.emit, self.remote, self.host = spec, number, argv, emit, remote, host
        self.folder = TrialFolder(work, os.path.join(work, spec["folder"], trial_name(number, spec["trials"])))
        self._matcher = Matcher(os.path.join(work, spec["program"]), spec["metric"])
        self._costly_lines, self._is_matching = 0, False
        self.reports = 0
        self.last: Optional[float] = None
        self.best: Optional[float] = None
        self.best_report = 0
        self.over = False
        self._values: "queue.Queue[Optional[float]]" = queue.Queue()
        self._tail: List[str] = []
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self._reader: Optional[threading.Thread] = None
        self._began = time.monotonic()

    def start(self) -> None:
        """Make the folder and start the script in it."""
        self.folder.make()
        self.emit({"event": "start", "trial": self.number, "host": self.host, "at": time.time()})
        python = self.spec["python"] or sys.executable
        environment = {
            k: v for k, v in os.environ.items() if not k.startswith("RAY_")
        }  # the script may have its own Ray
        environment.update(PYTHONUNBUFFERED="1", COSTGPU_TRIAL=str(self.number))
        self._began = time.monotonic()
        try:
            self._process = subprocess.Popen(
                [python, os.path.join(self.folder.work, self.spec["program"]), "launch", str(os.getpid()), python]
                + self.argv,
                cwd=self.folder.path,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            self._tail.append("%s cannot be started: %s" % (python, error))
            self._finish("failed", 127)
            return
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def step(self) -> Dict[str, Any]:
        """Wait for the next value of the metric, or for a heartbeat.

        Returns:
            ``reports`` and ``done``, and ``value`` once there is one.
        """
        if not self.over:
            try:
                self._take(self._values.get(timeout=HEARTBEAT_SECONDS))
                while not is_told(self.reports):  # the others one by one: trials are compared at the same report
                    self._take(self._values.get_nowait())
            except queue.Empty:
                self._look()
        result: Dict[str, Any] = {"reports": self.reports, "done": self.over}
        if self.last is not None:
            result["value"] = self.last
        return result

    def end(self) -> None:
        """End the script; all that it started goes with it. Idempotent.

        A file that it is writing just now may become whole, for up to half of the grace; then SIGTERM, the rest of the
        grace to save something, and SIGKILL.
        """
        if self.over or self._process is None:
            return
        until = time.monotonic() + self.spec["grace"]
        code = self._wait_for_save(until - self.spec["grace"] / 2)
        if code is None:
            self._signal(signal.SIGTERM)
            try:
                self._process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
                self._process.wait()
        self._drain()
        self._finish("stopped" if code is None or code == 0 else "failed", self._process.returncode)

    def _wait_for_save(self, until: float) -> Optional[int]:
        """Wait while the script writes a file; the exit code of a script that has ended, None of one that runs."""
        assert self._process is not None
        while (code := self._process.poll()) is None:
            if time.monotonic() > until or not is_saving(self._process.pid, self.folder.path, time.time()):
                return None
            time.sleep(SAVE_POLL_SECONDS)
        return code

    def _look(self) -> None:
        """Look whether the script has ended meanwhile."""
        if self._process is None or self._process.poll() is None:
            return
        self._wait_for_reader()
        if not self._values.empty():
            return
        code = self._process.returncode
        self._finish("failed" if code else "succeeded" if self.reports else "no_metric", code)

    def _drain(self) -> None:
        """Take what a script that was ended has written."""
        self._wait_for_reader()
        while not self._values.empty():
            self._take(self._values.get_nowait())

    def _wait_for_reader(self) -> None:
        """Wait until all is read that the script has written: what it has started may hold the pipe open for longer."""
        for _ in range(1 + MOST_COSTLY_LINES):
            if self._reader is not None:
                self._reader.join(DRAIN_SECONDS)
            if not self._is_matching:
                return

    def _take(self, value: Optional[float]) -> None:
        if value is None:  # the script has closed its output: most likely it ends
            if self._process is not None:
                try:
                    self._process.wait(DRAIN_SECONDS)
                except subprocess.TimeoutExpired:
                    pass
            return
        self.reports, self.last = self.reports + 1, value
        if is_better(value, self.best, self.spec["mode"]):
            self.best, self.best_report = value, self.reports
        if is_told(self.reports):
            seconds = round(time.monotonic() - self._began, 3)
            self.emit(
                {
                    "event": "report",
                    "trial": self.number,
                    "report": self.reports,
                    "value": repr(value),  # JSON has no nan
                    "seconds": seconds,
                }
            )

    def _finish(self, status: str, code: int) -> None:
        self.over = True
        seconds = time.monotonic() - self._began
        self._signal(signal.SIGKILL)  # of what the script has started and left behind
        try:
            kept = self.folder.keep_outputs(self.spec["outputs"])
            if self.remote:
                self._send(kept)
        except OSError as error:
            self._tail.append("Its outputs cannot be kept: %s" % error)
        self.emit(
            {
                "event": "end",
                "trial": self.number,
                "status": status,
                "exit_code": code if code >= 0 else 128 - code,
                "seconds": round(seconds, 3),
                "reports": self.reports,
                "best": None if self.best is None else repr(self.best),
                "best_report": self.best_report,
                "last": None if self.last is None else repr(self.last),
                "tail": "\n".join(self._tail[-TAIL_LINES:])[-TAIL_CHARACTERS:]
                if status in ("failed", "no_metric")
                else "",
            }
        )

    def _send(self, paths: List[str]) -> None:
        """Send the trial's files to the machine with the tuner, piece by piece."""
        for path in paths:
            full = os.path.join(self.folder.path, path)
            with open(full, "rb") as stream:
                mode, first = os.fstat(stream.fileno()).st_mode & 0o777, True
                while True:
                    data = stream.read(CHUNK_BYTES)
                    if not data and not first:
                        break
                    event = {"event": "file", "trial": self.number, "path": path, "mode": mode, "first": first}
                    self.emit({**event, "data": data})
                    first = False

    def _signal(self, number: int) -> None:
        if self._process is not None:
            try:
                os.killpg(self._process.pid, number)
            except (ProcessLookupError, PermissionError):
                pass

    def _read(self) -> None:
        """Write the log and look for the metric; a thread of its own, so that the script never waits for us."""
        assert self._process is not None
        assert self._process.stdout is not None
        pending, is_cut = b"", False
        with self._process.stdout as pipe, open(os.path.join(self.folder.path, LOG), "wb") as log:
            while True:
                self._is_matching = False
                data = pipe.read1(1 << 16)  # type: ignore[attr-defined]
                if not data:
                    break
                self._is_matching = True
                log.write(data)
                log.flush()
                *lines, pending = re.split(rb"[\r\n]+", pending + data)
                for line in lines:
                    self._line(b"" if is_cut else line)
                    is_cut = False
                if len(pending) > CHUNK_BYTES:  # a line without an end: what follows its beginning is not looked at
                    self._line(b"" if is_cut else pending)
                    pending, is_cut = b"", True
            self._is_matching = True
            self._line(b"" if is_cut else pending)
            self._is_matching = False
        self._matcher.close()
        self._values.put(None)

    def _line(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        if not text.strip():
            return
        self._tail = [*self._tail[1 - TAIL_LINES :], text[-TAIL_CHARACTERS:]]
        try:
            value = self._matcher.find(text)
        except LineTooCostly:
            self._costly_lines += 1
            self._tail.append("--metric took too long for a line of %d characters." % len(text))
            if self._costly_lines == MOST_COSTLY_LINES:
                self._signal(signal.SIGKILL)
            return
        if value is not None:
            self._values.put(value)


def trial_name(number: int, trials: int) -> str:
    """Name of a trial's folder: ``trial-07``."""
    return "trial-%0*d" % (max(2, len(str(trials))), number)

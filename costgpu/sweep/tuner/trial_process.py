"""One trial: the user's script as a process of its own, what it prints, and its end."""

from __future__ import annotations

import ctypes
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional

from .arguments import arguments_of
from .matcher import LineTooCostly, Matcher
from .metric import for_scheduler, is_better
from .trial_folder import LOG, TrialFolder

HEARTBEAT_SECONDS = 1.0  # a step ends after this time, with or without news: only then can a trial be stopped
DRAIN_SECONDS = 2.0  # for what is still in the pipe when the script has ended
TAIL_LINES, TAIL_CHARACTERS = 15, 2000
CHUNK_BYTES = 1 << 20
MOST_COSTLY_LINES = 10  # for its metric, of a trial; then it ends, as most likely every line is
ALL_REPORTS = 512  # of a trial are told one by one; of more, about half as many for each doubling
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, linux/prctl.h

Send = Callable[[str, bytes, int, bool], None]
"""Takes a piece of a file: path, data, mode, and whether it is the first piece."""


def is_told(report: int) -> bool:
    """Return whether a report is told to Tune: of very many, that would take longer than the script."""
    return report <= ALL_REPORTS or report % (1 << (report.bit_length() - ALL_REPORTS.bit_length() + 1)) == 0


class TrialProcess:
    """Starts with `start`; then `step` until it says ``done``, or `end` before that.

    Args:
        spec: What the sweep is to do, as `bundle.tuner_spec` makes it.
        number: Number of the trial, from 1.
        setting: The value of each parameter.
        work: Folder with the files that were sent.
        send: Takes the trial's files to the machine with the tuner; None if this is that machine.
    """

    def __init__(
        self, spec: Dict[str, Any], number: int, setting: Dict[str, str], work: str, send: Optional[Send] = None
    ) -> None:
        self.spec, self.number, self.send = spec, number, send
        self.argv = spec["argv"] + arguments_of(setting, spec["template"])
        self.folder = TrialFolder(work, os.path.join(work, spec["folder"], trial_name(number, spec["trials"])))
        self._matcher = Matcher(os.path.join(work, spec["program"]), spec["metric"])
        self._costly_lines, self._is_matching = 0, False
        self.reports = 0
        self.last: Optional[float] = None
        self.best: Optional[float] = None
        self.best_report = 0
        self.over = False
        self.end_words: Dict[str, Any] = {}
        self._values: "queue.Queue[Optional[float]]" = queue.Queue()
        self._tail: List[str] = []
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self._reader: Optional[threading.Thread] = None
        self._began = time.monotonic()

    def start(self) -> None:
        """Make the folder and start the script in it."""
        self.folder.make()
        python = self.spec["python"] or sys.executable
        environment = {
            k: v for k, v in os.environ.items() if not k.startswith("RAY_")
        }  # the script may have its own Ray
        environment.update(PYTHONUNBUFFERED="1", COSTGPU_TRIAL=str(self.number))
        libc = ctypes.CDLL(None) if sys.platform == "linux" else None
        self._began = time.monotonic()
        try:
            self._process = subprocess.Popen(
                [python] + self.argv,
                cwd=self.folder.path,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: _begin_script(libc),  # noqa: PLW1509 - it takes no lock that a thread may hold
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
            ``reports`` and ``done``, what is known of the trial, and ``value`` once there is one.
        """
        if not self.over:
            try:
                self._take(self._values.get(timeout=HEARTBEAT_SECONDS))
                while not is_told(self.reports):  # the others one by one: trials are compared at the same report
                    self._take(self._values.get_nowait())
            except queue.Empty:
                self._look()
        result: Dict[str, Any] = {
            "reports": self.reports,
            "done": self.over,
            "best": None if self.best is None else repr(self.best),  # JSON has no nan
            "best_report": self.best_report,
            "last": None if self.last is None else repr(self.last),
            "seconds": round(time.monotonic() - self._began, 3),
            "host": socket.gethostname(),
            **self.end_words,
        }
        if self.last is not None:
            result["value"] = for_scheduler(self.last, self.spec["mode"])
        return result

    def end(self) -> None:
        """End the script with SIGTERM, and SIGKILL after the grace; all that it started goes with it. Idempotent."""
        if self.over or self._process is None:
            return
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(self.spec["grace"])
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()
        self._wait_for_reader()
        self._finish("stopped", self._process.returncode)

    def _look(self) -> None:
        """Look whether the script has ended meanwhile."""
        if self._process is None or self._process.poll() is None:
            return
        self._wait_for_reader()
        if not self._values.empty():
            return
        code = self._process.returncode
        self._finish("failed" if code else "succeeded" if self.reports else "no_metric", code)

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

    def _finish(self, status: str, code: int) -> None:
        self.over = True
        self._signal(signal.SIGKILL)  # of what the script has started and left behind
        try:
            self._send(self.folder.keep_outputs(self.spec["outputs"]))
        except OSError as error:
            self._tail.append("Its outputs cannot be kept: %s" % error)
        tail = "\n".join(self._tail[-TAIL_LINES:])[-TAIL_CHARACTERS:] if status in ("failed", "no_metric") else ""
        self.end_words = {"status": status, "exit_code": code if code >= 0 else 128 - code, "tail": tail}

    def _send(self, paths: List[str]) -> None:
        """Send the trial's files to the machine with the tuner, piece by piece."""
        if self.send is None:
            return
        for path in paths:
            full = os.path.join(self.folder.path, path)
            with open(full, "rb") as stream:
                mode, first = os.fstat(stream.fileno()).st_mode & 0o777, True
                while True:
                    data = stream.read(CHUNK_BYTES)
                    if not data and not first:
                        break
                    self.send(os.path.relpath(full, self.folder.work), data, mode, first)
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


def _begin_script(libc: Optional[ctypes.CDLL]) -> None:
    """Make the process that becomes the script end with the one that has started it, however that ends."""
    if libc is not None:
        libc.prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def trial_name(number: int, trials: int) -> str:
    """Name of a trial's folder: ``trial-07``."""
    return "trial-%0*d" % (max(2, len(str(trials))), number)

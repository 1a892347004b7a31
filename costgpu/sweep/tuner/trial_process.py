"""One trial: the user's script as a process of its own, what it prints, and its end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from multiprocessing.connection import wait
from typing import Any, Callable, Deque, Dict, List, Optional

from ...portable.supervise import PARENT_DEATH_SIGNAL, control, end_group, signal_group
from .arguments import arguments_of
from .metric import LONGEST_LINE, find_value, for_scheduler, is_better
from .trial_folder import LOG, TrialFolder

HEARTBEAT_SECONDS = 1.0  # a step ends after this time, with or without news: only then can a trial be stopped
DRAIN_SECONDS = 2.0  # for what is still in the pipe when the script has ended
TAIL_LINES, TAIL_CHARACTERS = 15, 2000
CHUNK_BYTES = 1 << 20
LINE_SECONDS = 2.0  # of CPU time for the pattern: an ordinary one takes a thousandth of it for the longest line
MOST_COSTLY_LINES = 10  # for its metric, of a trial; then it ends, as most likely every line is
ALL_REPORTS = 512  # of a trial are told one by one; of more, about half as many for each doubling

Send = Callable[[str, bytes, int, bool], None]
"""Takes a piece of a file: path, data, mode, and whether it is the first piece."""


def is_told(report: int) -> bool:
    """Return whether a report is told to Tune: of very many, that would take longer than the script."""
    return report <= ALL_REPORTS or report % (1 << (report.bit_length() - ALL_REPORTS.bit_length() + 1)) == 0


class TrialProcess:
    """Starts with `start`; then `step` until it says ``done``, or `end` before that. Belongs to the main thread.

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
        self.reports = 0
        self.last: Optional[float] = None
        self.best: Optional[float] = None
        self.best_report = 0
        self.over = False
        self.end_words: Dict[str, Any] = {}
        self._pattern = re.compile(spec["metric"])
        self._costly_lines = 0
        self._values: Deque[float] = deque()  # that were printed and are not yet reports
        self._pending = b""  # the beginning of a line that has no end yet
        self._tail: Deque[str] = deque(maxlen=TAIL_LINES)
        self._began = time.monotonic()

    def start(self) -> None:
        """Make the folder and start the script in it."""
        self.folder.make()
        signal.signal(signal.SIGVTALRM, _end_search)
        python = self.spec["python"] or sys.executable
        # The script may have its own Ray.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        environment.update(PYTHONUNBUFFERED="1", COSTGPU_TRIAL=str(self.number))
        end_with_parent = control(PARENT_DEATH_SIGNAL, signal.SIGKILL)
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
                preexec_fn=lambda: _begin_script(end_with_parent),  # noqa: PLW1509 - it takes no lock that a thread may hold
            )
        except OSError as error:
            self._tail.append("%s cannot be started: %s" % (python, error))
            self._finish("failed", 127)
            return
        assert self._process.stdout is not None
        self._pipe = self._process.stdout
        self._log = open(os.path.join(self.folder.path, LOG), "wb", buffering=0)

    def step(self) -> Dict[str, Any]:
        """Wait for the next value of the metric, or for a heartbeat.

        Returns:
            ``reports`` and ``done``, what is known of the trial, and ``value`` once there is one.
        """
        until = time.monotonic() + HEARTBEAT_SECONDS
        while not self.over and not self._report():
            left = until - time.monotonic()
            if self._process.poll() is not None:
                self._read_rest()
                if not self._values:
                    signal_group(self._process.pid, signal.SIGKILL)  # what the script has started and left behind
                    code = self._process.returncode
                    self._finish("failed" if code else "succeeded" if self.reports else "no_metric", code)
            elif left > 0:
                self._read(left)
            else:
                break
        result: Dict[str, Any] = {
            "reports": self.reports,
            "done": self.over,
            "best": self.best,
            "best_report": self.best_report,
            "last": self.last,
            "seconds": round(time.monotonic() - self._began, 3),
            "host": socket.gethostname(),
            **self.end_words,
        }
        if self.last is not None:
            result["value"] = for_scheduler(self.last, self.spec["mode"])
        return result

    def end(self) -> None:
        """End the script with SIGTERM, and SIGKILL after the grace; all that it started goes with it. Idempotent."""
        if self.over:
            return
        end_group(self._process, self.spec["grace"], lambda left: self._read(min(HEARTBEAT_SECONDS, left)))
        signal_group(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._read_rest()
        self._finish("stopped", self._process.returncode)

    def _report(self) -> bool:
        """Take values as reports, up to one that is told; return whether there was such a one.

        One by one: trials are compared at the same report.
        """
        while self._values:
            self.reports, self.last = self.reports + 1, self._values.popleft()
            if is_better(self.last, self.best, self.spec["mode"]):
                self.best, self.best_report = self.last, self.reports
            if is_told(self.reports):
                return True
        return False

    def _read(self, seconds: float) -> None:
        """Read what the script prints next, and wait so long for it: write the log, look for the metric."""
        if self._pipe.closed:  # by the script: most likely it ends
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                pass
            return
        if not wait([self._pipe.fileno()], seconds):
            return
        data = os.read(self._pipe.fileno(), 1 << 16)
        if not data:
            self._pipe.close()
            return
        try:
            self._log.write(data)
        except OSError as error:  # a full disk: the script comes to an end of its own
            self._tail.append("%s cannot be written: %s" % (LOG, error))
        first, *others = re.split(rb"[\r\n]+", data)
        first = (self._pending + first)[: 4 * LONGEST_LINE]  # no more is looked at; a character has 4 bytes at most
        *lines, self._pending = (first, *others)
        for line in lines:
            self._line(line)

    def _read_rest(self) -> None:
        """Read all that an ended script has printed: what it has started may hold the pipe open for longer."""
        until = time.monotonic() + DRAIN_SECONDS
        while not self._pipe.closed and time.monotonic() < until:
            self._read(DRAIN_SECONDS)
        self._line(self._pending)
        self._pending = b""
        self._pipe.close()
        self._log.close()

    def _finish(self, status: str, code: int) -> None:
        self.over = True
        try:
            self._send(self.folder.keep_outputs(self.spec["outputs"]))
        except OSError as error:
            self._tail.append("Its outputs cannot be kept: %s" % error)
        tail = "\n".join(self._tail)[-TAIL_CHARACTERS:] if status in ("failed", "no_metric") else ""
        self.end_words = {"status": status, "exit_code": code if code >= 0 else 128 - code, "tail": tail}

    def _send(self, paths: List[str]) -> None:
        """Send the trial's files to the machine with the tuner, piece by piece."""
        if self.send is None:
            return
        for path in paths:
            full = os.path.join(self.folder.path, path)
            with open(full, "rb") as stream:
                mode, first = os.fstat(stream.fileno()).st_mode & 0o777, True
                data = stream.read(CHUNK_BYTES)
                while data or first:
                    self.send(os.path.relpath(full, self.folder.work), data, mode, first)
                    data, first = stream.read(CHUNK_BYTES), False

    def _line(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        if not text.strip():
            return
        self._tail.append(text[-TAIL_CHARACTERS:])
        signal.setitimer(signal.ITIMER_VIRTUAL, LINE_SECONDS)
        try:
            value = find_value(self._pattern, text)
        except TimeoutError:
            self._costly_lines += 1
            self._tail.append("--metric took too long for a line of %d characters." % len(text))
            if self._costly_lines == MOST_COSTLY_LINES:
                signal_group(self._process.pid, signal.SIGKILL)
            return
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if value is not None:
            self._values.append(value)


def _end_search(_number: int, _frame: Any) -> None:
    raise TimeoutError


def _begin_script(end_with_parent: Callable[[], Any]) -> None:
    """Make the process that becomes the script end with the one that has started it, however that ends."""
    end_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def trial_name(number: int, trials: int) -> str:
    """Name of a trial's folder: ``trial-07``."""
    return "trial-%0*d" % (max(2, len(str(trials))), number)

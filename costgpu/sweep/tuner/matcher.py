"""The metric's pattern in a process of its own: one that takes for ever on a line stops neither the tuner nor the script."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from typing import Optional

from .metric import find_value

LINE_SECONDS = 2.0  # of CPU time: an ordinary pattern takes a thousandth of it for the longest line


class LineTooCostly(Exception):
    """A line took the pattern more than its time."""


class Matcher:
    """Answers with the value that a line has; its process starts with the first line, and again after one too costly.

    Args:
        program: The file that the tuner travels as.
        pattern: A regular expression with one group.
    """

    def __init__(self, program: str, pattern: str) -> None:
        self._command = [sys.executable, "-S", program, "match", pattern]
        self._process: Optional["subprocess.Popen[bytes]"] = None

    def find(self, line: str) -> Optional[float]:
        """Return the metric's value in a line, None without one.

        Raises:
            LineTooCostly: Its process was ended over this line.
        """
        if self._process is None:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(line).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = b""
        if not answer:
            self.close()
            raise LineTooCostly
        value: Optional[float] = json.loads(answer)
        return value

    def close(self) -> None:
        """End the process. Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def answer_lines(pattern: str) -> None:
    """Answer each line of stdin, until its end or until one takes longer than `LINE_SECONDS`; never returns.

    The kernel ends the process then: `re` does not look for signals in all of its loops.
    """
    compiled = re.compile(pattern)
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGTERM):  # its end is the end of its input
        signal.signal(number, signal.SIG_IGN)
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_VIRTUAL, LINE_SECONDS)
        value = find_value(compiled, json.loads(line))
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        sys.stdout.write(json.dumps(value) + "\n")
        sys.stdout.flush()
    os._exit(0)

"""Whether anything of a program computes, or all of it waits: its threads looked at some times a second (Linux).

A thread that is ready to run and has no core counts as running, so that a busy neighbour is not taken for waiting.
"""

from __future__ import annotations

import io
import os
import threading

from .op_tracer import clock
from .record import ActivityRecord

open_file = io.open  # before the guard replaces it
MOST_PROCESSES = 32
RUNNING = "R"
# Number of the call by which a thread waits for another one. Source: syscall tables of Linux 6.
FUTEX = {"x86_64": "202", "aarch64": "98"}.get(os.uname().machine if hasattr(os, "uname") else "", "")


def read(path):
    """The text of a file; empty where there is none."""
    try:
        with open_file(path) as stream:
            return stream.read()
    except (OSError, ValueError):
        return ""


def threads_of(pid):
    try:
        return os.listdir("/proc/{}/task".format(pid))
    except OSError:  # it has ended, or this is not Linux
        return []


def state_of(pid, thread):
    """``R`` for one that runs or is ready to; empty for one that has ended."""
    return read("/proc/{}/task/{}/stat".format(pid, thread)).rpartition(")")[2].lstrip()[:1]


def runs(pid: str, leaving_out: tuple[str, ...] = ()) -> bool:
    """Whether a thread of the process runs, but for some of them."""
    return any(state_of(pid, one) == RUNNING for one in threads_of(pid) if one not in leaving_out)


def waits_outside(pid, thread):
    """Whether a thread that does not run waits for something that no thread of its process does."""
    number = read("/proc/{}/task/{}/syscall".format(pid, thread)).split(" ")[0]
    return bool(FUTEX) and number.isdigit() and number != FUTEX


def descendants(pid: str) -> list[str]:
    """Processes that it has started, and those that they have."""
    found: list[str] = []
    waiting = [pid]
    while waiting and len(found) < MOST_PROCESSES:
        one = waiting.pop()
        for thread in threads_of(one):
            inner = read("/proc/{}/task/{}/children".format(one, thread)).split()
            found += inner
            waiting += inner
    return found


def queued_seconds(thread):
    """Seconds that a thread of this process was ready to run and had no core."""
    parts = read("/proc/self/task/{}/schedstat".format(thread)).split()
    return int(parts[1]) / 1e9 if len(parts) > 1 else 0.0


def queued_by_all():
    """The same of all threads of this process: each of them may hold up the others."""
    return sum(queued_seconds(thread) for thread in threads_of("self"))


def process_cpu():
    """CPU seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Activity:
    """What this process did since `begin`; `look` is called by a thread beside the script's."""

    def __init__(self) -> None:
        self.main = str(os.getpid())  # the thread of the script
        self.begin()

    def begin(self):
        self.wall, self.cpu, self.main_cpu = clock(), process_cpu(), self.main_seconds()
        self.queued, self.queued_all = queued_seconds(self.main), queued_by_all()
        self.looks = self.off = self.alone = self.quiet = 0

    def main_seconds(self):
        """CPU seconds of the script's thread; 0 where the system does not tell."""
        parts = read("/proc/self/task/{}/schedstat".format(self.main)).split()
        return int(parts[0]) / 1e9 if parts else 0.0

    def look(self) -> None:
        self.looks += 1
        if state_of("self", self.main) == RUNNING:
            return
        self.off += 1
        outside = waits_outside("self", self.main)  # threads of OpenMP spin for a while beside it
        if not outside and runs("self", (self.main, str(threading.get_native_id()))):
            return
        self.alone += 1
        if not any(runs(pid) for pid in descendants("self")):
            self.quiet += 1

    def record(self) -> ActivityRecord:
        return {
            "wall": clock() - self.wall,
            "cpu": process_cpu() - self.cpu,
            "main_cpu": self.main_seconds() - self.main_cpu,
            "main_queued": queued_seconds(self.main) - self.queued,
            "queued": max(0.0, queued_by_all() - self.queued_all),
            "looks": self.looks,
            "off": self.off,
            "alone": self.alone,
            "quiet": self.quiet,
        }

"""Whether anything of a program computes, or all of it waits: its threads looked at some times a second (Linux).

A thread that is ready to run and has no core counts as running, so that a busy neighbour is not taken for waiting.
"""

from __future__ import annotations

import os
import sys
import threading

from ...portable.processes import process, read, some_descendants
from .record import ActivityRecord
from .schedstat import clock, machine_times, own_cores, run_delay_of_all, thread_times, threads_of

RUNNING = b"R"
# Number of the call by which a thread waits for another one. Source: syscall tables of Linux 6.
FUTEX = {"x86_64": b"202", "aarch64": b"98"}.get(os.uname().machine if hasattr(os, "uname") else "", b"")


def state_of(pid, thread):
    """``b"R"`` for one that runs or is ready to; empty for one that has ended."""
    return read(pid, "task/{}/stat".format(thread)).rpartition(b")")[2].lstrip()[:1]


def runs(pid: int | str, leaving_out: tuple[str, ...] = ()) -> bool:
    """Return whether a thread of the process runs, but for some of them."""
    return any(state_of(pid, one) == RUNNING for one in threads_of(pid) if one not in leaving_out)


def waits_outside(pid, thread):
    """Return whether a thread that does not run waits for something that no thread of its process does."""
    number = read(pid, "task/{}/syscall".format(thread)).split(b" ")[0]
    return bool(FUTEX) and number.isdigit() and number != FUTEX


def own_cpu():
    """CPU seconds of this process, all threads."""
    times = os.times()
    return times.user + times.system


def peak_memory():
    """Return the bytes that this process has held at most; None where the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def children_cpu():
    """CPU seconds of what this process has started, ended or not, as far as the system tells."""
    times = os.times()
    seconds = times.children_user + times.children_system
    return seconds + sum(one.cpu for one in map(process, some_descendants("self")) if one is not None)


class Activity:
    """What this process did since `begin`; `look` is called by a thread beside the script's."""

    def __init__(self) -> None:
        self.main = str(os.getpid())  # the thread of the script
        self.beside = ""  # the one that looks: the script does not wait for it
        self.begin()

    def begin(self):
        self.wall, self.cpu, self.children, self.machine = clock(), own_cpu(), children_cpu(), machine_times()
        self.main_cpu, self.run_delay = thread_times("self/task/" + self.main)
        self.others_run_delay = run_delay_of_all(self.beside)
        self.looks = self.off = self.alone = self.quiet = 0
        self.step_off = self.step_alone = 0  # of which in steps with nothing beside them, and not in next(loader)
        self.interval_off = self.interval_alone = 0  # since the last unit's end

    def end_interval(self, *, plain: bool) -> None:
        """Account for the time up to a unit's end; `plain` if it was one whole unit, and nothing else happened in it."""
        if plain:
            self.step_off += self.interval_off
            self.step_alone += self.interval_alone
        self.interval_off = self.interval_alone = 0

    def look(self, *, in_step: bool = True) -> None:
        self.looks += 1
        self.beside = str(threading.get_native_id())
        if state_of("self", self.main) == RUNNING:
            return
        self.off += 1
        self.interval_off += in_step
        outside = waits_outside("self", self.main)  # threads of OpenMP spin for a while beside it
        if not outside and runs("self", (self.main, self.beside)):
            return
        self.alone += 1
        self.interval_alone += in_step
        if not any(runs(pid) for pid in some_descendants("self")):
            self.quiet += 1

    def record(self) -> ActivityRecord:
        cpu, run_delay = thread_times("self/task/" + self.main)
        process, children, machine = own_cpu() - self.cpu, max(0.0, children_cpu() - self.children), machine_times()
        used = stolen = 0.0
        if machine is not None and self.machine is not None:
            used, stolen = (after - before for after, before in zip(machine, self.machine))
        return {
            "wall": clock() - self.wall,
            "cores": len(own_cores()),
            "cpu": process + children,
            "children_cpu": children,
            "main_cpu": cpu - self.main_cpu,
            "main_run_delay": run_delay - self.run_delay,
            "run_delay": max(0.0, run_delay_of_all(self.beside) - self.others_run_delay),
            "neighbours_cpu": max(0.0, used - process - children),
            "stolen": max(0.0, stolen),
            "looks": self.looks,
            "off": self.off,
            "alone": self.alone,
            "quiet": self.quiet,
            "step_off": self.step_off,
            "step_alone": self.step_alone,
        }

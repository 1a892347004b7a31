"""What the scheduler says of a thread: seconds on a core, and seconds in which it was ready and had none (Linux).

Neighbours lengthen a step by the second of these, and nothing else on this machine knows it. Imports nothing of ours: the
micro-benchmark runs as a script, too.
"""

from __future__ import annotations

import os
import time

open_file, read_file, close_file = os.open, os.read, os.close  # before the guard replaces them
MOST_BYTES, TRIES = 1 << 20, 5
clock = time.perf_counter
cpu_clock = getattr(time, "thread_time", time.perf_counter)  # of this thread: a busy neighbour does not lengthen it
SHARED_TICKS = 100.0  # of /proc/stat in a second
LEAST_SAMPLE_SECONDS = 0.2  # some twenty ticks


def read(path: str) -> str:
    """Return the text of a file; empty where there is none."""
    try:
        descriptor = open_file(path, os.O_RDONLY)
        try:
            return read_file(descriptor, MOST_BYTES).decode("ascii", "replace")
        finally:
            close_file(descriptor)
    except (OSError, ValueError):
        return ""


def threads_of(pid: int | str) -> list[str]:
    """Return the ids of a process's threads; none where it has ended, or the system does not tell."""
    try:
        return os.listdir("/proc/{}/task".format(pid))
    except OSError:
        return []


def thread_times(thread: str) -> tuple[float, float]:
    """Return seconds on a core and seconds ready without one; zeros where the system does not tell."""
    parts = read("/proc/{}/schedstat".format(thread)).split()
    try:
        return (int(parts[0]) / 1e9, int(parts[1]) / 1e9) if len(parts) > 1 else (0.0, 0.0)
    except ValueError:
        return 0.0, 0.0


def run_delay() -> float:
    """Return the seconds for which this thread was ready and had no core, since it began."""
    return thread_times("thread-self")[1]


def run_delay_of_all(leaving_out: str = "") -> float:
    """Return the same of all threads of this process but one, added up."""
    return sum(thread_times("self/task/" + thread)[1] for thread in threads_of("self") if thread != leaving_out)


def work_clock() -> float:
    """Return seconds on a clock that stands still while this thread is ready and has no core."""
    before = run_delay()
    for _ in range(TRIES):  # it may lose its core between the two readings, too
        now, after = clock(), run_delay()
        if after == before:
            break
        before = after
    return now - after


class Lap:
    """One stretch of this thread's work after the other, and what the scheduler took of each."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin anew; the clock is read last, so that reading the rest is in no stretch."""
        self.run_delay_before, self.cpu_before = run_delay(), cpu_clock()
        self.since = clock()

    def end(self, now: float | None = None) -> tuple[float, float, float]:
        """Return seconds without those in the queue, seconds of these on a core, and seconds in the queue.

        Args:
            now: When the stretch ended, by `clock`; None for just now.
        """
        wall, cpu = (clock() if now is None else now) - self.since, cpu_clock() - self.cpu_before
        waited = max(0.0, run_delay() - self.run_delay_before)
        # A wait between two readings is in one of them only: what was worked on a core is worked in any case.
        worked = max(0.0, wall - waited, min(cpu, wall))
        return worked, cpu, max(0.0, wall - worked)


def own_cores() -> frozenset[int]:
    """Return the numbers of the cores that this process may use; none where the system does not tell."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def machine_times() -> tuple[float, float] | None:
    """Return CPU seconds used by all programs on the cores of this process, and stolen by other virtual machines.

    None where the system does not tell.
    """
    cores = own_cores()
    used = stolen = 0.0
    seen = False
    for line in read("/proc/stat").splitlines():
        name, _, rest = line.partition(" ")
        if not name.startswith("cpu") or not name[3:].isdigit() or int(name[3:]) not in cores:
            continue
        ticks = [float(value) for value in rest.split()]
        if len(ticks) < 8:
            return None
        seen = True
        used += (sum(ticks[:3]) + ticks[5] + ticks[6]) / SHARED_TICKS
        stolen += ticks[7] / SHARED_TICKS
    return (used, stolen) if seen else None


def busy_share(seconds: float = LEAST_SAMPLE_SECONDS) -> float:
    """Return which share of this process's cores other programs use just now; 0 where the system does not tell."""
    before, begin = machine_times(), clock()
    if before is None:
        return 0.0
    time.sleep(seconds)
    after, took = machine_times(), clock() - begin
    if after is None or took <= 0:
        return 0.0
    return min(1.0, (sum(after) - sum(before)) / took / len(own_cores()))

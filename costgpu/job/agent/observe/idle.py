"""Whether the job still does something."""

from __future__ import annotations

from typing import NamedTuple

from ....portable.clock import MachineClock
from ....portable.processes import descendants, process
from . import machine_stats

# A waiting process uses none of these; the chatter of an idle machine and our own keepalives stay below.
CPU_SHARE = 0.03  # of one core
NETWORK_BYTES_PER_SECOND = 20e3
DISK_BYTES_PER_SECOND = 50e3
GPU_PERCENT = 2.0
THRESHOLDS = "less than %.0f %% of a core, %.0f %% of a GPU, %.0f kB/s of network, %.0f kB/s of disk and no output" % (
    *(100 * CPU_SHARE, GPU_PERCENT, NETWORK_BYTES_PER_SECOND / 1e3, DISK_BYTES_PER_SECOND / 1e3),
)


class Counters(NamedTuple):
    """Totals at one moment; GPUs are asked only if all else is quiet."""

    at: float
    cpu_seconds: float
    network_bytes: int
    disk_bytes: int
    log_bytes: int


def read_counters(supervisor: int, log_bytes: int, at: float) -> Counters:
    """Return what the job below this supervisor has used up to now; `at` is the machine's uptime."""
    members = descendants(supervisor)
    root = process(supervisor)
    cpu = sum(entry.cpu for entry in members) + (root.children_cpu if root else 0.0)
    disk = machine_stats.disk_bytes(entry.pid for entry in members)
    return Counters(at, cpu, machine_stats.network_bytes(), disk, log_bytes)


def is_active(before: Counters, now: Counters) -> bool:
    """Return whether anything but a GPU was busy between the two."""
    seconds = max(now.at - before.at, 1e-3)
    rates: list[bool] = [
        (now.cpu_seconds - before.cpu_seconds) / seconds > CPU_SHARE,
        (now.network_bytes - before.network_bytes) / seconds > NETWORK_BYTES_PER_SECOND,
        (now.disk_bytes - before.disk_bytes) / seconds > DISK_BYTES_PER_SECOND,
        now.log_bytes > before.log_bytes,
    ]
    return any(rates)


class IdleWatch:
    """Measures for how long nothing has happened."""

    def __init__(self, supervisor: int, interval: float, clock: MachineClock) -> None:
        self.supervisor, self.interval, self.clock = supervisor, interval, clock
        self.last: Counters = read_counters(supervisor, 0, clock.uptime())
        self.active_at = self.last.at

    def idle_seconds(self, log_bytes: int) -> float:
        """Look again if it is time to, and tell how long it has been quiet."""
        now = self.clock.uptime()
        if now - self.last.at >= self.interval:
            counters = read_counters(self.supervisor, log_bytes, now)
            if is_active(self.last, counters) or machine_stats.gpu_percent() > GPU_PERCENT:
                self.active_at = counters.at
            self.last = counters
        return max(0.0, now - self.active_at)

"""The system's time. Whoever waits is handed a `MachineClock`, so that tests can simulate hours."""

from __future__ import annotations

import time


def uptime() -> float:
    """Monotonic seconds that every process of this boot shares, sleep included: what /proc/uptime counts."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """Return a value that changes with every boot; empty if unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def system_time() -> float:
    """Return the Unix time by the system's own clock, or this process's if that is behind: it may have another one set."""
    try:
        with open("/proc/stat", encoding="ascii") as stream:
            boot = next(line for line in stream if line.startswith("btime "))
        with open("/proc/uptime", encoding="ascii") as stream:
            system = float(boot.split()[1]) + float(stream.read().split()[0])
    except (OSError, ValueError, StopIteration):
        return time.time()
    return min(system, time.time())


class MachineClock:
    """Tells the time and waits. All values are in seconds."""

    def time(self) -> float:
        """Unix time."""
        return time.time()

    def uptime(self) -> float:
        """See `uptime`."""
        return uptime()

    def boot_id(self) -> str:
        """See `boot_id`."""
        return boot_id()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

"""What the watchdog of the boot script has counted. It acts by itself: here it is only read."""

from __future__ import annotations

from ..clock import Clock
from ..state_files import Home


def lifetime_left(home: Home, clock: Clock) -> float:
    """Seconds by the watchdog's own count, which a wrong clock does not change; infinite without a watchdog."""
    try:
        with open(home.file("life"), encoding="ascii") as stream:
            lived, boot, at = stream.read().split()
        with open(home.file("limits"), encoding="ascii") as stream:
            lifetime = float(stream.read().split()[1])
        since = clock.uptime() - float(at) if boot == clock.boot_id() else 0.0
        return lifetime - float(lived) - since
    except (OSError, ValueError, IndexError):
        return float("inf")


def watchdog_delay(home: Home, deadline_epoch: float) -> float:
    """How many seconds after the job's deadline the watchdog acts; 0 without a watchdog."""
    try:
        with open(home.file("limits"), encoding="ascii") as stream:
            return max(0.0, float(stream.read().split()[0]) - deadline_epoch)
    except (OSError, ValueError, IndexError):
        return 0.0

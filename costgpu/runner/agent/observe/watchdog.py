"""What the watchdog of the boot script has counted. It acts by itself; here it is only asked how long is left."""

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

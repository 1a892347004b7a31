"""Powering the machine off; and when the boot script's watchdog will do the same by itself, whether or not this works."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ...portable.clock import MachineClock
from .run_quietly import run_quietly
from .state_files import Home

_COMMAND_SECONDS = 60.0  # then the next way to switch off is tried


def _run(argv: Sequence[str]) -> bool:
    ended = run_quietly(argv, _COMMAND_SECONDS)
    return ended is not None and ended.returncode == 0


def power_off(home: Home, reason: str, clock: MachineClock) -> None:
    """Return only where the machine is a folder, and its power-off command has succeeded."""
    home.write_console("agent %s: powering off (wall %d)" % (reason, clock.time()))
    if not home.exists("ended_by"):
        try:
            with open(home.file("ended_by"), "w", encoding="ascii") as stream:
                stream.write("agent %s\n" % reason)
        except OSError:
            pass
    own = home.file("poweroff")
    while True:
        if os.access(own, os.X_OK) and _run([own, "agent " + reason]) and not home.remote:
            return
        if home.remote:
            for argv, seconds in (
                (["systemctl", "poweroff", "-i", "--no-block"], 30),
                (["systemctl", "poweroff", "--force"], 10),
                (["poweroff", "-f"], 5),
            ):
                if _run(argv):
                    clock.sleep(seconds)
        clock.sleep(5)


def lifetime_left(home: Home, clock: MachineClock) -> float:
    """Seconds by the watchdog's own count, which a wrong clock does not change; infinite without a watchdog."""
    try:
        lived, boot, at = _words(home, "life")
        since = clock.uptime() - float(at) if boot == clock.boot_id() else 0.0
        return float(_words(home, "limits")[1]) - float(lived) - since
    except (OSError, ValueError, IndexError):
        return float("inf")


def watchdog_delay(home: Home, deadline_epoch: float) -> float:
    """Return how many seconds after the job's deadline the watchdog acts; 0 without a watchdog."""
    try:
        return max(0.0, float(_words(home, "limits")[0]) - deadline_epoch)
    except (OSError, ValueError, IndexError):
        return 0.0


def _words(home: Home, name: str) -> list[str]:
    with open(home.file(name), encoding="ascii") as stream:
        return stream.read().split()

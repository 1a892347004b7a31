"""The time between two counted steps, and the waiting inside of it."""

from __future__ import annotations

from .ranks.world import WORLD
from .schedstat import Lap


class Waits:
    """Seconds inside of next(loader) since the measurement began, and of these not on a core."""

    def __init__(self) -> None:
        self.seconds = self.blocked = 0.0

    def add(self, seconds: float, blocked: float) -> None:
        self.seconds += seconds
        self.blocked += blocked


class ScriptTime:
    """The time since `begin`, as far as it is the script's."""

    def __init__(self, waits: Waits) -> None:
        self.waits, self.lap = waits, Lap()
        self.begin()

    def begin(self) -> float:
        """Begin anew, and return when that was."""
        self.wait_before, self.blocked_before = self.waits.seconds, self.waits.blocked
        self.answered_before = answered_seconds()
        self.lap.begin()
        return self.lap.since

    def end(self, now: float) -> tuple[float, float, float, float]:
        """Return what `shared_out` does of the time up to `now`, without what the probe answered collectives in."""
        wait, blocked = self.waits.seconds - self.wait_before, self.waits.blocked - self.blocked_before
        return shared_out(self.lap.end(now), wait, blocked, answered_seconds() - self.answered_before)


def answered_seconds() -> float:
    """Return the seconds in which collectives were answered so far."""
    return WORLD.collectives.seconds if WORLD.collectives is not None else 0.0


def shared_out(
    lap: tuple[float, float, float], wait: float, loader_blocked: float, answered: float = 0.0
) -> tuple[float, float, float, float]:
    """Return seconds of a `Lap`, of these in next(loader) and waiting for anything else, and the run delay beside them.

    Args:
        wait: Seconds inside of next(loader), in the queue or not; `loader_blocked` of them not on a core.
        answered: Seconds in which the probe answered collectives.
    """
    worked, cpu, run_delay = lap
    off = max(0.0, worked + run_delay - cpu)
    # Reading the scheduler's figures around each batch would cost more than many a batch: shared out instead.
    share, in_loader = (min(1.0, run_delay / off) if off > 0 else 0.0), min(loader_blocked, off)
    return max(0.0, worked - answered), max(0.0, wait - share * in_loader), (1 - share) * (off - in_loader), run_delay

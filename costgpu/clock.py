"""Time as a value that is handed in. Imports nothing of ours."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """What tells the time and waits."""

    def now(self) -> datetime:
        """Return the time of day, aware UTC."""

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


def monotonic_of(clock: Clock, at: datetime) -> float:
    """Return a past time by the monotonic clock, from where no setting of the clock moves it; now for one to come."""
    return clock.monotonic() - max(0.0, (clock.now() - at).total_seconds())


class SystemClock:
    """The machine's own time."""

    def now(self) -> datetime:
        """Aware UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class ManualClock:
    """A clock that moves only when it is told to, or slept on: for tests of what depends on time."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._seconds = 0.0

    def now(self) -> datetime:
        """Aware UTC."""
        return self._start + timedelta(seconds=self._seconds)

    def monotonic(self) -> float:
        """Return the seconds since this clock was made."""
        return self._seconds

    def sleep(self, seconds: float) -> None:
        """Move the time on at once."""
        self._seconds += max(0.0, seconds)

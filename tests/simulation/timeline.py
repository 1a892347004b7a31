"""Simulated time, and the processes that take turns in it: one runs, all others wait, and the earliest is next.

Each process has a thread, because the product blocks; a baton goes from one to the other, so that nothing is ever done
by two at once and the order is that of the simulated times alone.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

NEVER = float("inf")
START = datetime(2026, 1, 1, tzinfo=UTC)


class Owner(Protocol):
    """A process, as it takes turns."""

    def woken(self) -> None:
        """It has waited, and goes on; may raise."""


class Timeline:
    """What happens when."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._turn: Turn | None = None  # whose it is; None while the world itself acts

    @property
    def acting(self) -> Owner | None:
        """What `start` was told of the process whose turn it is; None while the world itself acts."""
        return self._turn.owner if self._turn is not None else None

    def at(self, seconds: float, act: Callable[[], None]) -> None:
        """Plans something; what is planned first for the same time happens first."""
        self._number += 1
        heapq.heappush(self._due, (max(seconds, self.seconds), self._number, act))

    def run(self, until: float = float("inf")) -> None:
        """Lets everything happen, up to a time, and goes there."""
        while self._due and self._due[0][0] <= until:
            at, _, act = heapq.heappop(self._due)
            self.seconds = max(self.seconds, at)
            act()
        if until != float("inf"):
            self.seconds = max(self.seconds, until)

    def sleep(self, seconds: float) -> None:
        """The process whose turn it is waits, and others may do something meanwhile."""
        wake = self.seconds + max(0.0, seconds)
        turn = self._turn
        if turn is None or not self._due or self._due[0][0] > wake:  # the world itself: an action that waits
            self.seconds = wake
        else:
            self.at(wake, turn.take)
            turn.give_back()
        if turn is not None:
            turn.owner.woken()

    def start(self, owner: Owner, body: Callable[[], None]) -> None:
        """Begins a process now."""
        self.at(self.seconds, Turn(self, owner, body).take)


class Turn:
    """The right of one process to act."""

    def __init__(self, timeline: Timeline, owner: Owner, body: Callable[[], None]) -> None:
        self.owner = owner
        self._timeline, self._body = timeline, body
        self._worker: Worker | None = None
        self._mine, self._worlds = threading.Semaphore(0), threading.Semaphore(0)

    def take(self) -> None:
        """From the world: lets the process act until it waits or ends."""
        self._timeline._turn = self
        if self._worker is None:
            self._worker = Worker.hire(self._whole)
        else:
            self._mine.release()
        self._worlds.acquire()
        self._timeline._turn = None

    def give_back(self) -> None:
        """From the process: waits until it is its turn again."""
        self._worlds.release()
        self._mine.acquire()

    def _whole(self, worker: Worker) -> None:
        try:
            self._body()
        finally:
            worker.rest()
            self._worlds.release()


class Worker:
    """A thread that carries out one process after the other."""

    _idle: list[Worker] = []  # noqa: RUF012 - threads outlive the simulations that use them

    def __init__(self) -> None:
        self._work: Callable[[Worker], None] | None = None
        self._wanted = threading.Semaphore(0)
        threading.Thread(target=self._serve, name="simulated-process", daemon=True).start()

    @classmethod
    def hire(cls, work: Callable[[Worker], None]) -> Worker:
        """One that is free begins with the work."""
        worker = cls._idle.pop() if cls._idle else cls()
        worker._work = work
        worker._wanted.release()
        return worker

    def rest(self) -> None:
        """Its process is over."""
        self._idle.append(self)

    def _serve(self) -> None:
        while True:
            self._wanted.acquire()
            assert self._work is not None
            self._work(self)


class TrueClock:
    """The time as it is, for the simulated cloud."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def now(self) -> datetime:
        return START + timedelta(seconds=self._timeline.seconds)

    def monotonic(self) -> float:
        return self._timeline.seconds

    def sleep(self, seconds: float) -> None:
        self._timeline.sleep(seconds)


class OwnClock(TrueClock):
    """A computer's clock: it can be wrong, and be set."""

    offset_seconds = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.offset_seconds)

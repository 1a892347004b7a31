"""The command line as a process that a test can kill or stop at a ledger write, and whose clock it can move.

    python -m tests.emulated.journeys.killable_client [--at EVENT:before|after:KILL|STOP[:N]] [--clock FILE] -- run train.py

Nothing of costgpu is changed but the clock that is put into it; the commits are seen through SQLAlchemy's own events.
KILL comes within the transaction or when it is over; STOP around it, so that whoever is stopped locks nobody out.
It comes at the N-th such event, the first if N is not given: machines of one job have events of their own.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import costgpu.clock
from costgpu.models.run import EventKind, RunEvent


def kill_at(kind: EventKind, when: str, nth: int) -> None:
    """Dies at the commit of the n-th such event: before it, or when it has happened."""
    from sqlalchemy import event
    from sqlalchemy.engine import Engine
    from sqlalchemy.pool import Pool

    seen: list[str] = []
    written: list[str] = []  # by the transaction that is open, if it is the one

    def inserted(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        if statement.startswith("INSERT INTO events"):
            values = parameters.values() if isinstance(parameters, dict) else parameters
            seen.extend(value for value in values if value == kind.value)
            written.extend(seen[nth - 1 :])

    def committing(connection: Any) -> None:
        if written and when == "before":
            strike("KILL")

    def returned(connection: Any, record: Any) -> None:
        if written:
            strike("KILL")

    event.listen(Engine, "before_cursor_execute", inserted)
    event.listen(Engine, "commit", committing)
    if when == "after":
        event.listen(Pool, "checkin", returned)  # a connection comes back when its transaction is over


def stop_at(kind: EventKind, when: str, nth: int) -> None:
    """Stops at the n-th such event, before or after it is appended."""
    from costgpu.ledger.store import Ledger

    append = Ledger.append
    met: list[RunEvent] = []

    def stopping(ledger: Ledger, event: RunEvent, admit: Callable[[], None] | None = None, /) -> None:
        met.extend([event] if event.kind is kind else [])
        now = event.kind is kind and len(met) == nth
        if now and when == "before":
            strike("STOP")
        append(ledger, event, admit)
        if now and when == "after":
            strike("STOP")

    Ledger.append = stopping  # type: ignore[method-assign,assignment]


def strike(what: str) -> None:
    """The signal, to this process; after STOP it goes on from here."""
    os.kill(os.getpid(), signal.Signals[f"SIG{what}"])


def move_clock(file: Path) -> None:
    """From now on the clock goes ahead by the seconds that the file holds, and the system's own with it."""
    from costgpu.portable import clock

    system_time = clock.system_time

    class MovedClock(costgpu.clock.SystemClock):
        def now(self) -> datetime:
            return super().now() + timedelta(seconds=_ahead(file))

        def monotonic(self) -> float:
            return super().monotonic() + _ahead(file)

    costgpu.clock.SystemClock = MovedClock  # type: ignore[misc]
    clock.system_time = lambda: system_time() + _ahead(file)


def _ahead(file: Path) -> float:
    try:
        return float(file.read_text() or 0)
    except FileNotFoundError:
        return 0.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--at", default="")
    parser.add_argument("--clock", type=Path)
    parser.add_argument("words", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    if chosen.at:
        kind, when, what, *nth = chosen.at.split(":")
        {"KILL": kill_at, "STOP": stop_at}[what](EventKind(kind), when, int(nth[0]) if nth else 1)
    if chosen.clock is not None:
        move_clock(chosen.clock)
    sys.argv = ["costgpu", *chosen.words[1:]]
    from costgpu.cli.app import main as command_line

    command_line()


if __name__ == "__main__":
    main()

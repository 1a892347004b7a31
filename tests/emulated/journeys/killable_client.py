"""The command line as a process that stops at a ledger write, for a test to kill it there, and whose clock a test can move.

    python -m tests.emulated.journeys.killable_client [--stop EVENT] [--clock FILE] -- run train.py

It stops once the first such event is in the ledger. Nothing else of costgpu is changed but the clock that is put into it.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import costgpu.clock
from costgpu.models.run import EventKind, RunEvent


def stop_after(kind: EventKind) -> None:
    """Stops as soon as an event of this kind is appended."""
    from costgpu.ledger.store import Ledger

    append = Ledger.append

    def stopping(ledger: Ledger, event: RunEvent, admit: Callable[[], None] | None = None, /) -> None:
        append(ledger, event, admit)
        if event.kind is kind:
            Ledger.append = append  # type: ignore[method-assign]
            os.kill(os.getpid(), signal.SIGSTOP)

    Ledger.append = stopping  # type: ignore[method-assign,assignment]


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
    parser.add_argument("--stop", type=EventKind)
    parser.add_argument("--clock", type=Path)
    parser.add_argument("words", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    if chosen.stop is not None:
        stop_after(chosen.stop)
    if chosen.clock is not None:
        move_clock(chosen.clock)
    sys.argv = ["costgpu", *chosen.words[1:]]
    from costgpu.cli.app import main as command_line

    command_line()


if __name__ == "__main__":
    main()

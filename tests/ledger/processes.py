"""Processes that use a ledger, for tests that run and kill them.

Run as a script: ``processes.py ROLE PLACE [...]``; a place is a folder, or the URL of a ledger.
"""

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy.dialects.sqlite

try:
    import psycopg  # noqa: F401  all begin at the same moment
    import sqlalchemy.dialects.postgresql.psycopg  # noqa: F401
except ImportError:
    pass

from costgpu.errors import LedgerConflict, LedgerError
from costgpu.ledger import Ledger, store  # noqa: F401
from costgpu.models.run import EventKind, RunEvent

NOBODY = 65534


def note(run_id: str, sequence: int, kind: EventKind = EventKind.NOTED, **data: object) -> RunEvent:
    return RunEvent(run_id=run_id, sequence=sequence, at=datetime.now(UTC), kind=kind, data=data)


def say(*words: object) -> None:
    """One write call a line: it is in the pipe even if the next instruction is the last."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def append_own(ledger: Ledger, run_id: str, count: int) -> None:
    """Appends to a run of its own and says each number once the ledger has it."""
    for sequence in range(count):
        kind = EventKind.INTENDED if sequence == 0 else EventKind.NOTED
        ledger.append(note(run_id, sequence, kind, name="storm", padding="x" * 300))
        say(sequence)


def append_shared(ledger: Ledger, run_id: str, count: int, me: str) -> None:
    """Appends to one run together with others: whoever is too late reads again."""
    for number in range(count):
        while True:
            try:
                ledger.append(note(run_id, len(ledger.events(run_id)), who=me, number=number))
                break
            except LedgerConflict:
                continue
        say(number)


def race_for(ledger: Ledger, run_id: str, count: int) -> None:
    """Tries to write each event of a run that others try to write, too, and says which ones it was that wrote.

    Whoever has written one leaves the next to the others: else the first to begin may be done before they do.
    """
    sequence = 0
    while sequence < count:
        try:
            ledger.append(note(run_id, sequence, who=os.getpid()))
            say(sequence)
            leave_until = time.monotonic() + 20
            while len(ledger.events(run_id)) <= sequence + 1 < count and time.monotonic() < leave_until:
                time.sleep(0.001)
        except LedgerConflict:
            pass
        sequence = max(sequence, len(ledger.events(run_id)))


def report(ledger: Ledger, run_id: str) -> None:
    """What each operation answers, as a JSON object."""
    answers: dict[str, object] = {}
    uses: dict[str, Callable[[], object]] = {
        "events": lambda: len(ledger.events(run_id)),
        "recent": lambda: list(ledger.recent_runs()),
        "append": lambda: ledger.append(note(f"{run_id}-new", 0)),
        "again": lambda: len(ledger.events(run_id)),
    }
    for name, use in uses.items():
        try:
            answers[name] = use()
        except LedgerError as exc:
            answers[name] = {"error": type(exc).__name__, "message": exc.message, "hint": exc.hint}
    say(json.dumps(answers))


def fill(ledger: Ledger, run_id: str) -> None:
    """Appends until it is refused, and says how many there are and why there are no more."""
    for sequence in range(100_000):
        try:
            ledger.append(note(run_id, sequence, padding="x" * 3000))
        except LedgerError as exc:
            say(
                json.dumps({"written": sequence, "error": type(exc).__name__, "message": exc.message, "hint": exc.hint})
            )
            return


def work(role: str, place: str, run_id: str = "", count: str = "0", extra: str = "") -> None:
    """What a process is for."""
    ledger = Ledger.open(place) if "://" in place else Ledger.open(folder=Path(place))
    if role == "own":
        append_own(ledger, run_id, int(count))
    elif role == "shared":
        append_shared(ledger, run_id, int(count), extra)
    elif role == "same":
        race_for(ledger, run_id, int(count))
    elif role == "nobody":
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        report(ledger, run_id)
    elif role == "report":
        report(ledger, run_id)
    elif role == "fill":
        if int(count):
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(count), resource.RLIM_INFINITY))
        fill(ledger, run_id)
    elif role == "die":
        append_own(ledger, run_id, int(count))
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    work(*sys.argv[1:])

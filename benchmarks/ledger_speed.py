"""How fast the ledger is: appending from one and many processes, and reading when it holds a million events.

    python benchmarks/ledger_speed.py [EVENTS] [RUNS]

Medians of RUNS; nothing is asserted. The ledger is made in a temporary folder.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from sqlalchemy import func, insert, select

from costgpu.ledger import Ledger, dialect, migrations, projections, schema
from costgpu.ledger.store import FILE_NAME, event_row
from costgpu.models.run import EventKind, RunEvent

EVENTS = 1_000_000
OPEN = 50  # runs that are not over
START = datetime(2026, 1, 1, tzinfo=UTC)
BATCH = 2000  # runs in one transaction
ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
ENGINE = "import sqlalchemy"
READ = (
    "import sys; from pathlib import Path; from costgpu.ledger import Ledger; l = Ledger.open(folder=Path(sys.argv[1]))"
)
PROCESSES = {
    "python": "",
    "import sqlalchemy": ENGINE,
    "import costgpu.ledger.store": "import costgpu.ledger.store",
    "open_runs and their events": f"{READ}; l.events_of(l.open_runs())",
    "recent_runs and their events": f"{READ}; l.events_of(l.recent_runs(50))",
}
APPEND = """
import sys
from datetime import datetime, UTC
from pathlib import Path
from costgpu.models.job import EventKind, RunEvent
from costgpu.ledger import Ledger
with Ledger.open(folder=Path(sys.argv[1])) as ledger:
    for n in range(int(sys.argv[3])):
        ledger.append(RunEvent(run_id=sys.argv[2], sequence=n, at=datetime.now(UTC), kind=EventKind.NOTED))
"""


def main(count: int, times: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        started = time.perf_counter()
        fill(place, count)
        size = (place / FILE_NAME).stat().st_size / 1e6
        print(f"{count} events written in {time.perf_counter() - started:.0f} s: {size:.0f} MB")
        with Ledger.open(folder=place) as ledger:
            reading(ledger, times)
            appending(ledger, times)
        processes(place, times)
        together(place)


def reading(ledger: Ledger, times: int) -> None:
    newest = ledger.recent_runs(1)[0]
    closings = schema.closings
    month = closings.c.ended_us >= schema.to_microseconds(START + timedelta(days=30))
    by_provider = select(closings.c.provider, func.sum(closings.c.metered_nano_usd)).group_by(closings.c.provider)
    tag = schema.run_tags
    of_team = select(func.sum(closings.c.metered_nano_usd)).join(tag, tag.c.run == closings.c.run)
    of_team = of_team.where(tag.c.key == "team", tag.c.value == "team-3")
    queries: dict[str, Callable[[], Any]] = {
        f"open_runs ({len(ledger.open_runs())})": ledger.open_runs,
        "recent_runs(50)": ledger.recent_runs,
        "events of a run": lambda: ledger.events(newest),
        "resolve a run id": lambda: ledger.resolve(newest),
        "resolve its beginning": lambda: ledger.resolve(newest[:4]),
        f"resolve a name ({len(ledger.resolve('job-7'))})": lambda: ledger.resolve("job-7"),
        "events of the open runs": lambda: ledger.events_of(ledger.open_runs()),
        "cost of everything, by provider": lambda: ask(ledger, by_provider),
        "cost since a day, by provider": lambda: ask(ledger, by_provider.where(month)),
        "cost of everything with a tag": lambda: ask(ledger, of_team),
    }
    for name, query in queries.items():
        print(f"{1e3 * statistics.median(seconds(query) for _ in range(times)):8.2f} ms  {name}")


def appending(ledger: Ledger, times: int) -> None:
    taken = [
        seconds(lambda n=n: ledger.append(RunEvent(run_id="append", sequence=n, at=START, kind=EventKind.NOTED)))  # type: ignore[misc]
        for n in range(times * 20)
    ]
    print(f"{1e3 * statistics.median(taken):8.2f} ms  append ({1 / statistics.fmean(taken):.0f} a second, one process)")


def processes(folder: Path, times: int) -> None:
    taken: dict[str, list[float]] = {name: [] for name in PROCESSES}
    for _ in range(times):
        for name, code in PROCESSES.items():
            command = [sys.executable, "-c", code, str(folder)]
            taken[name].append(seconds(lambda command=command: subprocess.run(command, check=True)))  # type: ignore[misc]
    for name, each in taken.items():
        print(f"{1e3 * statistics.median(each):8.0f} ms  process: {name}")


def together(folder: Path, many: int = 50, each: int = 50) -> None:
    started = time.perf_counter()
    running = [
        subprocess.Popen([sys.executable, "-c", APPEND, str(folder), f"together{n}", str(each)]) for n in range(many)
    ]
    failed = sum(process.wait() != 0 for process in running)
    took = time.perf_counter() - started
    with Ledger.open(folder=folder) as ledger:
        found = sum(len(ledger.events(f"together{n}")) for n in range(many))
    print(f"{took:8.1f} s   {many} processes at once, {each} events each: {found} there, {failed} failed")


def ask(ledger: Ledger, query: Any) -> list[Any]:
    return ledger.read(lambda connection: list(connection.execute(query)), [])


def fill(folder: Path, count: int) -> None:
    """Writes the rows that `append` would, many in one transaction."""
    path = folder / FILE_NAME
    dialect.create_file(path)
    engine = dialect.connectable(dialect.parse_url(f"sqlite:///{path}"))
    migrations.migrate(engine, str(path), START)
    number, written = 0, 0
    while written < count:
        rows: dict[str, list[dict[str, Any]]] = {"events": [], "runs": [], "run_tags": [], "closings": []}
        for _ in range(BATCH):
            if written >= count:
                break
            number += 1
            run = list(story(number, closed=written < count - OPEN * 10))
            written += len(run)
            rows["events"] += [event_row(event) for event in run]
            rows["runs"].append({"run": number, **projections.run_row(run[0])})
            rows["run_tags"] += [{"run": number, **tag} for tag in projections.tag_rows(run[0])]
            if run[-1].kind is EventKind.CLOSED:
                rows["closings"].append({"run": number, **projections.closing_row(run, run[-1])})
        with engine.begin() as connection:
            for table in schema.RECORDS:
                if rows.get(table.name):
                    connection.execute(insert(table), rows[table.name])
    engine.dispose()


def story(number: int, *, closed: bool) -> Iterator[RunEvent]:
    """Yield the events of one run, as they are in life."""
    run_id = "r" + "".join(ALPHABET[(number * 7919 // 36**place) % 36] for place in range(11))
    at = START + timedelta(seconds=97 * number)
    cost = Decimal(number % 997) / 100
    aws = number % 3 > 0
    offer = {
        "provider": "aws" if aws else "gcp",
        "instance_type": "g5.xlarge",
        "family": "g5",
        "region": "us-east-1",
        "zone": None,
        "purchase_option": "on_demand",
        "price_usd_per_hour": "1.006",
        "vcpus": 4,
        "memory_gib": 16.0,
        "architecture": "x86_64",
        "accelerator": {"name": "A10G", "count": 1.0, "memory_gib": 24.0},
        "price_source": "aws price list",
        "price_as_of": "2026-01-01",
    }
    spec = {
        "name": f"job-{number % 100}",
        "argv": ["train.py", "--epochs", "3"],
        "workdir": "/home/somebody/project",
        "tags": {"team": f"team-{number % 9}", "paper": f"p{number % 31}"},
        "outputs": ["out/"],
        "max_cost_usd": "5",
    }
    layers = [
        {"name": name, "armed": True, "detail": "x" * 60, "deadline": at.isoformat()}
        for name in ("create call", "provider schedule", "watchdog", "agent", "client", "reap")
    ]
    receipt = {"run_id": run_id, "instance_type": "g5.xlarge", "layers": layers, "left_behind": []}
    kinds: list[tuple[EventKind, dict[str, Any]]] = [
        (
            EventKind.INTENDED,
            {
                "name": spec["name"],
                "owner": f"u{number % 20}@host",
                "spec": spec,
                "identity": {"provider": "aws", "account": "123456789012", "principal": "me"},
            },
        ),
        (EventKind.ATTEMPTED, {"attempt": 1, "token": f"{run_id}-1", "offer": offer, "zone": "us-east-1a"}),
        (EventKind.CREATED, {"instance_id": f"i-{number:017x}", "provider": offer["provider"], "region": "us-east-1"}),
        (EventKind.REACHED, {}),
        (EventKind.SYNCED, {"files": 120, "bytes": 12345678}),
        (EventKind.STARTED, {}),
        (EventKind.FINISHED, {"reason": "succeeded", "exit_code": 0}),
        (EventKind.COLLECTED, {"files": 3, "bytes": 45678901}),
        (EventKind.ENDING, {"reason": "succeeded"}),
        (EventKind.CONFIRMED, {"state": "terminated"}),
        (
            EventKind.CLOSED,
            {
                "reason": "succeeded",
                "ended_by": "client",
                "metered_seconds": 1234.5,
                "metered_cost_usd": str(cost),
                "receipt": receipt,
            },
        ),
    ]
    for sequence, (kind, data) in enumerate(kinds if closed else kinds[:-1]):
        yield RunEvent(
            run_id=run_id,
            sequence=sequence,
            at=at + timedelta(seconds=30 * sequence),
            kind=kind,
            data=json.loads(json.dumps(data)),
        )


def seconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS, int(sys.argv[2]) if len(sys.argv) > 2 else 15)

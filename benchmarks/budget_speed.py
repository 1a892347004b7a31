"""How fast budgets are checked and runs listed when the ledger holds a million events: whole processes.

    python benchmarks/budget_speed.py [EVENTS] [TIMES]

Medians of TIMES; nothing is asserted. The ledger, about 100,000 runs of a bit more than a year until now with 50 open
ones, 10 budgets and 1,000 machines that it does not know, is made in a temporary folder.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from costgpu.ledger import Ledger, dialect, migrations, projections, schema
from costgpu.ledger.costs.charges import Charge
from costgpu.ledger.costs.periods import Every
from costgpu.ledger.records.budget_rules import Budget
from costgpu.ledger.records.budget_store import set_budget
from costgpu.ledger.records.unrecorded_machines import record_sightings
from costgpu.ledger.schema import to_microseconds
from costgpu.ledger.store import FILE_NAME, event_row
from costgpu.models.instance import InstanceRef
from costgpu.models.run import EventKind, RunEvent

EVENTS = 1_000_000
OPEN = 50  # runs that are not over
STRANGERS = 1000  # machines that the ledger does not know,
LOOKS = 20  # each seen so often
SECONDS_APART = 370  # between the starts of two runs: 100,000 runs are 14 months
BATCH = 2000  # runs in one transaction
COMMANDS = (
    ("budget", "check", "--offline"),
    ("budget", "check", "--offline", "--verbose"),
    ("budget", "show"),
    ("jobs", "--json"),  # the ledger alone: no machine is asked
    ("jobs",),
)


def main(count: int, times: int) -> None:
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "data" / "costgpu"
        folder.mkdir(parents=True, mode=0o700)
        started = time.perf_counter()
        fill(folder, count, datetime.now(UTC))
        size = (folder / FILE_NAME).stat().st_size / 1e6
        print(f"{count} events written in {time.perf_counter() - started:.0f} s: {size:.0f} MB")
        environment = {
            **os.environ,
            "HOME": home,
            "XDG_DATA_HOME": f"{home}/data",
            "XDG_CONFIG_HOME": f"{home}/config",
            "NO_COLOR": "1",
            "COLUMNS": "80",
        }
        environment.pop("COSTGPU_LEDGER_URL", None)
        print(f"{seconds((sys.executable, '-c', 'import sqlalchemy'), environment, times):8.2f} s  import sqlalchemy")
        for command in COMMANDS:
            argv = (sys.executable, "-m", "costgpu", *command)
            run(argv, environment)  # the first check tells what is crossed, and writes
            print(f"{seconds(argv, environment, times):8.2f} s  costgpu {' '.join(command)}")
        print(run((sys.executable, "-m", "costgpu", "budget", "check", "--offline", "--verbose"), environment))


def seconds(argv: tuple[str, ...], environment: dict[str, str], times: int) -> float:
    """Median of whole processes."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        run(argv, environment)
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def run(argv: tuple[str, ...], environment: dict[str, str]) -> str:
    result = subprocess.run(
        argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert result.returncode in (0, 80, 81), result.stderr
    return result.stdout


def fill(folder: Path, count: int, now: datetime) -> None:
    """Writes the rows that `append` would, many in one transaction."""
    path = folder / FILE_NAME
    dialect.create_file(path)
    engine = dialect.connectable(dialect.parse_url(f"sqlite:///{path}"))
    migrations.migrate(engine, str(path), now)
    closed = max(0, count // 10 - OPEN)
    number = 0
    while number < closed + OPEN:
        rows: dict[str, list[dict[str, Any]]] = {"events": [], "runs": [], "run_tags": [], "closings": []}
        for _ in range(min(BATCH, closed + OPEN - number)):
            number += 1
            started = now - timedelta(seconds=SECONDS_APART * (closed + OPEN - number) + 60)
            story = list(events(number, started, closed=number <= closed))
            rows["events"] += [event_row(event) for event in story]
            rows["runs"].append({"run": number, **projections.run_row(story[0])})
            rows["run_tags"] += [{"run": number, **tag} for tag in projections.tag_rows(story[0])]
            if number <= closed:
                rows["closings"].append({"run": number, **projections.closing_row(story, story[-1])})
        with engine.begin() as connection:
            for table in (schema.events, schema.runs, schema.run_tags, schema.closings):
                if rows[table.name]:
                    connection.execute(insert(table), rows[table.name])
    engine.dispose()
    with Ledger.open(folder=folder) as ledger:
        for budget in budgets():
            set_budget(ledger, budget, now)
        for look in reversed(range(LOOKS)):
            at = now - timedelta(minutes=15 * look)
            record_sightings(ledger, [stranger(n, at - timedelta(days=n % 60)) for n in range(STRANGERS)])


def budgets() -> Iterator[Budget]:
    yield Budget(name="everything", amount_usd=Decimal(10_000_000), every=Every.TOTAL)
    yield Budget(name="month", amount_usd=Decimal(100_000), every=Every.MONTHLY, time_zone="Europe/Berlin")
    yield Budget(name="aws", amount_usd=Decimal(5000), every=Every.WEEKLY, provider="aws")
    yield Budget(name="today", amount_usd=Decimal(5000), every=Every.DAILY, owner="u3")
    for n in range(6):
        yield Budget(name=f"team-{n}", amount_usd=Decimal(9000), every=Every.MONTHLY, tags={"team": f"team-{n}"})


def stranger(number: int, at: datetime) -> Charge:
    return Charge(
        to_microseconds(at - timedelta(hours=5)),
        to_microseconds(at),
        None,
        0.0,
        run_id=f"x{number:011}",
        name="other",
        owner=f"u{number % 20}@host",
        provider="aws",
        instance_type="g5.xlarge",
        purchase_option="on_demand",
        tags={"team": f"team-{number % 9}", "costgpu-name": "other"},
        ref=InstanceRef(provider="aws", region="us-east-1", instance_id=f"i-{number:08x}"),
        nano_usd_per_hour=1_006_000_000,
        recorded=False,
    )


def events(number: int, at: datetime, *, closed: bool) -> Iterator[RunEvent]:
    """Yield the 10 events of a run that is over, the 6 of one that runs, as they are in life."""
    run_id = f"r{number:011}"
    offer = {
        "provider": "aws",
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
    lease = {"lifetime_seconds": 18000.0, "worst_cost_usd": "5", "usd_per_hour": "1.01", "limited_by": "--max-cost $5"}
    option = {"offer": offer, "lease": lease, "disk_gib": 100, "extras_usd_per_hour": "0.01"}
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
    instance = {"provider": "aws", "region": "us-east-1", "instance_id": f"i-{number:017x}"}
    cost = str(Decimal(number % 997) / 100)
    end = (at + timedelta(seconds=1234.5)).isoformat()
    receipt = {
        "run_id": run_id,
        "instance": instance,
        "instance_type": "g5.xlarge",
        "layers": layers,
        "reason": "succeeded",
        "ended_by": "client",
        "requested_at": end,
        "confirmed_state": "terminated",
        "confirmed_at": end,
        "provider_reason": "",
        "left_behind": [],
        "metered_seconds": 1234.5,
        "metered_cost_usd": cost,
    }
    story: list[tuple[EventKind, dict[str, Any]]] = [
        (
            EventKind.INTENDED,
            {
                "name": spec["name"],
                "owner": f"u{number % 20}@host",
                "client": "host",
                "spec": spec,
                "identity": {"provider": "aws", "account": "123456789012", "principal": "me"},
                "options": [option] * 12,
            },
        ),
        (
            EventKind.ATTEMPTED,
            {
                "attempt": 1,
                "token": f"{run_id}-1",
                "offer": offer,
                "zone": "us-east-1a",
                "option": 0,
                "lease_until": (at + timedelta(hours=5)).isoformat(),
                "allow_from": "192.0.2.1/32",
            },
        ),
        (EventKind.CREATED, {**instance, "zone": "us-east-1a", "launched_at": at.isoformat(), "layers": layers}),
        (EventKind.REACHED, {}),
        (EventKind.SYNCED, {"files": 120, "bytes": 12345678}),
        (EventKind.STARTED, {}),
        (EventKind.FINISHED, {"phase": "finished", "reason": "succeeded", "exit_code": 0}),
        (EventKind.ENDING, {"reason": "succeeded", "by": "client"}),
        (EventKind.CONFIRMED, {"state": "terminated"}),
        (
            EventKind.CLOSED,
            {
                "reason": "succeeded",
                "ended_by": "client",
                "metered_seconds": 1234.5,
                "metered_cost_usd": cost,
                "receipt": receipt,
            },
        ),
    ]
    for sequence, (kind, data) in enumerate(story if closed else story[:6]):
        yield RunEvent(
            run_id=run_id,
            sequence=sequence,
            at=at + timedelta(seconds=sequence),
            kind=kind,
            data=json.loads(json.dumps(data)),
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS, int(sys.argv[2]) if len(sys.argv) > 2 else 9)

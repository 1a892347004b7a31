"""A ledger with something in every table, and damage to it."""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from tests.fuzz.user_input import mutated_value


def plant_ledger(folder: Path) -> None:
    """A ledger with something in every table: open and closed runs, bills, strangers, budgets, alerts."""
    from costgpu.ledger import Ledger
    from costgpu.ledger.costs.periods import Every, bounds
    from costgpu.ledger.records import billed, budget_store, unrecorded_machines
    from costgpu.ledger.records.budget_rules import Budget
    from costgpu.models.bill import Bill, BilledRow
    from tests.unit.providers.planted import closed, machine, opened

    now = datetime.now(UTC).replace(microsecond=0)
    hour, midnight = timedelta(hours=1), now.replace(hour=0, minute=0, second=0)
    with Ledger.open(folder=folder) as ledger:
        closed(ledger, "closedrun1aa", now - 30 * hour, 2, "2.50", tags={"team": "nlp"})
        opened(ledger, "openrun1aaaa", now - hour, tags={"team": "nlp"})
        closed(ledger, "closedrun2aa", now - 9 * hour, 1, "1.50")
        opened(ledger, "openrun2aaaa", now - 2 * hour, created=False)
        day = BilledRow(
            run_id="closedrun1aa",
            start=midnight - 48 * hour,
            end=midnight - 24 * hour,
            amount_usd=Decimal("2.5"),
        )
        bill = Bill(
            provider="aws",
            account="1",
            start=day.start,
            end=day.end,
            rows=(day,),
            source="AWS Cost Explorer",
            asked_at=now,
            requests=1,
        )
        billed.record_bill(ledger, bill)
        stranger = unrecorded_machines.sighting(machine("stranger", now - 5 * hour), Decimal(1), now - hour)
        unrecorded_machines.record_sightings(ledger, [stranger])
        for name, every in (("all", Every.TOTAL), ("month", Every.MONTHLY)):
            budget = Budget(name=name, amount_usd=Decimal(3), every=every)
            budget_store.set_budget(ledger, budget, now)
            stored = next(each for each in budget_store.all_budgets(ledger) if each.budget.name == name)
            attempt = budget_store.claim_delivery(ledger, stored, bounds(every, "UTC", now), [50], Decimal(2), now)
            budget_store.finish_delivery(ledger, attempt.alerts, now, delivered=True, detail="printed")
    with contextlib.closing(sqlite3.connect(folder / "ledger.sqlite", isolation_level=None)) as raw:
        raw.execute("PRAGMA journal_mode = DELETE")
        for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            raw.execute(f'DROP TRIGGER "{name}"')


CELLS: tuple[object, ...] = (
    None,
    0,
    -1,
    1,
    5,
    2**62,
    -(2**62),
    10**18,
    -(10**18),
    0.5,
    1e308,
    "",
    "x",
    "yesterday",
    "1e999",
    "[]",
    "{}",
    "null",
    "[" * 5000,
    '{"a": ' + "9" * 6000 + "}",
    b"\xff\xfe",
    b"",
    "\x1b[31m",
    "a\0b",
    "openrun1aaaa",
    "closedrun1aa",
    "teleported",
    "closed",
    "intended",
    '{"name": "x"}',
    "x" * 20_000,
    4102444800000000,
    253402300799999999,
)


def damage_ledger(file: Path, whole: bytes, source: random.Random) -> str:
    """Damages a ledger in some way, and says in which."""
    file.write_bytes(whole)
    if source.random() < 0.25:
        raw = bytearray(whole)
        for _ in range(source.choice([1, 3, 20])):
            raw[source.randrange(len(raw))] ^= 1 << source.randrange(8)
        if source.random() < 0.2:
            del raw[source.randrange(len(raw)) :]
        file.write_bytes(raw)
        return "bytes"
    done = []
    with (
        contextlib.closing(sqlite3.connect(file, isolation_level=None)) as database,
        contextlib.suppress(sqlite3.Error),
    ):
        database.execute("PRAGMA foreign_keys = OFF")
        database.execute("PRAGMA ignore_check_constraints = ON")
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for _ in range(source.choice([1, 1, 1, 3])):
            table = source.choice([*tables, "events", "events", "events", "closings", "budgets"])
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            rows = database.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
            if not rows:
                continue
            row, column = source.choice(rows), source.choice(columns)
            where = " AND ".join(f"{name} IS ?" for name in columns)
            way = source.random()
            with contextlib.suppress(sqlite3.Error, ValueError, TypeError, RecursionError):
                if way < 0.1:
                    database.execute(f"DELETE FROM {table} WHERE {where}", row)
                elif way < 0.6 and "data" in columns and row[columns.index("data")]:
                    value = json.dumps(mutated_value(json.loads(row[columns.index("data")]), source))
                    database.execute(f"UPDATE {table} SET data = ? WHERE {where}", (value, *row))
                    column = "data"
                else:
                    cell = source.choice(CELLS)
                    database.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (cell, *row))
                done.append(f"{table}.{column}")
    return ", ".join(done)


_LEDGER_COMMANDS = """
    jobs; jobs -a; jobs -a --json; jobs --json; ledger; ledger --json; ledger --by month; ledger --by day; ledger --by
    job; ledger --by tag:team; ledger --by person --since 2026; ledger export; ledger export --format json; ledger
    export --format focus; ledger export --since 9d --until 1d --format focus; ledger report --html -; ledger
    accuracy; ledger accuracy --json; ledger billed --stored; budget show; budget show all; budget show --json; budget
    check --offline; budget check --offline -v; budget check --offline --json; logs closedrun1aa; logs openrun; attach
    openrun1aaaa; fetch closedrun2aa; cancel -y openrun1; reap; reap --json; reap --infra local; budget set new
    --total 5; budget set all --total 7 --replace; budget remove all
"""
LEDGER_COMMANDS = [" ".join(command.split()) for command in _LEDGER_COMMANDS.split(";")]

"""What a ledger promises, in a file and on a server: the same tests on SQLite and on PostgreSQL.

One file of more than 400 lines: together they are the promise that both must keep.
"""

import random
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from sqlalchemy import Connection, func, inspect, select, text
from sqlalchemy.exc import DBAPIError

from costgpu.errors import LedgerConflict, LedgerError, LedgerTooNew
from costgpu.ledger import Ledger, dialect, migrations, schema
from costgpu.ledger.costs.charges import RunFilter, spent
from costgpu.ledger.costs.closed_runs import closed_runs
from costgpu.ledger.costs.periods import Every
from costgpu.ledger.records.billed import compare_with_bills, latest_bills, record_bill
from costgpu.ledger.records.budget_rules import Budget
from costgpu.ledger.records.budget_store import (
    set_budget,
)
from costgpu.ledger.records.unrecorded_machines import (
    key_of,
    last_sightings,
    record_sightings,
    sighting,
    sightings_since,
)
from costgpu.ledger.store import event_row
from costgpu.models.bill import Bill, BilledRow
from costgpu.models.run import EventKind, RunEvent
from tests.ledger.conftest import Place, numbers
from tests.ledger.crowd import Crowd
from tests.ledger.postgres import Server
from tests.ledger.processes import note
from tests.ledger.test_processes import is_whole
from tests.unit.ledger.test_store import AgainstAModel, happened
from tests.unit.providers.planted import machine

START = datetime(2026, 10, 28, tzinfo=UTC)
ODD = (
    "a",
    "A",
    "b",
    "ä",
    "z",
    "Z",
    "ß",
    "aa",
    "a-a",
    "a b",
    "a_b",
    "a%b",
    "日本",
    "\U0001f600",
    "a\udfff",
    "'",
    '"',
    "\\",
)


# -- one process ------------------------------------------------------------------------------------------------------


def test_reading_makes_nothing(empty: Place) -> None:
    with empty.open() as ledger:
        assert ledger.recent_runs() == ledger.open_runs() == ledger.resolve("x") == ()
        assert ledger.events("nobody") == ()
        assert spent(ledger, RunFilter(), None, None) == 0
        assert not list(closed_runs(ledger, RunFilter()))
        assert latest_bills(ledger, START, START + timedelta(days=1)) == ()
    if empty.file is not None:
        assert not empty.file.exists()
    else:
        engine = dialect.connectable(dialect.parse_url(empty.url))
        with engine.connect() as connection:
            schemas = connection.scalars(text("SELECT nspname FROM pg_namespace")).all()
            assert dialect.POSTGRESQL_SCHEMA not in schemas
        engine.dispose()


def test_whatever_can_be_written_comes_back(ledger: Ledger) -> None:
    facts: dict[str, Any] = {
        "text": "é\udc80\0\U0001f600'; DROP TABLE events; --",
        "deep": [{"a": [None, True, 1.5e300, -0.0, 2**70]}],
        "empty": {},
        "long": "x" * 100_000,
        **{key: key for key in ODD},
    }
    times = [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC), START + timedelta(microseconds=1)]
    for sequence, at in enumerate(times):
        ledger.append(RunEvent(run_id="aaaa", sequence=sequence, at=at, kind=EventKind.NOTED, data=facts))
    found = ledger.events("aaaa")
    assert [event.at for event in found] == times
    assert all(event.data == facts for event in found)


def test_conflicts_write_nothing(ledger: Ledger) -> None:
    ledger.append(happened("aaaa", 0))
    for sequence in (0, 2, 99):
        with pytest.raises(LedgerConflict, match="aaaa") as caught:
            ledger.append(happened("aaaa", sequence, EventKind.CLOSED))
        assert "costgpu attach aaaa" in caught.value.hint
    assert numbers(ledger, "aaaa") == [0]
    assert ledger.open_runs() == ("aaaa",)
    ledger.append(happened("aaaa", 1, EventKind.CLOSED))
    assert ledger.open_runs() == ()


def test_names_are_compared_byte_by_byte_in_whatever_language_the_server_is(ledger: Ledger) -> None:
    """So that the beginning of a run id is a range of the index, and `a` is not `A` or `ä`."""
    plain = [each for each in ODD if "\udfff" not in each]
    for name in plain:
        ledger.append(happened(f"run-{name}", 0, EventKind.INTENDED, name=f"job-{name}"))
    for name in plain:
        begins = [f"run-{each}" for each in reversed(plain) if each.startswith(name)]
        assert list(ledger.resolve(f"run-{name}")) == [f"run-{name}"]
        assert list(ledger.resolve(f"job-{name}")) == [f"run-{name}"]
        assert set(begins) >= {f"run-{name}"}
    assert list(ledger.resolve("run-a")) == ["run-a"]
    assert list(ledger.resolve("run-")) == [f"run-{each}" for each in reversed(plain)]
    for asked in ("run-%", "run-_", "%", "job", "RUN-a", "\udc80", "\0", ""):
        assert ledger.resolve(asked) == ()


@pytest.mark.slow
def test_a_ledger_and_a_list_agree(migrated: str, server: Server) -> None:
    class OnTheServer(AgainstAModel):
        def open(self) -> Ledger:
            return Ledger.open(server.database(like=migrated))

    few = settings(max_examples=3, stateful_step_count=40, deadline=None, derandomize=True)
    run_state_machine_as_test(OnTheServer, settings=few)


PLANTED: dict[str, dict[str, Any]] = {
    "outcomes": {"run": 2},
    "budgets": {"id": 1, "data": None},
    "alerts": {"id": 1, "budget": 1},
    "alert_attempts": {"alert": 1, "number": 1},
    "alert_results": {"alert": 1, "number": 1},
}  # what a row must hold to refer to those before it


def plant_everywhere(ledger: Ledger) -> None:
    """A row in every table."""
    ledger.append(happened("aaaa", 0, EventKind.INTENDED, spec={"tags": {"a": "b"}}))
    ledger.append(happened("aaaa", 1, EventKind.CLOSED))
    ledger.append(happened("bbbb", 0, EventKind.INTENDED))

    def insert(connection: Connection) -> None:
        for table in schema.metadata.sorted_tables:
            if connection.scalar(select(func.count()).select_from(table)):
                continue
            row = {
                column.name: "x" if column.type.python_type is str else 0
                for column in table.c
                if not column.nullable and column.name != "id"
            }
            connection.execute(table.insert(), {**row, **PLANTED.get(table.name, {})})

    ledger.write(insert)


@pytest.mark.parametrize("table", [table.name for table in schema.RECORDS] + ["migrations"])
def test_rows_are_added_and_never_changed(ledger: Ledger, place: Place, table: str) -> None:
    """Refused by the database itself, also to other programs."""
    plant_everywhere(ledger)
    column = list(schema.metadata.tables[table].columns)[-1].name
    statements = [f"UPDATE {table} SET {column} = {column}", f"DELETE FROM {table}"]
    if place.kind == "postgresql":
        statements.append(f"TRUNCATE {table} CASCADE")
    engine = dialect.connectable(dialect.parse_url(place.url))
    for statement in statements:
        with engine.connect() as connection, pytest.raises(DBAPIError, match="append-only"):
            connection.exec_driver_sql(statement)
    engine.dispose()


# -- versions ---------------------------------------------------------------------------------------------------------


def test_a_ledger_of_the_first_version_is_migrated_with_all_that_is_in_it(
    empty: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS[:1])
        engine = dialect.connectable(dialect.parse_url(empty.url))
        if empty.file is not None:
            dialect.create_file(empty.file)
        migrations.migrate(engine, "here", START)
        event = happened("old", 0, EventKind.INTENDED, name="train", owner="ann")
        with engine.connect().execution_options(**{dialect.WRITES: True}) as connection, connection.begin():
            connection.execute(schema.events.insert(), event_row(event))
            row = {"run_id": "old", "at_us": 1, "name": "train", "owner": "ann"}
            connection.execute(schema.runs.insert(), row)
        engine.dispose()
    with empty.open() as ledger:  # reading is enough
        assert ledger.events("old") == (event,)
        assert ledger.resolve("train") == ("old",)
        none: set[str] = set()
        applied = ledger.read(lambda connection: set(connection.scalars(select(schema.migrations.c.name))), none)
        assert applied == {step.name for step in migrations.MIGRATIONS}
        ledger.append(happened("old", 1, EventKind.CLOSED, metered_cost_usd="1.5", reason="succeeded"))
        assert spent(ledger, RunFilter(), None, None) == Decimal("1.5")
        assert set_budget(ledger, Budget(name="b", amount_usd=Decimal(1), every=Every.TOTAL, time_zone="UTC"), START)


def test_a_step_that_fails_leaves_nothing_behind(empty: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(connection: Connection) -> None:
        connection.exec_driver_sql("CREATE TABLE half (name TEXT)")
        connection.exec_driver_sql("INSERT INTO nowhere VALUES (1)")

    with empty.open() as ledger:
        ledger.append(happened("aaaa", 0))
        ledger.close()
        with monkeypatch.context() as patch:
            patch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, migrations.Migration("fail", fail)))
            with pytest.raises(LedgerError):
                ledger.append(happened("aaaa", 1))
            ledger.close()
        assert not ledger.read(lambda connection: inspect(connection).has_table("half"), True)
        ledger.append(happened("aaaa", 1))


def test_a_newer_ledger_is_refused_unchanged(ledger: Ledger, place: Place) -> None:
    ledger.append(happened("aaaa", 0))
    row = {"name": "of-the-future", "at_us": 0, "writer": "99.0"}

    def grow(connection: Connection) -> None:
        connection.execute(schema.migrations.insert(), row)

    ledger.write(grow)
    with pytest.raises(LedgerTooNew):
        ledger.append(happened("aaaa", 1))
    with place.open() as other:
        for use in (lambda: other.events("aaaa"), other.open_runs, lambda: other.append(happened("b", 0))):
            with pytest.raises(LedgerTooNew, match="of-the-future") as caught:
                use()
            assert "upgrade" in caught.value.hint
    engine = dialect.connectable(dialect.parse_url(place.url))
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(schema.events)) == 1
    engine.dispose()


# -- the same answers -------------------------------------------------------------------------------------------------


def test_bills_and_machines_are_kept(ledger: Ledger) -> None:
    now = START + timedelta(days=3)
    row = BilledRow(run_id="aaaa", start=START, end=START + timedelta(days=1), amount_usd=Decimal("0.1"))
    bill = Bill(provider="aws", account="1", start=START, end=now, rows=(row,), source="s", asked_at=now, requests=1)
    for expected in (1, 0):
        assert record_bill(ledger, bill) == expected
    assert [(cost.run_id, cost.amount_usd) for cost in latest_bills(ledger, START, now)] == [("aaaa", Decimal("0.1"))]
    assert [row.billed_usd for row in compare_with_bills(ledger, START, now)] == [Decimal("0.1")]

    seen = sighting(machine("other", START, spot=True, tags={"é": "ü"}, lease=None), Decimal("0.35"), now)
    kept = seen._replace(going=False)  # which is not kept
    record_sightings(ledger, [kept])
    assert sightings_since(ledger) == (kept,)
    assert last_sightings(ledger, [kept]) == {key_of(kept): kept}


# -- processes --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_fifty_processes_append_at_once_and_lose_nothing(empty: Place, tmp_path: Path) -> None:
    """All begin at the same moment, with no ledger yet: it is made once, and every event of everyone is in it."""
    own, shared, count, each_shared = 38, 12, 12, 3
    each: list[tuple[object, ...]] = [("own", empty.url, f"own{n}", count) for n in range(own)]
    each += [("shared", empty.url, "shared", each_shared, f"p{n}") for n in range(shared)]
    with Crowd(each, tmp_path / "said") as crowd:
        crowd.go()
        assert crowd.wait() == [0] * 50
    with empty.open() as ledger:
        for n in range(own):
            assert numbers(ledger, f"own{n}") == list(range(count))
        together = ledger.events("shared")
        assert [event.sequence for event in together] == list(range(each_shared * shared))
        said = [(event.data["who"], event.data["number"]) for event in together]
        assert sorted(said) == sorted((f"p{n}", number) for n in range(shared) for number in range(each_shared))
        assert sorted(ledger.open_runs()) == sorted([f"own{n}" for n in range(own)] + ["shared"])
    if empty.file is not None:
        assert is_whole(empty.file.parent)


@pytest.mark.slow
def test_of_several_who_write_the_same_event_one_does(place: Place, tmp_path: Path) -> None:
    count = 60
    with Crowd([("same", place.url, "aaaa", count)] * 4, tmp_path / "said") as crowd:
        crowd.go()
        assert crowd.wait() == [0] * 4
        said = [crowd.said(n) for n in range(4)]
    assert sorted(int(word) for words in said for word in words) == list(range(count))
    with place.open() as ledger:
        assert numbers(ledger, "aaaa") == list(range(count))
        assert len({event.data["who"] for event in ledger.events("aaaa")}) > 1


@pytest.mark.slow
def test_a_storm_of_kills_loses_nothing_that_was_acknowledged(another: Callable[[], Place], tmp_path: Path) -> None:
    """SIGKILL at random moments, the making of the ledger included; a new ledger in every other round."""
    dice = random.Random(20261121)
    acknowledged = killed = 0
    place = another()
    with Crowd([], tmp_path / "nobody") as crowd:
        for turn in range(10):
            place = place if turn % 2 else another()
            each = [("own", place.url, f"turn{turn}-{n}", 100_000) for n in range(6)]
            crowd.again(each, tmp_path / f"said{turn}")
            crowd.go()
            # Three while they make the ledger; three anywhere in a commit, once so much is written: how quick the
            # machine is decides how long it takes, and not how much is proved.
            for number in range(3):
                time.sleep(dice.uniform(0, 0.01))
                crowd.kill(number)
            for number in range(3, 6):
                so_far = sum(len(crowd.said(n)) for n in range(6))
                crowd.until_said(so_far + dice.randint(1, 25))
                time.sleep(dice.uniform(0, 0.004))
                crowd.kill(number)
            killed += 6
            assert crowd.wait() == [-signal.SIGKILL] * 6
            acknowledged += nothing_lost(place, {f"turn{turn}-{n}": crowd.said(n) for n in range(6)}, f"after{turn}")
    print(f"{place.kind}: {killed} processes killed, {acknowledged} acknowledged events, all there")
    assert acknowledged > 100


def nothing_lost(place: Place, said: dict[str, list[str]], after: str) -> int:
    """Every run has what its writer has said, and at most one event more; the ledger can be written. How many."""
    with place.open() as ledger:
        for run_id, lines in said.items():
            found = numbers(ledger, run_id)
            assert found == list(range(len(found)))
            # The last one may be in the ledger without having been said.
            assert len(lines) <= len(found) <= len(lines) + 1
            assert (run_id in ledger.recent_runs(1000)) == bool(found)
        ledger.append(note(after, 0))
        ledger.append(note(after, 1, EventKind.CLOSED))
        assert after not in ledger.open_runs()
    if place.file is not None:
        assert is_whole(place.file.parent)
    return sum(map(len, said.values()))

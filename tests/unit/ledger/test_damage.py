"""Ledgers of other versions, and ledgers that something has damaged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, create_engine, inspect

from costgpu.errors import LedgerDamaged, LedgerError, LedgerTooNew
from costgpu.ledger import Ledger, migrations, schema
from costgpu.ledger.queries.history import Selection, closed_runs
from costgpu.ledger.store import FILE_NAME
from costgpu.models.run import EventKind
from tests.unit.ledger.test_store import AT, asked, happened


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(folder=tmp_path / "place") as opened:
        yield opened


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "place" / FILE_NAME


def test_a_newer_ledger_is_refused_unchanged(ledger: Ledger, file: Path) -> None:
    ledger.append(happened("aaaa", 0))
    raw = sqlite3.connect(file)
    raw.execute("INSERT INTO migrations VALUES ('of-the-future', 0, '99.0')")
    raw.commit()
    raw.close()
    # The one that is open already, and one that is opened now.
    with pytest.raises(LedgerTooNew):
        ledger.append(happened("aaaa", 1))
    with Ledger.open(folder=file.parent) as other:
        for use in (lambda: other.events("aaaa"), other.open_runs, lambda: other.append(happened("b", 0))):
            with pytest.raises(LedgerTooNew) as caught:
                use()
            assert "of-the-future" in caught.value.message
            assert str(file) in caught.value.message
            assert "upgrade" in caught.value.hint
    raw = sqlite3.connect(file)
    assert raw.execute("SELECT count(*) FROM events").fetchone() == (1,)
    raw.close()


def test_an_event_of_the_future_is_not_guessed_at(ledger: Ledger, file: Path) -> None:
    ledger.append(happened("aaaa", 0))
    raw = sqlite3.connect(file)
    raw.execute("INSERT INTO events VALUES (2, 'aaaa', 1, 0, 'teleported', '{}', '99.0')")
    raw.commit()
    raw.close()
    with pytest.raises(LedgerTooNew, match="teleported"):
        ledger.events("aaaa")


def grow(connection: Connection) -> None:
    connection.exec_driver_sql("ALTER TABLE runs ADD COLUMN colour TEXT")
    connection.exec_driver_sql("CREATE TABLE colours (name TEXT PRIMARY KEY)")


def test_an_older_ledger_is_migrated_by_whoever_comes_first(
    ledger: Ledger, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.append(happened("aaaa", 0))
    ledger.close()
    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, migrations.Migration("grow", grow)))
    assert len(ledger.events("aaaa")) == 1
    assert [name for (name,) in asked(ledger, "SELECT name FROM migrations ORDER BY rowid")] == [
        "runs-and-events",
        "budgets-and-outcomes",
        "grow",
    ]
    assert asked(ledger, "SELECT colour FROM runs") == [(None,)]


def test_a_ledger_of_the_first_version_loses_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written by the version that knew only runs and events, with rows in every table that it had."""
    file.parent.mkdir()
    raw = create_engine(f"sqlite:///{file}")
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS[:1])
        migrations.migrate(raw, "old", AT)
    raw.dispose()
    old = sqlite3.connect(file)
    told = [row("aaaa", 0, "intended", '{"name": "train"}'), row("aaaa", 1, "closed", '{"reason": "succeeded"}')]
    told.append(row("bbbb", 0, "intended", '{"name": "open"}'))
    old.executemany("INSERT INTO events (run_id, sequence, at_us, kind, data, writer) VALUES (?, ?, ?, ?, ?, ?)", told)
    old.execute("INSERT INTO runs VALUES (1, 'aaaa', 5, 'train', 'me'), (2, 'bbbb', 6, 'open', 'me')")
    old.execute("INSERT INTO run_tags VALUES (1, 'team', 'nlp')")
    old.execute(f"INSERT INTO closings VALUES (1, 5, 'succeeded'{', {0}' * 9}, 1, 5, 9, 4.0, 70)".replace("{0}", "'x'"))
    old.commit()
    before = {
        name: old.execute(f"SELECT * FROM {name}").fetchall() for name in ("events", "runs", "run_tags", "closings")
    }
    old.close()

    with Ledger.open(folder=file.parent) as ledger:
        assert ledger.open_runs() == ("bbbb",)
        assert [event.kind for event in ledger.events("aaaa")] == [EventKind.INTENDED, EventKind.CLOSED]
        ledger.append(happened("bbbb", 1, EventKind.CLOSED))
        assert ledger.open_runs() == ()
        after = sqlite3.connect(file)
        for name, rows in before.items():
            assert after.execute(f"SELECT * FROM {name}").fetchall()[: len(rows)] == rows, name
        tables = {name for (name,) in after.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        after.close()
        assert {table.name for table in schema.RECORDS} <= tables
        assert next(closed_runs(ledger, Selection())).job_seconds is None


def row(run_id: str, sequence: int, kind: str, data: str) -> tuple[object, ...]:
    return (run_id, sequence, 5, kind, data, "0.1")


def test_a_migration_that_fails_leaves_everything_as_it_was(
    ledger: Ledger, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(connection: Connection) -> None:
        grow(connection)
        connection.exec_driver_sql("INSERT INTO nowhere VALUES (1)")

    ledger.append(happened("aaaa", 0))
    ledger.close()
    before = list(contents(file))
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, migrations.Migration("fail", fail)))
        with pytest.raises(LedgerError):
            ledger.append(happened("aaaa", 1))
        ledger.close()
    assert list(contents(file)) == before
    ledger.append(happened("aaaa", 1))


def contents(file: Path) -> Iterator[str]:
    raw = sqlite3.connect(file)
    yield from raw.iterdump()
    raw.close()


def test_the_migrations_make_what_the_schema_describes() -> None:
    made, described = create_engine("sqlite://"), create_engine("sqlite://")
    migrations.migrate(made, "memory", AT)
    schema.metadata.create_all(described)
    first, second = inspect(made), inspect(described)
    assert sorted(first.get_table_names()) == sorted(second.get_table_names())
    for table in second.get_table_names():
        for facts in ("get_columns", "get_pk_constraint", "get_indexes", "get_unique_constraints", "get_foreign_keys"):
            assert repr(getattr(first, facts)(table)) == repr(getattr(second, facts)(table)), (table, facts)
    made.dispose()
    described.dispose()


def refusal(use: Callable[[], object]) -> LedgerError | None:
    try:
        use()
    except LedgerError as exc:
        return exc
    return None


class TestDamage:
    def test_a_file_of_something_else(self, ledger: Ledger, file: Path) -> None:
        file.parent.mkdir()
        file.write_bytes(b"dear diary, " * 1000)
        self.refused_unchanged(ledger, file, LedgerDamaged)

    def test_a_database_of_something_else(self, ledger: Ledger, file: Path) -> None:
        file.parent.mkdir()
        raw = sqlite3.connect(file)
        raw.execute("CREATE TABLE recipes (name TEXT)")
        raw.commit()
        raw.close()
        self.refused_unchanged(ledger, file, LedgerError)

    def test_any_page_overwritten(self, ledger: Ledger, file: Path) -> None:
        for number in range(40):
            ledger.append(happened(f"run{number}", 0, EventKind.INTENDED, name="n", padding="x" * 500))
        ledger.close()
        whole = file.read_bytes()
        uses = (ledger.open_runs, ledger.recent_runs, lambda: ledger.events("run7"), lambda: ledger.resolve("n"))

        @settings(deadline=None)
        @given(st.integers(0, len(whole) - 1), st.binary(min_size=1, max_size=5000), st.integers(1, len(whole)))
        def damage(start: int, noise: bytes, length: int) -> None:
            raw = bytearray(whole)
            raw[start : start + len(noise)] = noise
            del raw[length:]
            file.write_bytes(raw)
            for use in uses:
                problem = refusal(use)
                assert problem is None or (str(file) in problem.message and problem.hint)
            ledger.close()
            assert file.read_bytes() == bytes(raw), "reading must not change what is damaged"

        damage()

    def test_a_row_that_is_no_json(self, ledger: Ledger, file: Path) -> None:
        ledger.append(happened("aaaa", 0))
        ledger.append(happened("b", 0))
        raw = sqlite3.connect(file)
        raw.execute("INSERT INTO events VALUES (9, 'aaaa', 1, 0, 'noted', '{\"half', '1')")
        raw.execute("INSERT INTO events VALUES (10, 'b', 1, 0, 'noted', '[]', '1')")
        raw.commit()
        raw.close()
        for run_id in ("aaaa", "b"):
            with pytest.raises(LedgerDamaged, match=f"event 1 of run {run_id}"):
                ledger.events(run_id)
        assert ledger.open_runs() == ("aaaa", "b")
        ledger.append(happened("aaaa", 2, EventKind.CLOSED))
        assert ledger.open_runs() == ("b",)

    def refused_unchanged(self, ledger: Ledger, file: Path, error: type[LedgerError]) -> None:
        before = file.read_bytes()
        for use in (ledger.open_runs, lambda: ledger.append(happened("aaaa", 0))):
            with pytest.raises(error) as caught:
                use()
            assert str(file) in caught.value.message
            assert caught.value.hint
        assert file.read_bytes() == before

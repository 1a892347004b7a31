"""What differs between the databases: connecting, locking, guarding rows against change.

SQLite is a file that several processes share: write-ahead log (readers never wait), every commit flushed to the disk
before it counts, and a writer takes its lock when it begins, so that two can only wait for each other and never
deadlock. PostgreSQL holds the tables in a schema of their own.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import methodcaller
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from sqlalchemy import Connection, Engine, Table, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import StaticPool

from costgpu.errors import ConfigError
from costgpu.ledger.failures import BUSY, primary_code

T = TypeVar("T")

BATCH_SIZE = 400  # values or pairs in one query: older versions of SQLite take at most 999 parameters
BUSY_SECONDS = 60.0  # how long a process waits for others that write; a commit takes milliseconds
POSTGRESQL_DRIVER = "postgresql+psycopg"
POSTGRESQL_SCHEMA = "costgpu"
POSTGRESQL_PATIENCE = {
    "connect_timeout": 10,  # seconds for each address
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds
}
"""Of libpq, unless the URL says otherwise: a server that is gone without a word must not keep a machine running."""
POSTGRESQL_LOCK = 0x636F7374677075  # "costgpu": whoever migrates holds it
POSTGRESQL_ADMISSION_LOCK = 0x61646D6974  # "admit": whoever decides whether a budget allows a machine holds it
_SECRET_KEY = re.compile(r"pass|secret|token|key", re.IGNORECASE)
WRITES = "costgpu_writes"  # execution option of a connection that will write


def parse_url(text: str) -> URL:
    """Return the address of a ledger.

    Raises:
        ConfigError: It is not one, or is that of a database that costgpu does not know. The message does not repeat the
            text, which may hold a password.
    """
    hint = "Write postgresql://user@host/database, or sqlite:////absolute/path/of/ledger.sqlite."
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as exc:
        raise ConfigError("The URL of the ledger is not valid.", hint=hint) from exc
    if url.drivername in {"postgresql", "postgres", POSTGRESQL_DRIVER}:
        return url.set(drivername=POSTGRESQL_DRIVER)
    if url.drivername in {"sqlite", "sqlite+pysqlite"}:
        if url.database and url.database != ":memory:" and not Path(url.database).is_absolute():
            raise ConfigError(f"The ledger's path {url.database} is not absolute.", hint=hint)
        return url.set(drivername="sqlite")
    raise ConfigError(f"A ledger cannot be kept in {url.drivername}.", hint=hint)


def shown(url: URL) -> str:
    """Return the address for people: without the password, wherever it stands."""
    url = url.difference_update_query([name for name in url.query if _SECRET_KEY.search(name)])
    return url.render_as_string(hide_password=True)


def file_of(url: URL) -> Path | None:
    """Return the file of an SQLite ledger; None for one on a server or in memory."""
    in_file = url.drivername == "sqlite" and url.database not in {None, "", ":memory:"}
    return Path(str(url.database)) if in_file else None


def connectable(url: URL, *, immutable: bool = False) -> Engine:
    """Return an engine for a URL of `parse_url`, not yet connected.

    Args:
        immutable: The file is on a disk that cannot be written: no locks and no write-ahead log.

    Raises:
        ConfigError: The database's driver is not installed.
    """
    if url.drivername != "sqlite":
        return _postgresql(url)
    path = file_of(url)
    if path is None:
        # one connection for all threads: what is in memory is only there
        engine = create_engine(
            url, poolclass=StaticPool, hide_parameters=True, connect_args={"check_same_thread": False}
        )
    else:
        target = f"file:{quote(str(path))}?{'immutable=1' if immutable else 'mode=rw'}"
        engine = create_engine(
            url,
            creator=lambda: sqlite3.connect(target, BUSY_SECONDS, uri=True, check_same_thread=False),
            hide_parameters=True,
        )
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def create_file(path: Path) -> None:
    """Make the empty file of a new ledger, readable by its owner only, in a folder that is, too."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def use_write_ahead_log(engine: Engine) -> None:
    """Turn an SQLite file's write-ahead log on, for good. Does nothing to other databases."""
    if engine.dialect.name != "sqlite":
        return
    deadline = time.monotonic() + BUSY_SECONDS
    connection = engine.raw_connection()
    try:
        while True:
            try:
                connection.cursor().execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as exc:
                # SQLite does not wait here by itself, whatever its time-out is.
                if primary_code(exc) not in BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
    finally:
        connection.close()


def lock_for_migration(connection: Connection) -> None:
    """Keep others from migrating until the transaction ends; on SQLite its BEGIN has done so."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({POSTGRESQL_LOCK})")
        connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {POSTGRESQL_SCHEMA}")


@contextmanager
def admission(connection: Connection) -> Iterator[Connection]:
    """Keep other admissions waiting until the transaction ends, and yield a connection that reads one state of the ledger.

    On SQLite the transaction's BEGIN has locked out every writer. On PostgreSQL others go on writing: what is read stands in
    one snapshot, taken once the lock is held, so that a run that is closed meanwhile is still counted as an open one.
    """
    if connection.dialect.name != "postgresql":
        yield connection
        return
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({POSTGRESQL_ADMISSION_LOCK})")
    with connection.engine.connect().execution_options(isolation_level="REPEATABLE READ") as reading:
        yield reading


def forbid_changes(connection: Connection, tables: Iterable[Table]) -> None:
    """Make the database itself refuse to change or remove rows of these tables."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(
            "CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$"
        )
        for table in tables:
            connection.exec_driver_sql(
                f"CREATE TRIGGER {table.name}_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON {table.name} "
                "FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
            )
        return
    for table in tables:
        for verb in ("UPDATE", "DELETE"):
            connection.exec_driver_sql(
                f"CREATE TRIGGER {table.name}_no_{verb.lower()} BEFORE {verb} ON {table.name} "
                "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
            )


def insert_row(connection: Connection, table: Table, row: Mapping[str, Any]) -> int:
    """Insert a row and return its number."""
    key = connection.execute(table.insert(), row).inserted_primary_key
    assert key is not None  # noqa: S101  an INSERT of one row always has a key
    return int(key[0])


def batches(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Return the parts of many values, each small enough for one query."""
    return (values[start : start + BATCH_SIZE] for start in range(0, len(values), BATCH_SIZE))


def _postgresql(url: URL) -> Engine:
    patience = {key: value for key, value in POSTGRESQL_PATIENCE.items() if key not in url.query}
    try:
        engine = create_engine(url, pool_pre_ping=True, hide_parameters=True, connect_args=patience)
    except (ImportError, NoSuchModuleError) as exc:
        raise ConfigError(
            "The driver for a ledger in PostgreSQL is not installed.", hint="pip install 'costgpu[postgresql]'"
        ) from exc

    def set_up(connection: Any, _record: object) -> None:
        autocommit, connection.autocommit = connection.autocommit, True
        connection.cursor().execute(f"SET search_path TO {POSTGRESQL_SCHEMA}")
        connection.autocommit = autocommit

    event.listen(engine, "connect", set_up, insert=True)
    return engine


def _set_up_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # transactions begin where we say so, and no sooner
    connection.text_factory = methodcaller(
        "decode", "utf-8", "surrogateescape"
    )  # one damaged text must not hide all others
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

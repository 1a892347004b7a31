"""One PostgreSQL server for all tests, and a new ledger on it, or in a file, for each."""

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from costgpu.ledger import Ledger
from tests.ledger import postgres
from tests.ledger.postgres import Server

KINDS = ("sqlite", pytest.param("postgresql", marks=pytest.mark.slow))


def numbers(ledger: Ledger, run_id: str) -> list[int]:
    """Of the events of a run."""
    return [event.sequence for event in ledger.events(run_id)]


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A running server; skips, with the reason, where there can be none."""
    reason = postgres.obstacle()
    if reason and os.environ.get(postgres.REQUIRED):
        pytest.fail(reason, pytrace=False)
    if reason:
        pytest.skip(reason)
    made = Server.start()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="session")
def migrated(server: Server) -> str:
    """The name of a database with an empty ledger of this version in it, to copy."""
    from datetime import UTC, datetime

    from costgpu.ledger import dialect, migrations

    server.sql("postgres", f"CREATE DATABASE {postgres.TEMPLATE} TEMPLATE template0")
    engine = dialect.connectable(dialect.parse_url(server.url(postgres.TEMPLATE)))
    migrations.migrate(engine, "template", datetime.now(UTC))
    engine.dispose()
    return postgres.TEMPLATE


@dataclass(frozen=True)
class Place:
    """Where a ledger is, or will be: in an SQLite file, or on the PostgreSQL server (then there is no file)."""

    kind: str
    url: str
    file: Path | None = None

    def open(self) -> Ledger:
        """As a new process would."""
        return Ledger.open(self.url)


@pytest.fixture(params=KINDS)
def another(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Place]:
    """Makes places where no ledger is yet, as many as are wanted."""
    if request.param == "postgresql":
        server: Server = request.getfixturevalue("server")
        return lambda: Place("postgresql", server.database())
    files = (tmp_path / f"place{number}" / "ledger.sqlite" for number in itertools.count())

    def in_a_file() -> Place:
        file = next(files)
        return Place("sqlite", f"sqlite:///{file}", file)

    return in_a_file


@pytest.fixture
def empty(another: Callable[[], Place]) -> Place:
    """Where no ledger is yet."""
    return another()


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where a ledger without a row is (on the server), or will be (a file)."""
    if request.param == "postgresql":
        migrated: str = request.getfixturevalue("migrated")
        server: Server = request.getfixturevalue("server")
        return Place("postgresql", server.database(like=migrated))
    file = tmp_path / "place" / "ledger.sqlite"
    return Place("sqlite", f"sqlite:///{file}", file)


@pytest.fixture
def ledger(place: Place) -> Iterator[Ledger]:
    """Open."""
    with place.open() as opened:
        yield opened

"""What only a server of ledgers can do: be away, or not be there at all."""

import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import pytest_socket
from sqlalchemy import Connection

from costgpu.errors import ConfigError, LedgerError
from costgpu.ledger import Ledger, dialect, schema
from costgpu.ledger.store import event_row
from tests.ledger.conftest import numbers
from tests.ledger.crowd import Crowd
from tests.ledger.postgres import Server
from tests.unit.ledger.test_store import happened


@pytest.mark.slow
class TestServer:
    """What only a server can do: be away."""

    @pytest.fixture
    def own(self) -> Any:
        """A server that only this test kills."""
        from tests.ledger import postgres

        if reason := postgres.obstacle():
            pytest.skip(reason)
        made = Server.start()
        yield made
        made.close()

    def test_a_crash_of_the_server_loses_nothing_that_was_acknowledged(self, own: Server, tmp_path: Path) -> None:
        url = own.database()
        with Crowd([("own", url, f"run{n}", 100_000) for n in range(3)], tmp_path / "said") as crowd:
            crowd.go()
            crowd.until_said(45)
            own.down(signal.SIGKILL)
            assert crowd.wait() == [1, 1, 1]
            said = [crowd.said(n) for n in range(3)]
        own.up()
        with Ledger.open(url) as ledger:
            for n, lines in enumerate(said):
                found = numbers(ledger, f"run{n}")
                assert found == list(range(len(found)))
                assert len(lines) <= len(found) <= len(lines) + 1
            assert sum(map(len, said)) > 30

    def test_a_server_that_is_away_is_said_to_be_and_comes_back(self, own: Server) -> None:
        with Ledger.open(own.database()) as ledger:
            ledger.append(happened("aaaa", 0))
            own.down()
            for use in (lambda: ledger.append(happened("aaaa", 1)), lambda: ledger.events("aaaa"), ledger.open_runs):
                with pytest.raises(LedgerError, match="cannot be reached") as caught:
                    use()
                assert type(caught.value) is LedgerError
                assert "server is up" in caught.value.hint
                assert "costgpu reap" in caught.value.hint
            own.up()
            ledger.append(happened("aaaa", 1))
            assert numbers(ledger, "aaaa") == [0, 1]

    def test_a_connection_that_is_cut_in_the_middle_writes_nothing(self, server: Server, migrated: str) -> None:
        url = server.database(like=migrated)
        with Ledger.open(url) as ledger:
            ledger.append(happened("aaaa", 0))

            def cut(connection: Connection) -> None:
                connection.execute(schema.events.insert(), event_row(happened("aaaa", 1)))
                server.sql(
                    "postgres",
                    f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{server.name_in(url)}'",
                )
                connection.execute(schema.events.insert(), event_row(happened("aaaa", 2)))

            with pytest.raises(LedgerError, match="cannot be reached"):
                ledger.write(cut)
            assert numbers(ledger, "aaaa") == [0]  # on a new connection
            ledger.append(happened("aaaa", 1))

    def test_who_may_not_use_it_is_told_without_the_password(self, server: Server) -> None:
        url = server.url("postgres").replace("costgpu@", "stranger:hunter2@")
        with Ledger.open(url) as ledger, pytest.raises(LedgerError) as caught:
            ledger.recent_runs()
        assert "hunter2" not in f"{caught.value.message} {caught.value.hint} {caught.value.__cause__}"
        assert "stranger" in caught.value.message

    def test_other_tables_of_the_same_database_are_left_alone(self, server: Server) -> None:
        url = server.database()
        database = server.name_in(url)
        server.sql(database, "CREATE TABLE events (id int); CREATE TABLE migrations (name text)")
        with Ledger.open(url) as ledger:
            ledger.append(happened("aaaa", 0))
            assert ledger.recent_runs() == ("aaaa",)
        assert server.sql(database, "SELECT count(*) FROM public.events").strip() == "0"
        assert server.sql(database, "SELECT count(*) FROM costgpu.events").strip() == "1"


def test_nobody_listens_there() -> None:
    with Ledger.open("postgresql://me:hunter2@127.0.0.1:1/team") as ledger, pytest.raises(LedgerError) as caught:
        ledger.open_runs()
    assert "cannot be reached" in caught.value.message
    assert "hunter2" not in caught.value.message


@pytest.mark.slow  # libpq waits at least two seconds
def test_a_server_that_accepts_and_never_answers_does_not_keep_anybody_waiting() -> None:
    pytest_socket.enable_socket()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://me@127.0.0.1:{silent.getsockname()[1]}/team"
        began = time.monotonic()
        with Ledger.open(f"{url}?connect_timeout=2") as ledger, pytest.raises(LedgerError, match="cannot be reached"):
            ledger.open_runs()
        assert time.monotonic() - began < 8
    assert dialect.POSTGRESQL_PATIENCE["connect_timeout"] <= 10  # where the URL does not say


def test_without_the_driver_the_line_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "psycopg"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with Ledger.open("postgresql://me@localhost/team") as ledger, pytest.raises(ConfigError) as caught:
        ledger.open_runs()
    assert caught.value.hint == "pip install 'costgpu[postgresql]'"

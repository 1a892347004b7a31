import json
import os
import sqlite3
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sqlalchemy import event

from costgpu.errors import ConfigError, LedgerConflict
from costgpu.ledger import Ledger, dialect
from costgpu.ledger.store import FILE_NAME
from costgpu.models.run import EventKind, RunEvent
from tests.properties import examples

AT = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)


def happened(run_id: str, sequence: int, kind: EventKind = EventKind.NOTED, /, **data: Any) -> RunEvent:
    return RunEvent(run_id=run_id, sequence=sequence, at=AT + timedelta(minutes=sequence), kind=kind, data=data)


def test_an_empty_file_reads_as_an_empty_ledger_and_stays_one(ledger: Ledger, file: Path) -> None:
    file.parent.mkdir()
    file.touch()
    assert ledger.recent_runs() == ()
    assert file.stat().st_size == 0
    ledger.append(happened("aaaa", 0))
    assert ledger.recent_runs() == ("aaaa",)


def test_only_the_owner_can_read_it(ledger: Ledger, file: Path) -> None:
    before = os.umask(0)
    try:
        ledger.append(happened("aaaa", 0))
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    for part in file.parent.iterdir():
        assert stat.S_IMODE(part.stat().st_mode) == 0o600, part


def test_every_commit_is_flushed(ledger: Ledger) -> None:
    ledger.append(happened("aaaa", 0))
    assert asked(ledger, "PRAGMA synchronous") == [(2,)]
    assert asked(ledger, "PRAGMA journal_mode") == [("wal",)]
    assert asked(ledger, "PRAGMA busy_timeout") == [(60000,)]
    assert asked(ledger, "PRAGMA foreign_keys") == [(1,)]


def asked(ledger: Ledger, query: str) -> list[tuple[Any, ...]]:
    return ledger.read(lambda connection: [tuple(row) for row in connection.exec_driver_sql(query)], [])


DATA = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


class AgainstAModel(RuleBasedStateMachine):
    """A ledger and a list that must agree, whatever is appended in whatever order."""

    def open(self) -> Ledger:
        return Ledger.open("sqlite://")

    @initialize()
    def begin(self) -> None:
        self.ledger = self.open()
        self.model: dict[str, list[RunEvent]] = {}

    @rule(
        run_id=st.sampled_from(["aa", "ab", "b", "train", "b-1"]),
        sequence=st.integers(0, 5),
        kind=st.sampled_from([EventKind.NOTED, EventKind.CLOSED, EventKind.ATTEMPTED, EventKind.CREATED]),
        data=DATA,
        name=st.sampled_from(["train", "b", "aa", "a'; --"]),
    )
    def append(self, run_id: str, sequence: int, kind: EventKind, data: dict[str, Any], name: str) -> None:
        written = happened(run_id, sequence, kind, **{**data, "name": name})
        if sequence == len(self.model.get(run_id, [])):
            self.ledger.append(written)
            self.model.setdefault(run_id, []).append(written)
        else:
            with pytest.raises(LedgerConflict):
                self.ledger.append(written)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "model"):
            return
        oldest_first = list(self.model)
        for run_id, rows in self.model.items():
            assert self.ledger.events(run_id) == tuple(rows)
        assert self.ledger.events_of(["none", *oldest_first]) == {k: tuple(v) for k, v in self.model.items()}
        closed = {k for k, rows in self.model.items() if any(row.kind is EventKind.CLOSED for row in rows)}
        assert list(self.ledger.open_runs()) == [run_id for run_id in oldest_first if run_id not in closed]
        assert list(self.ledger.recent_runs(3)) == oldest_first[::-1][:3]
        for text in ("a", "aa", "b", "train", "c", "a'; --", "%", "_"):
            meant = [
                run_id
                for run_id, rows in reversed(self.model.items())
                if run_id.startswith(text) or rows[0].data["name"] == text
            ]
            assert list(self.ledger.resolve(text)) == ([text] if text in meant else meant)

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            self.ledger.close()


AgainstAModel.TestCase.settings = examples(25, stateful_step_count=15)
TestAgainstAModel = AgainstAModel.TestCase


@pytest.mark.parametrize("text", ["", "\0", "\udc80", "\U0010ffff", "\ud7ff", "a\0b"])
def test_whatever_is_asked_for_is_only_not_found(ledger: Ledger, text: str) -> None:
    ledger.append(happened("aaaa", 0))
    assert ledger.resolve(text) == ()
    assert ledger.events(text) == ()


@pytest.mark.parametrize(
    "wrong",
    [
        happened("", 0),
        happened("aaaa", -1),
        happened("a\0", 0),
        happened("aaaa", 0, EventKind.NOTED, what=object()),
        RunEvent(run_id="aaaa", sequence=0, at=datetime(2026, 1, 1), kind=EventKind.NOTED),  # noqa: DTZ001
    ],
)
def test_what_cannot_be_stored_is_refused_before_a_file_is_made(ledger: Ledger, file: Path, wrong: RunEvent) -> None:
    with pytest.raises((TypeError, ValueError)):
        ledger.append(wrong)
    assert not file.exists()


def test_only_inserts_and_selects_are_sent(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    real = dialect.connectable

    def watched(*args: Any, **options: Any) -> Any:
        engine = real(*args, **options)

        def note(_c: object, _cursor: object, statement: str, *_: object) -> None:
            sent.append(statement.split(maxsplit=1)[0].upper())

        event.listen(engine, "before_cursor_execute", note)
        return engine

    monkeypatch.setattr(dialect, "connectable", watched)
    ledger.append(happened("aaaa", 0, EventKind.INTENDED, name="n", spec={"tags": {"a": "b"}}))
    ledger.append(happened("aaaa", 1, EventKind.CLOSED))
    ledger.resolve("n")
    ledger.open_runs()
    ledger.recent_runs()
    assert set(sent) <= {"BEGIN", "INSERT", "SELECT", "PRAGMA", "CREATE"}
    assert {"INSERT", "SELECT", "BEGIN"} <= set(sent)


def test_a_file_that_was_taken_away_is_not_written_to_in_the_dark(ledger: Ledger, file: Path) -> None:
    ledger.append(happened("aaaa", 0))
    for part in list(file.parent.iterdir()):
        part.rename(part.with_name(f"old-{part.name}"))
    assert ledger.recent_runs() == ()
    ledger.append(happened("b", 0))
    with Ledger.open(folder=file.parent) as other:
        assert other.recent_runs() == ("b",)


def test_a_closed_ledger_opens_again(ledger: Ledger) -> None:
    ledger.append(happened("aaaa", 0))
    ledger.close()
    ledger.append(happened("aaaa", 1))
    assert len(ledger.events("aaaa")) == 2


class TestUrl:
    def test_names_of_the_same_file(self, tmp_path: Path) -> None:
        with Ledger.open(f"sqlite:///{tmp_path / 'x y?.db'}".replace("?", "%3F")) as ledger:
            assert ledger.place.startswith(str(tmp_path))
        with Ledger.open(folder=tmp_path / "odd ?#% name") as ledger:
            ledger.append(happened("aaaa", 0))
            assert (tmp_path / "odd ?#% name" / FILE_NAME).exists()
            assert ledger.recent_runs() == ("aaaa",)

    def test_the_default_is_in_the_users_data_folder(self) -> None:
        assert Ledger.open().place == str(Path(os.environ["XDG_DATA_HOME"]) / "costgpu" / FILE_NAME)

    @pytest.mark.parametrize(
        "url", ["ledger", "mysql://u:hunter2@h/d", "sqlite:///relative.db", "postgresql://u:hunter2@h:port/d", ""]
    )
    def test_what_is_none_is_said_to_be_none_without_its_password(self, url: str) -> None:
        with pytest.raises(ConfigError) as caught:
            Ledger.open(url)
        assert "hunter2" not in f"{caught.value.message} {caught.value.hint}"
        assert "postgresql://" in caught.value.hint

    @pytest.mark.parametrize("key", ["password", "PassWord", "sslpassword", "oauth_client_secret", "token", "sslkey"])
    def test_a_password_is_used_and_not_shown(self, key: str) -> None:
        ledger = Ledger.open(f"postgresql://me:hunter2@db/team?user=b&{key}=hunter2&sslmode=require")
        assert ledger.place == "postgresql+psycopg://me:***@db/team?sslmode=require&user=b"
        assert (ledger._url.query[key], ledger._url.password) == ("hunter2", "hunter2")


def test_rows_are_plain_text_for_other_programs(ledger: Ledger, file: Path) -> None:
    ledger.append(happened("aaaa", 0, EventKind.INTENDED, name="é\udc80"))
    raw = sqlite3.connect(file)
    (data,) = raw.execute("SELECT data FROM events").fetchone()
    raw.close()
    assert json.loads(data) == {"name": "é\udc80"}
    assert data.isascii()

"""The ledger: events of runs, appended and read.

Safe for several processes at once and for being killed at any moment: an event is either there, flushed to the disk,
or it is not. Only INSERT and SELECT are ever sent.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, TypeVar

from sqlalchemy import URL, Connection, Engine, Row, Select, Table, func, select
from sqlalchemy.exc import DBAPIError, IntegrityError

from costgpu.errors import LedgerConflict, LedgerDamaged, LedgerTooNew
from costgpu.files import parse_json
from costgpu.ledger import dialect, failures, migrations, projections
from costgpu.ledger.codec import to_json
from costgpu.ledger.schema import (
    DamagedCellError,
    closings,
    events,
    from_microseconds,
    outcomes,
    run_tags,
    runs,
    text,
    to_microseconds,
)
from costgpu.ledger.schema import migrations as steps
from costgpu.models.run import EventKind, RunEvent
from costgpu.version import __version__

T = TypeVar("T")

FILE_NAME = "ledger.sqlite"
FACTS = (events.c.run_id, events.c.sequence, events.c.at_us, events.c.kind, events.c.data)


class Ledger:
    """The append-only record of runs. Use `open`; a context manager.

    Nothing is opened or created before the first use, and reading creates and changes nothing (except that a ledger of
    an older version is migrated). A ledger that does not exist yet reads as an empty one.

    Every method raises `LedgerError` or one of its kinds: `LedgerDamaged`, `LedgerTooNew`, and `append` also
    `LedgerConflict`.
    """

    def __init__(self, url: URL) -> None:
        self._url = url
        self._file = dialect.file_of(url)
        self._place = str(self._file) if self._file else dialect.shown(url)
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._process = 0
        self._identity: tuple[int, int] | None = None
        self._current = False  # whether the tables are known to be those of this version
        self._admitting = (
            threading.local()
        )  # `connection`: that on which this thread reads while it decides on an event
        self.damage: dict[str, LedgerDamaged] = {}  # what was left out of answers, since it cannot be read

    @classmethod
    def open(cls, url: str | None = None, *, folder: Path | None = None) -> Self:
        """Return a ledger; no file is touched yet.

        Args:
            url: ``postgresql://...`` or ``sqlite:////absolute/path``; ``sqlite://`` is in memory, for tests. None for
                the file in `folder`.
            folder: None for costgpu's own in the XDG data folder.

        Raises:
            ConfigError: The URL is not one of a ledger.
        """
        if url is not None:
            return cls(dialect.parse_url(url))
        return cls(URL.create("sqlite", database=str(((folder or default_folder()) / FILE_NAME).absolute())))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def place(self) -> str:
        """Return the ledger's file, or its URL without the password."""
        return self._place

    def append(self, event: RunEvent, admit: Callable[[], None] | None = None) -> None:
        """Add an event. When this returns, it is on the disk.

        Args:
            admit: Called in the transaction before the event is added; what it raises keeps the event out. While it reads
                this ledger in this thread, no other process can be admitted.

        Raises:
            LedgerConflict: The event's sequence is not the run's next one: another process has written meanwhile.
            TypeError, ValueError: The event's data have no JSON form, or its time no zone: nothing was written.
        """
        row = event_row(event)

        def work(connection: Connection) -> None:
            if admit is not None:
                with dialect.admission(connection) as self._admitting.connection:
                    try:
                        admit()
                    finally:
                        self._admitting.connection = None
            self._insert(connection, event, row)

        try:
            self.write(work)
        except IntegrityError as exc:  # two at once, where beginning does not lock
            query = select(func.max(events.c.sequence)).where(events.c.run_id == event.run_id)
            newest = self.read(lambda connection: connection.scalar(query), None)
            if newest is not None and newest >= event.sequence:
                raise _conflict(event) from exc
            raise failures.damaged(self._place, "rows that belong together do not fit") from exc

    def events(self, run_id: str) -> tuple[RunEvent, ...]:
        """Return the run's events, oldest first; none if the run is unknown."""
        return self.events_of((run_id,)).get(run_id, ())

    def events_of(self, run_ids: Sequence[str]) -> dict[str, tuple[RunEvent, ...]]:
        """Return the events of many runs, oldest first, in the order asked for; unknown runs are left out."""
        found: dict[str, list[RunEvent]] = {run_id: [] for run_id in run_ids if _can_be_asked(run_id)}
        known = list(found)

        def read(connection: Connection) -> None:
            for some in dialect.batches(known):
                query = select(*FACTS).where(events.c.run_id.in_(some))
                for row in connection.execute(query.order_by(events.c.run_id, events.c.sequence)):
                    if row.run_id not in found:
                        raise DamagedCellError(f"an event of run {row.run_id!r} stands where those of another run do")
                    found[row.run_id].append(self._event(row))

        self.read(read, None)
        return {run_id: tuple(rows) for run_id, rows in found.items() if rows}

    def readable(
        self, rows: Iterable[Row[*tuple[Any, ...]]], convert: Callable[[Any], T], what: Callable[[Any], str]
    ) -> Iterator[T]:
        """Rows as values. One that is damaged is left out and kept in `damage`, so that it does not hide the others.

        Args:
            convert: Raises `DamagedCellError` for a damaged row.
            what: Names a row.
        """
        for row in rows:
            try:
                yield convert(row)
            except DamagedCellError as exc:
                self.leave_out(what(row), str(exc))

    def leave_out(self, what: str, why: str) -> None:
        """Keep in mind that an answer lacks something damaged."""
        self.damage.setdefault(what, failures.damaged(self._place, f"{what} cannot be read: {why}"))

    def open_runs(self) -> tuple[str, ...]:
        """Return the runs without a CLOSED event, oldest first."""
        closed = select(closings.c.run).where(closings.c.run == runs.c.run).exists()
        query = select(runs.c.run_id).where(~closed).order_by(runs.c.run)
        return self._ids(query)

    def recent_runs(self, limit: int = 50) -> tuple[str, ...]:
        """Return the newest runs, newest first."""
        return self._ids(select(runs.c.run_id).order_by(runs.c.run.desc()).limit(limit))

    def resolve(self, text: str) -> tuple[str, ...]:
        """Return the runs that a person means by the beginning of a run id or the name of a job, newest first.

        A whole run id means this run alone.
        """
        if not text or not _can_be_asked(text):
            return ()
        after = text[:-1] + chr(min(ord(text[-1]) + 1, sys.maxunicode))
        begins = (runs.c.run_id >= text) & (runs.c.run_id < after) if _can_be_asked(after) else runs.c.run_id == text
        query = select(runs.c.run_id).where(begins | (runs.c.name == text)).order_by(runs.c.run.desc())
        found = self._ids(query)
        return (text,) if text in found else found

    def _ids(self, query: Select[Any]) -> tuple[str, ...]:
        return tuple(self.readable(self.select(query), lambda row: text(row.run_id), lambda _: "the id of a run"))

    def close(self) -> None:
        """Let go of the file. A closed ledger opens again on its next use."""
        with self._lock:
            if self._engine is not None and self._process == os.getpid():
                self._engine.dispose()
            self._engine = None
            self._current = False

    def _insert(self, connection: Connection, event: RunEvent, row: projections.Row) -> None:
        newest = connection.scalar(select(func.max(events.c.sequence)).where(events.c.run_id == event.run_id))
        if event.sequence != (0 if newest is None else newest + 1):
            raise _conflict(event)
        connection.execute(events.insert(), row)
        if event.sequence == 0:
            run = dialect.insert_row(connection, runs, projections.run_row(event))
            tags = [{"run": run, **tag} for tag in projections.tag_rows(event)]
            if tags:
                connection.execute(run_tags.insert(), tags)
        if event.kind is EventKind.CLOSED:
            run = connection.scalars(select(runs.c.run).where(runs.c.run_id == event.run_id)).one()
            if connection.scalar(select(closings.c.run).where(closings.c.run == run)) is None:
                explaining = tuple(self._explaining(connection, event.run_id))
                closing = projections.closing_row(explaining, event)
                connection.execute(closings.insert(), {"run": run, **closing})
                outcome = projections.outcome_row(explaining, event, closing)
                if outcome is not None:
                    connection.execute(outcomes.insert(), {"run": run, **outcome})

    def _explaining(self, connection: Connection, run_id: str) -> Iterator[RunEvent]:
        query = select(*FACTS).where(
            events.c.run_id == run_id, events.c.kind.in_([kind.value for kind in projections.EXPLAINING])
        )
        for row in connection.execute(query.order_by(events.c.sequence)):
            with suppress(LedgerDamaged):  # a run can be closed whatever has become of its other rows
                yield self._event(row)

    def _event(self, row: Row[*tuple[Any, ...]]) -> RunEvent:
        try:
            kind = EventKind(row.kind)
        except ValueError as exc:
            raise LedgerTooNew(
                f"The ledger {self._place} holds an event {row.kind!r}, which costgpu {__version__} does not know.",
                hint="pip install --upgrade costgpu",
            ) from exc
        try:
            data = parse_json(text(row.data))
            at = from_microseconds(row.at_us)
        except (ValueError, TypeError) as exc:
            raise failures.damaged(
                self._place, f"event {row.sequence} of run {row.run_id} is not readable: {exc}"
            ) from exc
        if not isinstance(data, dict):
            raise failures.damaged(self._place, f"event {row.sequence} of run {row.run_id} is not an object")
        return RunEvent(run_id=row.run_id, sequence=row.sequence, at=at, kind=kind, data=data)

    def insert(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows to a table, all of them or none."""
        if rows:
            self.write(lambda connection: connection.execute(table.insert(), rows))

    def write(self, work: Callable[[Connection], T]) -> T:
        """Do some work (INSERT and SELECT only) in one transaction that is flushed to the disk, and return what it does.

        What the work raises undoes it.
        """
        with failures.translated(self._place):
            if self._file is not None and _identity(self._file) is None:
                dialect.create_file(self._file)
            engine = self._connectable()
            if not self._current:
                migrations.migrate(engine, self._place, datetime.now(UTC))
                self._current = True
            with engine.connect().execution_options(**{dialect.WRITES: True}) as connection, connection.begin():
                # A newer costgpu may have migrated the ledger since this process began.
                migrations.refuse_newer(set(connection.scalars(select(steps.c.name))), self._place)
                return work(connection)

    def select(self, query: Select[Any]) -> list[Any]:
        """Return the rows that a query selects; none in a ledger that does not exist yet."""
        return self.read(lambda connection: list[Any](connection.execute(query)), [])

    def read(self, work: Callable[[Connection], T], empty: T) -> T:
        """Return what some work finds; `empty` in a ledger that does not exist yet, which stays so."""
        with failures.translated(self._place):
            if (admitting := getattr(self._admitting, "connection", None)) is not None:
                return work(admitting)
            if self._file is not None and _identity(self._file) is None:
                return empty
            try:
                return self._read_with(self._connectable(), work, empty)
            except DBAPIError as exc:
                if self._file is None or not failures.not_allowed(exc) or _log_of(self._file):
                    raise
            self.close()  # a folder that cannot be written, and nothing in the write-ahead log: the file is all there is
            engine = dialect.connectable(self._url, immutable=True)
            try:
                return self._read_with(engine, work, empty)
            finally:
                engine.dispose()

    def _read_with(self, engine: Engine, work: Callable[[Connection], T], empty: T) -> T:
        if not self._current:
            with engine.connect() as connection:
                missing = migrations.pending(connection, self._place)
            if len(missing) == len(migrations.MIGRATIONS):
                return empty
            if missing:
                migrations.migrate(engine, self._place, datetime.now(UTC))
            self._current = True
        with engine.connect() as connection:
            return work(connection)

    def _connectable(self) -> Engine:
        identity = _identity(self._file)
        with self._lock:
            if self._engine is not None and self._process != os.getpid():
                self._engine.dispose(close=False)  # forked: the connections are the parent's
                self._engine = None
            if self._engine is not None and self._identity != identity:
                self._engine.dispose()  # another file is there now: what is written to the old one would be lost
                self._engine = None
            if self._engine is None:
                self._engine, self._process, self._identity = dialect.connectable(self._url), os.getpid(), identity
                self._current = False
            return self._engine


def event_row(event: RunEvent) -> projections.Row:
    """Return the row of `events`, without its number.

    Raises:
        TypeError, ValueError: The event cannot be stored.
    """
    if event.sequence < 0 or not event.run_id or not _can_be_asked(event.run_id):
        raise ValueError(f"Event {event.sequence} of run {event.run_id!r} cannot be stored.")
    return {
        "run_id": event.run_id,
        "sequence": event.sequence,
        "at_us": to_microseconds(event.at),
        "kind": event.kind.value,
        "data": json.dumps(to_json(event.data), separators=(",", ":"), allow_nan=False),
        "writer": __version__,
    }


def default_folder() -> Path:
    """Return where the ledger is if nobody says otherwise."""
    from costgpu.config import data_path  # noqa: PLC0415  only for those who need it

    return data_path()


def _conflict(event: RunEvent) -> LedgerConflict:
    return LedgerConflict(
        f"Event {event.sequence} ({event.kind}) of run {event.run_id} is not its next one: "
        "another costgpu process has written to this run.",
        hint=f"costgpu attach {event.run_id} takes over from where the run is now.",
    )


def _can_be_asked(text: str) -> bool:
    """Return whether a database can hold the text at all."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def _identity(file: Path | None) -> tuple[int, int] | None:
    """Return which file is at the path now; None if there is none."""
    try:
        found = file.stat() if file else None
    except FileNotFoundError:
        return None
    return (found.st_dev, found.st_ino) if found else None


def _log_of(file: Path) -> bool:
    """Return whether the file's write-ahead log holds anything."""
    try:
        return file.with_name(f"{file.name}-wal").stat().st_size > 0
    except OSError:
        return False

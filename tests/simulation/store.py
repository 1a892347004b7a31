"""The ledger of a simulation: in memory or on SQLite, with a second record that nobody can damage."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from costgpu.errors import LedgerDamaged, LedgerError
from costgpu.ledger import Ledger
from costgpu.models.run import EventKind, RunEvent
from tests.job.world import MemoryBook

UNREADABLE = "\udcff"


class MemoryLedger(MemoryBook):
    """What the commands ask of a ledger, without SQL."""

    place = "memory"

    def events(self, run_id: str) -> tuple[RunEvent, ...]:
        found = super().events(run_id)
        if any(UNREADABLE in event.data for event in found):
            raise LedgerDamaged(f"An event of run {run_id} is not readable.")
        return found

    def events_of(self, run_ids: Sequence[str]) -> dict[str, tuple[RunEvent, ...]]:
        return {run_id: found for run_id in run_ids if (found := self.events(run_id))}

    def open_runs(self) -> tuple[str, ...]:
        return tuple(run_id for run_id, rows in self.rows.items() if rows and rows[-1].kind is not EventKind.CLOSED)

    def read(self, work: Any, empty: Any) -> Any:
        """Return what is in no table: there are only runs."""
        return empty

    def select(self, query: object) -> list[Any]:
        """Return what is in no table."""
        return []

    def close(self) -> None:
        """Nothing to close."""

    def change(self, run_id: str, sequence: int, how: str) -> None:
        """Damages a record."""
        rows = self.rows[run_id]
        types = {name: [1] for name in rows[sequence].data}
        forms: dict[str, dict[str, Any]] = {"types": types, "text": {UNREADABLE: 1}}
        data = forms.get(how, {})
        if how == "hole":
            del rows[sequence]
        elif how == "kind":
            rows[sequence] = replace(rows[sequence], kind=EventKind.COLLECTED)
        else:
            rows[sequence] = replace(rows[sequence], data=data)

    def lose(self) -> None:
        """Everything in it is gone."""
        self.rows.clear()


class SqlLedger(Ledger):
    """The real one, in memory; there is one, and every simulation begins with it as it was when it was new."""

    _new: sqlite3.Connection | None = None
    _only: SqlLedger | None = None

    @classmethod
    def fresh(cls) -> SqlLedger:
        """An empty ledger with all its tables."""
        if cls._only is None or cls._new is None:
            cls._only = cls.open("sqlite://")
            cls._only.write(lambda connection: None)
            cls._new = sqlite3.connect(":memory:", check_same_thread=False)
            cls._only._raw().backup(cls._new)
        cls._only.lose()
        return cls._only

    def change(self, run_id: str, sequence: int, how: str) -> None:
        """Damages a record, as a broken disk would: without asking the database's rules."""
        raw = self._raw()
        raw.execute("DROP TRIGGER IF EXISTS events_no_update")
        raw.execute("DROP TRIGGER IF EXISTS events_no_delete")
        which = (run_id, sequence)
        if how == "hole":
            raw.execute("DELETE FROM events WHERE run_id = ? AND sequence = ?", which)
        elif how == "kind":
            raw.execute("UPDATE events SET kind = 'collected' WHERE run_id = ? AND sequence = ?", which)
        else:
            data = {"empty": "'{}'", "types": "'[[1]]'", "text": "CAST(x'7bff7d' AS TEXT)"}[how]
            raw.execute(f"UPDATE events SET data = {data} WHERE run_id = ? AND sequence = ?", which)

    def lose(self) -> None:
        """Everything in it is gone."""
        assert self._new is not None
        self._new.backup(self._raw())

    def close(self) -> None:
        """It is used again."""

    def _raw(self) -> sqlite3.Connection:
        found = self._connectable().raw_connection().driver_connection
        assert isinstance(found, sqlite3.Connection)
        return found


class Store:
    """A ledger that can fail, and what was really written to it.

    Attributes:
        written: Run -> its events, whatever has become of them in the ledger.
        failing_until: Nothing can be read or written before.
        full: Whether nothing can be written.
        harmed: Whether records were damaged or lost.
    """

    def __init__(self, target: Any, now: Callable[[], float], appended: Callable[[RunEvent], None]) -> None:
        self.target, self._now, self._appended = target, now, appended
        self.written: dict[str, list[RunEvent]] = {}
        self.failing_until = -1.0
        self.full = self.lost = False
        self.harmed: set[str] = set()

    @property
    def place(self) -> str:
        return str(self.target.place)

    def append(self, event: RunEvent, admit: Callable[[], None] | None = None, /) -> None:
        self._writable()
        self.target.append(event, admit)
        self.written.setdefault(event.run_id, []).append(event)
        self._appended(event)

    def events(self, run_id: str) -> Any:
        return self._reading().events(run_id)

    def events_of(self, run_ids: Sequence[str]) -> Any:
        return self._reading().events_of(run_ids)

    def open_runs(self) -> Any:
        return self._reading().open_runs()

    def recent_runs(self, limit: int = 50) -> Any:
        return self._reading().recent_runs(limit)

    def resolve(self, text: str) -> Any:
        return self._reading().resolve(text)

    def read(self, work: Any, empty: Any) -> Any:
        return self._reading().read(work, empty)

    def select(self, query: object) -> Any:
        return self._reading().select(query)

    def write(self, work: Any) -> Any:
        self._writable()
        return self.target.write(work)

    def insert(self, table: Any, rows: Any) -> None:
        self._writable()
        self.target.insert(table, rows)

    def close(self) -> None:
        """Nothing to close."""

    @property
    def damage(self) -> Any:
        return self.target.damage

    def readable(self, *rows: Any) -> Any:
        return self.target.readable(*rows)

    def harm(self, run_id: str, how: str, *, sequence: int = 0) -> None:
        """Harms a record of a run."""
        rows = self.written.get(run_id, [])
        if sequence < len(rows) and not self.lost and run_id not in self.harmed:
            self.harmed.add(run_id)
            self.target.change(run_id, sequence, how)

    def lose(self) -> None:
        """The file is gone."""
        self.lost = True
        self.harmed.update(self.written)
        self.target.lose()

    def _reading(self) -> Any:
        if self._now() < self.failing_until:
            raise LedgerError("The ledger is kept busy by another process.")
        return self.target

    def _writable(self) -> None:
        self._reading()
        if self.full:
            raise LedgerError("The disk of the ledger is full: what happened was not recorded.")

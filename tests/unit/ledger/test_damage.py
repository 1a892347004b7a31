"""Ledgers of other versions, and ledgers that something has damaged."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costgpu.errors import LedgerDamaged, LedgerError, LedgerTooNew
from costgpu.ledger import Ledger
from costgpu.models.run import EventKind
from tests.unit.ledger.test_store import happened


def test_an_event_of_the_future_is_not_guessed_at(ledger: Ledger, file: Path) -> None:
    ledger.append(happened("aaaa", 0))
    raw = sqlite3.connect(file)
    raw.execute("INSERT INTO events VALUES (2, 'aaaa', 1, 0, 'teleported', '{}', '99.0')")
    raw.commit()
    raw.close()
    with pytest.raises(LedgerTooNew, match="teleported"):
        ledger.events("aaaa")


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

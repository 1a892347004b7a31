"""What went wrong with the database, as errors that say what to do. Nothing here ever repairs or removes a file."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, SQLAlchemyError

from costgpu.errors import LedgerDamaged, LedgerError
from costgpu.ledger.schema import DamagedCellError

MACHINES_ARE_SAFE = "Machines are found and terminated without the ledger, too: costgpu reap."
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_SCHEMA}
_NOT_ALLOWED = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Turn what the database and the disk raise into `LedgerError` and its kinds; not `IntegrityError`.

    The place is the ledger's file, or its URL without a password.
    """
    try:
        yield
    except DamagedCellError as exc:
        raise damaged(place, str(exc)) from exc
    except UnicodeDecodeError as exc:  # of SQLite's own words about a damaged schema
        raise damaged(place, "its schema is not readable") from exc
    except IntegrityError:
        raise  # only the caller knows what two rows at once mean
    except (SQLAlchemyError, sqlite3.Error, OSError) as exc:
        raise explained(exc, place) from exc


def damaged(place: str, what: str) -> LedgerDamaged:
    """Return the error for a ledger whose content is not what costgpu writes."""
    return LedgerDamaged(
        f"The ledger {place} is damaged: {what}.",
        hint="Nothing in it was changed. Restore it from a backup, or move it (and its -wal file) away: the next run "
        f"starts a new one. {MACHINES_ARE_SAFE}",
    )


def not_allowed(exc: BaseException) -> bool:
    """Return whether the file or its folder may not be written (or not be opened at all)."""
    origin = exc.orig if isinstance(exc, DBAPIError) else exc
    return isinstance(origin, sqlite3.Error) and primary_code(origin) in _NOT_ALLOWED


def explained(exc: Exception, place: str) -> LedgerError:
    """Return the error of ours for one of the database or the disk."""
    origin = exc.orig if isinstance(exc, DBAPIError) else exc
    if isinstance(origin, OSError):
        return _of_the_disk(origin, place)
    if isinstance(origin, sqlite3.Error):
        return _of_sqlite(origin, place)
    if isinstance(exc, DBAPIError) and _unreachable(exc):
        hint = "Check that the database server is up and that this computer reaches it."
        return _error(f"The ledger {place} cannot be reached: {_first_line(origin)}.", hint)
    if isinstance(exc, DBAPIError):
        hint = "Check that the database server is up and that you may use it."
        return _error(f"The database of the ledger {place} refused: {_first_line(origin)}.", hint)
    return _error(f"The ledger {place} cannot be used: {_first_line(exc)}.")


def _unreachable(exc: DBAPIError) -> bool:
    """Return whether the connection was refused or lost: class 08, an end of the server (57P), or no answer at all."""
    state = getattr(exc.orig, "sqlstate", None)
    lost = exc.connection_invalidated or (isinstance(exc, OperationalError) and state is None)
    return lost or (isinstance(state, str) and state.startswith(("08", "57P")))


def _of_the_disk(exc: OSError, place: str) -> LedgerError:
    problem = os.strerror(exc.errno) if exc.errno else str(exc)
    if exc.errno in _FULL:
        return _full(place)
    if exc.errno in _FORBIDDEN:
        return _forbidden(place, problem)
    return _error(f"The ledger {place} cannot be used: {problem}.")


def _of_sqlite(exc: sqlite3.Error, place: str) -> LedgerError:
    code, problem = primary_code(exc), _first_line(exc)
    if code in _DAMAGED or any(words in problem for words in ("no such table", "no such column", "decode to UTF-8")):
        return damaged(place, problem)
    if code == sqlite3.SQLITE_FULL:
        return _full(place)
    if code in _NOT_ALLOWED:
        return _forbidden(place, problem)
    if code in BUSY:
        return LedgerError(
            f"The ledger {place} is kept busy by another process: {problem}.",
            hint="Try again; if it stays busy, look which process holds the file (fuser, lsof).",
        )
    if code == sqlite3.SQLITE_IOERR:
        return _error(
            f"The disk of the ledger {place} fails: {problem}.", "Check that it is not full and that it works."
        )
    return _error(f"The ledger {place} cannot be used: {problem}.")


def _full(place: str) -> LedgerError:
    message = f"The disk of the ledger {place} is full: what happened was not recorded."
    return _error(message, "Make room, then repeat the command.")


def _forbidden(place: str, problem: str) -> LedgerError:
    hint = "File and folder must be yours to write. XDG_DATA_HOME or COSTGPU_LEDGER_URL put it elsewhere."
    return _error(f"The ledger {place} cannot be opened or written: {problem}.", hint)


def _error(message: str, hint: str = "") -> LedgerError:
    return LedgerError(message, hint=f"{hint} {MACHINES_ARE_SAFE}".strip())


def primary_code(exc: sqlite3.Error) -> int:
    """Return the primary result code of SQLite; the extended ones are finer."""
    return getattr(exc, "sqlite_errorcode", 0) & 0xFF


def _first_line(exc: BaseException | None) -> str:
    return (str(exc).strip().splitlines() or [type(exc).__name__])[0].rstrip(".")

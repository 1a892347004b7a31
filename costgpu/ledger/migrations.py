"""How a ledger becomes what `schema` describes: named steps, each one transaction, never changed once released.

The steps up to now only make tables, as `schema` describes them. A step that changes a table comes with that table's old
description, for the step that makes it; a test compares what the steps make with a ledger of the first version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine, Inspector, Table, inspect, select

from costgpu.errors import LedgerError, LedgerTooNew
from costgpu.ledger import schema
from costgpu.ledger.dialect import WRITES, forbid_changes, lock_for_migration, use_write_ahead_log
from costgpu.version import __version__


@dataclass(frozen=True, slots=True)
class Migration:
    """One step; its name is kept in the ledger, and it makes its change in the transaction that it is given."""

    name: str
    apply: Callable[[Connection], None]


def _make(*tables: Table) -> Callable[[Connection], None]:
    def apply(connection: Connection) -> None:
        schema.metadata.create_all(connection, tables=tables, checkfirst=False)
        forbid_changes(connection, tables)

    return apply


MIGRATIONS = (
    Migration(
        "runs-and-events", _make(schema.migrations, schema.events, schema.runs, schema.run_tags, schema.closings)
    ),
    Migration(
        "budgets-and-outcomes",
        _make(
            schema.outcomes,
            schema.estimates,
            schema.billed,
            schema.sightings,
            schema.budgets,
            schema.alerts,
            schema.alert_attempts,
            schema.alert_results,
        ),
    ),
)


def pending(connection: Connection, place: str) -> tuple[Migration, ...]:
    """Return the steps that the ledger still lacks, in order; all of them for an empty one.

    Raises:
        LedgerTooNew: It has had steps that this version does not know.
        LedgerError: It is a database, but not a ledger.
    """
    tables: Inspector = inspect(connection)
    if not tables.has_table(schema.migrations.name):
        if connection.dialect.name == "sqlite" and tables.get_table_names():
            raise LedgerError(
                f"{place} is a database of another program.",
                hint="Give the ledger a file of its own, and let it make it.",
            )
        return MIGRATIONS
    applied = set(connection.scalars(select(schema.migrations.c.name)))
    refuse_newer(applied, place)
    return tuple(step for step in MIGRATIONS if step.name not in applied)


def refuse_newer(applied: set[str], place: str) -> None:
    """Raise `LedgerTooNew` if there are steps that this version does not know."""
    unknown = sorted({schema.text(name) for name in applied} - {step.name for step in MIGRATIONS})
    if unknown:
        raise LedgerTooNew(
            f"The ledger {place} was written by a newer costgpu than this one, {__version__} "
            f"(it has had the step {', '.join(unknown)}).",
            hint="pip install --upgrade costgpu. Nothing in the ledger was changed.",
        )


def migrate(engine: Engine, place: str, at: datetime) -> None:
    """Apply what is missing, step by step. Several processes may do so at once.

    Raises:
        LedgerTooNew, LedgerError: As `pending`.
    """
    with engine.connect() as connection:
        pending(connection, place)  # what is not ours is not touched
    use_write_ahead_log(engine)
    while True:
        with engine.connect().execution_options(**{WRITES: True}) as connection, connection.begin():
            lock_for_migration(connection)
            steps = pending(connection, place)
            if not steps:
                return
            steps[0].apply(connection)
            connection.execute(
                schema.migrations.insert(),
                {"name": steps[0].name, "at_us": schema.to_microseconds(at), "writer": __version__},
            )

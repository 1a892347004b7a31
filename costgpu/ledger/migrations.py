"""How a ledger becomes what `schema` describes: named steps, each one transaction, never changed once released.

A step makes its tables from its own description, which stays what it is when `schema` moves on; a test compares what
all steps together make with `schema`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    select,
)

from costgpu import __version__
from costgpu.errors import LedgerError, LedgerTooNew
from costgpu.ledger import schema
from costgpu.ledger.dialect import WRITES, forbid_changes, inspector, lock_for_migration, use_write_ahead_log
from costgpu.ledger.schema import Identifier, Number, Serial


@dataclass(frozen=True, slots=True)
class Migration:
    """One step.

    Attributes:
        name: Kept in the ledger; steps are applied in the order of `MIGRATIONS`.
        apply: Makes the change, in the transaction that it is given.
    """

    name: str
    apply: Callable[[Connection], None]


def _runs_and_events(connection: Connection) -> None:
    metadata = MetaData()
    Table(
        "migrations",
        metadata,
        Column("name", Identifier, primary_key=True),
        Column("at_us", BigInteger, nullable=False),
        Column("writer", Text, nullable=False),
    )
    Table(
        "events",
        metadata,
        Column("id", Serial, primary_key=True),
        Column("run_id", Identifier, nullable=False),
        Column("sequence", Integer, nullable=False),
        Column("at_us", BigInteger, nullable=False),
        Column("kind", Identifier, nullable=False),
        Column("data", Text, nullable=False),
        Column("writer", Text, nullable=False),
        UniqueConstraint("run_id", "sequence", name="events_run_sequence"),
    )
    runs = Table(
        "runs",
        metadata,
        Column("run", Serial, primary_key=True),
        Column("run_id", Identifier, nullable=False),
        Column("at_us", BigInteger, nullable=False),
        Column("name", Identifier, nullable=False),
        Column("owner", Text, nullable=False),
        UniqueConstraint("run_id", name="runs_run_id"),
    )
    Index("runs_name", runs.c.name, runs.c.run)
    tags = Table(
        "run_tags",
        metadata,
        Column("run", BigInteger, ForeignKey("runs.run"), primary_key=True),
        Column("key", Identifier, primary_key=True),
        Column("value", Identifier, nullable=False),
        sqlite_with_rowid=False,
    )
    Index("run_tags_key_value", tags.c.key, tags.c.value, tags.c.run)
    texts = (
        "reason",
        "ended_by",
        "provider",
        "account",
        "region",
        "zone",
        "instance_type",
        "instance_id",
        "purchase_option",
        "accelerator",
    )
    closings = Table(
        "closings",
        metadata,
        Column("run", Serial, ForeignKey("runs.run"), primary_key=True, autoincrement=False),
        Column("at_us", BigInteger, nullable=False),
        *(Column(name, Text, nullable=False) for name in texts),
        Column("accelerator_count", Number, nullable=True),
        Column("started_us", BigInteger, nullable=True),
        Column("ended_us", BigInteger, nullable=True),
        Column("metered_seconds", Number, nullable=True),
        Column("metered_nano_usd", BigInteger, nullable=True),
    )
    Index("closings_ended", closings.c.ended_us)
    metadata.create_all(connection, checkfirst=False)
    forbid_changes(connection, metadata.sorted_tables)


def _budgets_and_outcomes(connection: Connection) -> None:
    metadata = MetaData()
    runs = Table("runs", metadata, Column("run", Serial, primary_key=True))  # to refer to
    counts = (
        "job_seconds",
        "steps",
        "estimated_job_seconds",
        "estimated_seconds",
        "estimated_seconds_low",
        "estimated_seconds_high",
    )
    amounts = ("estimated_nano_usd", "estimated_nano_usd_low", "estimated_nano_usd_high")
    outcomes = Table(
        "outcomes",
        metadata,
        Column("run", Serial, ForeignKey("runs.run"), primary_key=True, autoincrement=False),
        Column("at_us", BigInteger, nullable=False),
        *(Column(name, Identifier, nullable=False) for name in ("workload", "provider", "instance_type")),
        *(Column(name, Text, nullable=False) for name in ("purchase_option", "reason")),
        *(Column(name, Number, nullable=True) for name in counts),
        *(Column(name, BigInteger, nullable=True) for name in amounts),
    )
    Index("outcomes_workload", outcomes.c.workload, outcomes.c.provider, outcomes.c.instance_type, outcomes.c.run)
    estimates = Table(
        "estimates",
        metadata,
        Column("id", Serial, primary_key=True),
        Column("at_us", BigInteger, nullable=False),
        *(Column(name, Identifier, nullable=False) for name in ("workload", "name")),
        *(Column(name, Text, nullable=False) for name in ("owner", "data", "writer")),
    )
    Index("estimates_workload", estimates.c.workload, estimates.c.id)
    billed = Table(
        "billed",
        metadata,
        Column("id", Serial, primary_key=True),
        Column("at_us", BigInteger, nullable=False),
        *(Column(name, Identifier, nullable=False) for name in ("provider", "account", "run_id")),
        *(Column(name, BigInteger, nullable=False) for name in ("start_us", "end_us", "nano_usd")),
        Column("source", Text, nullable=False),
    )
    Index("billed_period", billed.c.start_us)
    Index("billed_run", billed.c.run_id)
    sightings = Table(
        "sightings",
        metadata,
        Column("id", Serial, primary_key=True),
        Column("at_us", BigInteger, nullable=False),
        Column("provider", Identifier, nullable=False),
        Column("region", Text, nullable=False),
        *(Column(name, Identifier, nullable=False) for name in ("instance_id", "run_id")),
        *(Column(name, Text, nullable=False) for name in ("name", "owner", "instance_type", "purchase_option", "tags")),
        Column("started_us", BigInteger, nullable=False),
        Column("nano_usd_per_hour", BigInteger, nullable=True),
    )
    Index("sightings_machine", sightings.c.provider, sightings.c.instance_id, sightings.c.id)
    Index("sightings_at", sightings.c.at_us)
    budgets = Table(
        "budgets",
        metadata,
        Column("id", Serial, primary_key=True),
        Column("at_us", BigInteger, nullable=False),
        Column("name", Identifier, nullable=False),
        Column("data", Text, nullable=True),
        Column("writer", Text, nullable=False),
    )
    Index("budgets_name", budgets.c.name, budgets.c.id)
    Table(
        "alerts",
        metadata,
        Column("id", Serial, primary_key=True),
        Column("at_us", BigInteger, nullable=False),
        Column("budget", BigInteger, ForeignKey("budgets.id"), nullable=False),
        Column("period_start_us", BigInteger, nullable=False),
        Column("threshold", Integer, nullable=False),
        Column("nano_usd", BigInteger, nullable=False),
        UniqueConstraint("budget", "period_start_us", "threshold", name="alerts_once"),
    )
    for name, more in (
        ("alert_attempts", ()),
        ("alert_results", (Column("delivered", Integer, nullable=False), Column("detail", Text, nullable=False))),
    ):
        Table(
            name,
            metadata,
            Column("alert", BigInteger, ForeignKey("alerts.id"), primary_key=True),
            Column("number", Integer, primary_key=True),
            Column("at_us", BigInteger, nullable=False),
            *more,
            sqlite_with_rowid=False,
        )
    made = [table for table in metadata.sorted_tables if table is not runs]
    metadata.create_all(connection, tables=made, checkfirst=False)
    forbid_changes(connection, made)


MIGRATIONS = (
    Migration("runs-and-events", _runs_and_events),
    Migration("budgets-and-outcomes", _budgets_and_outcomes),
)


def pending(connection: Connection, place: str) -> tuple[Migration, ...]:
    """The steps that the ledger still lacks, in order; all of them for an empty one.

    Raises:
        LedgerTooNew: It has had steps that this version does not know.
        LedgerError: It is a database, but not a ledger.
    """
    tables = inspector(connection)
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
    """Raises `LedgerTooNew` if there are steps that this version does not know."""
    unknown = sorted(applied - {step.name for step in MIGRATIONS})
    if unknown:
        raise LedgerTooNew(
            f"The ledger {place} was written by a newer costgpu than this one, {__version__} "
            f"(it has had the step {', '.join(unknown)}).",
            hint="pip install --upgrade costgpu. Nothing in the ledger was changed.",
        )


def migrate(engine: Engine, place: str, at: datetime) -> None:
    """Applies what is missing, step by step. Several processes may do so at once.

    Args:
        engine: Of the ledger.
        place: Of the ledger, for messages.
        at: Now: kept beside each step.

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

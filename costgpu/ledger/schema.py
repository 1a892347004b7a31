"""The tables of the ledger as they are now. How an older ledger gets there is in `migrations`.

`events` is the record; its JSON text is what counts. Everything else is written from the same events in the same
transaction, so that a million of them need not be parsed to answer "what is open" or "what did March cost". Rows are
added and never changed, in every table.

Times are integers: microseconds since 1970-01-01 UTC. Money is integers: 1e-9 US dollars, so that sums are exact in
every database (the largest is 9.2e9 US dollars). The exact decimal is in the event.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal

from sqlalchemy import BigInteger, Column, Double, ForeignKey, Index, Integer, MetaData, Table, Text, UniqueConstraint

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
NANO = Decimal("1e-9")
LARGEST = 2**63 - 1

# Counts up in the order of writing: SQLite does that only for its own INTEGER.
Serial = BigInteger().with_variant(Integer(), "sqlite")
# Compared byte by byte everywhere, so that a prefix is a range of the index.
Identifier = Text().with_variant(Text(collation="C"), "postgresql")
Number: Double[float] = Double()

metadata = MetaData()

migrations = Table(
    "migrations",
    metadata,
    Column("name", Identifier, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Column("writer", Text, nullable=False),  # version of costgpu
)

events = Table(
    "events",
    metadata,
    Column("id", Serial, primary_key=True),
    Column("run_id", Identifier, nullable=False),
    Column("sequence", Integer, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    Column("kind", Identifier, nullable=False),
    Column("data", Text, nullable=False),  # JSON, pure ASCII
    Column("writer", Text, nullable=False),  # version of costgpu
    UniqueConstraint("run_id", "sequence", name="events_run_sequence"),
)

# One row a run, written with its first event. Its number is the order in which runs began.
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

run_tags = Table(
    "run_tags",
    metadata,
    Column("run", BigInteger, ForeignKey("runs.run"), primary_key=True),
    Column("key", Identifier, primary_key=True),
    Column("value", Identifier, nullable=False),
    sqlite_with_rowid=False,
)
Index("run_tags_key_value", run_tags.c.key, run_tags.c.value, run_tags.c.run)

# One row a closed run, written with its CLOSED event: what it used, for how long, at what cost. The period that is
# charged is from the create call (started_us) to the confirmed end (ended_us), whenever it was that the run was
# closed. Texts are empty, and the other columns NULL, where nothing is known; without an instance there is no period.
closings = Table(
    "closings",
    metadata,
    Column("run", Serial, ForeignKey("runs.run"), primary_key=True, autoincrement=False),
    Column("at_us", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("ended_by", Text, nullable=False),
    Column("provider", Text, nullable=False),
    Column("account", Text, nullable=False),
    Column("region", Text, nullable=False),
    Column("zone", Text, nullable=False),
    Column("instance_type", Text, nullable=False),
    Column("instance_id", Text, nullable=False),
    Column("purchase_option", Text, nullable=False),
    Column("accelerator", Text, nullable=False),  # empty for a CPU instance, too
    Column("accelerator_count", Number, nullable=True),
    Column("started_us", BigInteger, nullable=True),
    Column("ended_us", BigInteger, nullable=True),
    Column("metered_seconds", Number, nullable=True),
    Column("metered_nano_usd", BigInteger, nullable=True),
)
Index("closings_ended", closings.c.ended_us)

RECORDS = (events, runs, run_tags, closings)


def to_microseconds(at: datetime) -> int:
    """The integer that an aware time is kept as; exact.

    Raises:
        ValueError: The time has no zone.
    """
    if at.tzinfo is None:
        raise ValueError(f"The time {at} has no zone.")
    return (at - EPOCH) // MICROSECOND


def from_microseconds(value: int) -> datetime:
    """The UTC time that was kept."""
    return EPOCH + value * MICROSECOND


def to_nano(usd: Decimal) -> int | None:
    """The integer that an amount of US dollars is summed as; None if it is none that could be."""
    if not usd.is_finite() or abs(usd) >= LARGEST * NANO:
        return None
    return int((usd / NANO).to_integral_value(ROUND_HALF_EVEN))


def from_nano(value: int) -> Decimal:
    """The amount in US dollars."""
    return value * NANO

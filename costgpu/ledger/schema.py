"""The tables of the ledger as they are now. How an older ledger gets there is in `migrations`.

`events` is the record; its JSON text is what counts. Everything else is written from the same events in the same
transaction, so that a million of them need not be parsed to answer "what is open" or "what did March cost". Rows are
added and never changed, in every table.

Times are integers: microseconds since 1970-01-01 UTC. Money is integers: 1e-9 US dollars, so that sums are exact in
every database (the largest is 9.2e9 US dollars). The exact decimal is in the event.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from sqlalchemy import BigInteger, Column, Double, ForeignKey, Index, Integer, MetaData, Table, Text, UniqueConstraint
from sqlalchemy.types import TypeEngine

from costgpu.units import FIRST_YEAR, LAST_YEAR

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
NANO = Decimal("1e-9")
LARGEST = 2**63 - 1
EARLIEST_US = (datetime(FIRST_YEAR, 1, 1, tzinfo=UTC) - EPOCH) // MICROSECOND
LATEST_US = (datetime(LAST_YEAR + 1, 1, 1, tzinfo=UTC) - EPOCH) // MICROSECOND

# Counts up in the order of writing: SQLite does that only for its own INTEGER.
Serial = BigInteger().with_variant(Integer(), "sqlite")
# Compared byte by byte everywhere, so that a prefix is a range of the index.
Identifier = Text().with_variant(Text(collation="C"), "postgresql")
Number: Double[float] = Double()

metadata = MetaData()


def _columns(kind: TypeEngine[Any], *names: str, nullable: bool = False) -> Iterator[Column[Any]]:
    return (Column(name, kind, nullable=nullable) for name in names)


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
CLOSING_TEXTS = (
    "reason",
    "ended_by",
    "provider",
    "account",
    "region",
    "zone",
    "instance_type",
    "instance_id",
    "purchase_option",
    "accelerator",  # empty for a CPU instance, too
)
closings = Table(
    "closings",
    metadata,
    Column("run", Serial, ForeignKey("runs.run"), primary_key=True, autoincrement=False),
    Column("at_us", BigInteger, nullable=False),
    *_columns(Text(), *CLOSING_TEXTS),
    Column("accelerator_count", Number, nullable=True),
    Column("started_us", BigInteger, nullable=True),
    Column("ended_us", BigInteger, nullable=True),
    Column("metered_seconds", Number, nullable=True),
    Column("metered_nano_usd", BigInteger, nullable=True),
)
Index("closings_ended", closings.c.ended_us)

# One row a closed run of which it is known how long its job took: what the next estimate of the same workload on the
# same instance type starts from, and what accuracy is computed from. Estimates are NULL where there was none.
ESTIMATED_SECONDS = ("estimated_seconds", "estimated_seconds_low", "estimated_seconds_high")  # create call to end
ESTIMATED_COSTS = ("estimated_nano_usd", "estimated_nano_usd_low", "estimated_nano_usd_high")
outcomes = Table(
    "outcomes",
    metadata,
    Column("run", Serial, ForeignKey("runs.run"), primary_key=True, autoincrement=False),
    Column("at_us", BigInteger, nullable=False),
    Column("workload", Identifier, nullable=False),  # key of script, arguments and framework; empty if unknown
    *_columns(Identifier, "provider", "instance_type"),
    *_columns(Text(), "purchase_option", "reason"),
    Column("job_seconds", Number, nullable=True),  # of the job alone: no boot, no set-up
    Column("steps", Number, nullable=True),  # that the job was expected to make
    *_columns(Number, "estimated_job_seconds", *ESTIMATED_SECONDS, nullable=True),
    *_columns(BigInteger(), *ESTIMATED_COSTS, nullable=True),
)
Index("outcomes_workload", outcomes.c.workload, outcomes.c.provider, outcomes.c.instance_type, outcomes.c.run)

# Made by a released step, and no longer used.
estimates = Table(
    "estimates",
    metadata,
    Column("id", Serial, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    *_columns(Identifier, "workload", "name"),
    *_columns(Text(), "owner", "data", "writer"),  # data: JSON
)
Index("estimates_workload", estimates.c.workload, estimates.c.id)

# What a provider says that it has billed, as it said it. Of rows about the same thing and period the last one counts.
billed = Table(
    "billed",
    metadata,
    Column("id", Serial, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    *_columns(Identifier, "provider", "account", "run_id"),  # run_id: empty for what has no run's tag
    *_columns(BigInteger(), "start_us", "end_us", "nano_usd"),
    Column("source", Text, nullable=False),
)
Index("billed_period", billed.c.start_us)
Index("billed_run", billed.c.run_id)

# Machines with our tag that were seen at a provider, and that this ledger has no run of. Of the rows of one machine
# the last one counts; it was there from `started_us` at least until `at_us`.
sightings = Table(
    "sightings",
    metadata,
    Column("id", Serial, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Column("provider", Identifier, nullable=False),
    Column("region", Text, nullable=False),
    *_columns(Identifier, "instance_id", "run_id"),
    *_columns(Text(), "name", "owner", "instance_type", "purchase_option", "tags"),  # tags: JSON
    Column("started_us", BigInteger, nullable=False),
    Column("nano_usd_per_hour", BigInteger, nullable=True),  # NULL: its price is not known
)
Index("sightings_machine", sightings.c.provider, sightings.c.instance_id, sightings.c.id)
Index("sightings_at", sightings.c.at_us)

# A budget is what the last row of its name says.
budgets = Table(
    "budgets",
    metadata,
    Column("id", Serial, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Column("name", Identifier, nullable=False),
    Column("data", Text, nullable=True),  # JSON; NULL: removed
    Column("writer", Text, nullable=False),
)
Index("budgets_name", budgets.c.name, budgets.c.id)

# One row a threshold that was crossed in a period: whoever can insert it is the one who tells people.
alerts = Table(
    "alerts",
    metadata,
    Column("id", Serial, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Column("budget", BigInteger, ForeignKey("budgets.id"), nullable=False),
    Column("period_start_us", BigInteger, nullable=False),
    Column("threshold", Integer, nullable=False),  # percent
    Column("nano_usd", BigInteger, nullable=False),  # spent when it was crossed
    UniqueConstraint("budget", "period_start_us", "threshold", name="alerts_once"),
)

# Deliveries of an alert: a row in `alert_attempts` before it is sent, one in `alert_results` afterwards.
alert_attempts = Table(
    "alert_attempts",
    metadata,
    Column("alert", BigInteger, ForeignKey("alerts.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
alert_results = Table(
    "alert_results",
    metadata,
    Column("alert", BigInteger, ForeignKey("alerts.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Column("delivered", Integer, nullable=False),  # 1 or 0
    Column("detail", Text, nullable=False),  # never an address or a secret
    sqlite_with_rowid=False,
)

RECORDS = tuple(table for table in metadata.tables.values() if table is not migrations)


def to_microseconds(at: datetime) -> int:
    """Return the integer that an aware time is kept as; exact.

    Raises:
        ValueError: The time has no zone.
    """
    if at.tzinfo is None:
        raise ValueError(f"The time {at} has no zone.")
    return (at - EPOCH) // MICROSECOND


class DamagedCellError(ValueError):
    """A cell that does not hold what is written there: SQLite keeps any value in any column, and disks fail."""


def from_microseconds(value: object) -> datetime:
    """Return the UTC time that was kept; exact, whatever it is.

    Raises:
        DamagedCellError: It is none.
    """
    try:
        return EPOCH + whole(value) * MICROSECOND
    except OverflowError:
        raise DamagedCellError("a time is beyond the calendar") from None


def instant(value: object) -> datetime:
    """Return the UTC time that was kept, for everything that counts with it.

    Raises:
        DamagedCellError: It is none, or years off.
    """
    return from_microseconds(instant_us(value))


def instant_us(value: object) -> int:
    """Return the time of `instant` as it is kept."""
    if not EARLIEST_US <= (at := whole(value)) < LATEST_US:
        raise DamagedCellError(f"a time is not between the years {FIRST_YEAR} and {LAST_YEAR}")
    return at


def whole(value: object) -> int:
    """Return the whole number in a cell."""
    if type(value) is not int:  # a bool is none
        raise DamagedCellError(f"a whole number is expected, not {type(value).__name__}")
    return value


def number(value: object) -> float | None:
    """Return the finite number in a cell; None if it is empty."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
        raise DamagedCellError(f"a number is expected, not {type(value).__name__}")
    return float(value)


def text(value: object) -> str:
    """Return the text in a cell."""
    if not isinstance(value, str):
        raise DamagedCellError(f"a text is expected, not {type(value).__name__}")
    return value


def to_nano(usd: Decimal) -> int | None:
    """Return the integer that an amount of US dollars is summed as; None if it is too large or not finite."""
    if not usd.is_finite() or abs(usd) >= LARGEST * NANO:
        return None
    return int((usd / NANO).to_integral_value(ROUND_HALF_EVEN))


def from_nano(value: object) -> Decimal:
    """Return the amount in US dollars.

    Raises:
        DamagedCellError: It is none.
    """
    return whole(value) * NANO

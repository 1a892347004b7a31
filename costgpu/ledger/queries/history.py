"""Questions about closed runs: which, how much, by what. Sums are made in the database; rows stream.

Recorded costs are never re-priced: everything here is what was written when the run closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Join, Select, Text, and_, case, cast, func, not_, or_, select

from costgpu.errors import LedgerDamaged
from costgpu.ledger.dialect import batches
from costgpu.ledger.projections import plain
from costgpu.ledger.queries.proration import share
from costgpu.ledger.schema import (
    CLOSING_TEXTS,
    EARLIEST_US,
    ESTIMATED_COSTS,
    ESTIMATED_SECONDS,
    LATEST_US,
    closings,
    events,
    from_nano,
    instant,
    number,
    outcomes,
    run_tags,
    runs,
    text,
    to_microseconds,
    total,
    whole,
)
from costgpu.ledger.store import Ledger
from costgpu.models.job import EndReason

T = TypeVar("T")
AT_ONCE = 2000  # rows in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which runs are meant; an empty field means all."""

    provider: str = ""
    owner: str = ""  # who launched them; ``user`` also means ``user@host``
    name: str = ""  # the job's
    tags: Mapping[str, str] = field(default_factory=dict)  # a run must have all of them, with these values

    def includes(self, *, provider: str, owner: str, name: str, tags: Mapping[str, str]) -> bool:
        """Return whether a run or machine with these facts is meant: the same rule as in the database."""
        return (
            self.provider in ("", provider)
            and (self.owner in ("", owner) or owner.startswith(f"{self.owner}@"))
            and self.name in ("", name)
            and all(tags.get(key) == value for key, value in self.tags.items())
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedRun:
    """One closed run. Texts are empty, and numbers None, where nothing is known. Exports have its fields as columns."""

    run_id: str
    name: str
    owner: str
    tags: Mapping[str, str]
    created_at: datetime
    closed_at: datetime
    reason: str
    ended_by: str
    provider: str
    account: str
    region: str
    zone: str
    instance_type: str
    instance_id: str
    purchase_option: str
    accelerator: str
    accelerator_count: float | None
    started_at: datetime | None  # the create call: what is charged begins here
    ended_at: datetime | None  # the confirmed end
    metered_seconds: float | None
    metered_cost_usd: Decimal | None
    job_seconds: float | None  # the job alone, without boot and set-up
    estimated_seconds: float | None  # from the create call to the end, with its interval
    estimated_seconds_low: float | None
    estimated_seconds_high: float | None
    estimated_cost_usd: Decimal | None
    estimated_cost_usd_low: Decimal | None
    estimated_cost_usd_high: Decimal | None


def closed_runs(
    ledger: Ledger,
    selection: Selection,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    only_estimated: bool = False,
    newest_first: bool = False,
    limit: int | None = None,
) -> Iterator[ClosedRun]:
    """Yield the closed runs that were charged for at some time of [since, until), in the order in which they began.

    A run that never had a machine counts by when it was closed. The rows stream: a few thousand are in memory at a time.

    Args:
        only_estimated: Only runs that succeeded, and of which it was estimated how long they would take.
        newest_first: The other way round.
        limit: The largest number of runs; None for all.
    """
    query = (
        select(*_COLUMNS)
        .join(closings, closings.c.run == runs.c.run)
        .outerjoin(outcomes, outcomes.c.run == runs.c.run)
        .where(*conditions(selection), *within(since, until))
        .order_by(runs.c.run.desc() if newest_first else runs.c.run)
    )
    if only_estimated:
        query = query.where(closings.c.reason == EndReason.SUCCEEDED.value, outcomes.c.estimated_seconds > 0)
    last: int | None = None
    left = limit
    nothing: tuple[list[Any], dict[int, dict[str, str]]] = ([], {})
    while left is None or left > 0:
        wanted = AT_ONCE if left is None else min(AT_ONCE, left)
        page = query.limit(wanted)
        if last is not None:
            page = page.where(runs.c.run < last if newest_first else runs.c.run > last)
        rows, tags = ledger.read(partial(_page, page=page), nothing)
        yield from ledger.readable(rows, partial(_closed, tags), lambda row: f"run {row.run_id}")
        if rows:
            last = whole(rows[-1].run)
        if len(rows) < wanted:
            return
        left = None if left is None else left - len(rows)


def spent(ledger: Ledger, selection: Selection, start: datetime | None, end: datetime | None) -> Decimal:
    """US dollars that closed runs have cost in [start, end): a run across an edge counts by its share of time.

    Periods that follow on each other add up exactly to the whole.
    """
    return without_damaged(
        ledger,
        lambda connection, readable: _spent(connection, [*conditions(selection), *readable], start, end),
        Decimal(0),
    )


def _spent(
    connection: Connection, chosen: Sequence[ColumnElement[bool]], start: datetime | None, end: datetime | None
) -> Decimal:
    inside, crossing = edges(start, end)
    where = [*chosen, closings.c.metered_nano_usd > 0, *within(start, end)]
    everything = select(func.sum(closings.c.metered_nano_usd)).select_from(joined()).where(*where, *inside)
    nano = total(connection.scalar(everything))
    if crossing is not None:
        query = select(BEGAN, ENDED, closings.c.metered_nano_usd).select_from(joined()).where(*where, crossing)
        low, high = (to_microseconds(at) if at else None for at in (start, end))
        for began, ended, cost in connection.execute(query):
            nano += share(whole(cost), whole(began), whole(ended), low, high)
    return from_nano(nano)


def without_damaged(ledger: Ledger, sums: Callable[[Connection, Sequence[ColumnElement[bool]]], T], empty: T) -> T:
    """Return the sum of closed runs. Runs with damaged rows are left out of them, and kept in the ledger's `damage`.

    Args:
        sums: Given a condition that closed runs must meet; `DamagedCellError` if a sum is none.

    Raises:
        LedgerDamaged: It is not these rows that are damaged.
    """
    try:
        return ledger.read(lambda connection: sums(connection, ()), empty)
    except LedgerDamaged:
        none: dict[int, str] = {}
        damaged = ledger.read(_damaged, none)
        if not damaged:
            raise
    for run_id in damaged.values():
        ledger.leave_out(f"run {run_id}", "its times or amounts are none")
    numbers = list(damaged)
    return ledger.read(lambda connection: sums(connection, (closings.c.run.not_in(numbers),)), empty)


def implausible_runs(
    ledger: Ledger, now: datetime, selection: Selection, since: datetime | None, until: datetime | None
) -> tuple[str, ...]:
    """Return the ids of selected runs with times of the future, or with times and amounts that closing a run does not write.

    A run with wrong times may be one of [since, until), whatever they are; one with a wrong amount is by its times.
    """
    latest = to_microseconds(now + timedelta(days=1))
    seconds = (closings.c.ended_us - closings.c.started_us) - closings.c.metered_seconds * 1_000_000
    amount = or_(_NANO < 0, closings.c.started_us.is_not(None) & _NANO.is_(None))
    chosen = conditions(selection)

    def read(connection: Connection) -> tuple[str, ...]:
        odd_times, odd_amounts = _odd(connection)
        late = [column > latest for column in _TIMES]
        wrong = or_(
            *late, func.abs(seconds) > 1_000_000, *odd_times, and_(or_(amount, *odd_amounts), *within(since, until))
        )
        query = select(cast(runs.c.run_id, Text)).select_from(joined()).where(wrong, *chosen).order_by(runs.c.run)
        later = select(cast(events.c.run_id, Text)).where(events.c.at_us > latest)
        if chosen:
            others = select(runs.c.run_id).select_from(joined()).where(not_(and_(*chosen)))
            later = later.where(events.c.run_id.not_in(others))
        return tuple(str(run_id) for run_id in (*connection.scalars(query), *connection.scalars(later.limit(1))))

    return ledger.read(read, ())


def _damaged(connection: Connection) -> dict[int, str]:
    """Return the closed runs whose rows hold impossible values."""
    wrong = [*chain(*_odd(connection))]
    if not wrong:
        return {}
    query = select(runs.c.run, cast(runs.c.run_id, Text)).select_from(joined()).where(or_(*wrong))
    return {number: str(run_id) for number, run_id in connection.execute(query)}


def _odd(connection: Connection) -> tuple[list[ColumnElement[bool]], list[ColumnElement[bool]]]:
    """Return what says that times, and amounts, are none; only SQLite keeps any value in any column."""
    if connection.dialect.name != "sqlite":
        return [], []
    times: list[ColumnElement[bool]] = [~func.typeof(column).in_(("integer", "null")) for column in _TIMES]
    times += [~column.between(EARLIEST_US, LATEST_US) for column in _TIMES]
    seconds = ~func.typeof(closings.c.metered_seconds).in_(("integer", "real", "null"))
    return times, [~func.typeof(_NANO).in_(("integer", "null")), seconds]


_TIMES = (closings.c.at_us, closings.c.started_us, closings.c.ended_us)
_NANO = closings.c.metered_nano_usd


# What the statements about periods are made of; `totals` uses them, too.

_END = func.coalesce(closings.c.ended_us, closings.c.at_us)
BEGAN = func.coalesce(closings.c.started_us, closings.c.at_us)
ENDED = case((_END > BEGAN, _END), else_=BEGAN)


def joined() -> Join:
    """Join closed runs with their closings."""
    return closings.join(runs, runs.c.run == closings.c.run)


def within(since: datetime | None, until: datetime | None) -> list[ColumnElement[bool]]:
    """Return what overlaps [since, until); what took no time does if it happened in it."""
    found: list[ColumnElement[bool]] = []
    if since is not None:
        first = to_microseconds(since)
        found.append((closings.c.ended_us >= first) | closings.c.ended_us.is_(None))  # has an index
        found.append((first < ENDED) | (first <= BEGAN))
    if until is not None:
        found.append(to_microseconds(until) > BEGAN)
    return found


def edges(
    since: datetime | None, until: datetime | None
) -> tuple[list[ColumnElement[bool]], ColumnElement[bool] | None]:
    """Return the conditions for what lies inside the period, and for what crosses its edges (None if it has none)."""
    inside: list[ColumnElement[bool]] = []
    crossing: list[ColumnElement[bool]] = []
    if since is not None:
        inside.append(to_microseconds(since) <= BEGAN)
        crossing.append(to_microseconds(since) > BEGAN)
    if until is not None:
        inside.append(to_microseconds(until) >= ENDED)
        crossing.append(to_microseconds(until) < ENDED)
    return inside, or_(*crossing) if crossing else None


def conditions(selection: Selection) -> list[ColumnElement[bool]]:
    """Return what a selection means in the database."""
    found: list[ColumnElement[bool]] = []
    if selection.provider:
        found.append(closings.c.provider == plain(selection.provider))
    if selection.owner:
        owner = plain(selection.owner)
        prefix = f"{owner}@"  # not LIKE: SQLite's does not tell a from A
        found.append((runs.c.owner == owner) | (func.substr(runs.c.owner, 1, len(prefix)) == prefix))
    if selection.name:
        found.append(runs.c.name == plain(selection.name))
    for key, value in selection.tags.items():
        tag = run_tags.alias()  # the statement around may have the table, too
        tagged = select(tag.c.run).where(tag.c.run == runs.c.run, tag.c.key == plain(key), tag.c.value == plain(value))
        found.append(tagged.exists())
    return found


_TEXTS = ("run_id", "name", "owner", *CLOSING_TEXTS)
_NUMBERS = ("accelerator_count", "metered_seconds", "job_seconds")
_COLUMNS = (
    runs.c.run,
    runs.c.run_id,
    runs.c.name,
    runs.c.owner,
    runs.c.at_us.label("created_us"),
    *(closings.c[name] for name in CLOSING_TEXTS),
    closings.c.accelerator_count,
    closings.c.started_us,
    closings.c.ended_us,
    closings.c.at_us.label("closed_us"),
    closings.c.metered_seconds,
    closings.c.metered_nano_usd,
    *(outcomes.c[name] for name in ("job_seconds", *ESTIMATED_SECONDS, *ESTIMATED_COSTS)),
)


def _page(connection: Connection, page: Select[Any]) -> tuple[list[Any], dict[int, dict[str, str]]]:
    rows = list(connection.execute(page))
    numbers = [row.run for row in rows]
    tags: dict[int, dict[str, str]] = {}
    for some in batches(numbers):
        for run, key, value in connection.execute(select(run_tags).where(run_tags.c.run.in_(some))):
            tags.setdefault(run, {})[str(key)] = str(value)
    return rows, tags


def _closed(tags_of: Mapping[int, Mapping[str, str]], row: Any) -> ClosedRun:
    fields = row._mapping
    costs: dict[str, Any] = {name.replace("nano", "cost"): _usd(fields[name]) for name in ESTIMATED_COSTS}
    texts: dict[str, Any] = {name: text(fields[name]) for name in _TEXTS}
    numbers: dict[str, Any] = {name: number(fields[name]) for name in (*_NUMBERS, *ESTIMATED_SECONDS)}
    return ClosedRun(
        tags=tags_of.get(row.run, {}),
        **texts,
        **numbers,
        created_at=instant(row.created_us),
        closed_at=instant(row.closed_us),
        started_at=None if row.started_us is None else instant(row.started_us),
        ended_at=None if row.ended_us is None else instant(row.ended_us),
        metered_cost_usd=_usd(row.metered_nano_usd),
        **costs,
    )


def _usd(nano: int | None) -> Decimal | None:
    return None if nano is None else from_nano(nano)

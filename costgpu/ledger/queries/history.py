"""Questions about closed runs: which, and what they were charged for. Rows stream.

Recorded costs are never re-priced: everything here is what was written when the run closed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, case, func, select

from costgpu.ledger.dialect import batches
from costgpu.ledger.projections import plain
from costgpu.ledger.queries.proration import share
from costgpu.ledger.schema import (
    CLOSING_TEXTS,
    ESTIMATED_COSTS,
    ESTIMATED_SECONDS,
    closings,
    from_nano,
    instant,
    instant_us,
    number,
    outcomes,
    run_tags,
    runs,
    text,
    to_microseconds,
    whole,
)
from costgpu.ledger.store import Ledger
from costgpu.models.job import EndReason

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
        .where(*_conditions(selection), *_within(since, until))
        .order_by(runs.c.run.desc() if newest_first else runs.c.run)
    )
    if only_estimated:
        query = query.where(closings.c.reason == EndReason.SUCCEEDED.value, outcomes.c.estimated_seconds > 0)
    for rows in _pages(ledger, query, newest_first=newest_first, limit=limit):
        none: dict[int, dict[str, str]] = {}
        tags = ledger.read(partial(_tags, numbers=[row.run for row in rows]), none)
        yield from ledger.readable(rows, partial(_closed, tags), _name)


class Charge(NamedTuple):
    """What a closed run was charged for; what took no time counts at its moment."""

    began: int  # microseconds
    ended: int  # not before
    nano_usd: int
    seconds: float  # metered
    reason: str
    keys: tuple[str, ...]  # the further columns that were asked for


def charges(
    ledger: Ledger,
    selection: Selection,
    since: datetime | None,
    until: datetime | None,
    columns: Sequence[ColumnElement[str]] = (),
    tag: str | None = None,
) -> Iterator[Charge]:
    """Yield what the runs of `closed_runs` were charged for, whole: `share` tells how much of it is of a period.

    Args:
        tag: The key of a tag, whose value is one more of the keys; empty where a run has none.
    """
    query = (
        select(runs.c.run, runs.c.run_id, _BEGAN, _ENDED, *_CHARGED, *columns)
        .join(closings, closings.c.run == runs.c.run)
        .where(*_conditions(selection), *_within(since, until))
        .order_by(runs.c.run)
    )
    if tag is not None:
        query = query.outerjoin(run_tags, (run_tags.c.run == runs.c.run) & (run_tags.c.key == tag))
        query = query.add_columns(func.coalesce(run_tags.c.value, ""))
    for rows in _pages(ledger, query):
        yield from ledger.readable(rows, _charge, _name)


def spent(ledger: Ledger, selection: Selection, start: datetime | None, end: datetime | None) -> Decimal:
    """US dollars that closed runs have cost in [start, end): a run across an edge counts by its share of time.

    Periods that follow on each other add up exactly to the whole.
    """
    low, high = (None if at is None else to_microseconds(at) for at in (start, end))
    found = charges(ledger, selection, start, end)
    return from_nano(sum(share(one.nano_usd, one.began, one.ended, low, high) for one in found))


def _pages(
    ledger: Ledger, query: Select[Any], *, newest_first: bool = False, limit: int | None = None
) -> Iterator[Sequence[Any]]:
    """Yield the rows of a query by the numbers of runs, some at a time."""
    last: int | None = None
    left = limit
    while left is None or left > 0:
        wanted = AT_ONCE if left is None else min(AT_ONCE, left)
        page = query.limit(wanted)
        if last is not None:
            page = page.where(runs.c.run < last if newest_first else runs.c.run > last)
        none: list[Any] = []
        rows = ledger.read(partial(_rows, page), none)
        yield rows
        if len(rows) < wanted:
            return
        last = whole(rows[-1].run)
        left = None if left is None else left - len(rows)


def _rows(page: Select[Any], connection: Connection) -> list[Any]:
    return list(connection.execute(page))


def _name(row: Any) -> str:
    return f"run {row.run_id}"


_END = func.coalesce(closings.c.ended_us, closings.c.at_us)
_BEGAN = func.coalesce(closings.c.started_us, closings.c.at_us)
_ENDED = case((_END > _BEGAN, _END), else_=_BEGAN)
_CHARGED = (
    func.coalesce(closings.c.metered_nano_usd, 0),
    func.coalesce(closings.c.metered_seconds, 0.0),
    closings.c.reason,
)


def _charge(row: Any) -> Charge:
    _, _, began, ended, nano, seconds, reason, *keys = row
    return Charge(
        began=instant_us(began),
        ended=instant_us(ended),
        nano_usd=whole(nano),
        seconds=number(seconds) or 0.0,
        reason=text(reason),
        keys=tuple(map(text, keys)),
    )


def _within(since: datetime | None, until: datetime | None) -> list[ColumnElement[bool]]:
    """Return what overlaps [since, until); what took no time does if it happened in it."""
    found: list[ColumnElement[bool]] = []
    if since is not None:
        first = to_microseconds(since)
        found.append((closings.c.ended_us >= first) | closings.c.ended_us.is_(None))  # has an index
        found.append((first < _ENDED) | (first <= _BEGAN))
    if until is not None:
        found.append(to_microseconds(until) > _BEGAN)
    return found


def _conditions(selection: Selection) -> list[ColumnElement[bool]]:
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


def _tags(connection: Connection, numbers: Sequence[int]) -> dict[int, dict[str, str]]:
    tags: dict[int, dict[str, str]] = {}
    for some in batches(numbers):
        for run, key, value in connection.execute(select(run_tags).where(run_tags.c.run.in_(some))):
            tags.setdefault(run, {})[str(key)] = str(value)
    return tags


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

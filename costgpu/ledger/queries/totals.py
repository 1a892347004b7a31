"""Sums over closed runs by job, month, person, tag, ...: made in the database, but for what crosses an edge.

A run across the edge of a period, day or month counts in each by its share of time, and as a run where it began.
Days and months are those of UTC, as on the providers' bills.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, case, func, literal_column, or_, select

from costgpu.ledger.queries.history import (
    BEGAN,
    ENDED,
    Selection,
    conditions,
    edges,
    joined,
    within,
    without_damaged,
)
from costgpu.ledger.queries.proration import share
from costgpu.ledger.schema import (
    closings,
    from_microseconds,
    from_nano,
    instant,
    number,
    run_tags,
    runs,
    to_microseconds,
    total,
    whole,
)
from costgpu.ledger.store import Ledger
from costgpu.models.job import EndReason

DAY_US = 86_400_000_000
# Literals, not parameters: PostgreSQL does not see that two parameters in SELECT and GROUP BY are the same.
_FIRST_DAY = BEGAN // literal_column(str(DAY_US), BigInteger)
_LAST_DAY = case((ENDED > BEGAN, ENDED - 1), else_=BEGAN) // literal_column(str(DAY_US), BigInteger)


class By(StrEnum):
    """What sums are made by."""

    JOB = "job"
    MONTH = "month"
    DAY = "day"
    PROVIDER = "provider"
    PERSON = "person"
    INSTANCE = "instance"
    REASON = "reason"
    TAG = "tag"


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """What the runs of one group have used, as metered."""

    key: str  # the group: ``2026-11``, ``aws g5.xlarge``, ``nlp``, ...; empty for runs that have none
    runs: int  # the number of runs that began in it
    machine_seconds: float
    cost_usd: Decimal
    wasted_usd: Decimal  # the part of the cost that went into runs that failed, were lost, or idled


@dataclass(slots=True)
class _Sum:
    runs: int = 0
    seconds: float = 0.0
    nano: int = 0
    wasted: int = 0


def totals(
    ledger: Ledger,
    selection: Selection,
    by: By,
    *,
    tag: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
) -> tuple[Total, ...]:
    """Sum by group: days and months in their order, everything else by cost, the dearest first.

    Args:
        tag: The key of the tag, with `By.TAG`.
    """
    nothing: dict[str, _Sum] = {}
    sums = without_damaged(
        ledger,
        lambda connection, readable: _sums(connection, [*conditions(selection), *readable], by, tag, since, until),
        nothing,
    )
    found = [
        Total(
            key=key,
            runs=one.runs,
            machine_seconds=one.seconds,
            cost_usd=from_nano(one.nano),
            wasted_usd=from_nano(one.wasted),
        )
        for key, one in sums.items()
    ]
    if by in (By.DAY, By.MONTH):
        return tuple(sorted(found, key=lambda one: one.key))
    return tuple(sorted(found, key=lambda one: (-one.cost_usd, -one.runs, one.key)))


def _sums(
    connection: Connection,
    chosen: Sequence[ColumnElement[bool]],
    by: By,
    tag: str,
    since: datetime | None,
    until: datetime | None,
) -> dict[str, _Sum]:
    source: Any = joined()
    columns: Sequence[ColumnElement[Any]]
    if by is By.TAG:
        source = source.outerjoin(run_tags, (run_tags.c.run == runs.c.run) & (run_tags.c.key == tag))
        columns = [func.coalesce(run_tags.c.value, literal_column("''"))]
    else:
        columns = _columns(by)
    inside, crossing = edges(since, until)
    across = [] if crossing is None else [crossing]
    if by in (By.DAY, By.MONTH):
        inside.append(_LAST_DAY == _FIRST_DAY)
        across.append(_LAST_DAY != _FIRST_DAY)
    where = [*chosen, *within(since, until)]
    cost = func.coalesce(closings.c.metered_nano_usd, 0)
    seconds = func.coalesce(closings.c.metered_seconds, 0.0)
    wasted = closings.c.reason.in_([reason.value for reason in EndReason if reason.outcome.wasted])
    found: dict[str, _Sum] = {}
    everything = (
        select(*columns, func.count(), func.sum(seconds), func.sum(cost), func.sum(case((wasted, cost), else_=0)))
        .select_from(source)
        .where(*where, *inside)
        .group_by(*columns)
    )
    for *keys, count, used, nano, lost in connection.execute(everything):
        one = found.setdefault(_key(by, keys), _Sum())
        one.runs, one.seconds = one.runs + count, one.seconds + (number(used) or 0.0)
        one.nano, one.wasted = one.nano + total(nano), one.wasted + total(lost)
    if across:
        query = select(*columns, BEGAN, ENDED, seconds, cost, wasted).select_from(source).where(*where, or_(*across))
        low, high = (to_microseconds(at) if at else None for at in (since, until))
        for *keys, began, ended, used, nano, lost in connection.execute(query):
            times = whole(began), whole(ended), low, high
            _spread(found, by, keys, times, (number(used) or 0.0, whole(nano), bool(lost)))
    return found


def _columns(by: By) -> Sequence[ColumnElement[Any]]:
    columns: dict[By, list[ColumnElement[Any]]] = {
        By.JOB: [runs.c.name],
        By.PERSON: [runs.c.owner],
        By.PROVIDER: [closings.c.provider],
        By.INSTANCE: [closings.c.provider, closings.c.instance_type],
        By.REASON: [closings.c.reason],
        By.DAY: [_FIRST_DAY],
        By.MONTH: [_FIRST_DAY],
    }
    return columns[by]


def _key(by: By, values: Iterable[Any]) -> str:
    first, *more = values
    if by is By.PERSON:
        return str(first).partition("@")[0]  # whatever computer it was launched from
    if by in (By.DAY, By.MONTH):
        return _calendar(by, whole(first) * DAY_US)
    return " ".join(filter(None, (str(value) for value in (first, *more))))


def _calendar(by: By, at_us: int) -> str:
    return from_microseconds(at_us).strftime("%Y-%m-%d" if by is By.DAY else "%Y-%m")


def _spread(
    found: dict[str, _Sum],
    by: By,
    keys: Sequence[Any],
    times: tuple[int, int, int | None, int | None],
    amounts: tuple[float, int, bool],
) -> None:
    """Add one run across an edge to the groups that it falls into."""
    began, ended, low, high = times
    used, nano, lost = amounts
    first, last = began if low is None else max(began, low), ended if high is None else min(ended, high)
    pieces = list(_pieces(by, first, last)) if by in (By.DAY, By.MONTH) else [(low, high)]
    for index, (start, end) in enumerate(pieces):
        one = found.setdefault(_calendar(by, start or 0) if by in (By.DAY, By.MONTH) else _key(by, keys), _Sum())
        part = share(nano, began, ended, start, end)
        one.runs += index == 0
        one.nano += part
        one.wasted += part if lost else 0
        inside = min(ended, end if end is not None else ended) - max(began, start if start is not None else began)
        one.seconds += used * inside / max(1, ended - began)


def _pieces(by: By, first: int, last: int) -> Iterator[tuple[int, int]]:
    """[first, last) cut at midnights, or at the beginnings of months."""
    start = first
    instant(last)  # a time beyond all reason is a damaged row, and has too many days to count
    while start < last:
        end = min(last, to_microseconds(following(by, from_microseconds(start))))
        yield start, end
        start = end


def following(by: By, at: datetime) -> datetime:
    """When the next day or month begins."""
    midnight = datetime(at.year, at.month, at.day, tzinfo=UTC)
    if by is By.DAY:
        return midnight + timedelta(days=1)
    return (midnight.replace(day=28) + timedelta(days=4)).replace(day=1)

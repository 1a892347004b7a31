"""Days, weeks and months anywhere, and what of an amount falls into each: integers in, integers out. Pure.

A period is an interval of instants, its start in it and its end not: every instant is in exactly one period of a kind
and a time zone, whatever clocks are put forward or back there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import NamedTuple
from zoneinfo import ZoneInfo

from costgpu.ledger.schema import from_microseconds, to_microseconds

_EARLIEST, _LATEST = datetime(1900, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


class Every(StrEnum):
    """How often a budget begins anew."""

    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"
    TOTAL = "total"  # never


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """From `start` (in it) to `end` (not in it), UTC; None: without that limit."""

    start: datetime | None = None
    end: datetime | None = None

    @property
    def low(self) -> int | None:
        """Return its start in microseconds."""
        return None if self.start is None else to_microseconds(self.start)

    @property
    def high(self) -> int | None:
        """Return its end in microseconds."""
        return None if self.end is None else to_microseconds(self.end)


def bounds(every: Every, zone: str, now: datetime) -> Period:
    """Return the period that an instant is in.

    Days begin at midnight there, or when clocks skip it; where a clock shows midnight twice, the first time counts. Weeks
    begin on Monday.

    Args:
        zone: A known IANA name.
        now: Aware; before 1900 and after 9000 it is taken for those years.
    """
    if every is Every.TOTAL:
        return Period()
    there = ZoneInfo(zone)
    now = min(max(now.astimezone(UTC), _EARLIEST), _LATEST)
    first = _first_day(every, now.astimezone(there).date())
    while now < (start := _midnight(first, there)):
        first = _first_day(every, first - timedelta(days=1))
    while now >= (end := _midnight(following := _next(every, first), there)):
        first, start = following, end
    return Period(start=start, end=end)


def share(amount: int, began: int, ended: int, low: int | None, high: int | None) -> int:
    """Return the part of an amount, spread evenly over [began, ended), that falls into [low, high).

    The parts of periods that follow on each other add up to the amount, whatever is rounded. What took no time falls
    into the period that holds its moment.

    Args:
        amount: In the smallest unit.
        began: Microseconds.
        ended: Not before `began`.
        low: None for the beginning of time.
        high: Not before `low`; None for its end.
    """
    before = 0 if low is None else _until(amount, began, ended, low)
    return (amount if high is None else _until(amount, began, ended, high)) - before


class PeriodPart(NamedTuple):
    """What of an amount falls into one period; times are microseconds."""

    start: int  # of the period, of which only a part may be asked for
    end: int
    began: int  # of the amount's time in it
    ended: int
    amount: int


class Calendar:
    """The periods of one kind in a time zone, from `since` until `until`; None for no limit."""

    def __init__(self, every: Every, zone: str, since: datetime | None, until: datetime | None) -> None:
        self._every, self._zone = every, zone
        self._low = None if since is None else to_microseconds(since)
        self._high = None if until is None else to_microseconds(until)
        self._edges: list[int] = []  # of periods that follow on each other, as far as they were asked for

    @property
    def days(self) -> dict[int, date]:
        """Return when each of the periods begins -> that date, there; both limits must be known."""
        assert self._low is not None  # noqa: S101
        assert self._high is not None  # noqa: S101
        self._reach(self._low, self._high)
        first, end = bisect_right(self._edges, self._low) - 1, bisect_right(self._edges, self._high - 1)
        there = ZoneInfo(self._zone)
        return {at: from_microseconds(at).astimezone(there).date() for at in self._edges[first:end]}

    def split(self, amount: int, began: int, ended: int) -> Iterator[PeriodPart]:
        """Yield the parts of an amount by period, by their shares of the time; they add up to what is within the limits."""
        first = began if self._low is None else max(began, self._low)
        last = ended if self._high is None else min(ended, self._high)
        if first > last or (first == last and (began != ended or last == self._high)):
            return
        if self._every is Every.TOTAL:
            yield PeriodPart(first, last, first, last, share(amount, began, ended, self._low, self._high))
            return
        self._reach(first, last)
        number = bisect_right(self._edges, first) - 1
        while True:
            start, end = self._edges[number], self._edges[number + 1]
            low = start if self._low is None else max(start, self._low)
            high = end if self._high is None else min(end, self._high)
            yield PeriodPart(start, end, max(first, start), min(last, end), share(amount, began, ended, low, high))
            if end >= last:
                return
            number += 1

    def _reach(self, first: int, last: int) -> None:
        """Know all edges from the last one at or before `first` to the first one after `last`."""
        if not self._edges:
            self._edges.append(self._period(first)[0])
        while self._edges[0] > first:
            self._edges.insert(0, self._period(self._edges[0] - 1)[0])
        while self._edges[-1] <= last:
            self._edges.append(self._period(self._edges[-1])[1])

    def _period(self, at: int) -> tuple[int, int]:
        period = bounds(self._every, self._zone, from_microseconds(at))
        assert period.low is not None  # noqa: S101  days, weeks and months have both
        assert period.high is not None  # noqa: S101
        return period.low, period.high


def _until(amount: int, began: int, ended: int, at: int) -> int:
    """Return what has fallen due before a moment."""
    if at <= began:
        return 0
    return amount if at >= ended else amount * (at - began) // (ended - began)


def _first_day(every: Every, day: date) -> date:
    if every is Every.WEEKLY:
        return day - timedelta(days=day.weekday())
    return day.replace(day=1) if every is Every.MONTHLY else day


def _next(every: Every, first: date) -> date:
    if every is Every.MONTHLY:
        return (first + timedelta(days=31)).replace(day=1)
    return first + timedelta(days=7 if every is Every.WEEKLY else 1)


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    """Return the first instant at which clocks there show midnight of that day; when they skip it, if they do."""
    return datetime.combine(day, time(), zone).astimezone(UTC)

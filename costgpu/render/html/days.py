"""The days of a period, and how costs fall on them. Pure; integers, so that nothing is lost."""

from __future__ import annotations

from bisect import bisect_right
from datetime import date, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

from costgpu.ledger.queries.proration import share
from costgpu.ledger.records.budget_rules import Every, bounds


class Calendar:
    """The days of a period in one time zone.

    Args:
        zone: IANA name of the time zone.
        since: A time in the first day.
        until: A time in the last day, or its end.
    """

    def __init__(self, zone: str, since: datetime, until: datetime) -> None:
        self.days: list[date] = []
        self.starts: list[int] = []  # microseconds
        self._low, self._high = microseconds(since), microseconds(until)
        at = since
        while at < until:
            period = bounds(Every.DAILY, zone, at)
            assert period.start is not None  # noqa: S101  days have both
            assert period.end is not None  # noqa: S101
            middle = period.start + (period.end - period.start) / 2
            self.days.append(middle.astimezone(ZoneInfo(zone)).date())
            self.starts.append(microseconds(period.start))
            at = period.end

    def split(self, began: int, ended: int, nano_usd: int) -> list[tuple[int, Decimal]]:
        """The parts of a cost by day, by their shares of the time; what is outside of the period is left out."""
        if ended < self._low or began >= self._high or not self.days:
            return []
        first = max(0, bisect_right(self.starts, began) - 1)
        last = max(first, bisect_right(self.starts, min(ended, self._high)) - 1)
        parts = []
        for day in range(first, last + 1):
            low = max(self.starts[day], self._low)
            high = self.starts[day + 1] if day + 1 < len(self.starts) else self._high
            part = share(nano_usd, began, ended, low, high)
            if part:
                parts.append((day, from_nano(part)))
        return parts


def microseconds(at: datetime) -> int:
    """Microseconds since 1970."""
    return round(at.timestamp() * 1e6)  # exact until the year 2255


def to_nano(usd: Decimal) -> int:
    """US dollars as billionths."""
    return int(usd.scaleb(9))


def from_nano(nano: int) -> Decimal:
    """Billionths of a US dollar as dollars."""
    return Decimal(nano).scaleb(-9)

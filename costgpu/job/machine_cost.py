"""What one machine costs: its share of a period, what it will add, what it may add at most. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from costgpu.ledger.records.budget_rules import Period
from costgpu.models.instance import InstanceRef

ZERO = Decimal(0)
MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine and what it costs: of an open run, or one that the ledger has no run of."""

    run_id: str
    name: str
    owner: str
    tags: Mapping[str, str]  # the user's own
    ref: InstanceRef | None  # which machine; None as long as the create call has not answered
    provider: str
    started_at: datetime  # billed from then on
    until: datetime  # metered until then
    cost_usd: Decimal | None  # from `started_at` to `until`; None if its price is not known
    usd_per_hour: Decimal | None  # None if it is not known
    going: bool  # whether it may cost more
    stops_at: datetime | None = None  # when it is gone at the latest; None if nobody knows
    cap_left_usd: Decimal | None = None  # what it may still cost at most; None if only its lease limits it
    recorded: bool = True  # whether it belongs to an open run of the ledger

    def cost_in(self, period: Period) -> Decimal:
        """Its share of a period, by time."""
        if not self.cost_usd:
            return ZERO
        end = max(self.until, self.started_at + MICROSECOND)
        return _share(self.cost_usd, period.overlap(self.started_at, end), end - self.started_at)

    def upcoming_in(self, period: Period, now: datetime) -> Decimal:
        """Return what it will add in a period by its rate, if it lives as long as it may."""
        if not self.going or not self.usd_per_hour:
            return ZERO
        end = min((at for at in (self.stops_at, period.end) if at is not None), default=now)
        added = _share(self.usd_per_hour, end - now, timedelta(hours=1))
        return added if self.cap_left_usd is None else min(added, self.cap_left_usd)

    def committed_in(self, period: Period, now: datetime) -> Decimal:
        """Return what it may still cost in a period under its cap."""
        if self.cap_left_usd is None or not self.going:
            return self.upcoming_in(period, now)
        if period.end is None or self.stops_at is None or self.stops_at <= period.end:
            return self.cap_left_usd
        return _share(self.cap_left_usd, period.end - now, self.stops_at - now)


def _share(amount: Decimal, part: timedelta, whole: timedelta) -> Decimal:
    """Return the amount for a part of a time, exactly; nothing for no time."""
    if part <= timedelta() or whole <= timedelta():
        return ZERO
    return amount * (part // MICROSECOND) / (whole // MICROSECOND)

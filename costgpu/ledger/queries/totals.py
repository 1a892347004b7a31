"""Sums over closed runs by job, month, person, tag, ...

A run across the edge of a period, day or month counts in each by its share of time, and as a run where it began.
Days and months are those of UTC, as on the providers' bills.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from itertools import pairwise

from costgpu.ledger.queries.history import Selection, charges
from costgpu.ledger.queries.proration import share
from costgpu.ledger.schema import closings, from_microseconds, from_nano, runs, to_microseconds
from costgpu.ledger.store import Ledger
from costgpu.models.job import EndReason

_WASTED = {reason.value for reason in EndReason if reason.outcome.wasted}


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


_COLUMNS = {
    By.JOB: (runs.c.name,),
    By.PERSON: (runs.c.owner,),
    By.PROVIDER: (closings.c.provider,),
    By.INSTANCE: (closings.c.provider, closings.c.instance_type),
    By.REASON: (closings.c.reason,),
}


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
    calendar = by in (By.DAY, By.MONTH)
    low, high = (None if at is None else to_microseconds(at) for at in (since, until))
    sums: dict[str, _Sum] = {}
    for run in charges(ledger, selection, since, until, _COLUMNS.get(by, ()), tag if by is By.TAG else None):
        first = run.began if low is None else max(run.began, low)
        last = run.ended if high is None else min(run.ended, high)
        cuts: list[int] = []
        while (
            calendar and (cut := to_microseconds(next_start(by, from_microseconds(cuts[-1] if cuts else first)))) < last
        ):
            cuts.append(cut)
        key = " ".join(filter(None, run.keys))
        if by is By.PERSON:
            key = key.partition("@")[0]  # whatever computer it was launched from
        for number, (start, end) in enumerate(pairwise([low, *cuts, high])):
            if calendar:
                day = from_microseconds(cuts[number - 1] if number else first)
                key = day.strftime("%Y-%m-%d" if by is By.DAY else "%Y-%m")
            one = sums.setdefault(key, _Sum())
            part = share(run.nano_usd, run.began, run.ended, start, end)
            one.runs += number == 0
            one.nano += part
            one.wasted += part if run.reason in _WASTED else 0
            inside = (run.ended if end is None else min(run.ended, end)) - (
                run.began if start is None else max(run.began, start)
            )
            one.seconds += run.seconds * inside / (run.ended - run.began) if run.ended > run.began else run.seconds
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
    if calendar:
        return tuple(sorted(found, key=lambda one: one.key))
    return tuple(sorted(found, key=lambda one: (-one.cost_usd, -one.runs, one.key)))


def next_start(by: By, at: datetime) -> datetime:
    """When the next day or month begins."""
    midnight = datetime(at.year, at.month, at.day, tzinfo=UTC)
    if by is By.DAY:
        return midnight + timedelta(days=1)
    return (midnight.replace(day=28) + timedelta(days=4)).replace(day=1)

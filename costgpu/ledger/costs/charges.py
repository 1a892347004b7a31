"""The stream of charges: what each machine was charged for, of closed runs, open ones, and machines without a run.

Everything that says what something has cost folds this stream: totals, budgets, the page, comparisons with bills. Recorded
costs are never re-priced: what a closed run was charged for is what was written when it closed. What may still be running
is added by whoever has asked for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, case, func, select

from costgpu.ledger.costs.periods import PeriodPart, share
from costgpu.ledger.projections import plain
from costgpu.ledger.schema import (
    closings,
    from_nano,
    instant_us,
    number,
    outcomes,
    run_tags,
    runs,
    text,
    to_microseconds,
    to_nano,
    whole,
)
from costgpu.ledger.store import Ledger
from costgpu.models.instance import Instance, InstanceRef
from costgpu.models.run import OVERDUE, RunState, RunView

AT_ONCE = 2000  # rows in memory
HOUR_US = 3_600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
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


class Charge(NamedTuple):
    """What one machine was charged for, whole; what took no time counts at its moment. Times are microseconds."""

    began: int  # billed from then on
    ended: int  # not before; of what is still there, the moment until which it was metered
    nano_usd: int | None  # None if it is not known
    seconds: float  # metered
    run_id: str
    name: str = ""
    owner: str = ""  # who launched it
    provider: str = ""
    instance_type: str = ""
    purchase_option: str = ""
    accelerator: str = ""  # empty for a CPU machine, too
    reason: str | None = None  # of the run's end; None for what has not ended
    job_seconds: float | None = None  # of the job alone
    tag: str = ""  # the value of the tag that was asked for
    # the rest is of open runs and machines without a run
    tags: Mapping[str, str] = {}
    ref: InstanceRef | None = None  # None as long as the create call has not answered
    nano_usd_per_hour: int | None = None  # None if it is not known
    going: bool = False  # whether it may cost more
    stops: int | None = None  # when it is gone at the latest; None if nobody knows
    cap_left_nano: int | None = None  # what it may still cost at most; None if only its lease limits it
    recorded: bool = True  # whether it belongs to a run of the ledger

    def cost_in(self, low: int | None, high: int | None) -> int:
        """Return its share of [low, high), in 1e-9 US dollars, by time."""
        return share(self.nano_usd or 0, self.began, self.ended, low, high)

    def is_of(self, selection: RunFilter) -> bool:
        """Return whether what is still open belongs to a selection."""
        return selection.includes(provider=self.provider, owner=self.owner, name=self.name, tags=self.tags)

    def is_within(self, low: int | None, high: int | None) -> bool:
        """Return whether some of its time is in [low, high)."""
        return (low is None or self.ended > low) and (high is None or self.began < high)

    def seconds_in(self, part: PeriodPart) -> float:
        """Return the machine seconds of a part."""
        return (
            self.seconds * (part.ended - part.began) / (self.ended - self.began)
            if self.ended > self.began
            else self.seconds
        )

    def upcoming(self, now: int, high: int | None) -> int:
        """Return what it will add from now until `high` by its rate, if it lives as long as it may."""
        if not self.going or not self.nano_usd_per_hour:
            return 0
        end = min((at for at in (self.stops, high) if at is not None), default=now)
        added = self.nano_usd_per_hour * max(0, end - now) // HOUR_US
        return added if self.cap_left_nano is None else min(added, self.cap_left_nano)

    def committed(self, now: int, high: int | None) -> int:
        """Return what it may still cost from now until `high` under its cap."""
        if self.cap_left_nano is None or not self.going:
            return self.upcoming(now, high)
        if self.stops is None:
            return self.cap_left_nano
        return share(self.cap_left_nano, now, max(now, self.stops), None, high)


def charges(
    ledger: Ledger,
    selection: RunFilter,
    since: datetime | None,
    until: datetime | None,
    facts: Sequence[str] = (),
    *,
    tag: str | None = None,
) -> Iterator[Charge]:
    """Yield what closed runs were charged for that were charged at some time of [since, until), in the order they began.

    A run that never had a machine counts by when it was closed. The rows stream: a few thousand are in memory at a time.

    Args:
        facts: The fields of `FACTS` that are asked for; the others are empty.
        tag: The key of a tag whose values are asked for.
    """
    query = select(runs.c.run, *_CHARGED, *(FACTS[fact] for fact in facts)).join(closings, closings.c.run == runs.c.run)
    if "job_seconds" in facts:
        query = query.outerjoin(outcomes, outcomes.c.run == runs.c.run)
    if tag is not None:
        query = query.outerjoin(run_tags, (run_tags.c.run == runs.c.run) & (run_tags.c.key == tag))
        query = query.add_columns(func.coalesce(run_tags.c.value, ""))
        facts = (*facts, "tag")
    for rows in pages(ledger, query.where(*conditions(selection, since, until))):
        yield from ledger.readable(rows, partial(_closed, facts), run_named)


def spent(ledger: Ledger, selection: RunFilter, start: datetime | None, end: datetime | None) -> Decimal:
    """Return the US dollars that closed runs have cost in [start, end): a run across an edge counts by its share of time.

    Periods that follow on each other add up exactly to the whole.
    """
    low, high = (None if at is None else to_microseconds(at) for at in (start, end))
    return from_nano(sum(charge.cost_in(low, high) for charge in charges(ledger, selection, start, end)))


def open_charge(view: RunView, now: datetime, *, seen: Instance | None = None, gone: bool = False) -> Charge | None:
    """Return what an open run is charged for; None as long as nothing was asked of a provider.

    Args:
        seen: Its machine, if the provider lists it.
        gone: Whether the provider was asked and does not list it, long after it should have.
    """
    option, call = view.option, view.create_call
    if option is None or call is None or view.state is RunState.INTENT:
        return None
    if view.instance is None and seen is not None:  # the create call has worked, and its answer is not here yet
        view = replace(view, instance=seen.ref, known_since=now, launched_at=seen.launched_at)
    over = call.lease_until + OVERDUE
    until, going = now, view.confirmed_at is None and not gone
    if seen is not None and not seen.state.alive:
        until, going = min(now, seen.ended_at or over), False
    elif seen is None and now > over:
        until, going = over, False
    seconds, usd = view.metered(until)
    ended = to_microseconds(view.confirmed_at or until)
    left = max(Decimal(0), option.lease.worst_cost_usd - usd) if going else Decimal(0)
    offer = option.offer
    return Charge(
        began=ended - round(seconds * 1e6),
        ended=ended,
        nano_usd=to_nano(usd),
        seconds=seconds,
        **_whose(view),
        provider=offer.provider,
        instance_type=offer.instance_type,
        purchase_option=offer.purchase_option.value,
        accelerator=offer.accelerator.name if offer.accelerator else "",
        ref=view.instance,
        nano_usd_per_hour=to_nano(option.usd_per_hour),
        going=going,
        stops=to_microseconds(max(over, now)) if going else None,
        cap_left_nano=to_nano(left),
    )


def reserved_charges(views: Sequence[RunView], now: datetime) -> Iterator[Charge]:
    """Yield the machines that jobs on several machines still lack: they were admitted with the first one."""
    begun = {view.spec.node.run_ids for view in views if view.spec.node and view.state is not RunState.INTENT}
    for view in views:
        if view.state is RunState.INTENT and view.spec.node is not None and view.spec.node.run_ids in begun:
            at = to_microseconds(now)
            cap = to_nano(max(option.lease.worst_cost_usd for option in view.options))
            provider = view.options[0].offer.provider
            yield Charge(
                at, at, 0, 0.0, **_whose(view), provider=provider, nano_usd_per_hour=0, going=True, cap_left_nano=cap
            )


def _whose(view: RunView) -> dict[str, Any]:
    return {"run_id": view.run_id, "name": view.name, "owner": view.owner, "tags": view.spec.tags}


def pages(
    ledger: Ledger, query: Select[Any], *, newest_first: bool = False, limit: int | None = None
) -> Iterator[Sequence[Any]]:
    """Yield the rows of a query by the numbers of runs, some at a time."""
    last: int | None = None
    left = limit
    query = query.order_by(runs.c.run.desc() if newest_first else runs.c.run)
    while left is None or left > 0:
        wanted = AT_ONCE if left is None else min(AT_ONCE, left)
        page = query.limit(wanted)
        if last is not None:
            page = page.where(runs.c.run < last if newest_first else runs.c.run > last)
        rows = ledger.select(page)
        yield rows
        if len(rows) < wanted:
            return
        last = whole(rows[-1].run)
        left = None if left is None else left - len(rows)


def run_named(row: Any) -> str:
    """Return the name of what a row is about, for a message."""
    return f"run {row.run_id}"


def conditions(selection: RunFilter, since: datetime | None, until: datetime | None) -> list[ColumnElement[bool]]:
    """Return what a selection means in the database, and a period: what overlaps it; what took no time happened in it."""
    found: list[ColumnElement[bool]] = []
    if since is not None:
        first = to_microseconds(since)
        found.append((closings.c.ended_us >= first) | closings.c.ended_us.is_(None))  # has an index
        found.append((first < _ENDED) | (first <= _BEGAN))
    if until is not None:
        found.append(to_microseconds(until) > _BEGAN)
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


_END = func.coalesce(closings.c.ended_us, closings.c.at_us)
_BEGAN = func.coalesce(closings.c.started_us, closings.c.at_us)
_ENDED = case((_END > _BEGAN, _END), else_=_BEGAN)
_CHARGED = (
    runs.c.run_id,
    _BEGAN,
    _ENDED,
    closings.c.metered_nano_usd,
    func.coalesce(closings.c.metered_seconds, 0.0),
)
FACTS: Mapping[str, ColumnElement[Any]] = {
    "name": runs.c.name,
    "owner": runs.c.owner,
    **{name: closings.c[name] for name in ("provider", "instance_type", "purchase_option", "accelerator", "reason")},
    "job_seconds": outcomes.c.job_seconds,
}


def _closed(facts: Sequence[str], row: Any) -> Charge:
    _, run_id, began, ended, nano, seconds, *cells = row
    known: dict[str, Any] = {
        fact: number(cell) if fact == "job_seconds" else text(cell) for fact, cell in zip(facts, cells, strict=True)
    }
    return Charge(
        instant_us(began),
        instant_us(ended),
        None if nano is None else whole(nano),
        number(seconds) or 0.0,
        text(run_id),
        **known,
    )

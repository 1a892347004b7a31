"""Sums of runs by day, provider, accelerator, outcome, job and person, as the report shows them. Pure; one pass."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from itertools import accumulate, groupby
from statistics import median
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from costgpu.ledger.queries.history import Selection
from costgpu.ledger.queries.proration import share
from costgpu.ledger.records.budget_rules import Budget, Every, bounds
from costgpu.ledger.schema import from_microseconds, from_nano, to_microseconds
from costgpu.models.job import CostOutcome, EndReason

if TYPE_CHECKING:
    from costgpu.ledger.queries.history import ClosedRun
    from costgpu.models.run import RunView

NANO = Decimal("1e-9")
MOST_PAIRS = 20_000  # that are kept for the picture; the figures beside it are of all


@dataclass(slots=True)
class Tally:
    """What runs of one kind have cost in the period: metered US dollars, machine seconds, and how many they are."""

    usd: Decimal = Decimal(0)
    seconds: float = 0.0
    runs: int = 0

    def add(self, usd: Decimal, seconds: float, runs: int = 1) -> None:
        """One more."""
        self.usd += usd
        self.seconds += seconds
        self.runs += runs


def sum_tallies(tallies: Iterable[Tally]) -> Tally:
    """Return the sum of tallies."""
    found = Tally()
    for tally in tallies:
        found.add(tally.usd, tally.seconds, tally.runs)
    return found


@dataclass(frozen=True, slots=True)
class Pair:
    """Estimated and actual seconds of a run, from the create call to its end, and the interval."""

    run_id: str
    name: str
    machine: str
    estimated: float
    low: float | None
    high: float | None
    actual: float
    style: str  # ``gpu`` or ``cpu``, its class in the style sheet

    @property
    def inside(self) -> bool | None:
        """Return whether the interval held."""
        return None if self.low is None or self.high is None else self.low <= self.actual <= self.high


@dataclass(frozen=True, slots=True)
class EstimateAccuracy:
    """How good the estimates of succeeded runs were."""

    runs: int = 0
    median_error: float | None = None  # the median of abs(actual / estimated - 1); None without runs
    held: float | None = None  # share of the intervals in which the run ended; None without intervals


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPeriod:
    """One period of a budget, as far as the report covers it."""

    start: date  # its first day in the report
    usd: Sequence[Decimal]  # spent since the period began, by the end of each day
    partial: bool  # whether the report or the time ends before the period does


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetUse:
    """How a budget went."""

    budget: Budget
    periods: Sequence[BudgetPeriod]

    @property
    def used(self) -> Decimal:
        """In the last period of the report."""
        return self.periods[-1].usd[-1]

    @property
    def share(self) -> float:
        """Return the share of the amount that is used."""
        return float(self.used / self.budget.amount_usd)


@dataclass(slots=True, kw_only=True)
class Summary:
    """Everything that the report says of a period."""

    since: datetime
    until: datetime
    now: datetime  # when the report was made
    days: Sequence[date]  # the days of the period, in UTC; `gpu_usd` and `cpu_usd` have an amount for each
    gpu_usd: list[Decimal]
    cpu_usd: list[Decimal]
    total: Tally = field(default_factory=Tally)
    # tallies by (provider, purchase option)
    providers: dict[tuple[str, str], Tally] = field(default_factory=lambda: defaultdict(Tally))
    # tallies by name; CPU machines under the empty name
    accelerators: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    outcomes: dict[CostOutcome, Tally] = field(default_factory=lambda: defaultdict(Tally))
    jobs: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    people: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    open_runs: Sequence[RunView] = ()  # runs that have not ended, counted with what they have cost so far
    budgets: Sequence[BudgetUse] = ()
    # estimate and actual of each run, at most `MOST_PAIRS`; `accuracy` is that of all of them
    pairs: Sequence[Pair] = ()
    accuracy: EstimateAccuracy = field(default_factory=EstimateAccuracy)
    unpriced: int = 0  # how many machines had a cost that is not known
    unreadable: int = 0  # how many open runs cannot be counted

    @property
    def wasted(self) -> Tally:
        """Return the tallies of what was wasted together."""
        return sum_tallies(tally for outcome, tally in self.outcomes.items() if outcome.wasted)


class Calendar:
    """The days of a period in one time zone, and how costs fall on them: in integers, so that nothing is lost.

    Args:
        zone: IANA name of the time zone.
        since: A time in the first day.
        until: A time in the last day, or its end; after `since`.
    """

    def __init__(self, zone: str, since: datetime, until: datetime) -> None:
        self.days: list[date] = []
        self.starts: list[int] = []  # microseconds
        self._low, self._high = to_microseconds(since), to_microseconds(until)
        at = since
        while at < until:
            period = bounds(Every.DAILY, zone, at)
            assert period.start is not None  # noqa: S101  days have both
            assert period.end is not None  # noqa: S101
            middle = period.start + (period.end - period.start) / 2
            self.days.append(middle.astimezone(ZoneInfo(zone)).date())
            self.starts.append(to_microseconds(period.start))
            at = period.end

    def split(self, began: int, ended: int, nano_usd: int) -> list[tuple[int, Decimal]]:
        """Return the parts of a cost by day, by their shares of the time; what is outside of the period is left out."""
        if ended < self._low or began >= self._high:
            return []
        first = max(0, bisect_right(self.starts, began) - 1)
        last = max(first, bisect_right(self.starts, min(ended, self._high)) - 1)
        parts = []
        for day in range(first, last + 1):
            low = max(self.starts[day], self._low)
            high = self.starts[day + 1] if day + 1 < len(self.starts) else self._high
            if part := share(nano_usd, began, ended, low, high):
                parts.append((day, from_nano(part)))
        return parts


def cost_before(view: RunView, now: datetime, start: datetime | None, low: datetime) -> Decimal:
    """Return what an open run has cost in [start, low); None is the beginning of time."""
    began, ended, nano = _metered(view, now)
    first = began if start is None else to_microseconds(start)
    return from_nano(share(nano, began, ended, first, max(first, to_microseconds(low))))


def summarise(
    closed: Iterable[ClosedRun],
    views: Sequence[RunView],
    budgets: Sequence[Budget],
    *,
    since: datetime,
    until: datetime,
    now: datetime,
    before: Mapping[str, Decimal],
) -> Summary:
    """Sum up what runs have cost in a period.

    Args:
        closed: Runs that were charged for, or closed, within the period.
        views: Open runs; what they have cost until now counts, too.
        budgets: All budgets; their days begin in their own zones, the others in UTC.
        before: What was spent in a budget's period before `since`, by the budget's name.
    """
    calendar = Calendar("UTC", since, until)
    gpu_usd, cpu_usd = ([Decimal(0)] * len(calendar.days) for _ in range(2))
    found = Summary(since=since, until=until, now=now, days=calendar.days, gpu_usd=gpu_usd, cpu_usd=cpu_usd)
    adder = _Adder(found, calendar, budgets)
    errors: list[float] = []
    held: list[bool] = []
    pairs: list[Pair] = []
    for run in closed:
        adder.closed(run)
        if (pair := _pair(run)) is not None:
            errors.append(abs(pair.actual / pair.estimated - 1))
            held += [] if pair.inside is None else [pair.inside]
            pairs += [pair] if len(pairs) < MOST_PAIRS else []
    for view in views:
        adder.open(view)
    found.open_runs, found.pairs = views, pairs
    if errors:
        found.accuracy = EstimateAccuracy(len(errors), median(errors), sum(held) / len(held) if held else None)
    found.budgets = [adder.use(budget, before.get(budget.name, Decimal(0))) for budget in budgets]
    return found


class _Adder:
    """Adds runs to a summary."""

    def __init__(self, summary: Summary, calendar: Calendar, budgets: Sequence[Budget]) -> None:
        self._summary, self._calendar = summary, calendar
        self._budgets = [(b, Selection(provider=b.provider, owner=b.owner, tags=b.tags)) for b in budgets]
        zones = {budget.time_zone for budget in budgets}
        self._calendars = {zone: Calendar(zone, summary.since, summary.until) for zone in zones} | {"UTC": calendar}
        self._spent = {b.name: [Decimal(0)] * len(self._calendars[b.time_zone].days) for b in budgets}
        self._low, self._high = to_microseconds(summary.since), to_microseconds(summary.until)

    def closed(self, run: ClosedRun) -> None:
        outcomes = self._summary.outcomes
        began = to_microseconds(run.started_at or run.closed_at)
        ended = to_microseconds(run.ended_at or run.closed_at) if run.started_at else began
        if run.instance_id and run.metered_cost_usd is None:
            self._summary.unpriced += 1
        try:
            outcome = EndReason(run.reason).outcome
        except ValueError:
            outcome = CostOutcome.OTHER
        metered = (began, ended, _nano(run.metered_cost_usd or Decimal(0)))
        place = (run.provider, run.purchase_option)
        usd, seconds = self._add(metered, place, run.accelerator, run.name, run.owner, run.tags)
        if outcome is CostOutcome.SUCCEEDED and run.job_seconds is not None and run.metered_seconds:
            rest = 1 - min(1.0, max(0.0, run.job_seconds / run.metered_seconds))
            overhead = (usd * Decimal(rest)).quantize(NANO)
            outcomes[CostOutcome.OVERHEAD].add(overhead, seconds * rest, 0)
            usd, seconds = usd - overhead, seconds - seconds * rest
        outcomes[outcome].add(usd, seconds)

    def open(self, view: RunView) -> None:
        metered = began, ended, _ = _metered(view, self._summary.now)
        if view.option is None or ended <= began:
            return
        offer = view.option.offer
        place = (offer.provider, offer.purchase_option.value)
        accelerator = offer.accelerator.name if offer.accelerator else ""
        usd, seconds = self._add(metered, place, accelerator, view.name, view.owner, view.spec.tags)
        self._summary.outcomes[CostOutcome.OPEN].add(usd, seconds)

    def use(self, budget: Budget, before: Decimal) -> BudgetUse:
        """Return how a budget went, from what was added."""
        calendar, spent = self._calendars[budget.time_zone], self._spent[budget.name]

        def period_end(day: int) -> datetime | None:
            return bounds(budget.every, budget.time_zone, from_microseconds(calendar.starts[day])).end

        periods: list[BudgetPeriod] = []
        for end, group in groupby(range(len(calendar.days)), period_end):
            days = list(group)
            sums = accumulate((spent[day] for day in days), initial=Decimal(0) if periods else before)
            partial = end is None or to_microseconds(end) > self._high
            periods.append(BudgetPeriod(start=calendar.days[days[0]], usd=list(sums)[1:], partial=partial))
        return BudgetUse(budget=budget, periods=periods)

    def _add(
        self,
        metered: tuple[int, int, int],
        place: tuple[str, str],
        accelerator: str,
        name: str,
        owner: str,
        tags: Mapping[str, str],
    ) -> tuple[Decimal, float]:
        """Count a run; return what of its cost and time is in the period."""
        summary, (began, ended, nano) = self._summary, metered
        by_day = summary.gpu_usd if accelerator else summary.cpu_usd
        inside = Decimal(0)
        parts = self._calendar.split(*metered) if nano else []
        for day, part in parts:
            by_day[day] += part
            inside += part
        for budget, counted in self._budgets if nano else ():
            if counted.includes(provider=place[0], owner=owner, name=name, tags=tags):
                calendar = self._calendars[budget.time_zone]
                for day, part in parts if calendar is self._calendar else calendar.split(*metered):
                    self._spent[budget.name][day] += part
        seconds = max(0, min(ended, self._high) - max(began, self._low)) / 1e6
        tallies = (
            summary.total,
            summary.providers[place],
            summary.accelerators[accelerator],
            summary.jobs[name],
            summary.people[owner],
        )
        for tally in tallies:
            tally.add(inside, seconds)
        return inside, seconds


def _pair(run: ClosedRun) -> Pair | None:
    estimated, actual = run.estimated_seconds, run.metered_seconds
    if run.reason != EndReason.SUCCEEDED or not estimated or not actual or estimated <= 0 or actual <= 0:
        return None
    if not math.isfinite(estimated) or not math.isfinite(actual):
        return None
    return Pair(
        run.run_id,
        run.name,
        run.instance_type or run.provider,
        estimated,
        run.estimated_seconds_low,
        run.estimated_seconds_high,
        actual,
        "gpu" if run.accelerator else "cpu",
    )


def _metered(view: RunView, now: datetime) -> tuple[int, int, int]:
    """Beginning and end, until now, in microseconds, and the cost in 1e-9 US dollars."""
    seconds, usd = view.metered_at_most(now)
    ended = to_microseconds(view.latest_end(now))
    return ended - round(seconds * 1e6), ended, _nano(usd)


def _nano(usd: Decimal) -> int:
    return int(usd.scaleb(9))

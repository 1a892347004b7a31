"""Sums of runs by day, provider, accelerator, outcome, job and person, as the report shows them. Pure; one pass."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from statistics import median
from typing import TYPE_CHECKING, Any

from costgpu.ledger.queries.proration import share
from costgpu.ledger.records.budget_rules import Budget, bounds
from costgpu.models.job import EndReason
from costgpu.render.cost_outcome import OUTCOMES, WASTED, CostOutcome
from costgpu.render.html.days import Calendar, from_nano, microseconds, to_nano

if TYPE_CHECKING:
    from costgpu.ledger.queries.history import ClosedRun
    from costgpu.models.run import RunView

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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


@dataclass(frozen=True, slots=True)
class Pair:
    """Estimated and actual seconds of a run, from the create call to its end, with the estimate's interval."""

    run_id: str
    name: str
    machine: str
    estimated: float
    low: float | None
    high: float | None
    actual: float
    gpu: bool

    @property
    def inside(self) -> bool | None:
        """Whether the interval held."""
        return None if self.low is None or self.high is None else self.low <= self.actual <= self.high


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How good the estimates of succeeded runs were.

    Attributes:
        median_error: The median of abs(actual / estimated - 1); None without runs.
        held: Share of the intervals in which the run ended; None without intervals.
    """

    runs: int = 0
    median_error: float | None = None
    held: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPeriod:
    """One period of a budget, as far as the report covers it.

    Attributes:
        start: Its first day in the report.
        usd: Spent since the period began, by the end of each day.
        partial: Whether the report or the time ends before the period does.
    """

    start: date
    usd: Sequence[Decimal]
    partial: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetUse:
    """How a budget went."""

    budget: Budget
    periods: Sequence[BudgetPeriod]


@dataclass(slots=True, kw_only=True)
class Summary:
    """Everything that the report says of a period.

    Attributes:
        now: When the report was made.
        zone: IANA name of the zone in which days begin.
        days: The days of the period; `gpu_usd` and `cpu_usd` have an amount for each.
        providers: Tallies by (provider, purchase option).
        accelerators: Tallies by name; CPU machines under the empty name.
        open_runs: Runs that have not ended, counted with what they have cost so far.
        pairs: Estimate and actual of each run, at most `MOST_PAIRS`; `accuracy` is that of all of them.
        unpriced: How many machines had a cost that is not known.
        unreadable: How many open runs cannot be counted.
    """

    since: datetime
    until: datetime
    now: datetime
    zone: str
    days: Sequence[date]
    gpu_usd: list[Decimal]
    cpu_usd: list[Decimal]
    total: Tally = field(default_factory=Tally)
    providers: dict[tuple[str, str], Tally] = field(default_factory=dict)
    accelerators: dict[str, Tally] = field(default_factory=dict)
    outcomes: dict[CostOutcome, Tally] = field(default_factory=dict)
    jobs: dict[str, Tally] = field(default_factory=dict)
    people: dict[str, Tally] = field(default_factory=dict)
    open_runs: Sequence[RunView] = ()
    budgets: Sequence[BudgetUse] = ()
    pairs: Sequence[Pair] = ()
    accuracy: Accuracy = field(default_factory=Accuracy)
    unpriced: int = 0
    unreadable: int = 0

    @property
    def wasted(self) -> Tally:
        """The tallies of `WASTED` together."""
        sum_ = Tally()
        for outcome in WASTED:
            found = self.outcomes.get(outcome, Tally())
            sum_.add(found.usd, found.seconds, found.runs)
        return sum_


def cost_before(view: RunView, now: datetime, start: datetime | None, low: datetime) -> Decimal:
    """What an open run has cost in [start, low); None is the beginning of time."""
    began, ended, nano = _metered(view, now)
    first = began if start is None else microseconds(start)
    return from_nano(share(nano, began, ended, first, max(first, microseconds(low))))


def summarise(
    closed: Iterable[ClosedRun],
    views: Sequence[RunView],
    budgets: Sequence[Budget],
    *,
    since: datetime,
    until: datetime,
    now: datetime,
    zone: str,
    before: Mapping[str, Decimal],
) -> Summary:
    """Sums up what runs have cost in a period.

    Args:
        closed: Runs that were charged for, or closed, within the period.
        views: Open runs; what they have cost until now counts, too.
        budgets: All budgets; their days begin in their own zones.
        since: The period's beginning.
        until: Its end.
        now: The present.
        zone: IANA name of the zone in which the other days begin.
        before: What was spent in a budget's period before `since`, by the budget's name.
    """
    calendar = Calendar(zone, since, until)
    none = [Decimal(0)] * len(calendar.days)
    found = Summary(
        since=since, until=until, now=now, zone=zone, days=calendar.days, gpu_usd=list(none), cpu_usd=list(none)
    )
    adder = _Adder(found, calendar, budgets)
    errors: list[float] = []
    held = [0, 0]
    pairs: list[Pair] = []
    for run in closed:
        adder.closed(run)
        pair = _pair(run)
        if pair is not None:
            errors.append(abs(pair.actual / pair.estimated - 1))
            if pair.inside is not None:
                held[pair.inside] += 1
            if len(pairs) < MOST_PAIRS:
                pairs.append(pair)
    for view in views:
        adder.open(view, now)
    found.open_runs = views
    found.pairs = pairs
    found.accuracy = Accuracy(
        len(errors), median(errors) if errors else None, held[1] / sum(held) if any(held) else None
    )
    found.budgets = [adder.use(budget, before.get(budget.name, Decimal(0))) for budget in budgets]
    return found


class _Adder:
    """Adds runs to a summary."""

    def __init__(self, summary: Summary, calendar: Calendar, budgets: Sequence[Budget]) -> None:
        self._summary, self._calendar = summary, calendar
        self._calendars = {
            b.time_zone: calendar
            if b.time_zone == summary.zone
            else Calendar(b.time_zone, summary.since, summary.until)
            for b in budgets
        }
        self._budgets = [(budget, self._calendars[budget.time_zone]) for budget in budgets]
        self._spent = {b.name: [Decimal(0)] * len(c.days) for b, c in self._budgets}
        self._low, self._high = microseconds(summary.since), microseconds(summary.until)

    def closed(self, run: ClosedRun) -> None:
        began = microseconds(run.started_at or run.closed_at)
        ended = microseconds(run.ended_at or run.closed_at) if run.started_at else began
        if run.instance_id and run.metered_cost_usd is None:
            self._summary.unpriced += 1
        try:
            outcome = OUTCOMES[EndReason(run.reason)]
        except ValueError:
            outcome = CostOutcome.OTHER
        usd, seconds = self._add(
            began,
            ended,
            to_nano(run.metered_cost_usd or Decimal(0)),
            provider=run.provider,
            purchase=run.purchase_option,
            accelerator=run.accelerator,
            name=run.name,
            owner=run.owner,
            tags=run.tags,
        )
        overhead = Decimal(0)
        if outcome is CostOutcome.SUCCEEDED and run.job_seconds is not None and run.metered_seconds:
            rest = 1 - min(1.0, max(0.0, run.job_seconds / run.metered_seconds))
            overhead = (usd * Decimal(rest)).quantize(NANO)
            self._tally(self._summary.outcomes, CostOutcome.OVERHEAD).add(overhead, seconds * rest, 0)
            seconds -= seconds * rest
        self._tally(self._summary.outcomes, outcome).add(usd - overhead, seconds)

    def open(self, view: RunView, now: datetime) -> None:
        began, ended, nano = _metered(view, now)
        if view.option is None or ended <= began:
            return
        offer = view.option.offer
        usd, seconds = self._add(
            began,
            ended,
            nano,
            provider=offer.provider,
            purchase=offer.purchase_option.value,
            accelerator=offer.accelerator.name if offer.accelerator else "",
            name=view.name,
            owner=view.owner,
            tags=view.spec.tags,
        )
        self._tally(self._summary.outcomes, CostOutcome.OPEN).add(usd, seconds)

    def use(self, budget: Budget, before: Decimal) -> BudgetUse:
        """How a budget went, from what was added."""
        calendar, spent = self._calendars[budget.time_zone], self._spent[budget.name]
        periods: list[BudgetPeriod] = []
        at = 0
        while at < len(calendar.days):
            end = bounds(budget.every, budget.time_zone, EPOCH + timedelta(microseconds=calendar.starts[at])).end
            stop = at + 1
            while stop < len(calendar.days) and (end is None or calendar.starts[stop] < microseconds(end)):
                stop += 1
            sums, sum_ = [], before if at == 0 else Decimal(0)
            for day in range(at, stop):
                sum_ += spent[day]
                sums.append(sum_)
            partial = end is None or microseconds(end) > self._high
            periods.append(BudgetPeriod(start=calendar.days[at], usd=sums, partial=partial))
            at = stop
        return BudgetUse(budget=budget, periods=periods)

    def _add(
        self,
        began: int,
        ended: int,
        nano: int,
        *,
        provider: str,
        purchase: str,
        accelerator: str,
        name: str,
        owner: str,
        tags: Mapping[str, str],
    ) -> tuple[Decimal, float]:
        """Counts a run; returns what of its cost and time is in the period."""
        summary = self._summary
        inside = Decimal(0)
        if nano:
            by_day = summary.gpu_usd if accelerator else summary.cpu_usd
            parts = self._calendar.split(began, ended, nano)
            for day, part in parts:
                by_day[day] += part
                inside += part
            for budget, calendar in self._budgets:
                if _counts(budget, provider, owner, tags):
                    spent = self._spent[budget.name]
                    for day, part in parts if calendar is self._calendar else calendar.split(began, ended, nano):
                        spent[day] += part
        seconds = max(0, min(ended, self._high) - max(began, self._low)) / 1e6
        summary.total.add(inside, seconds)
        self._tally(summary.providers, (provider, purchase)).add(inside, seconds)
        self._tally(summary.accelerators, accelerator).add(inside, seconds)
        self._tally(summary.jobs, name).add(inside, seconds)
        self._tally(summary.people, owner).add(inside, seconds)
        return inside, seconds

    @staticmethod
    def _tally(tallies: dict[Any, Tally], key: Any) -> Tally:
        found = tallies.get(key)
        if found is None:
            found = tallies[key] = Tally()
        return found


def _counts(budget: Budget, provider: str, owner: str, tags: Mapping[str, str]) -> bool:
    """The rule of `ledger.history.Selection`."""
    return (
        budget.provider in ("", provider)
        and (budget.owner in ("", owner) or owner.startswith(f"{budget.owner}@"))
        and all(tags.get(key) == value for key, value in budget.tags.items())
    )


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
        bool(run.accelerator),
    )


def _metered(view: RunView, now: datetime) -> tuple[int, int, int]:
    """Beginning and end, until now, in microseconds, and the cost in 1e-9 US dollars."""
    seconds, usd = view.metered_at_most(now)
    ended = microseconds(view.latest_end(now))
    return ended - round(seconds * 1e6), ended, to_nano(usd)

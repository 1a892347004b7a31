"""Folds charges for budgets: how each stands now, and how it went over a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from itertools import accumulate, groupby

from costgpu.errors import CostGpuError
from costgpu.ledger.costs.charges import Charge
from costgpu.ledger.costs.periods import Calendar, Every, bounds
from costgpu.ledger.records.budget_rules import Budget, BudgetState, forecast
from costgpu.ledger.schema import from_microseconds, from_nano, to_microseconds


@dataclass(slots=True, kw_only=True)
class Spending:
    """What was gathered for budgets: closed runs, open ones, and machines that the ledger does not know."""

    at: datetime  # the time that everything is counted until; the ledger's last entry if the clock is wrong
    # name of a budget -> what closed runs have cost in its period; without those that cannot be read
    closed_usd: dict[str, Decimal] = field(default_factory=dict)
    live: Sequence[Charge] = ()  # of open runs, and of machines that the ledger has no run of
    clock_off: bool = False  # whether the clock cannot be right: nothing may be written, and nobody told
    not_asked: dict[str, str] = field(default_factory=dict)  # provider, or provider and region -> why
    problems: list[CostGpuError] = field(default_factory=list)  # what could not be read or written

    def add_problem(self, error: CostGpuError) -> None:
        """Note what could not be read or written, once."""
        if all(error.message != known.message for known in self.problems):
            self.problems.append(error)

    def of(self, budget: Budget) -> list[Charge]:
        """Return the live charges that a budget counts."""
        return [charge for charge in self.live if charge.is_of(budget.selection)]


def budget_state(spending: Spending, budget: Budget) -> BudgetState:
    """Return how one of the budgets stands for which everything was gathered."""
    period = bounds(budget.every, budget.time_zone, spending.at)
    mine, now = spending.of(budget), to_microseconds(spending.at)
    spent = sum(charge.cost_in(period.low, period.high) for charge in mine)
    owing = [charge.committed(now, period.high) for charge in mine]
    upcoming = sum(charge.upcoming(now, period.high) for charge in mine)
    spent_usd = spending.closed_usd.get(budget.name, Decimal(0)) + from_nano(spent)
    return BudgetState(
        budget=budget,
        period=period,
        spent_usd=spent_usd,
        committed_usd=from_nano(sum(owing)) if any(owing) else Decimal(0),
        open_runs=sum(nano > 0 for nano in owing),
        at_least=bool(spending.problems)
        or any(budget.provider in ("", where.replace("/", " ").split()[0]) for where in spending.not_asked)
        or any(charge.nano_usd is None and charge.is_within(period.low, period.high) for charge in mine),
        forecast_usd=forecast(period, spending.at, spent_usd, from_nano(upcoming)),
    )


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


def budget_use(budget: Budget, charges: Iterable[Charge], since: datetime, until: datetime) -> BudgetUse:
    """Return how a budget went over a time; its days begin in its own zone.

    Args:
        charges: Those that it counts, from the beginning of the period that `since` is in.
    """
    calendar = Calendar(Every.DAILY, budget.time_zone, since, until)
    days = calendar.days
    spent = dict.fromkeys(days, 0)
    before, low = 0, bounds(budget.every, budget.time_zone, since).low
    for charge in charges:
        before += charge.cost_in(low, to_microseconds(since))
        for part in calendar.split(charge.nano_usd or 0, charge.began, charge.ended):
            spent[part.start] += part.amount

    def period_end(start: int) -> datetime | None:
        return bounds(budget.every, budget.time_zone, from_microseconds(start)).end

    periods: list[BudgetPeriod] = []
    for end, group in groupby(days, period_end):
        starts = list(group)
        sums = accumulate((spent[start] for start in starts), initial=0 if periods else before)
        usd = [from_nano(nano) for nano in sums][1:]
        periods.append(BudgetPeriod(start=days[starts[0]], usd=usd, partial=end is None or end > until))
    return BudgetUse(budget=budget, periods=periods)

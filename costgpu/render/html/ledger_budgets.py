"""The report's part about budgets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from markupsafe import Markup

from costgpu.ledger.records.budget_rules import Budget, Every
from costgpu.render.html.ledger_charts import spending_against_budget
from costgpu.render.html.page import Table, day, name, percent, responsive
from costgpu.render.html.spending_summary import BudgetUse, Summary
from costgpu.render.phrases import counted, visible
from costgpu.render.text.budget import RATE_PHRASES
from costgpu.units import format_usd

MOST_PICTURES = 6  # of budgets
UNITS = {Every.DAILY: "day", Every.WEEKLY: "week", Every.MONTHLY: "month", Every.TOTAL: "period"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSection:
    """What the page says of a budget; without a picture if there is nothing to draw."""

    name: str
    rule: Markup
    used: Decimal
    amount: Decimal
    description: str
    picture: Markup | None
    table: Table

    @property
    def share(self) -> float:
        """Share of the amount that is used."""
        return float(self.used / self.amount)

    @property
    def exceeded(self) -> bool:
        """Whether nothing is left."""
        return self.used >= self.amount


def budget_sections(summary: Summary) -> list[BudgetSection]:
    """One for each budget, the most used first; the first ones with a picture."""
    uses = sorted(summary.budgets, key=lambda use: -_used(use) / use.budget.amount_usd)
    return [_section(use, pictured=index < MOST_PICTURES) for index, use in enumerate(uses)]


def _section(use: BudgetUse, *, pictured: bool) -> BudgetSection:
    budget = use.budget
    over = sum(bool(period.usd) and period.usd[-1] >= budget.amount_usd for period in use.periods)
    units = counted(len(use.periods), UNITS[budget.every])
    exceeded = f"exceeded in {over} of {units}" if over else "never exceeded here"
    description = f"{format_usd(budget.amount_usd)} {RATE_PHRASES[budget.every]}; {exceeded}"
    rows = [
        [
            day(period.start),
            format_usd(period.usd[-1]),
            format_usd(budget.amount_usd),
            percent(period.usd[-1], budget.amount_usd) + (", so far" if period.partial else ""),
        ]
        for period in use.periods
        if period.usd
    ]
    return BudgetSection(
        name=budget.name,
        rule=_rule(budget),
        used=_used(use),
        amount=budget.amount_usd,
        description=description,
        picture=_picture(use, description) if pictured and use.periods else None,
        table=Table(f"Periods of {visible(budget.name)}", ["From", "Spent", "Budget", "Used"], rows),
    )


def _used(use: BudgetUse) -> Decimal:
    """In the last period of the report."""
    return use.periods[-1].usd[-1] if use.periods and use.periods[-1].usd else Decimal(0)


def _picture(use: BudgetUse, description: str) -> Markup:
    days = [use.periods[0].start + timedelta(days=i) for i in range(sum(len(period.usd) for period in use.periods))]
    periods, first = [], 0
    for period in use.periods:
        periods.append((first, [float(usd) for usd in period.usd]))
        first += len(period.usd)
    return responsive(
        lambda width, height: spending_against_budget(
            width,
            height,
            days,
            periods,
            float(use.budget.amount_usd),
            name=f"Budget {visible(use.budget.name)}",
            description=description,
        ),
        wide=210,
        narrow=190,
    )


def _rule(budget: Budget) -> Markup:
    """What a budget counts."""
    only = [*([budget.provider] if budget.provider else []), *([f"runs of {budget.owner}"] if budget.owner else [])]
    only += [f"tag {key}={value}" for key, value in budget.tags.items()]
    what = name(", ".join(only), 300) or "all runs"
    return Markup("{}, {}, {}").format(RATE_PHRASES[budget.every].capitalize(), what, name(budget.time_zone))

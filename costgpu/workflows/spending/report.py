"""The ledger as one HTML page."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import chain

from costgpu.errors import UsageError
from costgpu.job.load_runs import load_runs
from costgpu.ledger import Ledger
from costgpu.ledger.costs.charges import FACTS, RunFilter, charges, open_charge, spent
from costgpu.ledger.costs.periods import bounds
from costgpu.ledger.costs.totals import summarise
from costgpu.ledger.records.accuracy import comparisons
from costgpu.ledger.records.budget_store import all_budgets
from costgpu.ledger.records.budget_sums import budget_use
from costgpu.render.html.ledger_page import LedgerPeriod, ledger_report
from costgpu.render.html.page import report_html
from costgpu.workflows.context import AppContext
from costgpu.workflows.spending.periods import period

DEFAULT_DAYS = 90
MOST_DAYS = 18_263  # 50 years


def report_period(since: str | None, until: str | None, now: datetime) -> tuple[datetime, datetime]:
    """Start and end of a report."""
    start, end = period(since, until, now)
    high = end or now
    low = start or (min(high, now) - timedelta(days=DEFAULT_DAYS)).replace(hour=0, minute=0, second=0, microsecond=0)
    if low >= high:
        raise UsageError(f"--since {since} is not in the past.", hint="Such as --since 2026-11.")
    if (high - low).days > MOST_DAYS:
        raise UsageError("A report of more than 50 years is longer than any ledger.", hint="Such as --since 2024.")
    return low, high


def report_page(context: AppContext, low: datetime, high: datetime) -> str:
    """Return the page for a period."""
    report = report_of(context.ledger, low, high, context.clock.now())
    for run_id in report.unreadable:
        context.reporter.note(f"run {run_id} cannot be read and is not counted.")
    all_time = spent(context.ledger, RunFilter(), None, None)
    return report_html(ledger_report(report, place=context.ledger.place, all_time=all_time))


def report_of(ledger: Ledger, low: datetime, high: datetime, now: datetime) -> LedgerPeriod:
    """Return all that the page says of a period."""
    views, unreadable = load_runs(ledger, ledger.open_runs() if low <= now else ())
    live = [charge for view in views if (charge := open_charge(view, now)) is not None]
    uses = []
    for budget in (stored.budget for stored in all_budgets(ledger)):
        start = bounds(budget.every, budget.time_zone, low).start
        counted = (charge for charge in live if charge.is_of(budget.selection))
        uses.append(budget_use(budget, chain(charges(ledger, budget.selection, start, high), counted), low, high))
    return LedgerPeriod(
        since=low,
        until=high,
        now=now,
        summary=summarise(chain(charges(ledger, RunFilter(), low, high, tuple(FACTS)), live), low, high),
        budgets=uses,
        comparisons=comparisons(ledger, RunFilter(), since=low, until=high),
        open_runs=views,
        unreadable=tuple(unreadable),
    )

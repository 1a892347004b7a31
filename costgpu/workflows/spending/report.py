"""The ledger as one HTML page."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

from costgpu.errors import UsageError
from costgpu.job.load_runs import load_runs
from costgpu.job.spending import run_selection
from costgpu.ledger.queries.history import Selection, closed_runs, spent
from costgpu.ledger.records.budget_rules import Budget, bounds
from costgpu.ledger.records.budget_store import all_budgets
from costgpu.models.run import RunView
from costgpu.render.html.ledger_page import report_html
from costgpu.render.html.spending_summary import Summary, cost_before, summarise
from costgpu.version import __version__
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
    ledger, now, everything = context.ledger, context.clock.now(), Selection()
    budgets = [stored.budget for stored in all_budgets(ledger)]
    views, unreadable = _open_runs(context) if low <= now else ([], 0)
    summary: Summary = summarise(
        closed_runs(ledger, everything, since=low, until=high),
        views,
        budgets,
        since=low,
        until=high,
        now=now,
        before=_spent_before(context, budgets, views, low, now),
    )
    summary.unreadable = unreadable
    all_time = spent(ledger, everything, None, None)
    return report_html(summary, place=ledger.place, version=__version__, all_time=all_time)


def _spent_before(
    context: AppContext, budgets: list[Budget], views: list[RunView], low: datetime, now: datetime
) -> dict[str, Decimal]:
    """Budget -> what was spent in its current period before the report begins."""
    before: dict[str, Decimal] = {}
    for budget in budgets:
        start = bounds(budget.every, budget.time_zone, low).start
        if start is not None and start >= low:
            continue
        counted = run_selection(budget)
        running = (
            view
            for view in views
            if view.option
            and counted.includes(
                provider=view.option.offer.provider, owner=view.owner, name=view.name, tags=view.spec.tags
            )
        )
        open_cost = sum((cost_before(view, now, start, low) for view in running), Decimal(0))
        before[budget.name] = spent(context.ledger, counted, start, low) + open_cost
    return before


def _open_runs(context: AppContext) -> tuple[list[RunView], int]:
    """Return the open runs, and how many of them cannot be read."""
    found, damaged = load_runs(context.ledger, context.ledger.open_runs())
    for run_id in damaged:
        context.reporter.note(f"run {run_id} cannot be read and is not counted.")
    return found, len(damaged)

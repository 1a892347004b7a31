"""`costgpu ledger report`: the ledger as one HTML page."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costgpu.errors import LedgerDamaged, UsageError

if TYPE_CHECKING:
    from costgpu.models.run import RunView
    from costgpu.render.html.spending_summary import Summary
    from costgpu.workflows.context import AppContext

DAYS = 90  # that a report covers if nobody says otherwise
MOST_DAYS = 18_263


def report(
    html: Annotated[str, typer.Option("--html", metavar="FILE", help="Where to write it; - for stdout.")],
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help="2026-11, 2026-11-01, or 30d; else 90 days ago.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="WHEN", help="Before then.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Write a page for a browser: what was spent, on what, and what for.

    By day against budgets, by provider, GPU against CPU, what was wasted, estimate
    against actual, what runs now. Days are those of UTC, but for budgets with a time
    zone of their own. One file that needs nothing else.
    """
    from costgpu import __version__
    from costgpu.render.html.ledger_page import report_html
    from costgpu.workflows.context import app_context
    from costgpu.workflows.spending.periods import period
    from costgpu.workflows.write_file import check_target, write_file

    with app_context() as parts:
        now = parts.clock.now()
        start, end = period(since, until, now)
        high = end or now
        low = start or (min(high, now) - timedelta(days=DAYS)).replace(hour=0, minute=0, second=0, microsecond=0)
        if low >= high:
            raise UsageError(f"--since {since} is not in the past.", hint="Such as --since 2026-11.")
        if (high - low).days > MOST_DAYS:
            raise UsageError("A report of more than 50 years is longer than any ledger.", hint="Such as --since 2024.")
        if html != "-":
            check_target(Path(html), force=force)
        summary, all_time = _summary(parts, low, high, now)
        page = report_html(summary, place=parts.ledger.place, version=__version__, all_time=all_time)
    if html == "-":
        typer.echo(page, nl=False)
        return
    write_file(Path(html), [page], force=force)
    typer.echo(f"Written: {html}", err=True)


def _summary(parts: AppContext, low: datetime, high: datetime, now: datetime) -> tuple[Summary, Decimal]:
    """What the period holds, and what all closed runs have cost in all."""
    from costgpu.ledger.queries.history import Selection, closed_runs, spent
    from costgpu.ledger.records.budget_rules import bounds
    from costgpu.ledger.records.budget_store import all_budgets
    from costgpu.render.html.spending_summary import cost_before, summarise

    ledger, everything = parts.ledger, Selection()
    budgets = [stored.budget for stored in all_budgets(ledger)]
    before: dict[str, Decimal] = {}
    views, unreadable = _open_views(parts) if low <= now else ([], 0)
    for budget in budgets:
        start = bounds(budget.every, budget.time_zone, low).start
        if start is None or start < low:
            counted = Selection(provider=budget.provider, owner=budget.owner, tags=budget.tags)
            running = (
                v
                for v in views
                if v.option
                and counted.includes(provider=v.option.offer.provider, owner=v.owner, name=v.name, tags=v.spec.tags)
            )
            before[budget.name] = spent(ledger, counted, start, low) + sum(
                (cost_before(view, now, start, low) for view in running), Decimal(0)
            )
    summary = summarise(
        closed_runs(ledger, everything, since=low, until=high),
        views,
        budgets,
        since=low,
        until=high,
        now=now,
        zone="UTC",
        before=before,
    )
    summary.unreadable = unreadable
    return summary, spent(ledger, everything, None, None)


def _open_views(parts: AppContext) -> tuple[list[RunView], int]:
    """The open runs, and how many of them cannot be read."""
    from costgpu.runner.state.states import IllegalEvent, replay

    found, unreadable = [], 0
    for run_id in parts.ledger.open_runs():
        try:
            found.append(replay(parts.ledger.events(run_id)))
        except (IllegalEvent, LedgerDamaged, KeyError, TypeError, ValueError):  # changed by something else than costgpu
            unreadable += 1
            typer.echo(f"costgpu: run {run_id} cannot be read and is not counted.", err=True)
    return found, unreadable

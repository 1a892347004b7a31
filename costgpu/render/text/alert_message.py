"""The words of a budget alert, as mail, Slack and the others get them: the title, and one line for each budget."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from costgpu.ledger.costs.periods import Every
from costgpu.ledger.records.budget_rules import FULL, Budget, BudgetState
from costgpu.units import currency_note, format_usd

if TYPE_CHECKING:
    from costgpu.ledger.records.budget_store import Alert

PERIOD_PHRASES = {Every.DAILY: "today", Every.WEEKLY: "this week", Every.MONTHLY: "this month", Every.TOTAL: "in all"}
CENT = Decimal("0.01")


def title(state: BudgetState) -> str:
    """Return the subject of a mail, the first line of a notification."""
    how = "exceeded" if state.exceeded else f"{state.percent} % used"
    return f"costgpu budget {state.budget.name}: {how}"


def message(state: BudgetState) -> str:
    """Such as ``nlp: $161.20 of $200.00 this month (80 %), crossed 80 %; at this pace $240 by Nov 30.``."""
    spent, percent = spent_phrase(state), f"{state.percent} %"
    parts = [f"{state.budget.name}: {spent} {PERIOD_PHRASES[state.budget.every]} ({percent})"]
    if state.exceeded:
        parts[0] += ", exceeded"
    if state.crossed and state.crossed[-1] != FULL:
        parts[0] += f", crossed {state.crossed[-1]} %"
    if state.committed_usd >= CENT:
        parts.append(committed_phrase(state))
    if state.forecast_usd is not None and state.forecast_usd >= CENT:
        parts.append(forecast_phrase(state))
    return "; ".join(parts) + "."


def late_message(budget: Budget, alert: Alert) -> str:
    """Return what could not be delivered in a period that is over."""
    at = alert.crossed_at.astimezone(ZoneInfo(budget.time_zone))
    what = "was exceeded" if alert.threshold == FULL else f"crossed {alert.threshold} %"
    return (
        f"{budget.name}: {what} on {at:%Y-%m-%d %H:%M} with {exact_usd(alert.spent_usd)} of"
        f" {exact_usd(budget.amount_usd)}; this could not be delivered before."
    )


def spent_phrase(state: BudgetState) -> str:
    """``at least $161.20 of $200.00``."""
    at_least = "at least " if state.at_least else ""
    return f"{at_least}{exact_usd(state.spent_usd)} of {exact_usd(state.budget.amount_usd)}"


def committed_phrase(state: BudgetState) -> str:
    """``$12.00 more under caps of 2 open runs``."""
    runs = "the cap of 1 open run" if state.open_runs == 1 else f"caps of {state.open_runs} open runs"
    return f"{exact_usd(state.committed_usd)} more under {runs}"


def forecast_phrase(state: BudgetState) -> str:
    """``at this pace $240 by Nov 30``."""
    amount = state.forecast_usd or Decimal(0)
    usd = f"${amount:,.0f}" if amount >= 10 and not currency_note() else format_usd(amount)
    if state.period.end is None or state.budget.every is Every.DAILY:
        return f"at this pace {usd} by midnight"
    last = (state.period.end - timedelta(microseconds=1)).astimezone(ZoneInfo(state.budget.time_zone))
    return f"at this pace {usd} by {last:%b} {last.day}"


def exact_usd(amount: Decimal) -> str:
    """With cents where there are any: a budget of $1,234.50 is not $1,234."""
    if currency_note():
        return format_usd(amount)
    whole_cents = amount == amount.quantize(CENT)
    return f"${amount:,.2f}" if whole_cents or 1000 <= amount < 100_000 else format_usd(amount)

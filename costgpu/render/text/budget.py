"""Budgets: as blocks of text, as JSON documents, as a note of a plan, and as the words of an alert.

An alert has a title, and one line for each budget, as mail, Slack and the others get them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from costgpu.errors import CostGpuError
from costgpu.ledger.costs.periods import Every
from costgpu.ledger.records.budget_rules import FULL, Budget, BudgetState
from costgpu.render.document import document, json_value, picked
from costgpu.render.text.layout import labelled, wrap
from costgpu.units import currency_note, format_usd

if TYPE_CHECKING:
    from costgpu.ledger.records.budget_store import Alert

RATE_PHRASES = {Every.DAILY: "a day", Every.WEEKLY: "a week", Every.MONTHLY: "a month", Every.TOTAL: "in all"}
MICRO = Decimal("0.000001")
PERIOD_PHRASES = {Every.DAILY: "today", Every.WEEKLY: "this week", Every.MONTHLY: "this month", Every.TOTAL: "in all"}
CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedBudget:
    """A budget with its alerts of this period, ascending, and the thresholds that this check found newly crossed."""

    state: BudgetState
    alerts: Sequence[Alert] = ()
    new: tuple[int, ...] = field(default=())


def plan_note(state: BudgetState, cap_usd: Decimal) -> str:
    """Return what a budget says to a run whose cap is `cap_usd`."""
    name, left = state.budget.name, state.left_usd - state.committed_usd - cap_usd
    head = f"Budget {name}: {amounts(state)}"
    if state.committed_usd >= CENT:
        head += f", {committed_phrase(state)}"
    if state.exceeded:
        refused = ": new runs are refused" if state.budget.enforce else ": nothing is left for this run"
        return f"{head}, exceeded{refused}."
    if left < 0:
        refused = ": it is refused" if state.refuses(cap_usd) else ""
        return f"{head}; this run's cap of {exact_usd(cap_usd)} could exceed it by {exact_usd(-left)}{refused}."
    return f"{head}; this run's cap of {exact_usd(cap_usd)} leaves {exact_usd(left)}."


def amounts(state: BudgetState) -> str:
    """``$161.20 of $200.00 this month, 80 %``."""
    return f"{spent_phrase(state)} {PERIOD_PHRASES[state.budget.every]}, {state.percent} %"


def left_phrase(state: BudgetState) -> str:
    """Return ``the $800.00 left of $2,000.00 this month, with $1,200.00 committed``."""
    left = exact_usd(max(Decimal(0), state.open_usd))
    committed = f", with {exact_usd(state.committed_usd)} committed" if state.committed_usd >= CENT else ""
    return f"the {left} left of {exact_usd(state.budget.amount_usd)} {PERIOD_PHRASES[state.budget.every]}{committed}"


def begins_anew(state: BudgetState) -> str:
    """When the next period begins, where the budget is; empty if never."""
    if state.period.end is None:
        return ""
    return f"{state.period.end.astimezone(ZoneInfo(state.budget.time_zone)):%Y-%m-%d %H:%M %Z}"


def definition(budget: Budget) -> str:
    """Return what a budget is, in one sentence without a full stop."""
    what = [f"provider {budget.provider}"] if budget.provider else []
    what += [f"person {budget.owner}"] if budget.owner else []
    what += [f"tag {key}={value}" for key, value in sorted(budget.tags.items())]
    alerts = ", ".join(f"{threshold} %" for threshold in budget.thresholds)
    enforced = ""
    if budget.enforce:
        beyond = "once it is spent" if budget.enforce_spent else "beyond it"
        enforced = f"; new runs are refused {beyond}"
    return (
        f"{budget.name}: {exact_usd(budget.amount_usd)} {RATE_PHRASES[budget.every]} for {', '.join(what) or 'everything'}, "
        f"alerts at {alerts}{enforced}"
    )


def show_text(standings: Sequence[CheckedBudget], problems: Sequence[CostGpuError] = ()) -> str:
    """Return a block of lines for each budget."""
    if not standings and not problems:
        return "No budgets. costgpu budget set NAME --monthly 200 makes one."
    return "\n\n".join(_block(standing) for standing in standings)


def budgets_json(
    schema: str, standings: Sequence[CheckedBudget], problems: Sequence[CostGpuError], now: datetime, **more: object
) -> str:
    """Return how budgets stand as a versioned document, with further parts."""
    return document(
        schema,
        at=now,
        budgets=[_standing_value(standing) for standing in standings],
        problems=[problem.message for problem in problems],
        **more,
    )


def _block(standing: CheckedBudget) -> str:
    state, budget = standing.state, standing.state.budget
    at_least = "at least " if state.at_least else ""
    zone, period = ZoneInfo(budget.time_zone), "all time"
    if state.period.start is not None and state.period.end is not None:
        start, last = (
            state.period.start.astimezone(zone),
            (state.period.end - timedelta(microseconds=1)).astimezone(zone),
        )
        days = f"{start:%a %b} {start.day}" + ("" if last.date() == start.date() else f" to {last:%a %b} {last.day}")
        period = f"{days}, {last.year}, {budget.time_zone}"
    rows = [
        ("period", period),
        ("spent", f"{at_least}{exact_usd(state.spent_usd)}, {state.percent} %{', EXCEEDED' if state.exceeded else ''}"),
    ]
    left = "nothing" if state.exceeded else exact_usd(state.left_usd)
    if state.committed_usd >= CENT:
        rows.append(("committed", committed_phrase(state)))
        after = state.left_usd - state.committed_usd
        if not state.exceeded:
            left += (
                f"; {exact_usd(after)} when that is spent"
                if after >= 0
                else f"; that could exceed it by {exact_usd(-after)}"
            )
    rows.append(("left", left))
    if state.forecast_usd is not None:
        rows.append(("forecast", forecast_phrase(state)))
    elif budget.every is not Every.TOTAL:
        rows.append(("forecast", "too early to say"))
    rows.append(("alerts", "; ".join(_told(standing, threshold) for threshold in budget.thresholds)))
    for alert in standing.alerts:
        if alert.delivered is False and alert.last_attempt_at is not None:
            times = "once" if alert.attempts == 1 else f"{alert.attempts} times"
            tried = f"tried {times}, last {alert.last_attempt_at.astimezone(zone):%Y-%m-%d %H:%M}"
            rows.append(("FAILED", f"{alert.threshold} %: {alert.detail} ({tried}); the next check tries again"))
    return "\n".join([wrap(definition(budget), rest="  "), *(labelled(*row) for row in rows)])


def _told(standing: CheckedBudget, threshold: int) -> str:
    zone = ZoneInfo(standing.state.budget.time_zone)
    alert = next((each for each in standing.alerts if each.threshold == threshold), None)
    if alert is None:
        return f"{threshold} % {'not told yet' if threshold in standing.state.crossed else 'not reached'}"
    if alert.told_at is not None:
        return f"{threshold} % told {alert.told_at.astimezone(zone):%b} {alert.told_at.astimezone(zone):%d %H:%M}"
    return f"{threshold} % {'NOT told' if alert.delivered is False else 'being told'}"


def _standing_value(standing: CheckedBudget) -> dict[str, Any]:
    state = standing.state
    return {
        **json_value(state.budget),
        "period": state.period,
        **{name: getattr(state, name).quantize(MICRO) for name in ("spent_usd", "committed_usd", "left_usd")},
        **picked(state, "open_runs", "percent", "at_least"),
        "forecast_usd": None if state.forecast_usd is None else state.forecast_usd.quantize(MICRO),
        **picked(state, "crossed", "exceeded"),
        "new": standing.new,
        "alerts": [
            picked(alert, "threshold", "crossed_at", "spent_usd", "attempts", "delivered", "told_at", "detail")
            for alert in standing.alerts
        ],
    }


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

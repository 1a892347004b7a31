"""Budgets as lines for a mail, as blocks for 80 columns, and as JSON documents. Result -> str; no I/O."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from costgpu.ledger.codec import to_json
from costgpu.ledger.records.budget_rules import FULL, Budget, BudgetState, Every
from costgpu.units import format_usd

if TYPE_CHECKING:
    from costgpu.errors import CostGpuError
    from costgpu.ledger.records.budget_store import Alert

WIDTH = 80
VERSION = 1
SPAN = {Every.DAILY: "today", Every.WEEKLY: "this week", Every.MONTHLY: "this month", Every.TOTAL: "in all"}
EACH = {Every.DAILY: "a day", Every.WEEKLY: "a week", Every.MONTHLY: "a month", Every.TOTAL: "in all"}
CENT = Decimal("0.01")
MICRO = Decimal("0.000001")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A budget with what people were told about it.

    Attributes:
        state: How it stands.
        alerts: Of this period, ascending.
        new: Thresholds that this check found crossed first.
    """

    state: BudgetState
    alerts: Sequence[Alert] = ()
    new: tuple[int, ...] = field(default=())


def message(state: BudgetState) -> str:
    """How a budget stands, as one line of a message."""
    budget, crossed = state.budget, state.crossed
    spent = f"{'at least ' if state.at_least else ''}{_usd(state.spent_usd)}"
    parts = [f"{budget.name}: {spent} of {_usd(budget.amount_usd)} {SPAN[budget.every]} ({state.percent} %)"]
    if state.exceeded:
        parts[0] += ", exceeded"
    if crossed and crossed[-1] != FULL:
        parts[0] += f", crossed {crossed[-1]} %"
    if state.committed_usd >= CENT:
        parts.append(_committed(state))
    if state.forecast_usd is not None and state.forecast_usd >= CENT:
        parts.append(f"at this pace {_forecast(state)}")
    return "; ".join(parts) + "."


def late_message(budget: Budget, alert: Alert) -> str:
    """What could not be told in a period that is over."""
    at = alert.crossed_at.astimezone(ZoneInfo(budget.time_zone))
    what = "was exceeded" if alert.threshold == FULL else f"crossed {alert.threshold} %"
    return (
        f"{budget.name}: {what} on {at:%Y-%m-%d %H:%M} with {_usd(alert.spent_usd)} of {_usd(budget.amount_usd)}; "
        "it could not be told before."
    )


def plan_note(state: BudgetState, cap_usd: Decimal) -> str:
    """What a budget says to a run that may cost so much."""
    name, left = state.budget.name, state.left_usd - state.committed_usd - cap_usd
    head = f"Budget {name}: {amounts(state)}"
    if state.committed_usd >= CENT:
        head += f", {_committed(state)}"
    if state.exceeded:
        refused = ": new runs are refused" if state.budget.enforce else ": nothing is left for this run"
        return f"{head}, exceeded{refused}."
    if left < 0:
        return f"{head}; this run's cap of {_usd(cap_usd)} could exceed it by {_usd(-left)}."
    return f"{head}; this run's cap of {_usd(cap_usd)} leaves {_usd(left)}."


def amounts(state: BudgetState) -> str:
    """``$161.20 of $200.00 this month, 80 %``."""
    spent = f"{'at least ' if state.at_least else ''}{_usd(state.spent_usd)}"
    return f"{spent} of {_usd(state.budget.amount_usd)} {SPAN[state.budget.every]}, {state.percent} %"


def begins_anew(state: BudgetState) -> str:
    """When the next period begins, where the budget is; empty if never."""
    if state.period.end is None:
        return ""
    return f"{state.period.end.astimezone(ZoneInfo(state.budget.time_zone)):%Y-%m-%d %H:%M %Z}"


def line(text: str) -> str:
    """A line for a mail or a terminal, at most 80 wide."""
    return _fill(text, "", "  ")


def definition(budget: Budget) -> str:
    """What a budget is, in one sentence without a full stop."""
    what = [f"provider {budget.provider}"] if budget.provider else []
    what += [f"person {budget.owner}"] if budget.owner else []
    what += [f"tag {key}={value}" for key, value in sorted(budget.tags.items())]
    alerts = ", ".join(f"{threshold} %" for threshold in budget.thresholds)
    enforced = "; new runs are refused beyond it" if budget.enforce else ""
    return (
        f"{budget.name}: {_usd(budget.amount_usd)} {EACH[budget.every]} for {', '.join(what) or 'everything'}, "
        f"alerts at {alerts}{enforced}"
    )


def show_text(standings: Sequence[Standing], problems: Sequence[CostGpuError] = ()) -> str:
    """Every budget as a block."""
    if not standings and not problems:
        return "No budgets. costgpu budget set NAME --monthly 200 makes one."
    return "\n\n".join(_block(standing) for standing in standings)


def show_json(standings: Sequence[Standing], problems: Sequence[CostGpuError], now: datetime) -> str:
    """The same as a versioned document."""
    return _document("costgpu.budgets", at=now, budgets=[_plain(s) for s in standings], problems=_messages(problems))


def check_json(
    standings: Sequence[Standing],
    *,
    not_asked: Mapping[str, str],
    problems: Sequence[CostGpuError],
    undelivered: Sequence[str],
    enforced: Sequence[str],
    exit_code: int,
    now: datetime,
) -> str:
    """What a check has found and done, as a versioned document."""
    return _document(
        "costgpu.budget-check",
        at=now,
        exit_code=exit_code,
        budgets=[_plain(s) for s in standings],
        not_asked=dict(not_asked),
        problems=_messages(problems),
        undelivered=list(undelivered),
        enforced=list(enforced),
    )


def _block(standing: Standing) -> str:
    state, budget = standing.state, standing.state.budget
    at_least = "at least " if state.at_least else ""
    rows = [
        ("period", _period(state)),
        ("spent", f"{at_least}{_usd(state.spent_usd)}, {state.percent} %{', EXCEEDED' if state.exceeded else ''}"),
    ]
    left = "nothing" if state.exceeded else _usd(state.left_usd)
    if state.committed_usd >= CENT:
        rows.append(("committed", _committed(state)))
        after = state.left_usd - state.committed_usd
        if not state.exceeded:
            left += f"; {_usd(after)} when that is spent" if after >= 0 else f"; that could exceed it by {_usd(-after)}"
    rows.append(("left", left))
    if state.forecast_usd is not None:
        rows.append(("forecast", f"at this pace {_forecast(state)}"))
    elif budget.every is not Every.TOTAL:
        rows.append(("forecast", "too early to say"))
    rows.append(("alerts", "; ".join(_told(standing, threshold) for threshold in budget.thresholds)))
    zone = ZoneInfo(budget.time_zone)
    for alert in standing.alerts:
        if alert.delivered is False and alert.last_attempt_at is not None:
            tried = f"tried {_times(alert.attempts)}, last {alert.last_attempt_at.astimezone(zone):%Y-%m-%d %H:%M}"
            rows.append(("FAILED", f"{alert.threshold} %: {alert.detail} ({tried}); the next check tries again"))
    return "\n".join([line(definition(budget)), *(_row(*row) for row in rows)])


def _period(state: BudgetState) -> str:
    period, zone = state.period, ZoneInfo(state.budget.time_zone)
    if period.start is None or period.end is None:
        return "all time"
    start, last = period.start.astimezone(zone), (period.end - timedelta(microseconds=1)).astimezone(zone)
    days = f"{start:%a %b} {start.day}" + ("" if last.date() == start.date() else f" to {last:%a %b} {last.day}")
    return f"{days}, {last.year}, {state.budget.time_zone}"


def _told(standing: Standing, threshold: int) -> str:
    zone = ZoneInfo(standing.state.budget.time_zone)
    alert = next((each for each in standing.alerts if each.threshold == threshold), None)
    if alert is None:
        return f"{threshold} % {'not told yet' if threshold in standing.state.crossed else 'not reached'}"
    if alert.told_at is not None:
        return f"{threshold} % told {alert.told_at.astimezone(zone):%b} {alert.told_at.astimezone(zone):%d %H:%M}"
    return f"{threshold} % {'NOT told' if alert.delivered is False else 'being told'}"


def _committed(state: BudgetState) -> str:
    runs = "the cap of 1 open run" if state.open_runs == 1 else f"caps of {state.open_runs} open runs"
    return f"{_usd(state.committed_usd)} more under {runs}"


def _forecast(state: BudgetState) -> str:
    amount = state.forecast_usd or Decimal(0)
    words = f"${amount:,.0f}" if amount >= 10 else format_usd(amount)
    return f"{words} by {_end(state)}"


def _end(state: BudgetState) -> str:
    if state.period.end is None or state.budget.every is Every.DAILY:
        return "midnight"
    last = (state.period.end - timedelta(microseconds=1)).astimezone(ZoneInfo(state.budget.time_zone))
    return f"{last:%b} {last.day}"


def _usd(amount: Decimal) -> str:
    """With cents where there are any: a budget of $1,234.50 is not $1,234."""
    whole_cents = amount == amount.quantize(CENT)
    return f"${amount:,.2f}" if whole_cents or 1000 <= amount < 100_000 else format_usd(amount)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _row(name: str, text: str) -> str:
    return _fill(text, f"  {name:<11}", " " * 13)


def _fill(text: str, first: str, then: str) -> str:
    """At most 80 wide; a number stays with its percent sign."""
    return textwrap.fill(
        text.replace(" %", "\u00a0%"),
        WIDTH,
        initial_indent=first,
        subsequent_indent=then,
        break_on_hyphens=False,
        break_long_words=False,
    ).replace("\u00a0", " ")


def _messages(problems: Sequence[CostGpuError]) -> list[str]:
    return [problem.message for problem in problems]


def _plain(standing: Standing) -> dict[str, Any]:
    state = standing.state
    forecast = state.forecast_usd
    return {
        **to_json(state.budget),
        "period": to_json(state.period),
        "spent_usd": str(state.spent_usd.quantize(MICRO)),
        "committed_usd": str(state.committed_usd.quantize(MICRO)),
        "left_usd": str(state.left_usd.quantize(MICRO)),
        "open_runs": state.open_runs,
        "percent": state.percent,
        "at_least": state.at_least,
        "forecast_usd": None if forecast is None else str(forecast.quantize(MICRO)),
        "crossed": list(state.crossed),
        "exceeded": state.exceeded,
        "new": list(standing.new),
        "alerts": [
            {
                "threshold": alert.threshold,
                "crossed_at": to_json(alert.crossed_at),
                "spent_usd": str(alert.spent_usd),
                "attempts": alert.attempts,
                "delivered": alert.delivered,
                "told_at": to_json(alert.told_at),
                "detail": alert.detail,
            }
            for alert in standing.alerts
        ],
    }


def _document(kind: str, **parts: Any) -> str:
    return json.dumps({"schema": kind, "version": VERSION, **{k: to_json(v) for k, v in parts.items()}}, indent=2)

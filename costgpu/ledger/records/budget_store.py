"""Budgets and their alerts as rows: set, removed, claimed, told. Rows are added and never changed.

An alert is one threshold of one budget in one period. Whoever can insert its row has found it crossed first; whoever
can insert the row of an attempt is the one who tells people. Both happen in one transaction, so that of many checks at
once exactly one sends, and one that is killed in between is followed by another.
"""

from __future__ import annotations

import contextlib
import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import Connection, func, select
from sqlalchemy.exc import IntegrityError

from costgpu.errors import BudgetError, LedgerDamaged
from costgpu.files import parse_json
from costgpu.ledger import failures
from costgpu.ledger.codec import from_json, to_json
from costgpu.ledger.costs.periods import Period
from costgpu.ledger.dialect import insert_row
from costgpu.ledger.records.budget_rules import Budget
from costgpu.ledger.schema import (
    EPOCH,
    DamagedCellError,
    alert_attempts,
    alert_results,
    alerts,
    budgets,
    events,
    from_nano,
    instant,
    text,
    to_microseconds,
    to_nano,
    whole,
)
from costgpu.ledger.store import Ledger
from costgpu.version import __version__

PATIENCE = timedelta(minutes=10)  # an attempt without a result is taken for dead after this
STALE = timedelta(days=7)  # what could not be told for so long is no news any more
LONGEST_DETAIL = 500
TRIES = 5
POSTGRESQL_LOCK = 0x627564676574  # "budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBudget:
    """A budget as the ledger has it."""

    number: int  # the number of its row
    # those of all rows that count the same money against the same amount, this one included: what was told for one of
    # them was told
    numbers: tuple[int, ...]
    budget: Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A threshold that was crossed, and what became of telling people."""

    number: int  # the number of its row
    period_start: datetime  # when its period began; 1970 for a budget that never begins anew
    threshold: int  # percent
    crossed_at: datetime  # when a check found it
    spent_usd: Decimal  # what was spent by then
    attempts: int = 0  # how often somebody began to tell
    last_attempt_at: datetime | None = None  # None if nobody has
    delivered: bool | None = None  # whether people were told; None while it is being tried, or nobody has
    told_at: datetime | None = None  # when people were told; None if they were not
    detail: str = ""  # by which way the last attempt was delivered, or what failed. Never an address

    def due(self, now: datetime) -> bool:
        """Return whether somebody should tell people now."""
        if self.delivered is not None:
            return not self.delivered
        return self.last_attempt_at is None or abs(now - self.last_attempt_at) >= PATIENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryAttempt:
    """The alerts that this process, and no other, has to deliver."""

    alerts: tuple[Alert, ...] = ()  # as they were before; ascending by period and threshold
    new: tuple[Alert, ...] = ()  # the alerts that nobody had found before


def set_budget(ledger: Ledger, budget: Budget, at: datetime, *, replace: bool = False) -> bool:
    """Make a budget, or says anew what it is.

    Returns:
        Whether anything was written: nothing is if it says so already.

    Raises:
        BudgetError: It exists and says something else, or its name differs from another one only by case.
    """

    def work(connection: Connection) -> bool:
        _alone(connection)
        for stored in _all(connection, ledger.place):
            other = stored.budget
            if other == budget:
                return False
            if other.name == budget.name and not replace:
                raise BudgetError(
                    f"There is a budget {budget.name} already, and it says something else.",
                    hint=f"costgpu budget show {budget.name} shows it; --replace sets it anew.",
                )
            if other.name != budget.name and other.name.lower() == budget.name.lower():
                raise BudgetError(
                    f"There is a budget {other.name} already: names that differ only by case would be confused.",
                    hint=f"Choose another name, or: costgpu budget set {other.name} --replace ...",
                )
        connection.execute(budgets.insert(), _row(budget.name, json.dumps(to_json(budget), separators=(",", ":")), at))
        return True

    return ledger.write(work)


def remove_budget(ledger: Ledger, name: str, at: datetime) -> None:
    """End a budget; its rows and alerts stay in the ledger.

    Raises:
        BudgetError: There is no budget of that name.
    """
    known = [stored.budget.name for stored in all_budgets(ledger)]
    if name not in known:
        raise unknown_budget(name, known)

    def work(connection: Connection) -> None:
        _alone(connection)
        if name in (stored.budget.name for stored in _all(connection, ledger.place)):  # nobody was quicker
            connection.execute(budgets.insert(), _row(name, None, at))

    ledger.write(work)


def unknown_budget(name: str, known: Sequence[str]) -> BudgetError:
    """Return the error for a name that no budget has."""
    near = difflib.get_close_matches(name, known, 3, 0.5) or list(known)[:5]
    hint = f"There {'are' if len(near) > 1 else 'is'} {', '.join(near)}." if near else "costgpu budget set makes one."
    return BudgetError(f"There is no budget {name!r}.", hint=hint)


def all_budgets(ledger: Ledger, damaged: list[LedgerDamaged] | None = None) -> tuple[StoredBudget, ...]:
    """Return what is set now, by name.

    Args:
        damaged: Where to put the errors of budgets that cannot be read; None to raise the first one.
    """
    return ledger.read(lambda connection: _all(connection, ledger.place, damaged), ())


def alerts_of(ledger: Ledger, stored: StoredBudget, period: Period) -> tuple[Alert, ...]:
    """Return the thresholds of a budget that were found crossed in a period, ascending."""
    return ledger.read(lambda connection: _alerts(connection, stored, to_microseconds(_start(period))), ())


def claim_delivery(
    ledger: Ledger, stored: StoredBudget, period: Period, thresholds: Sequence[int], spent_usd: Decimal, now: datetime
) -> DeliveryAttempt:
    """Note what is crossed, and claims the alerts that nobody has delivered yet and nobody is delivering now.

    The caller has to write the result of every alert that it is given, with `finish_delivery`; if it dies before, the
    alerts are due again after 10 minutes.

    Args:
        thresholds: Those that are crossed in the period.
        spent_usd: What is spent in the period.

    Raises:
        LedgerError: Nothing could be written, and nothing is to be told.
    """
    start = to_microseconds(_start(period))

    def open_points(connection: Connection) -> tuple[list[Alert], list[int]]:
        known = _alerts(connection, stored, start, found_since=now - STALE)
        found = {alert.threshold for alert in known if alert.period_start == _start(period)}
        return [alert for alert in known if alert.due(now)], sorted(set(thresholds) - found)

    def work(connection: Connection) -> DeliveryAttempt:
        due, crossed_first = open_points(connection)
        new = []
        for threshold in crossed_first:
            row = {
                "at_us": to_microseconds(now),
                "budget": stored.number,
                "period_start_us": start,
                "threshold": threshold,
                "nano_usd": to_nano(spent_usd) or 0,
            }
            new.append(
                Alert(
                    number=insert_row(connection, alerts, row),
                    period_start=_start(period),
                    threshold=threshold,
                    crossed_at=now,
                    spent_usd=spent_usd,
                )
            )
        due += new
        for alert in due:
            row = {"alert": alert.number, "number": alert.attempts + 1, "at_us": to_microseconds(now)}
            connection.execute(alert_attempts.insert(), row)
        due.sort(key=lambda alert: (alert.period_start, alert.threshold))
        return DeliveryAttempt(alerts=tuple(due), new=tuple(new))

    if any(ledger.read(open_points, ([], list(thresholds)))):  # nothing is written where there is nothing to say
        for _ in range(TRIES):
            # two at once, where beginning does not lock: look again at what the other has written
            with contextlib.suppress(IntegrityError):
                return ledger.write(work)
    return DeliveryAttempt()


def finish_delivery(ledger: Ledger, told: Sequence[Alert], now: datetime, *, delivered: bool, detail: str) -> None:
    """Note what became of the alerts that `claim_delivery` gave.

    Args:
        told: The alerts of the attempt.
        detail: By which way, or what failed; no address, no secret.

    Raises:
        LedgerError: It could not be written: the alerts will be delivered once more.
    """
    rows = [
        {
            "alert": alert.number,
            "number": alert.attempts + 1,
            "at_us": to_microseconds(now),
            "delivered": int(delivered),
            "detail": detail[:LONGEST_DETAIL].replace("\0", ""),
        }
        for alert in told
    ]
    try:
        ledger.insert(alert_results, rows)
    except IntegrityError as exc:
        raise failures.damaged(ledger.place, "the result of an alert is there already") from exc


def newest_entry(ledger: Ledger) -> datetime | None:
    """When the ledger was written last, by the clock of then: its last event, else its last budget; None if empty."""

    def read(connection: Connection) -> datetime | None:
        for table in (events, budgets):
            at_us = connection.scalar(select(table.c.at_us).order_by(table.c.id.desc()).limit(1))
            if at_us is not None:
                with contextlib.suppress(DamagedCellError):
                    return instant(at_us)
                return None
        return None

    return ledger.read(read, None)


def _alone(connection: Connection) -> None:
    """Keep others from setting budgets until the transaction ends; on SQLite its BEGIN has done so."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(POSTGRESQL_LOCK)))


def _row(name: str, data: str | None, at: datetime) -> dict[str, Any]:
    return {"at_us": to_microseconds(at), "name": name, "data": data, "writer": __version__}


def _all(connection: Connection, place: str, damaged: list[LedgerDamaged] | None = None) -> tuple[StoredBudget, ...]:
    found: dict[str, list[StoredBudget]] = {}
    for row in connection.execute(select(budgets).order_by(budgets.c.name, budgets.c.id)):
        so_far = found.setdefault(row.name, [])
        if row.data is None:
            so_far.clear()
            continue
        try:
            budget = from_json(Budget, parse_json(text(row.data)))
            if budget.amount_usd <= 0 or budget.name != row.name or not budget.thresholds:
                raise ValueError("It is not what costgpu writes.")
            ZoneInfo(budget.time_zone)
        except (ValueError, LookupError, OSError, LedgerDamaged) as exc:
            error = failures.damaged(place, f"what was stored of the budget {row.name} cannot be read")
            if damaged is None:
                raise error from exc
            damaged.append(error)
            so_far.clear()
            continue
        so_far.append(StoredBudget(number=row.id, numbers=(row.id,), budget=budget))
    return tuple(
        replace(last, numbers=tuple(each.number for each in history if each.budget.same_rule(last.budget)))
        for history in found.values()
        for last in history[-1:]
    )


def _alerts(
    connection: Connection, stored: StoredBudget, start_us: int, found_since: datetime | None = None
) -> tuple[Alert, ...]:
    """Return the alerts of this period, and those found since in earlier periods; of one found twice, the first."""
    period = alerts.c.period_start_us == start_us
    if found_since is not None:
        period |= (alerts.c.period_start_us < start_us) & (alerts.c.at_us >= to_microseconds(found_since))
    query = select(alerts).where(alerts.c.budget.in_(stored.numbers), period)
    rows = list(connection.execute(query.order_by(alerts.c.period_start_us, alerts.c.threshold, alerts.c.id)))
    numbers = [row.id for row in rows]
    tries = {
        row.alert: row
        for row in connection.execute(
            select(
                alert_attempts.c.alert,
                func.max(alert_attempts.c.number).label("number"),
                func.max(alert_attempts.c.at_us).label("at_us"),
            )
            .where(alert_attempts.c.alert.in_(numbers))
            .group_by(alert_attempts.c.alert)
        )
    }
    results: dict[int, list[Any]] = {}
    for row in connection.execute(
        select(alert_results).where(alert_results.c.alert.in_(numbers)).order_by(alert_results.c.number)
    ):
        results.setdefault(row.alert, []).append(row)
    found: dict[tuple[int, int], Alert] = {}
    for row in rows:
        alert = _alert(row, tries.get(row.id), results.get(row.id, []))
        found.setdefault((row.period_start_us, row.threshold), alert)
    return tuple(found.values())


def _alert(row: Any, tried: Any, results: Sequence[Any]) -> Alert:
    told = next((result for result in results if result.delivered), None)
    last = told or (results[-1] if results else None)
    over = last is not None and (told is not None or tried is None or last.number >= tried.number)
    return Alert(
        number=row.id,
        period_start=instant(row.period_start_us),
        threshold=whole(row.threshold),
        crossed_at=instant(row.at_us),
        spent_usd=from_nano(row.nano_usd),
        attempts=tried.number if tried else 0,
        last_attempt_at=instant(tried.at_us) if tried else None,
        delivered=bool(last.delivered) if over and last else None,
        told_at=instant(told.at_us) if told else None,
        detail=text(last.detail) if last else "",
    )


def _start(period: Period) -> datetime:
    return EPOCH if period.start is None else period.start

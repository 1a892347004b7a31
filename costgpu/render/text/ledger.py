"""History, totals, accuracy, and metered beside billed costs, as text and as JSON documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from costgpu.ledger.costs.closed_runs import ClosedRun
from costgpu.ledger.costs.export import document as run_value
from costgpu.ledger.costs.export import plain_decimal
from costgpu.ledger.costs.totals import SpendTotal, total_of
from costgpu.ledger.records.billed import LATE, Compared
from costgpu.models.job import EndReason
from costgpu.providers import registry
from costgpu.render.document import document
from costgpu.render.phrases import counted
from costgpu.render.text.layout import Column, table, wrap
from costgpu.units import format_duration, format_usd

if TYPE_CHECKING:
    from costgpu.ledger.records.accuracy import Accuracy, Comparison

HISTORY_COLUMNS: tuple[Column[ClosedRun], ...] = (
    Column("RUN", lambda run: run.run_id, width=12),
    Column("JOB", lambda run: run.name, width=10),
    Column("BEGAN (UTC)", lambda run: f"{run.started_at or run.created_at:%Y-%m-%d %H:%M}"),
    Column("WHERE", lambda run: registry.label(run.provider) or run.instance_type or "-", width=13),
    Column("TIME", lambda run: format_duration(run.metered_seconds) if run.metered_seconds else "-", True, 7),
    Column("COST", lambda run: _usd(run.metered_cost_usd, "?"), True, 9),
    Column("END", lambda run: EndReason(run.reason).word if run.reason in list(EndReason) else run.reason, width=9),
)
ACCURACY_COLUMNS: tuple[Column[Comparison], ...] = (
    Column("RUN", lambda one: one.run.run_id, width=12),
    Column("WHERE", lambda one: registry.label(one.run.provider) or one.run.instance_type, width=13),
    Column("ESTIMATE", lambda one: format_duration(one.estimated), True),
    Column("TOOK", lambda one: format_duration(one.actual), True),
    Column("ERROR", lambda one: f"{one.time_error:+.0%}{'!' if one.held is False else ''}", True),
    Column("ESTIMATE", lambda one: _usd(one.run.estimated_cost_usd), True),
    Column("METERED", lambda one: _usd(one.run.metered_cost_usd), True),
    Column("BILLED", lambda one: _usd(one.billed_usd), True),
)


def history_text(runs: Sequence[ClosedRun], *, selected: bool, limit: int) -> str:
    """One line a run, newest first."""
    if not runs:
        return "No such runs." if selected else "No closed runs yet. costgpu run train.py starts one."
    lines = table(HISTORY_COLUMNS, runs)
    if limit and len(runs) == limit:
        lines.append(f"The newest {limit}; --limit 0 shows all, costgpu ledger --by month sums up.")
    return "\n".join(lines)


def history_json(runs: Sequence[ClosedRun], now: datetime) -> str:
    """Return the same as a versioned document; as `costgpu ledger export --format json`."""
    return document("costgpu.ledger", at=now, runs=[run_value(run) for run in runs])


def totals_text(found: Sequence[SpendTotal], by: str, since: datetime | None, until: datetime | None) -> str:
    """One line a group, and the sum."""
    if not found:
        return "No such runs."
    total = total_of(found, "in all")
    columns: tuple[Column[SpendTotal], ...] = (
        Column(by.upper(), lambda group: group.key or "(none)", width=34),
        Column("RUNS", lambda group: f"{group.runs:,}", right=True),
        Column("HOURS", lambda group: _hours(group.machine_seconds), right=True),
        Column("COST", lambda group: format_usd(group.cost_usd), right=True),
        Column("WASTED", lambda group: format_usd(group.wasted_usd), right=True),
    )
    lines = table(columns, [*found, total] if len(found) > 1 else found, gap="  ")
    if since is not None or until is not None:
        begin = f"from {since:%Y-%m-%d %H:%M} UTC" if since else ""
        end = f"before {until:%Y-%m-%d %H:%M} UTC" if until else ""
        lines.append(f"Charged {' and '.join(filter(None, (begin, end)))}.")
    if total.wasted_usd:
        share = float(total.wasted_usd / total.cost_usd)
        lines.append(f"Wasted: runs that failed, were lost or idled, {share:.0%} of the cost.")
    return "\n".join(lines)


def totals_json(
    found: Sequence[SpendTotal], by: str, since: datetime | None, until: datetime | None, now: datetime
) -> str:
    """Return the same as a versioned document."""
    return document(
        "costgpu.ledger-totals",
        at=now,
        by=by,
        since=since,
        until=until,
        groups=[_total_value(group, group.key or None) for group in found],
        total=_total_value(total_of(found), None),
    )


def _total_value(group: SpendTotal, key: str | None) -> dict[str, Any]:
    return {
        "key": key,
        "runs": group.runs,
        "machine_hours": group.machine_seconds / 3600,
        "cost_usd": plain_decimal(group.cost_usd),
        "wasted_usd": plain_decimal(group.wasted_usd),
    }


def accuracy_text(groups: Sequence[Accuracy], newest_first: Sequence[Comparison]) -> str:
    """Return how good the estimates were, and the runs that say so."""
    if not groups:
        return "Nothing to compare yet: no run that had an estimate has succeeded."
    whole = groups[0]
    cost = "" if whole.median_cost_error is None else f", of the cost {_percent(whole.median_cost_error)}"
    lines = [
        f"{counted(whole.runs, 'run')} compared. Median error of the time {_percent(whole.median_time_error)}{cost}."
    ]
    if whole.intervals:
        share = whole.held / whole.intervals
        lines.append(f"The 80 % interval held for {whole.held} of {whole.intervals} ({share:.0%}).")
    if whole.median_billed_error is not None:
        runs = counted(whole.billed_runs, "run")
        lines.append(f"Billed differs from metered by {_percent(whole.median_billed_error)} ({runs}).")
    for group in groups[1:] if len(groups) > 2 else ():
        cost = "" if group.median_cost_error is None else f", cost {_percent(group.median_cost_error)}"
        held = f", interval held for {group.held} of {group.intervals}" if group.intervals else ""
        time = _percent(group.median_time_error)
        lines.append(f"  {group.provider}: {counted(group.runs, 'run')}, time {time}{cost}{held}")
    lines += ["", *table(ACCURACY_COLUMNS, newest_first)]
    if any(one.held is False for one in newest_first):
        lines.append("! outside the 80 % interval of the estimate")
    return "\n".join(lines)


def accuracy_json(groups: Sequence[Accuracy], found: Sequence[Comparison], now: datetime) -> str:
    """Return the same as a versioned document, oldest run first."""
    runs = [
        {
            **run_value(one.run),
            "billed_cost_usd": None if one.billed_usd is None else plain_decimal(one.billed_usd),
            "time_error": one.time_error,
            "cost_error": one.cost_error,
            "interval_held": one.held,
        }
        for one in found
    ]
    summaries = [{**asdict(group), "provider": group.provider or None} for group in groups]
    return document("costgpu.accuracy", at=now, groups=summaries, runs=runs)


def _percent(value: float) -> str:
    return f"{value:.0%}" if value >= 0.1 else f"{value:.1%}"


def _usd(amount: Decimal | None, unknown: str = "-") -> str:
    return unknown if amount is None else format_usd(amount)


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.0f}" if hours >= 1000 else f"{hours:.1f}" if hours >= 10 else f"{hours:.2f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledPeriod:
    """Metered and billed amounts of a period."""

    rows: Sequence[Compared]
    start: datetime
    end: datetime  # exclusive
    sources: Sequence[tuple[str, datetime]] = ()  # who was asked, and when
    notes: Sequence[str] = ()  # what the providers have to add


def billed_text(found: BilledPeriod, now: datetime) -> str:
    """One line for each run, their sum, and how old the figures are.

    The sums are compared only where both amounts of every run are known.
    """
    runs = [row for row in found.rows if row.run_id]
    lines = [f"Billed from {found.start:%Y-%m-%d} to {found.end - timedelta(days=1):%Y-%m-%d} (UTC)"]
    complete = all(row.metered_usd is not None and row.billed_usd is not None for row in runs)
    total = _billed_sum(runs)
    columns: tuple[Column[Compared], ...] = (
        Column("RUN", lambda row: row.run_id),
        Column("JOB", lambda row: "" if row is total else row.name or "-", width=23),
        Column("METERED", lambda row: _usd(row.metered_usd), right=True),
        Column("BILLED", lambda row: _usd(row.billed_usd), right=True),
        Column("DIFFERENCE", lambda row: "-" if row is total and not complete else _difference(row), right=True),
    )
    rows = table(columns, [*runs, total] if len(runs) > 1 else runs, gap="  ")
    lines += rows if runs else ["No run was metered or billed in these days."]
    if untagged := _untagged(found.rows):
        lines.append(f"Without a run's tag, the whole account: {format_usd(untagged)}")
    for name, at in found.sources:
        age = (now - at).total_seconds()
        lines.append(f"{name}, asked {'just now' if age < 60 else f'{format_duration(age)} ago'}.")
    if now - found.end < LATE:
        lines.append("The last two days may not be complete: bills come about a day late.")
    return "\n".join([*lines, *map(wrap, found.notes)])


def billed_json(found: BilledPeriod, now: datetime) -> str:
    """Return the same as a versioned document."""
    runs = [row for row in found.rows if row.run_id]
    total = _billed_sum(runs)
    return document(
        "costgpu.billed",
        at=now,
        start=found.start,
        end=found.end,
        runs=runs,
        metered_usd=total.metered_usd,
        billed_usd=total.billed_usd,
        untagged_billed_usd=_untagged(found.rows),
        sources=[{"name": name, "asked_at": at} for name, at in found.sources],
        notes=found.notes,
    )


def _untagged(rows: Sequence[Compared]) -> Decimal | None:
    return next((row.billed_usd for row in rows if not row.run_id), None)


def _billed_sum(runs: Sequence[Compared]) -> Compared:
    """Return the sum of each column, as far as it is known."""

    def known(amounts: Iterable[Decimal | None]) -> Decimal | None:
        found = [amount for amount in amounts if amount is not None]
        return sum(found, Decimal(0)) if found else None

    metered, billed = known(row.metered_usd for row in runs), known(row.billed_usd for row in runs)
    return Compared(run_id="in all", name="", metered_usd=metered, billed_usd=billed)


def _difference(row: Compared) -> str:
    if row.metered_usd is None or row.billed_usd is None:
        return "-"
    sign = "-" if row.billed_usd < row.metered_usd else "+"
    share = f" ({float(row.billed_usd / row.metered_usd - 1):+.0%})" if row.metered_usd else ""
    return f"{sign}{format_usd(abs(row.billed_usd - row.metered_usd))}{share}"

"""Metered beside billed costs, as text and as a JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from costgpu.ledger.records.billed import Compared
from costgpu.render.document import document
from costgpu.render.text.layout import Column, table, wrap
from costgpu.units import format_duration, format_usd

LATE = timedelta(hours=48)  # bills of the last days are not complete


def billed_text(
    rows: Sequence[Compared],
    start: datetime,
    end: datetime,
    now: datetime,
    *,
    sources: Sequence[tuple[str, datetime]],
    notes: Sequence[str] = (),
) -> str:
    """One line for each run, their sum, and how old the figures are.

    Args:
        rows: Runs as `costgpu.ledger.records.billed.compare_with_bills` gives them.
        start: Beginning of the period.
        end: End of the period, exclusive.
        now: The present.
        sources: Who was asked, and when.
        notes: What the providers have to add.
    """
    runs = [row for row in rows if row.run_id]
    lines = [f"Billed from {start:%Y-%m-%d} to {end - timedelta(days=1):%Y-%m-%d} (UTC)"]
    if runs:
        lines += _table(runs)
    else:
        lines.append("No run was metered or billed in these days.")
    untagged = _untagged(rows)
    if untagged:
        lines.append(f"Without a run's tag, the whole account: {format_usd(untagged)}")
    lines += [f"{name}, {_asked(now - at)}." for name, at in sources]
    if now - end < LATE:
        lines.append("The last two days may not be complete: bills come about a day late.")
    return "\n".join([*lines, *map(wrap, notes)])


def billed_json(
    rows: Sequence[Compared],
    start: datetime,
    end: datetime,
    now: datetime,
    *,
    sources: Sequence[tuple[str, datetime]],
    notes: Sequence[str] = (),
) -> str:
    """The same as a versioned document."""
    runs = [row for row in rows if row.run_id]
    total = _sum(runs)
    return document(
        "costgpu.billed",
        at=now,
        start=start,
        end=end,
        runs=runs,
        metered_usd=total.metered_usd,
        billed_usd=total.billed_usd,
        untagged_billed_usd=_untagged(rows),
        sources=[{"name": name, "asked_at": at} for name, at in sources],
        notes=notes,
    )


def _table(runs: Sequence[Compared]) -> list[str]:
    """The sums are only compared where both amounts of every run are known."""
    complete = all(row.metered_usd is not None and row.billed_usd is not None for row in runs)
    total = _sum(runs)
    columns: tuple[Column[Compared], ...] = (
        Column("RUN", lambda row: row.run_id),
        Column("JOB", lambda row: "" if row is total else row.name or "-", width=23),
        Column("METERED", lambda row: _usd(row.metered_usd), right=True),
        Column("BILLED", lambda row: _usd(row.billed_usd), right=True),
        Column("DIFFERENCE", lambda row: "-" if row is total and not complete else _difference(row), right=True),
    )
    return table(columns, [*runs, total] if len(runs) > 1 else runs, gap="  ")


def _untagged(rows: Sequence[Compared]) -> Decimal | None:
    return next((row.billed_usd for row in rows if not row.run_id), None)


def _sum(runs: Sequence[Compared]) -> Compared:
    """The sum of each column, as far as it is known."""
    metered = [row.metered_usd for row in runs if row.metered_usd is not None]
    billed = [row.billed_usd for row in runs if row.billed_usd is not None]
    return Compared(
        run_id="in all",
        name="",
        metered_usd=sum(metered, Decimal(0)) if metered else None,
        billed_usd=sum(billed, Decimal(0)) if billed else None,
    )


def _difference(row: Compared) -> str:
    if row.metered_usd is None or row.billed_usd is None:
        return "-"
    sign = "-" if row.billed_usd < row.metered_usd else "+"
    share = f" ({float(row.billed_usd / row.metered_usd - 1):+.0%})" if row.metered_usd else ""
    return f"{sign}{format_usd(abs(row.billed_usd - row.metered_usd))}{share}"


def _usd(amount: Decimal | None) -> str:
    return "-" if amount is None else format_usd(amount) if amount >= 0 else f"-{format_usd(-amount)}"


def _asked(age: timedelta) -> str:
    seconds = age.total_seconds()
    return "asked just now" if seconds < 60 else f"asked {format_duration(seconds)} ago"

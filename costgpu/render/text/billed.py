"""Metered beside billed, as text for 80 columns and as a JSON document. Result -> str; no I/O."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from costgpu.ledger.records.billed import Compared
from costgpu.units import format_duration, format_usd

WIDTH = 80
VERSION = 1
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
    """One line a run, the sum, and how old it is.

    Args:
        rows: From `costgpu.ledger.records.billed.compared`.
        start: Of the period.
        end: Of the period, exclusive.
        now: To say how old the figures are.
        sources: Who said so, and when.
        notes: Of the providers.
    """
    runs = [row for row in rows if row.run_id]
    lines = [f"Billed from {start:%Y-%m-%d} to {end - timedelta(days=1):%Y-%m-%d} (UTC)"]
    if runs:
        lines.append(f"{'RUN':<14}{'JOB':<24}{'METERED':>12}{'BILLED':>12}{'DIFFERENCE':>16}")
        lines += [_line(row.run_id, row.name or "-", row.metered_usd, row.billed_usd) for row in runs]
        if len(runs) > 1:
            both = all(row.metered_usd is not None and row.billed_usd is not None for row in runs)
            lines.append(_line("in all", "", *_sums(runs), compare=both))
    else:
        lines.append("No run was metered or billed in these days.")
    untagged = next((row.billed_usd for row in rows if not row.run_id), None)
    if untagged:
        lines.append(f"Without a run's tag, the whole account: {format_usd(untagged)}")
    lines += [f"{name}, {_age(now - at)}." for name, at in sources]
    if now - end < LATE:
        lines.append("The last two days may not be complete: bills come about a day late.")
    lines += [textwrap.fill(note, WIDTH, break_on_hyphens=False) for note in notes]
    return "\n".join(lines)


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
    metered, billed = _sums([row for row in rows if row.run_id])
    document = {
        "schema": "costgpu.billed",
        "version": VERSION,
        "at": now.isoformat(),
        "start": start.isoformat(),
        "end": end.isoformat(),
        "runs": [_plain(row) for row in rows if row.run_id],
        "metered_usd": _text(metered),
        "billed_usd": _text(billed),
        "untagged_billed_usd": _text(next((row.billed_usd for row in rows if not row.run_id), None)),
        "sources": [{"name": name, "asked_at": at.isoformat()} for name, at in sources],
        "notes": list(notes),
    }
    return json.dumps(document, indent=2)


def _sums(rows: Sequence[Compared]) -> tuple[Decimal | None, Decimal | None]:
    """Of each column, as far as it is known."""
    metered = [row.metered_usd for row in rows if row.metered_usd is not None]
    billed = [row.billed_usd for row in rows if row.billed_usd is not None]
    return sum(metered, Decimal(0)) if metered else None, sum(billed, Decimal(0)) if billed else None


def _line(run: str, job: str, metered: Decimal | None, billed: Decimal | None, *, compare: bool = True) -> str:
    difference = "-"
    if compare and metered is not None and billed is not None:
        sign = "-" if billed < metered else "+"
        part = f" ({float(billed / metered - 1):+.0%})" if metered else ""
        difference = f"{sign}{format_usd(abs(billed - metered))}{part}"
    job = job if len(job) <= 23 else f"{job[:22]}…"
    return f"{run:<14}{job:<24}{_money(metered):>12}{_money(billed):>12}{difference:>16}".rstrip()


def _money(amount: Decimal | None) -> str:
    return "-" if amount is None else format_usd(amount) if amount >= 0 else f"-{format_usd(-amount)}"


def _age(age: timedelta) -> str:
    seconds = age.total_seconds()
    return "asked just now" if seconds < 60 else f"asked {format_duration(seconds)} ago"


def _plain(row: Compared) -> dict[str, Any]:
    return {
        "run_id": row.run_id,
        "name": row.name,
        "metered_usd": _text(row.metered_usd),
        "billed_usd": _text(row.billed_usd),
    }


def _text(amount: Decimal | None) -> str | None:
    return None if amount is None else f"{amount:f}"

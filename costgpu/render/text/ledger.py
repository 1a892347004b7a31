"""History, totals and accuracy as text for 80 columns and as JSON documents. Result -> str; no I/O."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from costgpu.ledger.queries.export import document, plain_decimal
from costgpu.units import format_duration, format_usd

if TYPE_CHECKING:
    from costgpu.ledger.queries.accuracy import Accuracy, Comparison
    from costgpu.ledger.queries.history import ClosedRun
    from costgpu.ledger.queries.totals import Total

WIDTH = 80
VERSION = 1
NONE = "(none)"
ENDS = {
    "succeeded": "ok",
    "job_failed": "failed",
    "setup_failed": "set-up",
    "max_duration": "limit",
    "deadline": "deadline",
    "disk_full": "disk",
    "no_capacity": "no place",
    "provision_failed": "refused",
    "boot_failed": "no boot",
    "host_key_mismatch": "host key",
    "machine_unusable": "unusable",
    "sync_failed": "not sent",
    "instance_lost": "lost",
    "lease_expired": "reaped",
}


def history_text(runs: Sequence[ClosedRun], *, selected: bool, limit: int) -> str:
    """One line a run, newest first."""
    if not runs:
        return "No such runs." if selected else "No closed runs yet. costgpu run train.py starts one."
    lines = [f"{'RUN':<13}{'JOB':<11}{'BEGAN (UTC)':<17}{'WHERE':<13}{'TIME':>7}{'COST':>9} END"]
    for run in runs:
        began = run.started_at or run.created_at
        time = format_duration(run.metered_seconds) if run.metered_seconds else "-"
        cost = "?" if run.metered_cost_usd is None else _usd(run.metered_cost_usd)
        where = "this machine" if run.provider == "local" else run.instance_type or "-"
        end = ENDS.get(run.reason, run.reason)
        lines.append(
            f"{_cut(run.run_id, 12):<13}{_cut(run.name, 10):<11}{began:%Y-%m-%d %H:%M} {_cut(where, 12):<13}"
            f"{_cut(time, 7):>7}{_cut(cost, 9):>9} {_cut(end, 9)}".rstrip()
        )
    if limit and len(runs) == limit:
        lines.append(f"The newest {limit}; --limit 0 shows all, costgpu ledger --by month sums up.")
    return "\n".join(lines)


def history_json(runs: Sequence[ClosedRun], now: datetime) -> str:
    """The same as a versioned document; as `costgpu ledger export --format json`."""
    return _document("costgpu.ledger", at=now.isoformat(), runs=[document(run) for run in runs])


def totals_text(found: Sequence[Total], by: str, since: datetime | None, until: datetime | None) -> str:
    """One line a group, and the sum."""
    if not found:
        return "No such runs."
    rows = [
        (
            total.key or NONE,
            f"{total.runs:,}",
            _hours(total.machine_seconds),
            _usd(total.cost_usd),
            _usd(total.wasted_usd),
        )
        for total in found
    ]
    runs, seconds, cost, wasted = _sum(found)
    lines = [_total_line((by.upper(), "RUNS", "HOURS", "COST", "WASTED"))]
    lines += [_total_line(row) for row in rows]
    if len(found) > 1:
        lines.append(_total_line(("in all", f"{runs:,}", _hours(seconds), _usd(cost), _usd(wasted))))
    if since is not None or until is not None:
        begin = f"from {since:%Y-%m-%d %H:%M} UTC" if since else ""
        end = f"before {until:%Y-%m-%d %H:%M} UTC" if until else ""
        lines.append(f"Charged {' and '.join(filter(None, (begin, end)))}.")
    if wasted:
        lines.append(f"Wasted: runs that failed, were lost or idled, {float(wasted / cost):.0%} of the cost.")
    return "\n".join(lines)


def _total_line(cells: tuple[str, str, str, str, str]) -> str:
    key, runs, hours, cost, wasted = cells
    return f"{_cut(key, 34):<34}{runs:>9}{hours:>11}{cost:>13}{wasted:>13}"


def _sum(found: Sequence[Total]) -> tuple[int, float, Decimal, Decimal]:
    return (
        sum(total.runs for total in found),
        sum(total.machine_seconds for total in found),
        sum((total.cost_usd for total in found), Decimal(0)),
        sum((total.wasted_usd for total in found), Decimal(0)),
    )


def totals_json(found: Sequence[Total], by: str, since: datetime | None, until: datetime | None, now: datetime) -> str:
    """The same as a versioned document."""
    runs, seconds, cost, wasted = _sum(found)
    return _document(
        "costgpu.ledger-totals",
        at=now.isoformat(),
        by=by,
        since=since.isoformat() if since else None,
        until=until.isoformat() if until else None,
        groups=[_total(t.key or None, t.runs, t.machine_seconds, t.cost_usd, t.wasted_usd) for t in found],
        total=_total(None, runs, seconds, cost, wasted),
    )


def _total(key: str | None, runs: int, seconds: float, cost: Decimal, wasted: Decimal) -> dict[str, Any]:
    return {
        "key": key,
        "runs": runs,
        "machine_hours": seconds / 3600,
        "cost_usd": plain_decimal(cost),
        "wasted_usd": plain_decimal(wasted),
    }


def accuracy_text(groups: Sequence[Accuracy], newest_first: Sequence[Comparison]) -> str:
    """How good the estimates were, and the runs that say so."""
    if not groups:
        return "Nothing to compare yet: no run that had an estimate has succeeded."
    lines = [_verdict(groups[0])]
    if len(groups) > 2:
        lines += [f"  {group.provider}: {_short(group)}" for group in groups[1:]]
    lines += [
        "",
        f"{'RUN':<13}{'WHERE':<13}{'ESTIMATE':>9}{'TOOK':>8}{'ERROR':>8}{'ESTIMATE':>10}{'METERED':>9}{'BILLED':>9}",
    ]
    for one in newest_first:
        run = one.run
        where = "this machine" if run.provider == "local" else run.instance_type
        mark = "" if one.held is not False else "!"
        lines.append(
            f"{_cut(run.run_id, 12):<13}{_cut(where, 12):<13}{format_duration(run.estimated_seconds or 0):>9}"
            f"{format_duration(run.metered_seconds or 0):>8}{f'{one.time_error:+.0%}{mark}':>8}"
            f"{_known(run.estimated_cost_usd):>10}{_known(run.metered_cost_usd):>9}{_known(one.billed_usd):>9}"
        )
    if any(one.held is False for one in newest_first):
        lines.append("! outside the 80 % interval of the estimate")
    return "\n".join(lines)


def _verdict(group: Accuracy) -> str:
    lines = [f"{_runs(group.runs)} compared. Median error of the time {_percent(group.median_time_error)}"]
    if group.median_cost_error is not None:
        lines[0] += f", of the cost {_percent(group.median_cost_error)}"
    lines[0] += "."
    if group.intervals:
        share = group.held / group.intervals
        lines.append(f"The 80 % interval held for {group.held} of {group.intervals} ({share:.0%}).")
    if group.median_billed_error is not None:
        lines.append(
            f"Billed differs from metered by {_percent(group.median_billed_error)} ({_runs(group.billed_runs)})."
        )
    return "\n".join(lines)


def _short(group: Accuracy) -> str:
    cost = "" if group.median_cost_error is None else f", cost {_percent(group.median_cost_error)}"
    held = f", interval held for {group.held} of {group.intervals}" if group.intervals else ""
    return f"{_runs(group.runs)}, time {_percent(group.median_time_error)}{cost}{held}"


def accuracy_json(groups: Sequence[Accuracy], found: Sequence[Comparison], now: datetime) -> str:
    """The same as a versioned document, oldest run first."""
    runs = [
        {
            **document(one.run),
            "billed_cost_usd": None if one.billed_usd is None else plain_decimal(one.billed_usd),
            "time_error": one.time_error,
            "cost_error": one.cost_error,
            "interval_held": one.held,
        }
        for one in found
    ]
    summaries = [{**asdict(group), "provider": group.provider or None} for group in groups]
    return _document("costgpu.accuracy", at=now.isoformat(), groups=summaries, runs=runs)


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count:,} runs"


def _percent(value: float) -> str:
    return f"{value:.0%}" if value >= 0.1 else f"{value:.1%}"


def _known(amount: Decimal | None) -> str:
    return "-" if amount is None else _usd(amount)


def _usd(amount: Decimal) -> str:
    return format_usd(amount) if amount >= 0 else f"-{format_usd(-amount)}"


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.0f}" if hours >= 1000 else f"{hours:.1f}" if hours >= 10 else f"{hours:.2f}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _document(kind: str, **parts: Any) -> str:
    return json.dumps({"schema": kind, "version": VERSION, **parts}, indent=2)

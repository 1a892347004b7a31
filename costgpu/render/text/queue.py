"""The queue as text and as a JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from costgpu.models.run import RunState, RunView
from costgpu.render.document import document
from costgpu.render.text.layout import Column, table, wrap
from costgpu.render.text.run import machine_name, run_value
from costgpu.units import format_duration, format_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRun:
    """A run of the queue, and what it waits for."""

    view: RunView
    waits_for: str  # a sentence without its full stop; empty if it may start
    holds_others: bool = True  # whether what came after it waits behind it


def queue_text(found: Sequence[WaitingRun], now: datetime) -> str:
    """Return a line for each run, in the order in which they are started, and what each waits for."""
    if not found:
        return "Nothing waits. costgpu run --queue train.py puts a run into the queue."
    columns: tuple[Column[WaitingRun], ...] = (
        Column("RUN", lambda item: item.view.run_id),
        Column("JOB", lambda item: item.view.name, width=14),
        Column("WHERE", lambda item: machine_name(item.view.options[0].offer), width=18),
        Column(
            "WAITS", lambda item: format_duration(max(1.0, (now - item.view.created_at).total_seconds())), right=True
        ),
        Column("AT MOST", lambda item: format_usd(item.view.options[0].lease.worst_cost_usd), right=True),
    )
    lines = table(columns, found)
    for item in found:
        why = f"waits for {item.waits_for}" if item.waits_for else "may start: costgpu queue --start"
        lines.append(wrap(f"{item.view.run_id} {why}", rest="  "))
    return "\n".join(lines)


def queue_json(found: Sequence[WaitingRun], now: datetime) -> str:
    """Return the same as a versioned document."""
    return document(
        "costgpu.queue",
        at=now,
        waiting=[{"run": run_value(item.view, now), "waits_for": item.waits_for or None} for item in found],
    )


def queued_text(view: RunView, position: int) -> str:
    """Return what a person should know who has put a run into the queue."""
    return wrap(
        f"Run {view.run_id} ({view.name}) waits, as number {position} in the queue. costgpu queue shows what for;"
        f" costgpu queue --start, in crontab or by hand, starts it when it may; costgpu cancel {view.run_id} takes it out.",
        rest="  ",
    )


def started_text(view: RunView) -> str:
    """Return what has become of a run that was started."""
    if view.state is RunState.CLOSED:
        reason = view.reason.words if view.reason is not None else "closed"
        return wrap(f"Run {view.run_id} ({view.name}) could not be started: {reason}.", rest="  ")
    how = "runs" if view.state is RunState.RUNNING else f"is {view.state.value}"
    return wrap(
        f"Run {view.run_id} ({view.name}) {how}. costgpu attach {view.run_id} watches it and fetches its outputs.",
        rest="  ",
    )

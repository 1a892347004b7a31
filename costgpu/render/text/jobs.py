"""The list of runs that `costgpu jobs` prints. A new column is one more entry in `run_fields`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from costgpu.models.run import RunState
from costgpu.render.document import document
from costgpu.render.phrases import THIS_MACHINE
from costgpu.render.text.layout import Column, table
from costgpu.units import format_duration, format_usd

if TYPE_CHECKING:
    from costgpu.models.offer import Offer
    from costgpu.models.reap import TaggedInstance
    from costgpu.models.run import RunView


@dataclass(frozen=True, slots=True)
class RunField:
    """What is told of a run, in the JSON document and perhaps in the table, too.

    Attributes:
        key: Its name in the document.
        value: Its value there.
        column: Its place in the table; None to leave it out.
    """

    key: str
    value: Callable[[RunView], Any]
    column: Column[RunView] | None = None


def run_fields(now: datetime | None) -> tuple[RunField, ...]:
    """Everything that is told of a run, in the order of the table; open runs are metered until `now`."""

    def metered(view: RunView) -> tuple[float, Decimal] | tuple[None, None]:
        return view.metered_at_most(now) if now is not None and view.receipt is None else (None, None)

    def age(view: RunView) -> str:
        return format_duration(max(1.0, (now - view.created_at).total_seconds())) if now else ""

    def cost(view: RunView) -> str:
        return format_usd(view.receipt.metered_cost_usd if view.receipt else metered(view)[1] or 0)

    return (
        RunField("run_id", lambda view: view.run_id, Column("RUN", lambda view: view.run_id)),
        RunField("name", lambda view: view.name, Column("JOB", lambda view: view.name, width=14)),
        RunField("state", lambda view: view.state, Column("STATE", _state, width=13)),
        RunField("reason", lambda view: view.reason),
        RunField("owner", lambda view: view.owner),
        RunField("instance", lambda view: view.instance),
        RunField("offer", _offer, Column("WHERE", _machine, width=18)),
        RunField("created_at", lambda view: view.created_at, Column("SINCE", age, right=True, width=7)),
        RunField("lease_until", lambda view: view.lease_until),
        RunField("status", lambda view: view.status),
        RunField("outputs_home", lambda view: view.collected),
        RunField("metered_seconds", lambda view: metered(view)[0]),
        RunField("metered_cost_usd", lambda view: metered(view)[1], Column("COST", cost, right=True)),
    )


def jobs_text(views: Sequence[RunView], tagged: Sequence[TaggedInstance], now: datetime) -> str:
    """One line for each run, how long open ones' leases last, and the machines that only their tags tell of."""
    if not views and not tagged:
        return "No runs. costgpu run train.py starts one."
    lines = table([field.column for field in run_fields(now) if field.column], views) if views else []
    for view in views:
        if view.state not in (RunState.CLOSED, RunState.INTENT) and view.lease_until:
            ref = view.instance.instance_id if view.instance else "being created"
            lines.append(f"{view.run_id}: {ref}, {lease_left(view.lease_until, now)}")
    if tagged:
        columns: tuple[Column[TaggedInstance], ...] = (
            Column("TAGGED RUN", lambda item: item.run_id),
            Column("JOB", lambda item: item.instance.name, width=14),
            Column("STATE", lambda item: item.instance.state.value),
            Column("WHERE", lambda item: item.instance.instance_type, width=18),
            Column("LEASE", lambda item: lease_left(item.instance.lease_until, now), right=True),
        )
        lines += table(columns, tagged)
    return "\n".join(lines)


def jobs_json(views: Sequence[RunView], tagged: Sequence[TaggedInstance], now: datetime) -> str:
    """The list as a versioned document."""
    runs, machines = [run_value(view, now) for view in views], [item.instance for item in tagged]
    return document("costgpu.jobs", at=now, runs=runs, tagged=machines)


def run_value(view: RunView, now: datetime | None = None) -> dict[str, Any]:
    """A run as a part of a document."""
    return {field.key: field.value(view) for field in run_fields(now)}


def lease_left(until: datetime | None, now: datetime) -> str:
    """``2.0 h left``, ``5 min over``."""
    if until is None:
        return "no lease"
    seconds = (until - now).total_seconds()
    return f"{format_duration(seconds)} left" if seconds > 0 else f"{format_duration(-seconds)} over"


def _state(view: RunView) -> str:
    reason = view.reason if view.state is RunState.CLOSED else None
    return reason.value.replace("_", " ") if reason else view.state.value


def _offer(view: RunView) -> Offer | None:
    return view.option.offer if view.option else None


def _machine(view: RunView) -> str:
    offer = _offer(view)
    return "-" if offer is None else THIS_MACHINE if offer.provider == "local" else offer.instance_type

"""Closed runs with all that is known of them: for lists, exports, and to hold estimates against what happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, select

from costgpu.ledger.costs.charges import RunFilter, conditions, pages, run_named
from costgpu.ledger.dialect import batches
from costgpu.ledger.schema import (
    CLOSING_TEXTS,
    ESTIMATED_COSTS,
    ESTIMATED_SECONDS,
    closings,
    from_nano,
    instant,
    number,
    outcomes,
    run_tags,
    runs,
    text,
)
from costgpu.ledger.store import Ledger
from costgpu.models.job import EndReason


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedRun:
    """One closed run. Texts are empty, and numbers None, where nothing is known. Exports have its fields as columns."""

    run_id: str
    name: str
    owner: str
    tags: Mapping[str, str]
    created_at: datetime
    closed_at: datetime
    reason: str
    ended_by: str
    provider: str
    account: str
    region: str
    zone: str
    instance_type: str
    instance_id: str
    purchase_option: str
    accelerator: str
    accelerator_count: float | None
    started_at: datetime | None  # the create call: what is charged begins here
    ended_at: datetime | None  # the confirmed end
    metered_seconds: float | None
    metered_cost_usd: Decimal | None
    job_seconds: float | None  # the job alone, without boot and set-up
    estimated_seconds: float | None  # from the create call to the end, with its interval
    estimated_seconds_low: float | None
    estimated_seconds_high: float | None
    estimated_cost_usd: Decimal | None
    estimated_cost_usd_low: Decimal | None
    estimated_cost_usd_high: Decimal | None


def closed_runs(
    ledger: Ledger,
    selection: RunFilter,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    only_estimated: bool = False,
    newest_first: bool = False,
    limit: int | None = None,
) -> Iterator[ClosedRun]:
    """Yield the closed runs that were charged for at some time of [since, until), in the order in which they began.

    A run that never had a machine counts by when it was closed. The rows stream: a few thousand are in memory at a time.

    Args:
        only_estimated: Only runs that succeeded, and of which it was estimated how long they would take.
        newest_first: The other way round.
        limit: The largest number of runs; None for all.
    """
    query = (
        select(runs.c.run, *(column for column, _ in _FIELDS.values()))
        .join(closings, closings.c.run == runs.c.run)
        .outerjoin(outcomes, outcomes.c.run == runs.c.run)
        .where(*conditions(selection, since, until))
    )
    if only_estimated:
        query = query.where(closings.c.reason == EndReason.SUCCEEDED.value, outcomes.c.estimated_seconds > 0)
    for rows in pages(ledger, query, newest_first=newest_first, limit=limit):
        tags = _tags(ledger, [row.run for row in rows])
        yield from ledger.readable(rows, partial(_closed, tags), run_named)


# Field of `ClosedRun` -> its column, and what reads a cell
_FIELDS: Mapping[str, tuple[ColumnElement[Any], Callable[[object], Any]]] = {
    **{name: (runs.c[name], text) for name in ("run_id", "name", "owner")},
    **{name: (closings.c[name], text) for name in CLOSING_TEXTS},
    **{name: (closings.c[name], number) for name in ("accelerator_count", "metered_seconds")},
    **{name: (outcomes.c[name], number) for name in ("job_seconds", *ESTIMATED_SECONDS)},
    **{name.replace("nano", "cost"): (outcomes.c[name], from_nano) for name in ESTIMATED_COSTS},
    "metered_cost_usd": (closings.c.metered_nano_usd, from_nano),
    "created_at": (runs.c.at_us, instant),
    "closed_at": (closings.c.at_us, instant),
    "started_at": (closings.c.started_us, instant),
    "ended_at": (closings.c.ended_us, instant),
}


def _tags(ledger: Ledger, numbers: Sequence[int]) -> dict[int, dict[str, str]]:
    tags: dict[int, dict[str, str]] = {}
    for some in batches(numbers):
        for run, key, value in ledger.select(select(run_tags).where(run_tags.c.run.in_(some))):
            tags.setdefault(run, {})[str(key)] = str(value)
    return tags


def _closed(tags_of: Mapping[int, Mapping[str, str]], row: Any) -> ClosedRun:
    number_of_run, *cells = row
    known: dict[str, Any] = {
        name: None if cell is None and read is not text else read(cell)
        for (name, (_, read)), cell in zip(_FIELDS.items(), cells, strict=True)
    }
    return ClosedRun(tags=tags_of.get(number_of_run, {}), **known)

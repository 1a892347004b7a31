"""How long jobs took: what the next estimate of the same workload starts from."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import select

from costgpu.ledger.schema import closings, instant, number, outcomes, text
from costgpu.ledger.store import Ledger
from costgpu.models.job import EndReason
from costgpu.models.prediction import MeasuredSpeed

LAST_RUNS = 5  # of a workload on an instance type that count: machines and what is installed on them change
SAME_STEPS = 0.01  # runs whose numbers of steps differ by less are of the same length
AT_MOST = 2000  # rows that are looked at

Place = tuple[str, str]
"""Provider and instance type."""
_Timed = tuple[datetime, float, float | None]
"""When a run was closed, the seconds of its job, and its steps."""


def measured_speeds(
    ledger: Ledger, workload: str, *, here: tuple[str, str] = ("", "")
) -> Mapping[Place, MeasuredSpeed]:
    """Return what the last successful runs of a workload tell about instance types.

    Args:
        workload: Its key; nothing is known of the empty one.
        here: Provider and account of this computer: runs on other people's computers say nothing about it.
    """
    if not workload:
        return {}
    query = (
        select(
            outcomes.c.provider,
            outcomes.c.instance_type,
            outcomes.c.at_us,
            outcomes.c.job_seconds,
            outcomes.c.steps,
            closings.c.account,
        )
        .join(closings, closings.c.run == outcomes.c.run)
        .where(
            outcomes.c.workload == workload, outcomes.c.reason == EndReason.SUCCEEDED.value, outcomes.c.job_seconds > 0
        )
        .order_by(outcomes.c.run.desc())
        .limit(AT_MOST)
    )

    def timed(row: Any) -> tuple[Place, str, _Timed]:
        place = text(row.provider), text(row.instance_type)
        return place, text(row.account), (instant(row.at_us), number(row.job_seconds) or 0.0, number(row.steps))

    groups: dict[Place, list[_Timed]] = {}
    for place, account, one in ledger.readable(ledger.select(query), timed, lambda _: "how long a job has taken"):
        if place[0] != here[0] or account == here[1]:
            groups.setdefault(place, []).append(one)
    return {place: _speed(rows) for place, rows in groups.items()}


def _speed(newest_first: list[_Timed]) -> MeasuredSpeed:
    steps = next((steps for _, _, steps in newest_first if steps is not None), None)
    rows = [
        row
        for row in newest_first
        if steps is None or row[2] is None or abs(row[2] - steps) <= SAME_STEPS * max(row[2], steps)
    ][:LAST_RUNS]
    logs = [math.log(seconds) for _, seconds, _ in rows]
    return MeasuredSpeed(
        job_seconds=statistics.median(seconds for _, seconds, _ in rows),
        runs=len(rows),
        log_spread=statistics.stdev(logs) if len(logs) > 1 else 0.0,
        last_at=max(at for at, _, _ in rows),
        steps=steps,
    )

"""The answers that `costgpu estimate` gave, kept as they were."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from costgpu.files import parse_json
from costgpu.ledger.codec import to_json
from costgpu.ledger.projections import plain
from costgpu.ledger.schema import DamagedCellError, estimates, instant, text, to_microseconds
from costgpu.ledger.store import Ledger
from costgpu.version import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One answer."""

    at: datetime
    workload: str  # its key; empty if there was none
    name: str  # the script or module
    owner: str
    data: Mapping[str, Any]  # the verdict, as JSON values


def record_estimate(ledger: Ledger, estimate: Estimate) -> None:
    """Append an answer."""
    row = {
        "at_us": to_microseconds(estimate.at),
        "workload": plain(estimate.workload),
        "name": plain(estimate.name),
        "owner": plain(estimate.owner),
        "data": json.dumps(to_json(estimate.data), separators=(",", ":"), allow_nan=False),
        "writer": __version__,
    }
    ledger.insert(estimates, [row])


def recent_estimates(ledger: Ledger, limit: int = 50) -> tuple[Estimate, ...]:
    """Return the newest answers, newest first."""
    query = select(estimates).order_by(estimates.c.id.desc()).limit(limit)

    def read(connection: Connection) -> tuple[Estimate, ...]:
        return tuple(ledger.readable(connection.execute(query), _estimate, lambda row: f"estimate {row.id}"))

    return ledger.read(read, ())


def _estimate(row: Any) -> Estimate:
    try:
        data = parse_json(text(row.data))
    except ValueError as exc:
        raise DamagedCellError(str(exc)) from exc
    if not isinstance(data, dict):
        raise DamagedCellError("it is not an object")
    return Estimate(
        at=instant(row.at_us),
        workload=text(row.workload),
        name=text(row.name),
        owner=text(row.owner),
        data=data,
    )

"""The answers that `costgpu estimate` gave, kept as they were."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from costgpu.ledger import failures
from costgpu.ledger.codec import to_json
from costgpu.ledger.projections import plain
from costgpu.ledger.schema import estimates, from_microseconds, to_microseconds
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
    """Appends an answer."""
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
    """The newest answers, newest first."""
    query = select(estimates).order_by(estimates.c.id.desc()).limit(limit)

    def read(connection: Connection) -> tuple[Estimate, ...]:
        return tuple(
            Estimate(
                at=from_microseconds(row.at_us),
                workload=row.workload,
                name=row.name,
                owner=row.owner,
                data=_parsed(ledger, row.data),
            )
            for row in connection.execute(query)
        )

    return ledger.read(read, ())


def _parsed(ledger: Ledger, text: str) -> Mapping[str, Any]:
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError) as exc:
        raise failures.damaged(ledger.place, "an estimate is not readable") from exc

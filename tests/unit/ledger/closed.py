"""Closed runs for tests of what the ledger tells, written as events, as the engine writes them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection

from costgpu.ledger import Ledger, to_json
from costgpu.ledger.store import event_row
from costgpu.models.instance import Identity, InstanceRef
from costgpu.models.job import EndReason
from costgpu.models.offer import Accelerator, Offer, PurchaseOption
from costgpu.models.run import EndedBy, EventKind, Receipt, RunEvent
from tests.job.examples import offer, option, spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """One run.

    Attributes:
        started: The create call.
        seconds: From there to the confirmed end.
        cost: Metered.
        gpu: Accelerator; empty without one.
        job_seconds: Of the job alone; None if it never ended.
        estimate: As `costgpu run` writes it; None without one.
        instance: Whether there was one.
    """

    started: datetime
    seconds: float = 3600.0
    cost: Decimal = Decimal("1.00")
    name: str = "train"
    owner: str = "ann@laptop"
    provider: str = "aws"
    account: str = "123456789012"
    region: str = "us-east-1"
    instance_type: str = "g5.xlarge"
    spot: bool = False
    gpu: str = "A10G"
    reason: str = "succeeded"
    tags: Mapping[str, str] = field(default_factory=dict)
    job_seconds: float | None = None
    estimate: Mapping[str, float | str] | None = None
    workload: str = ""
    steps: float | None = None
    instance: bool = True


def offer_of(run: Closed) -> Offer:
    return replace(
        offer(run.region, "1.006", provider=run.provider, kind=run.instance_type),
        purchase_option=PurchaseOption.SPOT if run.spot else PurchaseOption.ON_DEMAND,
        accelerator=Accelerator(name=run.gpu, count=1, memory_gib=24) if run.gpu else None,
    )


def events_of(run_id: str, run: Closed) -> list[RunEvent]:
    """What matters, from the intent to the end."""
    taken, ended = offer_of(run), run.started + timedelta(seconds=run.seconds)
    ref = InstanceRef(provider=run.provider, region=run.region, instance_id=f"i-{run_id}") if run.instance else None
    receipt = Receipt(
        run_id=run_id,
        instance=ref,
        instance_type=run.instance_type if ref else "",
        layers=(),
        reason=EndReason(run.reason),
        ended_by=EndedBy.CLIENT,
        requested_at=ended,
        confirmed_state="terminated",
        confirmed_at=ended,
        provider_reason="",
        left_behind=(),
        metered_seconds=run.seconds,
        metered_cost_usd=run.cost,
    )
    intended = {
        "name": run.name,
        "owner": run.owner,
        "spec": to_json(spec(name=run.name, tags=dict(run.tags))),
        "identity": to_json(Identity(provider=run.provider, account=run.account, principal="me")),
        "options": [to_json(replace(option(), offer=taken))],
        "estimate": None if run.estimate is None else dict(run.estimate),
        "workload": {"key": run.workload, "steps": run.steps},
    }
    facts: list[tuple[datetime, EventKind, dict[str, Any]]] = [(run.started, EventKind.INTENDED, intended)]
    if ref:
        attempt = {"attempt": 1, "token": f"{run_id}-1", "option": 0, "zone": "us-east-1a", "offer": to_json(taken)}
        facts.append((run.started, EventKind.ATTEMPTED, attempt))
        facts.append((run.started, EventKind.CREATED, {**to_json(ref), "zone": "us-east-1a"}))
    if run.job_seconds is not None:
        began = run.started.timestamp() + 60
        times = {"started_epoch": began - 30, "job_started_epoch": began, "finished_epoch": began + run.job_seconds}
        facts.append((ended, EventKind.FINISHED, {"reason": run.reason, **times}))
    closed = {
        "reason": run.reason,
        "ended_by": "client",
        "metered_seconds": run.seconds,
        "metered_cost_usd": str(run.cost),
        "receipt": to_json(receipt),
    }
    facts.append((ended, EventKind.CLOSED, closed))
    return [
        RunEvent(run_id=run_id, sequence=sequence, at=at, kind=kind, data=data)
        for sequence, (at, kind, data) in enumerate(facts)
    ]


def plant(ledger: Ledger, runs: Iterable[Closed]) -> list[str]:
    """Appends runs, all in one transaction; returns their ids."""
    first = len(ledger.recent_runs(10**6))
    planted = {f"r{number:011d}": run for number, run in enumerate(runs, first)}

    def write(connection: Connection) -> None:
        for run_id, run in planted.items():
            for event in events_of(run_id, run):
                ledger._insert(connection, event, event_row(event))

    ledger.write(write)
    return list(planted)

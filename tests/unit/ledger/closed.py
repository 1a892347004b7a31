"""Closed runs for tests of what the ledger tells, written as events, as the engine writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection

from costgpu.ledger import Ledger, to_json
from costgpu.ledger.store import event_row
from costgpu.models.instance import Identity, InstanceRef
from costgpu.models.job import EndReason, JobSpec
from costgpu.models.offer import Accelerator, Offer, PurchaseOption
from costgpu.models.run import EndedBy, EventKind, Option, Receipt, RunEvent
from costgpu.providers import registry
from costgpu.runner.lease import lease_for


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
    gpu = Accelerator(name=run.gpu, count=1, memory_gib=24) if run.gpu else None
    return Offer(
        provider=run.provider,
        instance_type=run.instance_type,
        family=run.instance_type.split(".")[0],
        region=run.region,
        zone=None,
        purchase_option=PurchaseOption.SPOT if run.spot else PurchaseOption.ON_DEMAND,
        price_usd_per_hour=Decimal("1.006"),
        vcpus=4,
        memory_gib=16,
        architecture="x86_64",
        accelerator=gpu,
        price_source="test",
        price_as_of=date(2026, 11, 1),
    )


def events_of(run_id: str, run: Closed) -> list[RunEvent]:
    """What matters, from the intent to the end."""
    offer, ended = offer_of(run), run.started + timedelta(seconds=run.seconds)
    ref = InstanceRef(provider=run.provider, region=run.region, instance_id=f"i-{run_id}") if run.instance else None
    spec = JobSpec(name=run.name, argv=("train.py",), workdir="/w", tags=dict(run.tags))
    known = offer if registry.find(run.provider) else replace(offer, provider="local")  # a name may be anything here
    lease = lease_for(
        known,
        on_demand_usd_per_hour=None,
        max_cost_usd=Decimal(1000),
        max_duration_seconds=None,
        estimated_seconds=None,
    )
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
    intended: dict[str, Any] = {
        "name": run.name,
        "owner": run.owner,
        "client": "laptop",
        "spec": to_json(spec),
        "identity": to_json(Identity(provider=run.provider, account=run.account, principal="me")),
        "options": [to_json(Option(offer=offer, lease=lease, disk_gib=50))],
        "estimate": None if run.estimate is None else dict(run.estimate),
        "workload": {"key": run.workload, "steps": run.steps},
    }
    facts: list[tuple[datetime, EventKind, dict[str, Any]]] = [(run.started, EventKind.INTENDED, intended)]
    if ref:
        attempt = {
            "attempt": 1,
            "token": f"{run_id}-1",
            "option": 0,
            "zone": "us-east-1a",
            "offer": to_json(offer),
            "lease_until": (run.started + timedelta(days=2)).isoformat(),
            "allow_from": "192.0.2.1/32",
        }
        facts.append((run.started, EventKind.ATTEMPTED, attempt))
        facts.append((run.started, EventKind.CREATED, {**to_json(ref), "zone": "us-east-1a"}))
    if run.job_seconds is not None:
        begun = run.started.timestamp() + 60
        facts.append(
            (
                ended,
                EventKind.FINISHED,
                {
                    "phase": "finished",
                    "reason": run.reason,
                    "exit_code": 0,
                    "started_epoch": begun - 30,
                    "job_started_epoch": begun,
                    "finished_epoch": begun + run.job_seconds,
                },
            )
        )
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

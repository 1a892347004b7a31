"""Ledgers with runs in them, as the runner would have written them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from costgpu.ledger import Ledger
from costgpu.ledger.codec import to_json
from costgpu.models.instance import Instance, InstanceRef, InstanceState
from costgpu.models.run import EventKind, LaunchOption, RunEvent
from costgpu.providers.base import OwnedResources
from tests.job.examples import facts_of, intent, offer, option, spec

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def on(provider: str = "aws", price: str = "1.00", *, cap: str = "20.00") -> LaunchOption:
    """An option at so much an hour, disk and address included, with this cap."""
    found = option()
    return replace(
        found,
        offer=offer("us-east-1", price, provider=provider, kind="g5.xlarge"),
        lease=replace(found.lease, worst_cost_usd=Decimal(cap)),
    )


def opened(
    ledger: Ledger,
    run_id: str,
    started: datetime,
    *,
    where: LaunchOption | None = None,
    owner: str = "me@here",
    tags: Mapping[str, str] | None = None,
    lease: timedelta = timedelta(hours=20),
    created: bool = True,
) -> LaunchOption:
    """A run that runs."""
    where = where or on()
    facts = intent(run_id, owner=owner, options=[to_json(where)], spec=to_json(spec(tags=dict(tags or {})))).data
    attempted = {
        **facts_of(EventKind.ATTEMPTED),
        "token": f"{run_id}-1",
        "lease_until": (started + lease).isoformat(),
        "offer": to_json(where.offer),
    }
    story: list[tuple[EventKind, Mapping[str, Any]]] = [(EventKind.INTENDED, facts), (EventKind.ATTEMPTED, attempted)]
    if created:
        ref = {"provider": where.offer.provider, "region": "us-east-1", "instance_id": f"i-{run_id}"}
        story.append((EventKind.CREATED, {**ref, "zone": "a", "launched_at": started.isoformat()}))
        story += [(kind, {}) for kind in (EventKind.REACHED, EventKind.SYNCED, EventKind.STARTED)]
    _append(ledger, run_id, started, 0, story)
    return where


def _append(
    ledger: Ledger, run_id: str, at: datetime, first: int, story: Sequence[tuple[EventKind, Mapping[str, Any]]]
) -> None:
    for sequence, (kind, data) in enumerate(story, first):
        ledger.append(RunEvent(run_id=run_id, sequence=sequence, at=at, kind=kind, data=data))


def closed(
    ledger: Ledger,
    run_id: str,
    started: datetime,
    hours: float,
    cost: str,
    *,
    where: LaunchOption | None = None,
    owner: str = "me@here",
    tags: Mapping[str, str] | None = None,
) -> None:
    """A run that is over, and what it cost."""
    opened(ledger, run_id, started, where=where, owner=owner, tags=tags)
    finish(ledger, run_id, started + timedelta(hours=hours), hours, cost)


def finish(ledger: Ledger, run_id: str, end: datetime, hours: float, cost: str) -> None:
    """A run that was opened is over."""
    metered = {"metered_seconds": hours * 3600, "metered_cost_usd": cost}
    receipt: dict[str, Any] = {
        "run_id": run_id,
        "instance": {"provider": "aws", "region": "us-east-1", "instance_id": f"i-{run_id}"},
        "instance_type": "g5.xlarge",
        "layers": [],
        "reason": "cancelled",
        "ended_by": "client",
        "requested_at": None,
        "confirmed_state": "terminated",
        "confirmed_at": end.isoformat(),
        "provider_reason": "",
        "left_behind": [],
        **metered,
    }
    story: list[tuple[EventKind, Mapping[str, Any]]] = [
        (EventKind.ENDING, {"reason": "cancelled", "by": "client"}),
        (EventKind.CONFIRMED, {"state": "terminated", "by": "client", "reason": "cancelled"}),
        (EventKind.CLOSED, {"reason": "cancelled", "ended_by": "client", **metered, "receipt": receipt}),
    ]
    _append(ledger, run_id, end, 6, story)


def machine(
    run_id: str,
    started: datetime,
    *,
    instance_id: str = "",
    kind: str = "g5.xlarge",
    region: str = "us-east-1",
    owner: str = "bob@there",
    provider: str = "aws",
    ended: datetime | None = None,
    state: InstanceState = InstanceState.RUNNING,
    lease: timedelta | None = timedelta(hours=20),
    spot: bool = False,
    tags: Mapping[str, str] | None = None,
) -> Instance:
    """A machine as its provider lists it."""
    return Instance(
        ref=InstanceRef(provider=provider, region=region, instance_id=instance_id or f"i-{run_id}"),
        zone="a",
        instance_type=kind,
        state=InstanceState.TERMINATED if ended else state,
        launched_at=started,
        ended_at=ended,
        endpoint=None,
        run_id=run_id,
        name="train",
        owner=owner,
        lease_until=started + lease if lease else None,
        spot=spot,
        tags=dict(tags or {}),
    )


class Answers:
    """A provider of which only the list of machines is asked."""

    def __init__(self, *instances: Instance, name: str = "aws", unreachable: tuple[tuple[str, str], ...] = ()) -> None:
        self.name = name
        self.owned = OwnedResources(instances=instances, unreachable=unreachable)
        self.error: Exception | None = None

    def list_owned(self, regions: object = None) -> OwnedResources:
        """As planted."""
        assert regions is None
        if self.error is not None:
            raise self.error
        return self.owned

"""Values that the tests of the run engine share."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import tests.fake_cloud.spec  # noqa: F401 - makes the provider of these offers known, in every process
from costgpu.job.plan import Limits, lease_for
from costgpu.ledger.codec import to_json
from costgpu.models.instance import Identity
from costgpu.models.job import JobSpec
from costgpu.models.offer import Offer, PurchaseOption
from costgpu.models.run import EventKind, LaunchOption, RunEvent
from tests.emulators.create_requests import offer_of

START = datetime(2026, 1, 1, tzinfo=UTC)


def offer(region: str = "north", price: str = "1.00", *, provider: str = "fake", kind: str = "f1.gpu") -> Offer:
    facts: dict[str, Any] = {
        "price_usd_per_hour": Decimal(price),
        "vcpus": 4,
        "memory_gib": 16.0,
        "price_as_of": date(2026, 1, 1),
    }
    return offer_of(provider, region, kind, **facts)


def option(
    region: str = "north", price: str = "1.00", *, max_cost: str = "2.00", provider: str = "fake", spot: bool = False
) -> LaunchOption:
    found = offer(region, price, provider=provider)
    if spot:
        found = replace(found, purchase_option=PurchaseOption.SPOT)
    return LaunchOption(offer=found, lease=lease_for(found, Limits(max_cost_usd=Decimal(max_cost))), disk_gib=50)


def spec(workdir: str = "/w", **changes: Any) -> JobSpec:
    return JobSpec(**{"name": "train", "argv": ("train.py",), "workdir": workdir, **changes})


def intent(run_id: str = "r1", **data: Any) -> RunEvent:
    facts = {
        "name": "train",
        "owner": "me@here",
        "client": "here",
        "spec": to_json(spec()),
        "identity": to_json(Identity(provider="fake", account="000000000000", principal="me")),
        "options": [to_json(option()), to_json(option("south"))],
        **data,
    }
    return RunEvent(run_id=run_id, sequence=0, at=START, kind=EventKind.INTENDED, data=facts)


def facts_of(kind: EventKind, number: int = 1) -> dict[str, Any]:
    """What an event of this kind carries."""
    until = (START + timedelta(hours=2)).isoformat()
    facts: dict[EventKind, dict[str, Any]] = {
        EventKind.ATTEMPTED: {
            "attempt": number,
            "token": f"r1-{number}",
            "option": 0,
            "zone": "a",
            "lease_until": until,
            "allow_from": "192.0.2.1/32",
        },
        EventKind.REFUSED: {"error": "NoCapacity", "message": "none"},
        EventKind.CREATED: {"provider": "fake", "region": "north", "instance_id": "i-1"},
        EventKind.FINISHED: {"phase": "finished", "reason": "succeeded", "exit_code": 0},
        EventKind.ENDING: {"reason": "cancelled", "by": "client"},
        EventKind.CONFIRMED: {"state": "terminated", "by": "agent", "reason": "idle"},
        EventKind.CLOSED: {
            "reason": "cancelled",
            "receipt": {
                "run_id": "r1",
                "instance": None,
                "instance_type": "",
                "layers": [],
                "reason": "cancelled",
                "ended_by": "client",
                "requested_at": None,
                "confirmed_state": "",
                "confirmed_at": None,
                "provider_reason": "",
                "left_behind": [],
                "metered_seconds": 0.0,
                "metered_cost_usd": "0",
            },
        },
    }
    return facts.get(kind, {})

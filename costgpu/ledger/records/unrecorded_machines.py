"""Machines with our tag that were seen at a provider and that this ledger has no run of: rows, and what they cost.

Kept so that they still count when they are gone. Of the rows of one machine the last one counts; its price is that of
the first row that had one, and is never looked up again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, func, select, tuple_

from costgpu.files import parse_json
from costgpu.ledger.costs.charges import Charge
from costgpu.ledger.dialect import batches
from costgpu.ledger.projections import plain
from costgpu.ledger.schema import (
    closings,
    instant,
    instant_us,
    runs,
    sightings,
    text,
    to_microseconds,
    to_nano,
    whole,
)
from costgpu.ledger.store import Ledger
from costgpu.models.instance import Instance, InstanceRef

AGAIN_US = 600_000_000  # the shortest time between two rows of a machine that goes on
SETTLED = timedelta(minutes=2)  # a provider may list a machine as alive so long after its confirmed end
LEAST_SECONDS = 60  # providers bill the first minute whole
TEXTS = ("run_id", "name", "owner", "instance_type", "purchase_option")

Key = tuple[str, str]
"""Provider and name of a machine, for ever."""


def sighting(instance: Instance, usd_per_hour: Decimal | None, now: datetime) -> Charge:
    """Return a machine as a provider has just described it; what it costs is said by `priced`."""
    ended = None if instance.state.alive else instance.ended_at
    return Charge(
        began=to_microseconds(instance.launched_at),
        ended=to_microseconds(ended or max(now, instance.launched_at)),
        nano_usd=None,
        seconds=0.0,
        run_id=instance.run_id,
        name=instance.name,
        owner=instance.owner,
        provider=instance.ref.provider,
        instance_type=instance.instance_type,
        purchase_option="spot" if instance.spot else "on_demand",
        tags=instance.tags,
        ref=instance.ref,
        nano_usd_per_hour=None if usd_per_hour is None else to_nano(usd_per_hour),
        going=ended is None,
        stops=None if ended or instance.lease_until is None else to_microseconds(instance.lease_until),
        recorded=False,
    )


def priced(machine: Charge, now: datetime) -> Charge:
    """Return what a machine has cost until it was last seen."""
    ended = min(machine.ended, to_microseconds(now))
    seconds, rate = max(0.0, (ended - machine.began) / 1e6), machine.nano_usd_per_hour
    return machine._replace(
        began=min(machine.began, ended),
        ended=ended,
        seconds=seconds,
        nano_usd=None if rate is None else rate * max(LEAST_SECONDS, math.ceil(seconds)) // 3600,
    )


def key_of(machine: Charge) -> Key:
    """Return what names a machine for ever."""
    assert machine.ref is not None  # noqa: S101  what was seen has a name
    return machine.ref.provider, machine.ref.instance_id


def with_memory(machine: Charge, before: Charge | None) -> Charge:
    """Return the same, with what was known before: its price is never looked up again, and no clock takes time back."""
    if before is None:
        return machine
    price = machine.nano_usd_per_hour if before.nano_usd_per_hour is None else before.nano_usd_per_hour
    ended = max(machine.ended, before.ended) if machine.going else machine.ended
    return machine._replace(nano_usd_per_hour=price, ended=ended)


def says_more(machine: Charge, before: Charge | None) -> bool:
    """Return whether a sighting is worth a row after that one."""
    if before is None or before._replace(ended=machine.ended, going=machine.going, stops=machine.stops) != machine:
        return True
    return machine.ended - before.ended >= AGAIN_US if machine.going else machine.ended != before.ended


def sightings_since(ledger: Ledger, since: datetime | None = None) -> tuple[Charge, ...]:
    """Machines that were seen since then and that no run of this ledger accounts for, each as it was seen last."""
    newest = select(func.max(sightings.c.id)).group_by(sightings.c.provider, sightings.c.instance_id)
    if since is not None:
        newest = newest.where(sightings.c.at_us > to_microseconds(since))
    open_here = (runs.c.run.is_not(None)) & closings.c.run.is_(None)
    counted = (closings.c.instance_id == sightings.c.instance_id) & (
        sightings.c.started_us < func.coalesce(closings.c.ended_us, closings.c.at_us)
    )
    query = (
        select(sightings, open_here.label("open_here"), func.coalesce(counted, False).label("counted"))
        .outerjoin(runs, runs.c.run_id == sightings.c.run_id)
        .outerjoin(closings, closings.c.run == runs.c.run)
        .where(sightings.c.id.in_(newest))
        .order_by(sightings.c.id)
    )
    rows = (row for row in ledger.select(query) if not row.open_here and not row.counted)
    return tuple(ledger.readable(rows, _sighting, _name))


def outside_closed_runs(ledger: Ledger, machines: Sequence[Charge], now: datetime) -> list[Charge]:
    """Return those of some machines that no closed run of the ledger has paid for.

    From its end on, if a run has for a while.

    None of the machines may be of an open run.
    """
    ids = list({each.run_id for each in machines})
    ended: dict[tuple[str, str], tuple[datetime, datetime]] = {}

    def read(connection: Connection) -> None:
        query = select(runs.c.run_id, closings.c.instance_id, closings.c.ended_us, closings.c.at_us)
        query = query.join(closings, closings.c.run == runs.c.run)
        for some in batches(ids):
            for row in connection.execute(query.where(runs.c.run_id.in_(some))):
                closed_at = instant(row.at_us)
                until = closed_at if row.ended_us is None else instant(row.ended_us)
                ended[row.run_id, row.instance_id] = until, closed_at

    if ids:
        ledger.read(read, None)
    found = []
    for each in machines:
        paid = ended.get((each.run_id, key_of(each)[1]))
        if paid is None:
            found.append(each)
        elif each.going and now - paid[1] > SETTLED:  # its run is closed, and it is still there
            found.append(each._replace(began=max(each.began, to_microseconds(paid[0]))))
    return found


def record_sightings(ledger: Ledger, machines: Sequence[Charge]) -> None:
    """Add a row for each of these machines."""
    rows = [
        {
            **{name: plain(getattr(each, name)) for name in TEXTS},
            **{name: plain(value) for name, value in asdict(each.ref).items()},
            "at_us": each.ended,
            "tags": json.dumps(dict(each.tags)),
            "started_us": each.began,
            "nano_usd_per_hour": each.nano_usd_per_hour,
        }
        for each in machines
        if each.ref is not None
    ]
    ledger.insert(sightings, rows)


def last_sightings(ledger: Ledger, machines: Iterable[Charge]) -> dict[Key, Charge]:
    """Return what the ledger says of these machines, by `key_of`."""
    keys = list(set(map(key_of, machines)))
    found: dict[Key, Charge] = {}
    name = tuple_(sightings.c.provider, sightings.c.instance_id)
    for some in batches(keys):
        newest = select(func.max(sightings.c.id)).where(name.in_(some))
        newest = newest.group_by(sightings.c.provider, sightings.c.instance_id)
        rows = ledger.select(select(sightings).where(sightings.c.id.in_(newest)))
        found.update((key_of(each), each) for each in ledger.readable(rows, _sighting, _name))
    return found


def _name(row: Any) -> str:
    return f"the machine {row.instance_id} in row {row.id} of the sightings"


def _sighting(row: Any) -> Charge:
    try:
        tags = parse_json(text(row.tags))
    except ValueError:
        tags = {}
    texts: dict[str, Any] = {name: text(getattr(row, name)) for name in TEXTS}
    ref = InstanceRef(provider=text(row.provider), region=text(row.region), instance_id=text(row.instance_id))
    return Charge(
        instant_us(row.started_us),
        instant_us(row.at_us),
        None,
        0.0,
        **texts,
        provider=ref.provider,
        tags={key: str(value) for key, value in tags.items()} if isinstance(tags, dict) else {},
        ref=ref,
        nano_usd_per_hour=None if row.nano_usd_per_hour is None else whole(row.nano_usd_per_hour),
        recorded=False,
    )

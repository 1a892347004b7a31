"""Machines with our tag that were seen at a provider and that this ledger has no run of: rows, and what they cost.

Kept so that they still count when they are gone. Of the rows of one machine the last one counts; its price is that of
the first row that had one, and is never looked up again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    from_nano,
    instant,
    runs,
    sightings,
    text,
    to_microseconds,
    to_nano,
)
from costgpu.ledger.store import Ledger
from costgpu.models.instance import Instance, InstanceRef

AGAIN = timedelta(minutes=10)  # the shortest time between two rows of a machine that goes on
SETTLED = timedelta(minutes=2)  # a provider may list a machine as alive so long after its confirmed end
LEAST_SECONDS = 60  # providers bill the first minute whole
TEXTS = ("provider", "region", "instance_id", "run_id", "name", "owner", "instance_type", "purchase_option")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One machine, as it was seen last; run id, name and owner are those of its tags."""

    provider: str
    region: str
    instance_id: str
    run_id: str = ""
    name: str = ""
    owner: str = ""
    instance_type: str
    purchase_option: str  # ``on_demand`` or ``spot``
    tags: Mapping[str, str] = field(default_factory=dict)
    started_at: datetime  # it is billed from then on
    seen_at: datetime  # it was there at least until then; exactly, if the provider has said when it ended
    usd_per_hour: Decimal | None = None  # None if its price is not known
    ended: bool = False  # whether the provider has just said that it is gone; not kept

    @classmethod
    def of(cls, instance: Instance, usd_per_hour: Decimal | None, now: datetime) -> Sighting:
        """Return what a provider has just said of a machine."""
        ended = None if instance.state.alive else instance.ended_at
        return cls(
            provider=instance.ref.provider,
            region=instance.ref.region,
            instance_id=instance.ref.instance_id,
            run_id=instance.run_id,
            name=instance.name,
            owner=instance.owner,
            instance_type=instance.instance_type,
            purchase_option="spot" if instance.spot else "on_demand",
            tags=instance.tags,
            started_at=instance.launched_at,
            seen_at=ended or max(now, instance.launched_at),
            usd_per_hour=usd_per_hour,
            ended=ended is not None,
        )

    def charge(self, now: datetime, living: Instance | None) -> Charge:
        """Return what it has cost until it was last seen, and what it may add if it was seen `living` just now."""
        until = min(self.seen_at, now)
        seconds = max(0.0, (until - self.started_at).total_seconds())
        usd = None
        if self.usd_per_hour is not None:
            usd = self.usd_per_hour * max(LEAST_SECONDS, math.ceil(seconds)) / 3600
        return Charge(
            began=to_microseconds(min(self.started_at, until)),
            ended=to_microseconds(until),
            nano_usd=None if usd is None else to_nano(usd),
            seconds=seconds,
            run_id=self.run_id,
            name=self.name,
            owner=self.owner,
            provider=self.provider,
            instance_type=self.instance_type,
            purchase_option=self.purchase_option,
            tags=self.tags,
            ref=self.ref,
            nano_usd_per_hour=None if self.usd_per_hour is None else to_nano(self.usd_per_hour),
            going=living is not None,
            stops=to_microseconds(living.lease_until)
            if living is not None and living.lease_until is not None
            else None,
            recorded=False,
        )

    @property
    def ref(self) -> InstanceRef:
        """Return which machine it is."""
        return InstanceRef(provider=self.provider, region=self.region, instance_id=self.instance_id)

    @property
    def key(self) -> tuple[str, str]:
        """Return what names the machine for ever."""
        return self.provider, self.instance_id

    def after(self, before: Sighting | None) -> Sighting:
        """Return the same, with what was known before: its price is never looked up again, and no clock takes time back."""
        if before is None:
            return self
        price = self.usd_per_hour if before.usd_per_hour is None else before.usd_per_hour
        seen_at = self.seen_at if self.ended else max(self.seen_at, before.seen_at)
        return replace(self, usd_per_hour=price, seen_at=seen_at)

    def says_more(self, before: Sighting | None) -> bool:
        """Return whether this is worth a row after that one."""
        if before is None or replace(before, seen_at=self.seen_at, ended=self.ended) != self:
            return True
        return self.seen_at != before.seen_at if self.ended else self.seen_at - before.seen_at >= AGAIN


def sightings_since(ledger: Ledger, since: datetime | None = None) -> tuple[Sighting, ...]:
    """Machines that were seen since then and that no run of this ledger accounts for, each as it was seen last."""
    return ledger.read(lambda connection: _unaccounted(ledger, connection, since), ())


def outside_closed_runs(ledger: Ledger, machines: Sequence[Sighting], now: datetime) -> list[Sighting]:
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
        paid = ended.get((each.run_id, each.instance_id))
        if paid is None:
            found.append(each)
        elif not each.ended and now - paid[1] > SETTLED:  # its run is closed, and it is still there
            found.append(replace(each, started_at=max(each.started_at, paid[0])))
    return found


def record_sightings(ledger: Ledger, machines: Sequence[Sighting]) -> None:
    """Add a row for each of these machines."""
    rows = [
        {
            **{name: plain(getattr(each, name)) for name in TEXTS},
            "at_us": to_microseconds(each.seen_at),
            "tags": json.dumps(dict(each.tags)),
            "started_us": to_microseconds(each.started_at),
            "nano_usd_per_hour": None if each.usd_per_hour is None else to_nano(each.usd_per_hour),
        }
        for each in machines
    ]
    ledger.insert(sightings, rows)


def last_sightings(ledger: Ledger, machines: Iterable[Sighting]) -> dict[tuple[str, str], Sighting]:
    """Return what the ledger says of these machines, by `Sighting.key`."""
    keys = list({each.key for each in machines})
    found: dict[tuple[str, str], Sighting] = {}

    def read(connection: Connection) -> None:
        name = tuple_(sightings.c.provider, sightings.c.instance_id)
        for some in batches(keys):
            newest = select(func.max(sightings.c.id)).where(name.in_(some))
            newest = newest.group_by(sightings.c.provider, sightings.c.instance_id)
            rows = connection.execute(select(sightings).where(sightings.c.id.in_(newest)))
            found.update((each.key, each) for each in ledger.readable(rows, _sighting, _name))

    if keys:
        ledger.read(read, None)
    return found


def _unaccounted(ledger: Ledger, connection: Connection, since: datetime | None) -> tuple[Sighting, ...]:
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
    rows = (row for row in connection.execute(query) if not row.open_here and not row.counted)
    return tuple(ledger.readable(rows, _sighting, _name))


def _name(row: Any) -> str:
    return f"the machine {row.instance_id} in row {row.id} of the sightings"


def _sighting(row: Any) -> Sighting:
    try:
        tags = parse_json(text(row.tags))
    except ValueError:
        tags = {}
    texts: dict[str, Any] = {name: text(getattr(row, name)) for name in TEXTS}
    return Sighting(
        **texts,
        tags={key: str(value) for key, value in tags.items()} if isinstance(tags, dict) else {},
        started_at=instant(row.started_us),
        seen_at=instant(row.at_us),
        usd_per_hour=None if row.nano_usd_per_hour is None else from_nano(row.nano_usd_per_hour),
    )

"""What a run leaves besides its instance on the fake cloud: access rules and, if scripted, disks."""

import ipaddress
from dataclasses import dataclass
from datetime import datetime

from costgpu.errors import InvalidRequest
from costgpu.providers.base import OrphanedResource


@dataclass(kw_only=True)
class Resource:
    """One of them.

    Attributes:
        kind: ``security group``, ``disk``, or whatever a test says.
        region: Where.
        resource_id: Its name for ever.
        run_id: In its name and, if it is ours, in its tag.
        ours: Whether it carries our tag.
        allow_from: CIDRs that an access rule lets in.
        usd_per_hour: What it costs.
        lease_until: From its tag.
        created_at: As the provider says it; None if it does not.
        owner: From its tag.
    """

    kind: str
    region: str
    resource_id: str
    run_id: str
    ours: bool
    allow_from: tuple[str, ...] = ()
    usd_per_hour: float = 0.0
    lease_until: datetime | None = None
    created_at: datetime | None = None
    owner: str = ""


class Resources:
    """All of them."""

    def __init__(self) -> None:
        self._all: list[Resource] = []
        self._made = 0
        self._foreign_made = 0

    def add(
        self,
        kind: str,
        region: str,
        run_id: str,
        *,
        ours: bool = True,
        allow_from: str = "",
        usd_per_hour: float = 0.0,
        lease_until: datetime | None = None,
        created_at: datetime | None = None,
        owner: str = "",
    ) -> Resource:
        """A new one."""
        self._made += 1
        self._foreign_made += not ours
        resource = Resource(
            kind=kind,
            region=region,
            resource_id=f"{'sg' if kind == 'security group' else 'vol'}-{self._made:08d}",
            run_id=run_id,
            ours=ours,
            allow_from=(allow_from,) if allow_from else (),
            usd_per_hour=usd_per_hour,
            lease_until=lease_until,
            created_at=created_at,
            owner=owner,
        )
        self._all.append(resource)
        return resource

    def access_rule(self, run_id: str, region: str) -> Resource | None:
        """A run's own."""
        matching = (one for one in self._all if one.kind == "security group" and one.ours)
        return next((one for one in matching if (one.run_id, one.region) == (run_id, region)), None)

    def all_named(self, run_id: str) -> tuple[Resource, ...]:
        """Ours or not."""
        return tuple(one for one in self._all if one.run_id == run_id)

    def lets_in(self, run_id: str, region: str, address: str) -> bool:
        """Whether a run's access rule lets an address in."""
        rule = self.access_rule(run_id, region)
        caller = ipaddress.ip_address(address)
        return rule is not None and any(caller in ipaddress.ip_network(cidr) for cidr in rule.allow_from)

    def of(self, run_id: str | None = None, region: str | None = None) -> tuple[OrphanedResource, ...]:
        """Ours; of a run, in a region."""
        return tuple(
            OrphanedResource(
                provider="fake",
                region=one.region,
                kind=one.kind,
                resource_id=one.resource_id,
                run_id=one.run_id,
                usd_per_hour=one.usd_per_hour,
                lease_until=one.lease_until,
                created_at=one.created_at,
                owner=one.owner,
            )
            for one in self._all
            if one.ours and run_id in (None, one.run_id) and region in (None, one.region)
        )

    def remove(self, run_id: str, region: str) -> None:
        """Removes a run's.

        Raises:
            InvalidRequest: Something has its name and not our tag.
        """
        named = [one for one in self._all if (one.run_id, one.region) == (run_id, region)]
        foreign = [one.resource_id for one in named if not one.ours]
        if foreign:
            raise InvalidRequest(f"{foreign[0]} is named as if it belonged to run {run_id}, but has no costgpu tag.")
        self._all = [one for one in self._all if one not in named]

    def take(self, resource_id: str, region: str, *, used: bool) -> bool:
        """Removes one; whether it is gone.

        Args:
            resource_id: Which; one that is not there is gone.
            region: Where.
            used: Whether something still uses it.

        Raises:
            InvalidRequest: It has not our tag.
        """
        known = next((one for one in self._all if (one.resource_id, one.region) == (resource_id, region)), None)
        if known is not None and not known.ours:
            raise InvalidRequest(f"{resource_id} has no costgpu tag: it is not ours, and stays as it is.")
        if known is not None and not used:
            self._all.remove(known)
        return known is None or not used

    def foreign_untouched(self) -> bool:
        """Whether what is not ours is still there."""
        return sum(not one.ours for one in self._all) == self._foreign_made

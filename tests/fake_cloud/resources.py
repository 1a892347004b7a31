"""What a run leaves besides its instance on the fake cloud: access rules and, if scripted, disks."""

from dataclasses import dataclass
from typing import Any

from costgpu.errors import InvalidRequest
from costgpu.providers.base import OrphanedResource

PREFIXES = {
    "security group": "sg",
    "group network": "net",
    "placement group": "pg",
}  # of the ids of other kinds than disks


@dataclass
class Resource:
    """One of them."""

    found: OrphanedResource  # as the provider lists it if it is ours
    ours: bool  # whether it carries our tag; else only its name is a run's
    allow_from: tuple[str, ...] = ()  # CIDRs that an access rule lets in
    shared: bool = False  # whether the machines of a group share it; its run is that of node 0


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
        allow_from: tuple[str, ...] = (),
        shared: bool = False,
        **facts: Any,
    ) -> OrphanedResource:
        """A new one; for the facts see `OrphanedResource`."""
        self._made += 1
        self._foreign_made += not ours
        name = f"{PREFIXES.get(kind, 'vol')}-{self._made:08d}"
        found = OrphanedResource(provider="fake", region=region, kind=kind, resource_id=name, run_id=run_id, **facts)
        self._all.append(Resource(found, ours, allow_from, shared))
        return found

    def _of(self, run_id: str | None, region: str | None) -> list[Resource]:
        return [one for one in self._all if run_id in (None, one.found.run_id) and region in (None, one.found.region)]

    def access_rule(self, run_id: str, region: str) -> Resource | None:
        """A run's own."""
        return next((one for one in self._of(run_id, region) if one.found.kind == "security group" and one.ours), None)

    def share(self, kind: str, region: str, group_id: str, **facts: Any) -> None:
        """What the machines of a group share: a new one, unless it is there."""
        known = (one.found.kind for one in self._of(group_id, region) if one.shared)
        if kind not in known:
            self.add(kind, region, group_id, shared=True, **facts)

    def is_shared(self, resource_id: str) -> bool:
        """Whether it is a group's."""
        return any(one.shared for one in self._all if one.found.resource_id == resource_id)

    def adopt(self, run_id: str) -> None:
        """Everything that is named as a run's becomes ours."""
        for one in self._of(run_id, None):
            one.ours = True

    def of(self, run_id: str | None = None, region: str | None = None) -> tuple[OrphanedResource, ...]:
        """Ours; of a run, in a region."""
        return tuple(one.found for one in self._of(run_id, region) if one.ours)

    def remove(self, run_id: str, region: str, *, shared: bool = True) -> None:
        """Removes a run's.

        Args:
            shared: Also what machines of its group share.

        Raises:
            InvalidRequest: Something has its name and not our tag.
        """
        named = [one for one in self._of(run_id, region) if shared or not one.shared]
        foreign = [one.found.resource_id for one in named if not one.ours]
        if foreign:
            raise InvalidRequest(f"{foreign[0]} is named as if it belonged to run {run_id}, but has no costgpu tag.")
        self._all = [one for one in self._all if one not in named]

    def take(self, resource_id: str, region: str, *, used: bool) -> bool:
        """Removes one that is not used any more; whether it is gone, as one that never was is.

        Raises:
            InvalidRequest: It has not our tag.
        """
        known = next((one for one in self._of(None, region) if one.found.resource_id == resource_id), None)
        if known is not None and not known.ours:
            raise InvalidRequest(f"{resource_id} has no costgpu tag: it is not ours, and stays as it is.")
        if known is not None and not used:
            self._all.remove(known)
        return known is None or not used

    def foreign_untouched(self) -> bool:
        """Whether what is not ours is still there."""
        return sum(not one.ours for one in self._all) == self._foreign_made

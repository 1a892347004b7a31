"""What costgpu has in the project, found by label, and the removal of what runs leave behind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from costgpu.errors import AuthError, InvalidRequest, ProviderError, Unreachable
from costgpu.models.instance import Instance, InstanceState, OrphanedResource
from costgpu.models.provider_costs import HOURS_PER_MONTH
from costgpu.providers.base import TAG_GROUP, TAG_RUN, OwnedResources
from costgpu.providers.common import group_name, leftover_from, not_ours
from costgpu.providers.gcp import sdk
from costgpu.providers.gcp.facts import COSTS
from costgpu.providers.gcp.instances import Instances
from costgpu.providers.gcp.launch import facts_from, label_value
from costgpu.providers.gcp.network import rule_names
from costgpu.providers.gcp.session import last_part, list_all_places, region_of

GLOBAL = "global"
REMOVE_SECONDS = 20.0  # how long one removal is waited for
STILL_USED = frozenset({"resourceInUseByAnotherResource", "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", "resourceNotReady"})
# List prices of us-central1; other regions ask up to half as much again. They are for finding leaks: what is really charged
# is on the bill. Source: Google Cloud, "Disk and image pricing", and "VPC pricing", external IP addresses (read 2026-11).
DISK_USD_PER_GIB_MONTH = {
    "pd-standard": 0.04,
    "pd-balanced": COSTS.disk_usd_per_gb_month,
    "pd-ssd": 0.17,
    "pd-extreme": 0.125,
    "hyperdisk-balanced": 0.08,
    "hyperdisk-throughput": 0.005,
    "hyperdisk-extreme": 0.125,
    "hyperdisk-ml": 0.08,
}
HYPERDISK_INCLUDED_IOPS, USD_PER_IOPS_MONTH = 3000, 0.005  # of hyperdisk-balanced
HYPERDISK_INCLUDED_MIB, USD_PER_MIB_MONTH = 140, 0.04
SNAPSHOT_USD_PER_GIB_MONTH = 0.05
ADDRESS_USD_PER_HOUR = {False: COSTS.address_usd_per_hour, True: 0.0025}
"""In use; by whether its machine is a spot one."""
IDLE_ADDRESS_USD_PER_HOUR = 0.01  # reserved, and used by nothing


def disk_usd_per_hour(row: Any) -> float:
    """Return the price of one disk; attached or not, it costs the same."""
    kind = last_part(str(row.type_))
    monthly = int(row.size_gb) * DISK_USD_PER_GIB_MONTH.get(kind, max(DISK_USD_PER_GIB_MONTH.values()))
    if kind == "hyperdisk-balanced":
        monthly += max(0, int(row.provisioned_iops) - HYPERDISK_INCLUDED_IOPS) * USD_PER_IOPS_MONTH
        monthly += max(0, int(row.provisioned_throughput) - HYPERDISK_INCLUDED_MIB) * USD_PER_MIB_MONTH
    return round(monthly / HOURS_PER_MONTH, 6)


def snapshot_usd_per_hour(row: Any) -> float:
    """Return the price of one snapshot: what it takes, without the blocks that it shares with earlier ones."""
    gib = int(row.storage_bytes) / 2**30
    return round(gib * SNAPSHOT_USD_PER_GIB_MONTH / HOURS_PER_MONTH, 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One sort of thing that carries our labels, or facts in its description."""

    name: str
    client: str  # of ``compute_v1``, without ``Client``
    scope: str  # ``zone``, ``region`` or ``global``: where it is, and the name of that in requests
    argument: str
    idle: Callable[[Any], bool] = lambda _: True  # whether a row is left over, rather than part of something
    usd_per_hour: Callable[[Any], float] = lambda _: 0.0
    of_a_run: bool = True  # whether runs themselves make such things; the others were made of them by somebody
    expression: str = f"labels.{TAG_RUN}:*"  # the filter that leaves what may be ours
    labelled: bool = True  # whether it can carry labels; else its description tells what they would


DISK = Kind(
    name="disk",
    client="Disks",
    scope="zone",
    argument="disk",
    idle=lambda row: not row.users,
    usd_per_hour=disk_usd_per_hour,
)
PLACEMENT = Kind(
    name="placement policy",
    client="ResourcePolicies",
    scope="region",
    argument="resource_policy",
    expression='name eq "costgpu-g-.*"',
    labelled=False,
)
KINDS = (
    DISK,
    Kind(
        name="address",
        client="Addresses",
        scope="region",
        argument="address",
        idle=lambda row: not row.users,
        usd_per_hour=lambda _: IDLE_ADDRESS_USD_PER_HOUR,
    ),
    Kind(
        name="snapshot",
        client="Snapshots",
        scope=GLOBAL,
        argument="snapshot",
        usd_per_hour=snapshot_usd_per_hour,
        of_a_run=False,
    ),
    Kind(
        name="firewall rule",
        client="Firewalls",
        scope=GLOBAL,
        argument="firewall",
        expression='name eq "costgpu-.*"',
        labelled=False,
    ),
    PLACEMENT,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One thing of ours: its kind, where it is, the row, and our tags on it."""

    kind: Kind
    place: str
    row: Any
    tags: dict[str, str]

    @property
    def region(self) -> str:
        """Return where it is, or where the run was to which it belongs."""
        if self.kind.scope == GLOBAL:
            return self.tags.get("costgpu-region", GLOBAL)
        return region_of(self.place) if self.kind.scope == "zone" else self.place

    @property
    def group_id(self) -> str:
        """Return the group whose machines share it; empty for what belongs to a single run."""
        group_id = self.tags.get(TAG_GROUP, "")
        return group_id if group_id and str(self.row.name) == group_name(group_id) else ""

    @property
    def leftover(self) -> OrphanedResource:
        """As others read it."""
        created = str(self.row.creation_timestamp or "")
        name = str(self.row.name)
        return leftover_from(
            "gcp",
            self.region,
            self.kind.name,
            name if self.kind.scope == GLOBAL else f"{self.place}/{name}",
            self.tags,
            usd_per_hour=self.kind.usd_per_hour(self.row),
            created_at=datetime.fromisoformat(created) if created else None,
        )


class Inventory(Instances):
    """Looks for what is ours, and takes away what runs leave."""

    def list_owned(self, regions: Sequence[str] | None = None) -> OwnedResources:
        """List everything with our label, in all zones at once; one that does not answer hides nothing else."""
        unreachable: dict[str, str] = {}
        for region in regions or ():
            try:
                self._clients.require(region)
            except InvalidRequest as error:
                unreachable[region] = error.message
        rows: list[Found] = []
        with ThreadPoolExecutor(max_workers=1 + len(KINDS), thread_name_prefix="costgpu-gcp") as pool:
            asking = pool.submit(self._ours)
            looking = [(kind, pool.submit(self._all, kind, kind.expression)) for kind in KINDS]
            machines, silent = asking.result()
            unreachable |= {_fold(place): why for place, why in silent.items()}
            for kind, answer in looking:
                try:
                    found, quiet = answer.result()
                except ProviderError as error:
                    unreachable[f"every region ({kind.name})"] = error.message
                    continue
                rows += found
                unreachable |= {
                    f"{_fold(place)} ({kind.name})": why
                    for place, why in quiet.items()
                    if _fold(place) not in unreachable
                }

        def asked(region: str) -> bool:
            return regions is None or region in (*regions, "every region", GLOBAL)

        machines = [each for each in machines if asked(each.ref.region)]
        return OwnedResources(
            instances=tuple(machines),
            leftovers=tuple(each.leftover for each in rows if each.kind.idle(each.row) and asked(each.region)),
            unreachable=tuple((place, why) for place, why in unreachable.items() if asked(place.partition(" (")[0])),
            attached=_attached(machines, rows),
            told_at=self._clients.told_at(),
        )

    def _all(self, kind: Kind, expression: str) -> tuple[list[Found], dict[str, str]]:
        """Return everything of one kind that is ours, and the places that do not answer."""
        if kind.scope != GLOBAL:
            pairs, silent = list_all_places(self._clients, kind.client, kind.scope, expression)
        else:
            rows = self._clients.rows(f"list each {kind.name}", kind.client, filter=expression)
            pairs, silent = [(GLOBAL, row) for row in rows], {}
        found = [Found(kind=kind, place=place, row=row, tags=_tags(kind, row)) for place, row in pairs]
        return [each for each in found if each.tags.get(TAG_RUN)], silent

    def _things_of_run(self, kind: Kind, run_id: str) -> list[Found]:
        expression = f"labels.{TAG_RUN} = {label_value(run_id)}"
        if not kind.labelled:
            expression = f'name eq "({"|".join((*rule_names(run_id), group_name(run_id)))})"'
        try:
            found, silent = self._all(kind, expression)
        except AuthError:
            if kind is PLACEMENT:  # who may not list them has not made one, either
                return []
            raise
        if silent:
            raise Unreachable(f"Google does not say what run {run_id} has left in {', '.join(sorted(silent))}.")
        return [each for each in found if each.tags[TAG_RUN] == label_value(run_id)]

    def clean_up(self, run_id: str, region: str) -> tuple[OrphanedResource, ...]:
        """Remove a run's firewall rules, stray disks and addresses, and what its group shares; return what has to wait.

        That is everything if its machine still lives.
        """
        if not run_id:
            raise InvalidRequest("No run is named.")
        self._clients.require(region)
        machines = self._of_run(run_id)
        alive = any(each.state.alive and each.state is not InstanceState.TERMINATING for each in machines)
        rows = [each for kind in KINDS if kind.of_a_run for each in self._things_of_run(kind, run_id)]
        mine = [each for each in rows if each.kind.scope == GLOBAL or each.region == region]
        return tuple(
            each.leftover for each in mine if alive or self._is_shared_by_machines(each) or not self._remove(each)
        )

    def remove(self, leftover: OrphanedResource) -> bool:
        """Remove one thing that still carries our label and is no instance; return whether it is gone.

        Raises:
            InvalidRequest: It does not carry our label, or it is of a kind that costgpu does not know.
        """
        kind = next((each for each in KINDS if each.name == leftover.kind), None)
        if kind is None:
            raise InvalidRequest(f"costgpu does not know what a {leftover.kind} is on Google Cloud.")
        place, slash, name = leftover.resource_id.rpartition("/")
        if bool(slash) is (kind.scope == GLOBAL):
            raise InvalidRequest(f"{leftover.resource_id!r} does not name a {kind.name} of Google Cloud.")
        where = {kind.scope: place, kind.argument: name} if slash else {kind.argument: name}
        row = self._clients.maybe(f"look up the {kind.name} {leftover.resource_id}", kind.client, "get", **where)
        if row is None:
            return True
        found = Found(kind=kind, place=place or GLOBAL, row=row, tags=_tags(kind, row))
        if not found.tags.get(TAG_RUN):
            raise not_ours(leftover)
        return not self._is_shared_by_machines(found) and self._remove(found)

    def _is_shared_by_machines(self, found: Found) -> bool:
        """Return whether machines need what their group shares: Google lets rules go that are in use."""
        if not found.group_id:
            return False
        return any(each.state.alive for each in self._of_run(found.group_id, TAG_GROUP))

    def _remove(self, found: Found) -> bool:
        """Delete one thing; whether it is gone."""
        kind, name = found.kind, str(found.row.name)
        if not kind.idle(found.row):
            return False
        where = {kind.argument: name} if kind.scope == GLOBAL else {kind.scope: found.place, kind.argument: name}
        doing = f"remove the {kind.name} {name}"
        try:
            operation = self._clients.write(doing, kind.client, "delete_unary", **where)
            return self._clients.finished(doing, operation, seconds=REMOVE_SECONDS)
        except ProviderError as error:
            if sdk.is_missing(error.__cause__):
                return True
            if sdk.reasons_of(error.__cause__) & STILL_USED or "RESOURCE_IN_USE" in error.message:
                return False
            raise


def _tags(kind: Kind, row: Any) -> dict[str, str]:
    """Our tags on a thing; empty for what is not ours."""
    if not kind.labelled:
        facts = facts_from(str(row.description))
        return facts if str(row.name).startswith("costgpu-") else {}
    return dict(row.labels)


def _fold(place: str) -> str:
    """Return the region of a zone; a region stays one."""
    return region_of(place) if place.count("-") > 1 else place


def _attached(instances: Sequence[Instance], rows: Sequence[Found]) -> dict[str, float]:
    """Return what the disks and the address of each instance cost an hour; a machine that is off keeps its disks only."""
    found: dict[str, float] = defaultdict(float)
    for each in rows:
        if each.kind is DISK:
            for user in each.row.users:
                found[f"{each.place}/{last_part(str(user))}"] += disk_usd_per_hour(each.row)
    for instance in instances:
        if instance.endpoint is not None:
            found[instance.ref.instance_id] += ADDRESS_USD_PER_HOUR[instance.spot]
    return dict(found)

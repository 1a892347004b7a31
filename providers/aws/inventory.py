"""What costgpu has in the account, found by tag, and the removal of what runs leave behind."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from costgpu.errors import AuthError, InvalidRequest, ProviderError
from costgpu.models.instance import Instance, InstanceState, OrphanedResource
from costgpu.models.provider_costs import HOURS_PER_MONTH
from costgpu.providers.aws import sdk
from costgpu.providers.aws.facts import COSTS
from costgpu.providers.aws.instances import Instances, tags_in
from costgpu.providers.aws.sdk import Clients
from costgpu.providers.aws.termination_schedule import SCHEDULE, Schedules, run_of
from costgpu.providers.base import TAG_RUN, OwnedResources
from costgpu.providers.common import leftover_from, not_ours

PARALLEL_REGIONS = 8
# List prices of us-east-1; other regions ask up to twice as much for disks and snapshots, and the same for addresses. They
# are for finding leaks: what is really charged is on the bill. Source: Amazon EBS pricing (read 2026-11).
VOLUME_USD_PER_GIB_MONTH = {
    "gp3": COSTS.disk_usd_per_gb_month,
    "gp2": 0.10,
    "io1": 0.125,
    "io2": 0.125,
    "st1": 0.045,
    "sc1": 0.015,
    "standard": 0.05,
}
IOPS_USD_PER_MONTH = {"gp3": (3000, 0.005), "io1": (0, 0.065), "io2": (0, 0.065)}
"""Volume type -> IOPS that are included, USD per further one and month (io2's lowest step)."""
GP3_FREE_MIB_PER_SECOND = 125
GP3_USD_PER_MIB_PER_SECOND_MONTH = 0.04
SNAPSHOT_USD_PER_GIB_MONTH = {"standard": 0.05, "archive": 0.0125}


def volume_usd_per_hour(row: Mapping[str, Any]) -> float:
    """Return the price of one entry of ``Volumes``, attached or not: size, and performance beyond what is included."""
    kind = str(row.get("VolumeType") or "gp3")
    monthly = float(row.get("Size", 0)) * VOLUME_USD_PER_GIB_MONTH.get(kind, max(VOLUME_USD_PER_GIB_MONTH.values()))
    included, each = IOPS_USD_PER_MONTH.get(kind, (0, 0.0))
    monthly += max(0, (row.get("Iops") or 0) - included) * each
    if kind == "gp3":
        faster = max(0, (row.get("Throughput") or 0) - GP3_FREE_MIB_PER_SECOND)
        monthly += faster * GP3_USD_PER_MIB_PER_SECOND_MONTH
    return round(monthly / HOURS_PER_MONTH, 6)


def snapshot_usd_per_hour(row: Mapping[str, Any]) -> float:
    """Return the highest price of one entry of ``Snapshots``: a full copy.

    Blocks that other snapshots share are charged once.
    """
    whole = row.get("FullSnapshotSizeInBytes")
    gib = whole / 2**30 if whole else row.get("VolumeSize", 0)
    monthly = gib * SNAPSHOT_USD_PER_GIB_MONTH.get(str(row.get("StorageTier") or "standard"), 0.05)
    return round(float(monthly) / HOURS_PER_MONTH, 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One sort of resource that carries tags."""

    name: str
    plural: str  # in EC2's names: ``describe_key_pairs`` lists ``KeyPairs``
    id_filter: str  # name of the filter for the identifier, such as ``key-pair-id``; in rows that is ``KeyPairId``
    remove: str  # boto3's call that removes one
    idle: Callable[[Any], bool] = lambda _: True  # whether a row is left over, rather than part of something
    usd_per_hour: Callable[[Any], float] = lambda _: 0.0
    created_key: str = ""  # name of the time of creation in a row; empty where EC2 does not tell
    question: Mapping[str, Any] = field(default_factory=dict)  # further arguments of the call that lists them
    of_a_run: bool = True  # whether runs themselves make such things; the others were made of them by somebody

    @property
    def id_key(self) -> str:
        """Name of the identifier in rows and requests."""
        return self.id_filter.title().replace("-", "")


VOLUME = Kind(
    name="disk",
    plural="volumes",
    id_filter="volume-id",
    remove="delete_volume",
    idle=lambda row: not row.get("Attachments"),
    usd_per_hour=volume_usd_per_hour,
    created_key="CreateTime",
)
ADDRESS = Kind(
    name="address",
    plural="addresses",
    id_filter="allocation-id",
    remove="release_address",
    idle=lambda row: not row.get("AssociationId"),
    usd_per_hour=lambda _: COSTS.address_usd_per_hour,
)
PLACEMENT_GROUP = Kind(
    name="placement group", plural="placement_groups", id_filter="group-name", remove="delete_placement_group"
)
KINDS = (
    VOLUME,
    Kind(
        name="snapshot",
        plural="snapshots",
        id_filter="snapshot-id",
        remove="delete_snapshot",
        usd_per_hour=snapshot_usd_per_hour,
        created_key="StartTime",
        question={"OwnerIds": ["self"]},
        of_a_run=False,
    ),
    ADDRESS,
    Kind(
        name="network interface",
        plural="network_interfaces",
        id_filter="network-interface-id",
        remove="delete_network_interface",
        idle=lambda row: row.get("Status") == "available",
    ),
    Kind(name="security group", plural="security_groups", id_filter="group-id", remove="delete_security_group"),
    Kind(
        name="key pair",
        plural="key_pairs",
        id_filter="key-pair-id",
        remove="delete_key_pair",
        created_key="CreateTime",
        of_a_run=False,
    ),
    PLACEMENT_GROUP,
)
"""In the order of removal: a group goes after the interfaces that are in it."""


class Inventory(Instances):
    """Looks for what is ours, and takes away what runs leave."""

    def __init__(self, clients: Clients, schedules: Schedules) -> None:
        super().__init__(clients)
        self._schedules = schedules

    def list_owned(self, regions: Sequence[str] | None = None) -> OwnedResources:
        """Return everything with our tag, from all regions at once; one that fails is named and hides nothing.

        Raises:
            AuthError: No region at all accepts the credentials.
        """
        if regions is None:
            regions = self._clients.enabled_regions()
        with ThreadPoolExecutor(max_workers=PARALLEL_REGIONS, thread_name_prefix="costgpu-aws") as pool:
            answers = list(pool.map(self._survey, regions))
        failed = [error for _, error in answers if error is not None]
        refused = [error for error in failed if isinstance(error, AuthError)]
        if regions and len(refused) == len(regions):
            raise refused[0]
        owned = [answer for answer, _ in answers]
        return OwnedResources(
            instances=tuple(each for answer in owned for each in answer.instances),
            leftovers=tuple(each for answer in owned for each in answer.leftovers),
            unreachable=_together(
                [each for answer in owned for each in answer.unreachable], len(regions) - len(failed)
            ),
            attached={key: value for answer in owned for key, value in answer.attached.items()},
            told_at=self._clients.told_at(),
        )

    def _survey(self, region: str) -> tuple[OwnedResources, ProviderError | None]:
        try:
            self._clients.require(region)
            instances = [each for each in self._filtered(region, "tag-key", TAG_RUN) if TAG_RUN in each.tags]
        except ProviderError as error:
            return OwnedResources(unreachable=((region, error.message),)), error
        leftovers: list[OrphanedResource] = []
        unreachable: list[tuple[str, str]] = []
        rows: dict[str, list[Any]] = {}
        for kind in KINDS:
            try:
                rows[kind.name] = [
                    row for row in self._rows(region, kind, "tag-key", TAG_RUN) if TAG_RUN in tags_in(row)
                ]
                leftovers += [_leftover(region, kind, row) for row in rows[kind.name] if kind.idle(row)]
            except ProviderError as error:
                unreachable.append((f"{region} ({kind.name})", error.message))
        try:
            leftovers += self._schedules.made(region)
        except ProviderError as error:
            if self._schedules.configured:
                unreachable.append((f"{region} ({SCHEDULE})", error.message))
        attached = _attached(instances, rows.get(VOLUME.name, ()), rows.get(ADDRESS.name, ()))
        owned = OwnedResources(
            instances=tuple(instances), leftovers=tuple(leftovers), unreachable=tuple(unreachable), attached=attached
        )
        return owned, None

    def _rows(self, region: str, kind: Kind, name: str, value: str) -> list[Any]:
        question = {**kind.question, "Filters": [{"Name": name, "Values": [value]}]}
        with self._clients.speaking(f"list each {kind.name} in {region}"):
            return self._clients.rows(
                region, f"describe_{kind.plural}", kind.plural.title().replace("_", ""), **question
            )

    def clean_up(self, run_id: str, region: str) -> tuple[OrphanedResource, ...]:
        """Remove a run's security group, schedule and stray disks; return what has to wait.

        That is everything if its machine still lives.
        """
        if not run_id:
            raise InvalidRequest("No run is named.")
        self._clients.require(region)
        machines = self._filtered(region, f"tag:{TAG_RUN}", run_id)
        alive = any(each.state.alive and each.state is not InstanceState.TERMINATING for each in machines)
        try:
            waiting = self._schedules.made(region, run_id)
        except AuthError:
            if self._schedules.configured:
                raise
            waiting = []
        if not alive:
            waiting = [each for each in waiting if not self._schedules.remove_quietly(region, each.resource_id)]
        for kind in KINDS:
            if kind.of_a_run:
                for row in self._of_run(region, kind, run_id):
                    if alive or not self._remove(region, kind, row):
                        waiting.append(_leftover(region, kind, row))
        return tuple(waiting)

    def _of_run(self, region: str, kind: Kind, run_id: str) -> list[Any]:
        """Return the rows that carry a run's tag. Who may not list placement groups has not made one, either."""
        try:
            return self._rows(region, kind, f"tag:{TAG_RUN}", run_id)
        except AuthError:
            if kind is PLACEMENT_GROUP:
                return []
            raise

    def remove(self, leftover: OrphanedResource) -> bool:
        """Remove one thing that still carries our tag and is no instance; return whether it is gone.

        Raises:
            InvalidRequest: It does not carry our tag, or it is of a kind that costgpu does not know.
        """
        region, resource = leftover.region, leftover.resource_id
        self._clients.require(region)
        if leftover.kind == SCHEDULE:
            if not run_of(resource):
                raise not_ours(leftover)
            if any(each.resource_id == resource for each in self._schedules.made(region, run_of(resource))):
                with self._clients.speaking(f"remove the schedule {resource} in {region}"):
                    self._schedules.remove(region, resource)
            return True
        kind = next((each for each in KINDS if each.name == leftover.kind), None)
        if kind is None:
            raise InvalidRequest(f"costgpu does not know what a {leftover.kind} is on AWS.")
        rows = self._rows(region, kind, kind.id_filter, resource)
        if any(TAG_RUN not in tags_in(row) for row in rows):
            raise not_ours(leftover)
        return all(self._remove(region, kind, row) for row in rows)  # one, or none any more

    def _remove(self, region: str, kind: Kind, row: Any) -> bool:
        """Delete one thing; return whether it is gone."""
        resource = row[kind.id_key]
        with self._clients.speaking(f"remove the {kind.name} {resource} in {region}"):
            if not kind.idle(row):
                return False
            with sdk.Tolerate(*sdk.codes()["still_used"]):
                with sdk.Tolerate(*sdk.codes()["gone"]):
                    getattr(self._clients.client("ec2", region), kind.remove)(**{kind.id_key: resource})
                return True
        return False


def _leftover(region: str, kind: Kind, row: Any) -> OrphanedResource:
    usd, created = kind.usd_per_hour(row), row.get(kind.created_key)
    return leftover_from("aws", region, kind.name, row[kind.id_key], tags_in(row), usd, created)


def _attached(instances: Sequence[Instance], volumes: Sequence[Any], addresses: Sequence[Any]) -> dict[str, float]:
    """Return what the disks and the address of each instance cost an hour; stopped machines keep theirs."""
    found: dict[str, float] = defaultdict(float)
    for row in volumes:
        for attachment in row.get("Attachments") or ():
            found[str(attachment.get("InstanceId", ""))] += VOLUME.usd_per_hour(row)
    kept = {str(row.get("InstanceId") or "") for row in addresses}
    for instance in instances:
        if instance.ref.instance_id in kept or instance.endpoint is not None:
            found[instance.ref.instance_id] += COSTS.address_usd_per_hour
    return dict(found)


def _together(failed: list[tuple[str, str]], asked: int) -> tuple[tuple[str, str], ...]:
    """Return what failed; a kind that could be listed in none of several regions is named once."""
    kinds = Counter(place.partition(" ")[2] for place, _ in failed)
    everywhere = {kind for kind, count in kinds.items() if kind and count == asked > 1}
    told: list[tuple[str, str]] = []
    for place, why in failed:
        _, _, kind = place.partition(" ")
        if kind not in everywhere:
            told.append((place, why))
        elif not any(known == f"every region {kind}" for known, _ in told):
            told.append((f"every region {kind}", why))
    return tuple(told)

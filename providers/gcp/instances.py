"""Compute Engine's description of a machine as costgpu's `Instance`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from costgpu.errors import InvalidRequest, ProviderError, Unreachable
from costgpu.models.instance import CreateRequest, Endpoint, Instance, InstanceRef, InstanceState
from costgpu.providers.base import TAG_NAME, TAG_OWNER, TAG_RUN
from costgpu.providers.gcp import sdk
from costgpu.providers.gcp.aggregated_list import everywhere
from costgpu.providers.gcp.labels import METADATA_KEY, label_value, lease_in, tags_from
from costgpu.providers.gcp.launch import join_type, name_of
from costgpu.providers.gcp.operations import History, history_of
from costgpu.providers.gcp.session import Clients, last_part, region_of

LOGIN = "root"  # the boot script lets the run's key in as root
STATES = {
    "PROVISIONING": InstanceState.PENDING,
    "STAGING": InstanceState.PENDING,
    "PENDING": InstanceState.PENDING,
    "RUNNING": InstanceState.RUNNING,
    "REPAIRING": InstanceState.RUNNING,
    "STOPPING": InstanceState.STOPPING,
    "PENDING_STOP": InstanceState.STOPPING,
    "SUSPENDING": InstanceState.STOPPING,
    "SUSPENDED": InstanceState.STOPPED,
    "STOPPED": InstanceState.STOPPED,
    "TERMINATED": InstanceState.STOPPED,
    "DEPROVISIONING": InstanceState.TERMINATING,
}
"""Google's TERMINATED is a machine that is off, with its disk: it can be started again, and the disk is billed.
Source: Compute Engine, "Compute Engine instance lifecycle" (2026-11)."""
EXISTS = frozenset({"STAGING", "RUNNING", "STOPPING", "TERMINATED", "SUSPENDING", "SUSPENDED", "REPAIRING"})
"""States in which the resources are the machine's; PROVISIONING can still end in "no capacity"."""
SETTLE_SECONDS = 30.0  # so long "not found" proves nothing about a machine that was created
UNREADABLE = (400, 404)  # a machine that is off, and one that is gone


def split_id(ref: InstanceRef) -> tuple[str, str]:
    """Zone and name.

    Raises:
        InvalidRequest: It is no instance of Google Cloud.
    """
    zone, slash, name = ref.instance_id.partition("/")
    if not slash or not name or region_of(zone) != ref.region:
        raise InvalidRequest(
            f"{ref.instance_id!r} is no instance of Google Cloud in {ref.region}.", hint="Such as us-central1-a/NAME."
        )
    return zone, name


def ref_of(zone: str, name: str) -> InstanceRef:
    """What names an instance for ever: names contain the run's id."""
    return InstanceRef(provider="gcp", region=region_of(zone), instance_id=f"{zone}/{name}")


def instance_from(row: Any, history: History | None = None) -> Instance:
    """One instance.

    Args:
        row: As the client returns it.
        history: What its zone's operations tell; None if they were not asked for.
    """
    zone = last_part(str(row.zone))
    kept = next((str(item.value) for item in row.metadata.items if item.key == METADATA_KEY), "")
    tags = tags_from(dict(row.labels), kept)
    told = history or History()
    state = STATES.get(str(row.status), InstanceState.PENDING)
    if state is InstanceState.STOPPING and history is not None and _will_be_deleted(row, told):
        state = InstanceState.TERMINATING
    accelerators = [
        (last_part(str(each.accelerator_type)), int(each.accelerator_count)) for each in row.guest_accelerators
    ]
    address = _address(row)
    return Instance(
        ref=ref_of(zone, str(row.name)),
        zone=zone,
        instance_type=join_type(last_part(str(row.machine_type)), accelerators),
        state=state,
        reason=told.reason or str(row.status_message),
        preempted=told.preempted,
        launched_at=_time(row.creation_timestamp) or datetime.now(UTC),
        ended_at=_time(row.last_stop_timestamp) if state is InstanceState.STOPPED else None,
        by_guest=told.by_guest,
        endpoint=Endpoint(kind="ssh", host=address, user=LOGIN) if address and state is InstanceState.RUNNING else None,
        run_id=tags.get(TAG_RUN, ""),
        name=tags.get(TAG_NAME, ""),
        owner=tags.get(TAG_OWNER, ""),
        lease_until=lease_in(tags),
        spot=str(row.scheduling.provisioning_model) == "SPOT",
        tags=tags,
    )


def _will_be_deleted(row: Any, told: History) -> bool:
    """Of a machine that is stopping: whether its end is a deletion, or its own system just switched it off.

    The deletion may be over by the time that the operations are read. As long as nothing is on record it is one of the
    two. It is called a deletion then: whoever waits for that, and finds
    the machine off instead, ends it.
    """
    if (
        told.deleting
        or told.deleted_at is not None
        or (told.preempted and str(row.scheduling.instance_termination_action) == "DELETE")
    ):
        return True
    return not told.reason and bool(row.scheduling.termination_time)


def _address(row: Any) -> str:
    for interface in row.network_interfaces:
        for config in interface.access_configs:
            if config.nat_i_p:
                return str(config.nat_i_p)
    return ""


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC) if text else None
    except ValueError:
        return None


def gone(ref: InstanceRef, told: History, request: CreateRequest | None = None) -> Instance:
    """An instance that Google does not know any more, from what its zone's operations tell."""
    zone, _ = split_id(ref)
    assert told.created_at is not None  # noqa: S101 - it was there
    known: dict[str, Any] = {}
    if request is not None:
        known = {
            "run_id": request.run_id,
            "name": request.name,
            "owner": request.owner,
            "lease_until": request.lease_until,
        }
    return Instance(
        ref=ref,
        zone=zone,
        instance_type=request.offer.instance_type if request else "",
        state=InstanceState.TERMINATED,
        reason=told.reason,
        preempted=told.preempted,
        launched_at=told.created_at,
        ended_at=told.stopped_at or told.deleted_at,
        by_guest=told.by_guest,
        endpoint=None,
        **known,
    )


class Instances:
    """Questions about machines."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._missed: dict[str, float] = {}  # zone/name -> when it could not be found for the first time, monotonic

    def row(self, zone: str, name: str) -> Any | None:
        """As the client returns it; None if there is no such machine."""
        return self._clients.maybe(f"describe {name} in {zone}", "Instances", "get", zone=zone, instance=name)

    def one(self, ref: InstanceRef) -> Instance | None:
        """One machine, ours or not; None if Google knows nothing of it."""
        zone, name = split_id(ref)
        row = self.row(zone, name)
        if row is None:
            told = history_of(self._clients, zone, name)
            return gone(ref, told) if self.is_over(zone, name, told) else None
        return self._with_history(row)

    def _with_history(self, row: Any) -> Instance:
        if STATES.get(str(row.status)) not in (InstanceState.STOPPING, InstanceState.STOPPED):
            return instance_from(row)
        return instance_from(row, history_of(self._clients, last_part(str(row.zone)), str(row.name)))

    def is_over(self, zone: str, name: str, told: History) -> bool:
        """Whether a machine that cannot be found was there, and is deleted.

        Without a word about its deletion that takes a while of this process's own: its clock and Google's may differ.
        """
        if told.created_at is None or told.deleting:
            return False
        if told.deleted_at is not None or told.preempted:
            return True
        missed = self._missed.setdefault(f"{zone}/{name}", self._clients.clock.monotonic())
        return told.created and self._clients.clock.monotonic() - missed > SETTLE_SECONDS

    def of_token(self, request: CreateRequest, zone: str) -> Instance | None:
        """The machine of a request's token, in whatever state; None if there never was one.

        Raises:
            Unreachable: Its creation is under way, or is not to be seen yet: ask again.
        """
        name = name_of(request.token)
        row = self.row(zone, name)
        if row is None and request.zone is None:  # Google's choice of first zone may have been another one then
            rows = self._everywhere(f"name = {name}")[0]
            row = next((row for place, row in rows if region_of(place) == request.offer.region), None)
        if row is not None:
            return self._with_history(row)
        told = history_of(self._clients, zone, name)
        if told.created_at is None:
            return None
        if self.is_over(zone, name, told):
            return gone(ref_of(zone, name), told, request)
        raise Unreachable(f"{name} in {zone} is being made, or ended: Google does not show it.")

    def of_run(self, run_id: str) -> list[Instance]:
        """All machines of a run, wherever.

        Raises:
            Unreachable: Some zone could not be asked.
        """
        rows, silent = self._everywhere(f"labels.costgpu-run = {label_value(run_id)}")
        if silent:
            raise Unreachable(f"Google does not say whether run {run_id} has machines in {', '.join(sorted(silent))}.")
        return [instance_from(row) for _, row in rows]

    def ours(self) -> tuple[list[Instance], dict[str, str]]:
        """All machines with our label; and zone -> why it could not be asked."""
        rows, silent = self._everywhere("labels.costgpu-run:*")
        return [self._with_history(row) for _, row in rows], silent

    def _everywhere(self, expression: str) -> tuple[list[tuple[str, Any]], dict[str, str]]:
        return everywhere(self._clients, "Instances", "instances", "zone", expression)

    def console(self, ref: InstanceRef) -> str:
        """Boot messages; empty if there are none yet, and for a machine that is off: Google forgets them then."""
        zone, name = split_id(ref)
        doing = f"read the console of {name} in {zone}"
        try:
            answer = self._clients.maybe(doing, "Instances", "get_serial_port_output", zone=zone, instance=name)
        except ProviderError as error:
            if sdk.status_of(error.__cause__) in UNREADABLE:
                return ""
            raise
        return str(answer.contents) if answer is not None else ""

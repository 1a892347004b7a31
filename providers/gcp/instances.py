"""Compute Engine's description of a machine as costgpu's `Instance`, and what became of one, from its zone's operations.

An instance that is gone is unknown to Google at once. Only its zone's operations, which stay for days, tell that it was
there, who deleted it and when, and whether it was taken back. Source: Compute Engine, "Viewing operations", "Operation
types" of system events, and "Create and use Spot VMs", detect preemption (2026-11).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from costgpu.errors import InvalidRequest, ProviderError, Unreachable
from costgpu.models.instance import CreateRequest, Instance, InstanceRef, InstanceState
from costgpu.providers.base import TAG_RUN
from costgpu.providers.common import facts_in, ssh_endpoint
from costgpu.providers.gcp import sdk
from costgpu.providers.gcp.launch import METADATA_KEY, join_type, label_value, name_of, tags_from
from costgpu.providers.gcp.sdk import refusal_of
from costgpu.providers.gcp.session import Clients, is_done, last_part, list_all_places, region_of

SYSTEM = "compute.instances."  # what no person has asked for
PREEMPTED, GUEST = SYSTEM + "preempted", SYSTEM + "guestTerminate"
CREATES = frozenset({"insert"})
STARTS = frozenset({"start", "startWithEncryptionKey", "resume", SYSTEM + "automaticRestart"})
DELETES = frozenset({"delete", SYSTEM + "delete"})
STOPS = frozenset({"stop", "suspend", SYSTEM + "stop", GUEST})
GO_ON = (SYSTEM + "migrate", SYSTEM + "upcoming")  # how the events begin that end nothing
CAUSE_SECONDS = (
    300.0  # within which a guest switches itself off because of an interruption: the longest notice is 120 s
)
WORDS = {
    GUEST: "switched off by its own system",
    PREEMPTED: "preempted",
    SYSTEM + "hostError": "its host failed (hostError)",
    SYSTEM + "terminateOnHostMaintenance": "its host was maintained (terminateOnHostMaintenance)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What has happened to a name in a zone."""

    created_at: datetime | None = None  # when a create call for it was made; None if none was, or it failed
    created: bool = False  # whether that call has succeeded
    deleting: bool = False  # whether its deletion is under way
    deleted_at: datetime | None = None  # when it was over; None if nobody has deleted it, as far as is known
    stopped_at: datetime | None = None  # when it was last switched off, if it was not deleted at once
    interrupted: str = (
        ""  # Google's event that ended it, such as `PREEMPTED` or a failure of its host; empty if none did
    )
    by_guest: bool = False  # whether its own system has switched it off, or is about to
    reason: str = ""  # in Google's words: what ended or stopped it last; empty if nothing has


def history_from(operations: Sequence[Any]) -> History:
    """Return the history that the operations on one instance tell, in any order.

    What stopped it last counts, not what moved it or stopped it before it was started again. Its own system also
    switches it off because Google takes it back; then that is the cause.
    """
    rows = sorted((row for row in operations if refusal_of(row) is None), key=begun_at)
    created = [row for row in rows if row.operation_type in CREATES]
    deletes = [row for row in rows if row.operation_type in DELETES]
    over = [_time(row.end_time) or begun_at(row) for row in deletes if is_done(row)]
    started = max((number for number, row in enumerate(rows) if row.operation_type in STARTS), default=-1)
    stops = [row for row in rows[started + 1 :] if row.operation_type in STOPS or _interrupts(row)]
    off = [row for row in stops if is_done(row)]
    cause = stops[-1] if stops else deletes[-1] if deletes else None
    if cause is not None and cause.operation_type == GUEST:
        near = [row for row in stops if _interrupts(row) and abs(_seconds(row, cause)) <= CAUSE_SECONDS]
        cause = near[-1] if near else cause
    return History(
        created_at=begun_at(created[0]) if created else None,
        created=any(is_done(row) for row in created),
        deleting=any(not is_done(row) for row in deletes),
        deleted_at=max(over, default=None),
        stopped_at=(_time(off[-1].end_time) or begun_at(off[-1])) if off else None,
        interrupted=str(cause.operation_type) if cause is not None and _interrupts(cause) else "",
        by_guest=cause is not None and cause.operation_type == GUEST,
        reason=_words(cause) if cause is not None else "",
    )


def _interrupts(operation: Any) -> bool:
    """Return whether Google has ended the machine for a reason of its own: capacity, its host, its disk."""
    kind = str(operation.operation_type)
    return kind.startswith(SYSTEM) and kind not in STARTS | DELETES | STOPS and not kind.startswith(GO_ON)


def _seconds(first: Any, second: Any) -> float:
    return (begun_at(second) - begun_at(first)).total_seconds()


def history_of(clients: Clients, zone: str, name: str) -> History:
    """Ask for it; a refusal is no error: what became of a machine matters less than whether it is there."""
    try:
        return history_from(operations_on(clients, zone, name))
    except ProviderError:
        return History()


def operations_on(clients: Clients, zone: str, name: str) -> list[Any]:
    """Return the operations on the instances that have had that name in a zone, in any order."""
    question = {"zone": zone, "filter": f'targetLink eq ".*/instances/{name}"'}
    rows = clients.rows(f"list what happened to {name} in {zone}", "ZoneOperations", **question)
    return [row for row in rows if last_part(str(row.target_link)) == name]


def begun_at(operation: Any) -> datetime:
    """When it was asked for."""
    return _time(operation.insert_time) or _time(operation.start_time) or datetime.fromtimestamp(0, UTC)


def _words(operation: Any) -> str:
    if operation.status_message:
        return str(operation.status_message)
    if operation.operation_type in WORDS:
        return WORDS[operation.operation_type]
    kind = str(operation.operation_type).removeprefix(SYSTEM)
    return f"{kind} by {operation.user}" if operation.user else kind


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC) if text else None
    except ValueError:
        return None


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
    """Return what names an instance for ever: names contain the run's id."""
    return InstanceRef(provider="gcp", region=region_of(zone), instance_id=f"{zone}/{name}")


def instance_from(row: Any, history: History | None = None) -> Instance:
    """One instance.

    Args:
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
    return Instance(
        ref=ref_of(zone, str(row.name)),
        zone=zone,
        instance_type=join_type(last_part(str(row.machine_type)), accelerators),
        state=state,
        reason=told.reason or str(row.status_message),
        preempted=bool(told.interrupted),
        launched_at=_time(row.creation_timestamp) or datetime.now(UTC),
        ended_at=_time(row.last_stop_timestamp) if state is InstanceState.STOPPED else None,
        by_guest=told.by_guest,
        endpoint=ssh_endpoint(_address(row), state),
        spot=str(row.scheduling.provisioning_model) == "SPOT",
        private_address=next((str(each.network_i_p) for each in row.network_interfaces), ""),
        **facts_in(tags),
    )


def _will_be_deleted(row: Any, told: History) -> bool:
    """Return whether the end of a stopping machine is a deletion; else its own system has just switched it off.

    The deletion may be over by the time that the operations are read. As long as nothing is on record it is one of the
    two. It is called a deletion then: whoever waits for that, and finds the machine off instead, ends it.
    """
    taken = told.interrupted == PREEMPTED and str(row.scheduling.instance_termination_action) == "DELETE"
    unrecorded = not told.reason and bool(row.scheduling.termination_time)
    return told.deleting or told.deleted_at is not None or taken or unrecorded


def _address(row: Any) -> str:
    configs = (config for interface in row.network_interfaces for config in interface.access_configs)
    return next((str(config.nat_i_p) for config in configs if config.nat_i_p), "")


def gone(ref: InstanceRef, told: History) -> Instance:
    """Return an instance that Google does not know any more, from what its zone's operations tell."""
    assert told.created_at is not None  # noqa: S101 - it was there
    return Instance(
        ref=ref,
        zone=split_id(ref)[0],
        instance_type="",
        state=InstanceState.TERMINATED,
        reason=told.reason,
        preempted=bool(told.interrupted),
        launched_at=told.created_at,
        ended_at=told.stopped_at or told.deleted_at,
        by_guest=told.by_guest,
        endpoint=None,
    )


class Instances:
    """Questions about machines."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._missed: dict[str, float] = {}  # zone/name -> when it could not be found for the first time, monotonic

    def _row(self, zone: str, name: str) -> Any | None:
        """As the client returns it; None if there is no such machine."""
        return self._clients.maybe(f"describe {name} in {zone}", "Instances", "get", zone=zone, instance=name)

    def describe(self, ref: InstanceRef) -> Instance | None:
        """One machine, ours or not, or what its zone still tells of it; None if Google knows nothing of it."""
        zone, name = split_id(ref)
        row = self._row(zone, name)
        if row is None:
            told = history_of(self._clients, zone, name)
            return gone(ref, told) if self._is_over(zone, name, told) else None
        return self._with_history(row)

    def _with_history(self, row: Any) -> Instance:
        if STATES.get(str(row.status)) not in (InstanceState.STOPPING, InstanceState.STOPPED):
            return instance_from(row)
        return instance_from(row, history_of(self._clients, last_part(str(row.zone)), str(row.name)))

    def _is_over(self, zone: str, name: str, told: History) -> bool:
        """Return whether a machine that cannot be found was there, and is deleted.

        Without a word about its deletion that takes a while of this process's own: its clock and Google's may differ.
        """
        if told.created_at is None or told.deleting:
            return False
        if told.deleted_at is not None or told.interrupted == PREEMPTED:
            return True
        missed = self._missed.setdefault(f"{zone}/{name}", self._clients.clock.monotonic())
        return told.created and self._clients.clock.monotonic() - missed > SETTLE_SECONDS

    def _of_token(self, request: CreateRequest, zone: str) -> Instance | None:
        """Return the machine of a request's token, in whatever state; None if there never was one.

        Raises:
            Unreachable: Its creation is under way, or is not to be seen yet: ask again.
        """
        name = name_of(request.token)
        row = self._row(zone, name)
        if row is None and request.zone is None:  # Google's choice of first zone may have been another one then
            rows = self._machines(f"name = {name}")[0]
            row = next((row for place, row in rows if region_of(place) == request.offer.region), None)
        if row is not None:
            return self._with_history(row)
        told = history_of(self._clients, zone, name)
        if told.created_at is None:
            return None
        if self._is_over(zone, name, told):
            return replace(
                gone(ref_of(zone, name), told),
                instance_type=request.offer.instance_type,
                run_id=request.run_id,
                name=request.name,
                owner=request.owner,
                lease_until=request.lease_until,
                group_id=request.group.group_id if request.group is not None else "",
            )
        raise Unreachable(f"{name} in {zone} is being made, or ended: Google does not show it.")

    def _of_run(self, run_id: str, label: str = TAG_RUN) -> list[Instance]:
        """Return all machines of a run, wherever; with another label, those of a group.

        Raises:
            Unreachable: Some zone could not be asked.
        """
        rows, silent = self._machines(f"labels.{label} = {label_value(run_id)}")
        if silent:
            raise Unreachable(f"Google does not say whether run {run_id} has machines in {', '.join(sorted(silent))}.")
        return [instance_from(row) for _, row in rows]

    def _ours(self) -> tuple[list[Instance], dict[str, str]]:
        """Return all machines with our label; and zone -> why it could not be asked."""
        rows, silent = self._machines("labels.costgpu-run:*")
        return [self._with_history(row) for _, row in rows], silent

    def _machines(self, expression: str) -> tuple[list[tuple[str, Any]], dict[str, str]]:
        return list_all_places(self._clients, "Instances", "zone", expression)

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

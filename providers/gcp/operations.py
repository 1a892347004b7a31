"""What became of a machine, from the operations of its zone: Google's instances vanish, their operations stay for days.

An instance that is gone is unknown to Google at once. Only its zone's operations tell that it was there, who deleted it
and when, and whether it was taken back. Source: Compute Engine, "Viewing operations", "Operation types" of system events,
and "Create and use Spot VMs", detect preemption (2026-11).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from costgpu.errors import ProviderError
from costgpu.providers.gcp.session import Clients, is_done, last_part
from costgpu.providers.gcp.translate import refusal_of

PREEMPTED = "compute.instances.preempted"
GUEST = "compute.instances.guestTerminate"
CREATES = frozenset({"insert"})
DELETES = frozenset({"delete", "compute.instances.delete"})
STOPS = frozenset({"stop", "suspend", "compute.instances.stop", GUEST, PREEMPTED})
WORDS = {GUEST: "switched off by its own system", PREEMPTED: "preempted"}
SYSTEM = "compute.instances."  # what no person has asked for: hostError, terminateOnHostMaintenance, ...


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What has happened to a name in a zone.

    Attributes:
        created_at: When a create call for it was made; None if none was, or it failed.
        created: Whether that call has succeeded.
        deleting: Whether its deletion is under way.
        deleted_at: When it was over; None if nobody has deleted it, as far as is known.
        stopped_at: When it was last switched off, if it was not deleted at once.
        preempted: Whether Google took it back.
        by_guest: Whether its own system has switched it off.
        reason: In Google's words: what ended or stopped it last; empty if nothing has.
        hidden: Why nothing is known: the operations could not be listed; empty if they could.
    """

    created_at: datetime | None = None
    created: bool = False
    deleting: bool = False
    deleted_at: datetime | None = None
    stopped_at: datetime | None = None
    preempted: bool = False
    by_guest: bool = False
    reason: str = ""
    hidden: str = ""


def history_from(operations: Sequence[Any]) -> History:
    """Of the operations on one instance, in any order."""
    rows = sorted((row for row in operations if refusal_of(row) is None), key=begun_at)
    created = [row for row in rows if row.operation_type in CREATES]
    deletes = [row for row in rows if row.operation_type in DELETES]
    ends = [row for row in rows if row.operation_type in DELETES | STOPS or str(row.operation_type).startswith(SYSTEM)]
    taken = [row for row in rows if row.operation_type == PREEMPTED]
    over = [_time(row.end_time) or begun_at(row) for row in deletes if is_done(row)]
    stops = [row for row in rows if row.operation_type in STOPS and is_done(row)]
    cause = next((row for row in ends if str(row.operation_type).startswith(SYSTEM)), ends[-1] if ends else None)
    return History(
        created_at=begun_at(created[0]) if created else None,
        created=any(is_done(row) for row in created),
        deleting=any(not is_done(row) for row in deletes),
        deleted_at=max(over, default=None),
        stopped_at=(_time(stops[-1].end_time) or begun_at(stops[-1])) if stops else None,
        preempted=bool(taken),
        by_guest=bool(stops) and stops[-1].operation_type == GUEST and not taken,
        reason=_words(cause) if cause is not None else "",
    )


def history_of(clients: Clients, zone: str, name: str) -> History:
    """Asks for it; a refusal is no error: what became of a machine matters less than whether it is there."""
    question = {"zone": zone, "filter": f'targetLink eq ".*/instances/{name}"'}
    try:
        pages = clients.pages(f"list what happened to {name} in {zone}", "ZoneOperations", "list", **question)
    except ProviderError as error:
        return History(hidden=error.message)
    return history_from([row for page in pages for row in page.items if last_part(str(row.target_link)) == name])


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

"""The state machine of a run. Pure: events in, a frozen view out.

    intent ─ attempted ─> provisioning ─ created ─> booting ─ reached ─> syncing ─ started ─> running
      ^                        │                      │ │                   │                   │ finished
      └────── refused ─────────┴───────── refused ────┘ └────── ending ─────┴─────────┐         v
                                                                                      │     collecting
    closed <─ closed ─ terminating <──────────────────────────────────────────────────┴─ ending ─┘

``confirmed`` leads from every state with an instance to ``terminating``: the machine can end at any time, by
somebody else's hand. A run is closed only when the provider has confirmed the end, or nothing was ever created.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from costgpu.errors import LedgerDamaged
from costgpu.ledger.codec import from_json
from costgpu.models.instance import Identity, InstanceRef, Safeguard
from costgpu.models.job import EndReason, JobSpec, JobStatus
from costgpu.models.run import CreateCall, EndedBy, EventKind, Option, Receipt, RunEvent, RunState, RunView

T = TypeVar("T")
S, E = RunState, EventKind

MOVES: Mapping[tuple[RunState, EventKind], RunState] = {
    (S.INTENT, E.ATTEMPTED): S.PROVISIONING,
    (S.INTENT, E.CLOSED): S.CLOSED,
    (S.PROVISIONING, E.REFUSED): S.INTENT,
    (S.PROVISIONING, E.CREATED): S.BOOTING,
    (S.PROVISIONING, E.ENDING): S.TERMINATING,
    (S.BOOTING, E.REFUSED): S.INTENT,  # the machine was ended while it was being launched
    (S.BOOTING, E.REACHED): S.SYNCING,
    (S.BOOTING, E.ENDING): S.TERMINATING,
    (S.BOOTING, E.CONFIRMED): S.TERMINATING,
    (S.SYNCING, E.SYNCED): S.SYNCING,
    (S.SYNCING, E.STARTED): S.RUNNING,
    (S.SYNCING, E.ENDING): S.TERMINATING,
    (S.SYNCING, E.CONFIRMED): S.TERMINATING,
    (S.RUNNING, E.FINISHED): S.COLLECTING,
    (S.RUNNING, E.ENDING): S.TERMINATING,
    (S.RUNNING, E.CONFIRMED): S.TERMINATING,
    (S.COLLECTING, E.COLLECTED): S.COLLECTING,
    (S.COLLECTING, E.ENDING): S.TERMINATING,
    (S.COLLECTING, E.CONFIRMED): S.TERMINATING,
    (S.TERMINATING, E.CREATED): S.TERMINATING,  # found late: the create call's answer had been lost
    (S.TERMINATING, E.ENDING): S.TERMINATING,
    (S.TERMINATING, E.CONFIRMED): S.TERMINATING,
    (S.TERMINATING, E.CLOSED): S.CLOSED,
    (S.CLOSED, E.COLLECTED): S.CLOSED,  # from the bucket, after the machine
}
ANYWHERE = frozenset({E.DETACHED, E.ADOPTED, E.NOTED, E.SAVED, E.RESTORED, E.GIVEN_UP})


class IllegalEvent(LedgerDamaged):
    """An event that cannot be read, or cannot follow on the run's state: damage, a bug, or two drivers."""


# What the events hold, as far as it is not a value of its own. Anything else in them is for people.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Intended:
    name: str = ""
    owner: str = ""
    client: str = ""
    spec: JobSpec
    identity: Identity
    options: tuple[Option, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refused:
    message: str = ""
    confirmed_state: str = ""  # of a machine that was ended while it was being launched; empty if there was none


@dataclass(frozen=True, slots=True, kw_only=True)
class _Created:
    layers: tuple[Safeguard, ...] = ()
    launched_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ending:
    reason: EndReason
    by: EndedBy


@dataclass(frozen=True, slots=True, kw_only=True)
class _Confirmed:
    state: str
    ended_at: datetime | None = None
    provider_reason: str = ""
    ended_before: bool = False
    forgotten: bool = False
    by: EndedBy = EndedBy.SOMEBODY_ELSE
    reason: EndReason = EndReason.INSTANCE_LOST


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checkpoint:
    taken_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _Closed:
    reason: EndReason
    receipt: Receipt


def _read(kind: type[T], event: RunEvent, **more: Any) -> T:
    """Return what an event holds.

    Raises:
        IllegalEvent: It does not.
    """
    try:
        return from_json(kind, {**event.data, **more})
    except LedgerDamaged as error:
        raise IllegalEvent(
            f"Event {event.sequence} ({event.kind.value}) of run {event.run_id} cannot be read: "
            f"{error.message.partition(': ')[2]}.",
            hint=error.hint,
        ) from error


def begin(event: RunEvent) -> RunView:
    """Return the view of a run from its first event.

    Raises:
        IllegalEvent: It is not an intent.
        LedgerDamaged: Its facts are not those of one.
    """
    if event.kind is not E.INTENDED or event.sequence != 0:
        raise IllegalEvent(f"Run {event.run_id} does not begin with an intent but with {event.kind.value}.")
    told = _read(_Intended, event)
    return RunView(
        run_id=event.run_id,
        state=S.INTENT,
        name=told.name,
        owner=told.owner,
        client=told.client,
        spec=told.spec,
        identity=told.identity,
        options=told.options,
        created_at=event.at,
        changed_at=event.at,
    )


def apply(view: RunView, event: RunEvent) -> RunView:
    """Return the view after one more event.

    Raises:
        IllegalEvent: It cannot follow.
        LedgerDamaged: Its facts are not those of its kind.
    """
    if event.sequence != view.next_sequence:
        raise IllegalEvent(f"Run {view.run_id}: event {event.sequence} instead of {view.next_sequence}.")
    view = replace(view, next_sequence=event.sequence + 1)
    if event.kind in ANYWHERE:
        return _remarks(view, event)
    target = MOVES.get((view.state, event.kind))
    if target is None:
        raise IllegalEvent(f"Run {view.run_id}: {event.kind.value} cannot follow on {view.state.value}.")
    if event.kind is E.CLOSED and view.instance is not None and view.confirmed_at is None:
        raise IllegalEvent(f"Run {view.run_id} cannot close: the end of {view.instance.instance_id} is not confirmed.")
    moved = replace(view, state=target, changed_at=event.at if target is not view.state else view.changed_at)
    return _facts(moved, event)


def _remarks(view: RunView, event: RunEvent) -> RunView:
    """Return what may be told at any time, and changes no state."""
    if event.kind is E.SAVED:
        return replace(view, saved_at=_read(_Checkpoint, event).taken_at)
    if event.kind is E.RESTORED:
        return replace(view, restored_from=_read(_Checkpoint, event).taken_at)
    if event.kind is E.GIVEN_UP:
        return replace(view, given_up=True)
    return replace(view, detached={E.DETACHED: True, E.ADOPTED: False}.get(event.kind, view.detached))


def replay(events: Iterable[RunEvent]) -> RunView:
    """Return the view after all events of one run, in order.

    Raises:
        IllegalEvent: There are none, or they cannot be in this order.
        LedgerDamaged: The facts of one are not those of its kind.
    """
    view: RunView | None = None
    for event in events:
        view = begin(event) if view is None else apply(view, event)
    if view is None:
        raise IllegalEvent(
            "A run without events.",
            hint="The ledger was moved or removed. Machines are found without it: costgpu reap.",
        )
    return view


def _facts(view: RunView, event: RunEvent) -> RunView:
    kind, at = event.kind, event.at
    if kind is E.ATTEMPTED:
        call = _read(CreateCall, event, number=event.data.get("attempt"), at=at.isoformat())
        if not 0 <= call.option < len(view.options):
            raise IllegalEvent(f"Run {view.run_id}: there is no option {call.option} to attempt.")
        return replace(view, create_call=call)
    if kind is E.REFUSED:
        assert view.create_call is not None  # noqa: S101 - provisioning has one
        told = _read(_Refused, event)
        if view.instance is not None and not told.confirmed_state:
            raise IllegalEvent(
                f"Run {view.run_id} cannot go on: the end of {view.instance.instance_id} is not confirmed."
            )
        refusal = (view.create_call.option, view.create_call.zone, told.message)
        refused = replace(view, refusals=(*view.refusals, refusal))
        return replace(refused, instance=None, layers=(), known_since=None, launched_at=None)
    if kind is E.CREATED:
        created = _read(_Created, event)
        return replace(
            view,
            instance=_read(InstanceRef, event),
            layers=created.layers,
            known_since=at,
            launched_at=created.launched_at,
        )
    if kind is E.SYNCED:
        return replace(view, synced=True)
    if kind is E.STARTED:
        return replace(view, started_at=at)
    if kind is E.FINISHED:
        status = _read(JobStatus, event)
        return replace(view, status=status, reason=status.reason or view.reason)
    if kind is E.COLLECTED:
        return replace(view, collected=True)
    if kind is E.ENDING:
        ending = _read(_Ending, event)
        return replace(
            view,
            reason=view.reason or ending.reason,  # the first reason is the cause
            ending_by=view.ending_by or ending.by,
            ending_at=view.ending_at or at,
        )
    if kind is E.CONFIRMED:
        confirmed = _read(_Confirmed, event)
        return replace(
            view,
            confirmed_state=confirmed.state,
            confirmed_at=confirmed.ended_at or at,
            provider_reason=confirmed.provider_reason,
            ended_before=confirmed.ended_before,
            forgotten=confirmed.forgotten,
            ending_by=view.ending_by or confirmed.by,
            reason=view.reason or confirmed.reason,
        )
    if kind is E.CLOSED:
        closed = _read(_Closed, event)
        return replace(view, reason=closed.reason, receipt=closed.receipt)
    return view

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
from dataclasses import replace
from datetime import datetime

from costgpu.errors import LedgerDamaged
from costgpu.ledger.codec import from_json
from costgpu.models.events import (
    EVENTS,
    Adopted,
    Attempted,
    Closed,
    Collected,
    Confirmed,
    Created,
    Ending,
    Event,
    GivenUp,
    Intended,
    LeftAlone,
    Refused,
    Restored,
    Saved,
    Searched,
    Started,
    Synced,
)
from costgpu.models.instance import InstanceRef
from costgpu.models.job import JobStatus
from costgpu.models.run import CreateCall, EventKind, RunEvent, RunState, RunView

S, E = RunState, EventKind

MOVES: Mapping[tuple[RunState, EventKind], RunState] = {
    (S.INTENT, E.ATTEMPTED): S.PROVISIONING,
    (S.INTENT, E.SEARCHED): S.INTENT,
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


def read_event(row: RunEvent) -> Event:
    """Return what a row of the ledger holds.

    Raises:
        IllegalEvent: It does not hold what its kind does.
    """
    try:
        return from_json(EVENTS[row.kind], row.data)
    except LedgerDamaged as error:
        raise IllegalEvent(
            f"Event {row.sequence} ({row.kind.value}) of run {row.run_id} cannot be read: "
            f"{error.message.partition(': ')[2]}.",
            hint=error.hint,
        ) from error


def begin(row: RunEvent) -> RunView:
    """Return the view of a run from its first event.

    Raises:
        IllegalEvent: It is not an intent, or its facts are not those of one.
    """
    event = read_event(row)
    if not isinstance(event, Intended) or row.sequence != 0:
        raise IllegalEvent(f"Run {row.run_id} does not begin with an intent but with {row.kind.value}.")
    return RunView(
        run_id=row.run_id,
        state=S.INTENT,
        name=event.name,
        owner=event.owner,
        client=event.client,
        spec=event.spec,
        identity=event.identity,
        options=event.options,
        created_at=row.at,
        changed_at=row.at,
    )


def apply(view: RunView, row: RunEvent) -> RunView:
    """Return the view after one more event.

    Raises:
        IllegalEvent: It cannot follow, or its facts are not those of its kind.
    """
    if row.sequence != view.next_sequence:
        raise IllegalEvent(f"Run {view.run_id}: event {row.sequence} instead of {view.next_sequence}.")
    view = replace(view, next_sequence=row.sequence + 1)
    if row.kind not in ANYWHERE:
        target = MOVES.get((view.state, row.kind))
        if target is None:
            raise IllegalEvent(f"Run {view.run_id}: {row.kind.value} cannot follow on {view.state.value}.")
        if row.kind is E.CLOSED and view.instance is not None and view.confirmed_at is None:
            raise IllegalEvent(
                f"Run {view.run_id} cannot close: the end of {view.instance.instance_id} is not confirmed."
            )
        view = replace(view, state=target, changed_at=row.at if target is not view.state else view.changed_at)
    return _facts(view, read_event(row), row.at)


def replay(events: Iterable[RunEvent]) -> RunView:
    """Return the view after all events of one run, in order.

    Raises:
        IllegalEvent: There are none, they cannot be in this order, or the facts of one are not those of its kind.
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


def _facts(view: RunView, event: Event, at: datetime) -> RunView:
    match event:
        case Attempted():
            if not 0 <= event.option < len(view.options):
                raise IllegalEvent(f"Run {view.run_id}: there is no option {event.option} to attempt.")
            call = CreateCall(
                number=event.attempt,
                token=event.token,
                option=event.option,
                zone=event.zone,
                at=at,
                lease_until=event.lease_until,
                allow_from=event.allow_from,
                account=event.account,
            )
            return replace(view, create_call=call)
        case Refused():
            assert view.create_call is not None and view.option is not None  # noqa: S101, PT018 - provisioning has them
            if view.instance is not None and not event.confirmed_state:
                raise IllegalEvent(
                    f"Run {view.run_id} cannot go on: the end of {view.instance.instance_id} is not confirmed."
                )
            refusal = (view.create_call.option, view.create_call.zone, event.message)
            left = ((view.option.offer.region, words) for words in event.left_behind)
            refused = replace(view, refusals=(*view.refusals, refusal), left_behind=(*view.left_behind, *left))
            return replace(refused, instance=None, layers=(), known_since=None, launched_at=None)
        case Searched():
            if view.spec.attempt is None:
                raise IllegalEvent(f"Run {view.run_id} has one attempt, and looks for no other machine.")
            attempt = replace(view.spec.attempt, searches=view.spec.attempt.searches + 1)
            return replace(view, spec=replace(view.spec, attempt=attempt), refusals=(), searched_at=at)
        case Created():
            ref = InstanceRef(provider=event.provider, region=event.region, instance_id=event.instance_id)
            return replace(view, instance=ref, layers=event.layers, known_since=at, launched_at=event.launched_at)
        case Synced():
            return replace(view, synced=True)
        case Started():
            return replace(view, started_at=at)
        case JobStatus():
            return replace(view, status=event, reason=event.reason or view.reason)
        case Collected():
            return replace(view, collected=True, kept=event.kept)
        case Ending():
            return replace(
                view,
                reason=view.reason or event.reason,  # the first reason is the cause
                ending_by=view.ending_by or event.by,
                ending_at=view.ending_at or at,
            )
        case Confirmed():
            return replace(
                view,
                confirmed_state=event.state,
                confirmed_at=event.ended_at or at,
                provider_reason=event.provider_reason,
                ended_before=event.ended_before,
                forgotten=event.forgotten,
                ending_by=view.ending_by or event.by,
                reason=view.reason or event.reason,
            )
        case Closed():
            return replace(view, reason=event.reason, receipt=event.receipt)
        case Saved():
            return replace(view, saved_at=event.taken_at)
        case Restored():
            return replace(view, restored_from=event.taken_at)
        case GivenUp():
            return replace(view, given_up=True)
        case LeftAlone():
            return replace(view, detached=True)
        case Adopted():
            return replace(view, detached=False, adopted_at=at)
    return view

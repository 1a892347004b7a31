"""The state machine of a run. Pure: events in, a frozen view out.

    intent ─ attempted ─> provisioning ─ created ─> booting ─ reached ─> syncing ─ started ─> running
      ^                        │                       │                    │                   │ finished
      └────── refused ─────────┘                       └─────── ending ─────┴─────────┐         v
                                                                                      │     collecting
    closed <─ closed ─ terminating <──────────────────────────────────────────────────┴─ ending ─┘

``confirmed`` leads from every state with an instance to ``terminating``: the machine can end at any time, by
somebody else's hand. A run is closed only when the provider has confirmed the end, or nothing was ever created.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from costgpu.errors import CostGpuError
from costgpu.ledger.codec import from_json
from costgpu.models.instance import Identity, InstanceRef, Safeguard
from costgpu.models.job import EndReason, JobSpec, JobStatus
from costgpu.models.run import Attempt, EndedBy, EventKind, Option, Receipt, RunEvent, RunState, RunView

S, E = RunState, EventKind

MOVES: Mapping[tuple[RunState, EventKind], RunState] = {
    (S.INTENT, E.ATTEMPTED): S.PROVISIONING,
    (S.INTENT, E.CLOSED): S.CLOSED,
    (S.PROVISIONING, E.REFUSED): S.INTENT,
    (S.PROVISIONING, E.CREATED): S.BOOTING,
    (S.PROVISIONING, E.ENDING): S.TERMINATING,
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
ANYWHERE = frozenset({E.DETACHED, E.ADOPTED, E.NOTED})


class IllegalEvent(CostGpuError):
    """An event that cannot follow on the run's state: a bug, or two drivers."""


def begin(event: RunEvent) -> RunView:
    """The view of a run from its first event.

    Raises:
        IllegalEvent: It is not an intent.
    """
    if event.kind is not E.INTENDED or event.sequence != 0:
        raise IllegalEvent(f"Run {event.run_id} does not begin with an intent but with {event.kind.value}.")
    data = event.data
    return RunView(
        run_id=event.run_id,
        state=S.INTENT,
        name=str(data.get("name", "")),
        owner=str(data.get("owner", "")),
        client=str(data.get("client", "")),
        spec=from_json(JobSpec, data["spec"]),
        identity=from_json(Identity, data["identity"]),
        options=tuple(from_json(Option, option) for option in data.get("options", ())),
        created_at=event.at,
        changed_at=event.at,
    )


def apply(view: RunView, event: RunEvent) -> RunView:
    """The view after one more event.

    Raises:
        IllegalEvent: It cannot follow.
    """
    if event.sequence != view.next_sequence:
        raise IllegalEvent(f"Run {view.run_id}: event {event.sequence} instead of {view.next_sequence}.")
    view = replace(view, next_sequence=event.sequence + 1)
    if event.kind in ANYWHERE:
        left = {E.DETACHED: True, E.ADOPTED: False, E.NOTED: view.detached}[event.kind]
        return replace(view, detached=left)
    target = MOVES.get((view.state, event.kind))
    if target is None:
        raise IllegalEvent(f"Run {view.run_id}: {event.kind.value} cannot follow on {view.state.value}.")
    if event.kind is E.CLOSED and view.instance is not None and view.confirmed_at is None:
        raise IllegalEvent(f"Run {view.run_id} cannot close: the end of {view.instance.instance_id} is not confirmed.")
    moved = replace(view, state=target, changed_at=event.at if target is not view.state else view.changed_at)
    return _facts(moved, event.kind, event.data, event.at)


def replay(events: Iterable[RunEvent]) -> RunView:
    """The view after all events of one run, in order.

    Raises:
        IllegalEvent: There are none, or they cannot be in this order.
    """
    view: RunView | None = None
    for event in events:
        view = begin(event) if view is None else apply(view, event)
    if view is None:
        raise IllegalEvent("A run without events.")
    return view


def _facts(view: RunView, kind: EventKind, data: Mapping[str, Any], at: datetime) -> RunView:
    if kind is E.ATTEMPTED:
        return replace(view, attempt=from_json(Attempt, {**data, "number": data["attempt"], "at": at.isoformat()}))
    if kind is E.REFUSED:
        assert view.attempt is not None  # noqa: S101 - provisioning has one
        refusal = (view.attempt.option, view.attempt.zone, str(data.get("message", "")))
        return replace(view, refusals=(*view.refusals, refusal))
    if kind is E.CREATED:
        layers = tuple(from_json(Safeguard, layer) for layer in data.get("layers", ()))
        return replace(
            view,
            instance=from_json(InstanceRef, data),
            layers=layers,
            known_since=at,
            launched_at=_time(data.get("launched_at")),
        )
    if kind is E.SYNCED:
        return replace(view, synced=True)
    if kind is E.STARTED:
        return replace(view, started_at=at)
    if kind is E.FINISHED:
        status = from_json(JobStatus, data)
        return replace(view, status=status, reason=status.reason or view.reason)
    if kind is E.COLLECTED:
        return replace(view, collected=True)
    if kind is E.ENDING:
        reason = view.reason or EndReason(data["reason"])  # the first reason is the cause
        return replace(
            view, reason=reason, ending_by=view.ending_by or EndedBy(data["by"]), ending_at=view.ending_at or at
        )
    if kind is E.CONFIRMED:
        return replace(
            view,
            confirmed_state=str(data["state"]),
            confirmed_at=_time(data.get("ended_at")) or at,
            provider_reason=str(data.get("provider_reason", "")),
            ended_before=bool(data.get("ended_before", False)),
            ending_by=view.ending_by or EndedBy(data.get("by", EndedBy.SOMEBODY_ELSE)),
            reason=view.reason or EndReason(data.get("reason", EndReason.INSTANCE_LOST)),
        )
    if kind is E.CLOSED:
        return replace(view, reason=EndReason(data["reason"]), receipt=from_json(Receipt, data["receipt"]))
    return view


def _time(text: object) -> datetime | None:
    return datetime.fromisoformat(text) if isinstance(text, str) and text else None

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.job.state.states import ANYWHERE, MOVES, IllegalEvent, apply, begin, replay
from costgpu.models.job import EndReason
from costgpu.models.run import EndedBy, EventKind, RunEvent, RunState
from tests.job.examples import START, facts_of, intent

K, S = EventKind, RunState
HAPPY = [
    K.ATTEMPTED,
    K.CREATED,
    K.REACHED,
    K.SYNCED,
    K.STARTED,
    K.FINISHED,
    K.COLLECTED,
    K.ENDING,
    K.CONFIRMED,
    K.CLOSED,
]


def walk(*kinds: EventKind) -> list[RunEvent]:
    events = [intent()]
    for number, kind in enumerate(kinds, 1):
        at = START + timedelta(seconds=number)
        events.append(RunEvent(run_id="r1", sequence=number, at=at, kind=kind, data=facts_of(kind)))
    return events


def test_a_run_without_failures_passes_through_every_state() -> None:
    events = walk(*HAPPY)
    seen = [begin(events[0]).state]
    view = begin(events[0])
    for event in events[1:]:
        view = apply(view, event)
        seen.append(view.state)
    assert list(dict.fromkeys(seen)) == list(RunState)
    assert view.status is not None
    assert (view.status.exit_code, view.reason, view.ending_by) == (0, EndReason.CANCELLED, EndedBy.CLIENT)


@given(st.lists(st.sampled_from(list(EventKind)), max_size=25))
def test_whatever_is_said_only_legal_events_change_a_run(kinds: list[EventKind]) -> None:
    view = begin(intent())
    for kind in kinds:
        event = RunEvent(
            run_id="r1",
            sequence=view.next_sequence,
            at=START + timedelta(seconds=view.next_sequence),
            kind=kind,
            data=facts_of(kind),
        )
        try:
            after = apply(view, event)
        except IllegalEvent:
            assert kind not in ANYWHERE or kind in (K.SAVED, K.RESTORED)  # these say of when they are
            continue
        assert kind in ANYWHERE or (view.state, kind) in MOVES
        if after.state is S.CLOSED:
            assert after.instance is None or after.confirmed_at is not None
        if view.instance is not None:
            assert after.instance == view.instance or kind is K.REFUSED
        view = after


def test_a_refused_launch_gives_up_its_machine_once_its_end_is_confirmed() -> None:
    *before, refused = walk(K.ATTEMPTED, K.CREATED, K.REFUSED)
    with pytest.raises(IllegalEvent, match="not confirmed"):
        replay([*before, refused])
    view = replay([*before, replace(refused, data={**refused.data, "confirmed_state": "terminated"})])
    assert (view.state, view.instance, view.layers, view.launched_at) == (S.INTENT, None, (), None)
    assert len(view.refusals) == 1


def test_a_run_with_a_machine_cannot_close_before_its_end_is_confirmed() -> None:
    with pytest.raises(IllegalEvent, match="not confirmed"):
        replay(walk(K.ATTEMPTED, K.CREATED, K.ENDING, K.CLOSED))
    assert replay(walk(K.ATTEMPTED, K.CREATED, K.ENDING, K.CONFIRMED, K.CLOSED)).state is S.CLOSED
    assert replay(walk(K.ATTEMPTED, K.ENDING, K.CLOSED)).state is S.CLOSED


def test_the_first_reason_is_the_cause() -> None:
    view = replay(walk(K.ATTEMPTED, K.CREATED, K.REACHED, K.STARTED, K.FINISHED, K.ENDING))
    assert view.reason is EndReason.SUCCEEDED


def test_a_machine_can_end_by_itself_in_every_state_in_which_there_is_one() -> None:
    for count in range(2, 8):
        view = replay(walk(*HAPPY[:count], K.CONFIRMED))
        assert view.state is S.TERMINATING
        assert view.ending_by is EndedBy.AGENT


def test_events_must_come_in_order_and_begin_with_an_intent() -> None:
    events = walk(K.ATTEMPTED, K.CREATED)
    with pytest.raises(IllegalEvent, match="event 2 instead of 1"):
        replay([events[0], events[2]])
    with pytest.raises(IllegalEvent, match="begin"):
        replay(events[1:])
    with pytest.raises(IllegalEvent, match="without events"):
        replay([])


def test_metering_begins_with_the_create_call_and_counts_a_minute_at_least() -> None:
    view = replay(walk(K.ATTEMPTED, K.CREATED))
    seconds, cost = view.metered(START + timedelta(seconds=1 + 30))
    assert (seconds, cost) == (30.0, Decimal("0.016667"))
    assert view.metered(START + timedelta(seconds=1 + 3600))[1] == Decimal("1.000000")
    ended = replay(walk(K.ATTEMPTED, K.CREATED, K.ENDING, K.CONFIRMED))
    assert ended.metered(START + timedelta(days=9))[0] == 3.0
    assert replay(walk()).metered(START + timedelta(days=9)) == (0.0, Decimal(0))


def test_detaching_and_coming_back_change_nothing_else() -> None:
    view = replay(walk(*HAPPY[:5], K.DETACHED))
    assert (view.state, view.detached) == (S.RUNNING, True)
    assert not replay(walk(*HAPPY[:5], K.DETACHED, K.NOTED, K.ADOPTED)).detached

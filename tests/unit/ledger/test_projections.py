"""What `closings`, `runs` and `run_tags` hold, from the events."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from costgpu.ledger import Ledger, projections, schema
from costgpu.models.run import EventKind, RunEvent
from tests.properties import examples
from tests.unit.ledger.closed import Closed, events_of

AT = datetime(2026, 1, 31, 23, 0, tzinfo=UTC)
RUN = Closed(
    started=AT,
    seconds=7200.5,
    cost=Decimal("0.800055556"),
    owner="me@host",
    spot=True,
    tags={"team": "nlp", "paper": "p1"},
)
DATA = {event.kind: dict(event.data) for event in events_of("aaaa", RUN)}
INTENDED = (EventKind.INTENDED, DATA[EventKind.INTENDED])
CLOSED = (EventKind.CLOSED, DATA[EventKind.CLOSED])


def attempt(number: int, zone: str) -> tuple[EventKind, dict[str, Any]]:
    facts = {"attempt": number, "token": f"aaaa-{number}", "zone": zone}
    return EventKind.ATTEMPTED, {**DATA[EventKind.ATTEMPTED], **facts}


def record(*facts: tuple[EventKind, dict[str, Any]]) -> Ledger:
    """A ledger with one run, an event an hour."""
    ledger = Ledger.open("sqlite://")
    for sequence, (kind, data) in enumerate(facts):
        at = AT + timedelta(hours=sequence)
        ledger.append(RunEvent(run_id="aaaa", sequence=sequence, at=at, kind=kind, data=data))
    return ledger


def rows(ledger: Ledger, table: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ledger.read(
        lambda connection: [dict(row) for row in connection.execute(select(table)).mappings()], []
    )
    ledger.close()
    return found


def test_a_run_from_intent_to_its_end() -> None:
    ledger = record(
        INTENDED,
        attempt(1, "us-east-1a"),
        (EventKind.REFUSED, {}),
        attempt(2, "us-east-1b"),
        (EventKind.CREATED, {"instance_id": "i-1", "region": "us-east-1", "zone": "us-east-1b", "provider": "aws"}),
        CLOSED,
        (EventKind.NOTED, {}),
        (EventKind.CLOSED, {"reason": "lease_expired"}),  # the first one holds
    )
    assert rows(ledger, schema.closings) == [
        {
            "run": 1,
            "at_us": schema.to_microseconds(AT + timedelta(hours=5)),
            "reason": "succeeded",
            "ended_by": "client",
            "provider": "aws",
            "account": "123456789012",
            "region": "us-east-1",
            "zone": "us-east-1b",
            "instance_type": "g5.xlarge",
            "instance_id": "i-1",
            "purchase_option": "spot",
            "accelerator": "A10G",
            "accelerator_count": 1.0,
            "started_us": schema.to_microseconds(AT + timedelta(hours=3)),
            "ended_us": schema.to_microseconds(AT + timedelta(hours=3, seconds=7200.5)),
            "metered_seconds": 7200.5,
            "metered_nano_usd": 800_055_556,
        }
    ]


def test_who_and_what_and_its_tags() -> None:
    (run,) = rows(record(INTENDED), schema.runs)
    assert (run["run"], run["run_id"], run["name"], run["owner"]) == (1, "aaaa", "train", "me@host")
    tags = {(row["run"], row["key"], row["value"]) for row in rows(record(INTENDED), schema.run_tags)}
    assert tags == {(1, "team", "nlp"), (1, "paper", "p1")}


def test_a_run_that_never_got_a_machine_was_charged_for_no_time() -> None:
    closed = {"reason": "no_capacity", "metered_seconds": 0, "metered_cost_usd": "0"}
    (row,) = rows(record(INTENDED, attempt(1, "us-east-1a"), (EventKind.CLOSED, closed)), schema.closings)
    assert (row["started_us"], row["ended_us"], row["metered_nano_usd"]) == (None, None, 0)
    assert (row["instance_type"], row["instance_id"], row["reason"]) == ("", "", "no_capacity")


def test_a_machine_that_was_found_by_tag_alone_has_its_period_too() -> None:
    """The client was killed between the create call and its record; the reaper closed the run."""
    (row,) = rows(record(INTENDED, attempt(1, "us-east-1a"), CLOSED), schema.closings)
    assert row["started_us"] == schema.to_microseconds(AT + timedelta(hours=1))
    assert (row["instance_id"], row["provider"], row["zone"]) == ("i-aaaa", "aws", "us-east-1a")


KEYS = (
    "spec tags identity account offer accelerator name count receipt instance metered_seconds metered_cost_usd zone"
    " region provider owner seconds cost_usd key steps setup x\0"
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("1e999") | st.just("NaN"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS.split()), inner, max_size=6),
    max_leaves=12,
)
FACTS = (
    "spec identity offer receipt metered_seconds metered_cost_usd name owner workload estimate options"
    " job_started_epoch finished_epoch"
)
OBJECTS = st.dictionaries(st.sampled_from(FACTS.split()), ANYTHING)


@examples(50)
@given(st.tuples(*[OBJECTS] * 5))
def test_no_run_is_kept_open_by_what_its_events_say(said: tuple[dict[str, Any], ...]) -> None:
    kinds = (EventKind.INTENDED, EventKind.ATTEMPTED, EventKind.CREATED, EventKind.FINISHED, EventKind.CLOSED)
    ledger = record(*zip(kinds, said, strict=True))
    assert ledger.open_runs() == ()
    assert len(ledger.events("aaaa")) == 5
    (row,) = rows(ledger, schema.closings)
    for value in row.values():
        if isinstance(value, int):
            assert abs(value) <= schema.LARGEST
        if isinstance(value, str):
            value.encode()
            assert "\0" not in value
            assert len(value) <= projections.LONGEST_TEXT


@settings(deadline=None)
@given(st.decimals(-1_000_000, 1_000_000, places=9))
def test_amounts_are_exact_to_a_billionth_of_a_dollar(amount: Decimal) -> None:
    kept = schema.to_nano(amount)
    assert kept is not None
    assert schema.from_nano(kept) == amount


@pytest.mark.parametrize(
    ("amount", "kept"),
    [
        ("NaN", None),
        ("Infinity", None),
        ("9223372036.9", None),
        ("-9223372036.9", None),
        ("0.0000000005", 0),
        ("-1", -(10**9)),
        ("1E-400", 0),
        ("9223372036.854775806", 2**63 - 2),
    ],
)
def test_absurd_amounts(amount: str, kept: int | None) -> None:
    assert schema.to_nano(Decimal(amount)) == kept


@settings(deadline=None)
@given(st.datetimes(timezones=st.just(UTC)))
def test_times_are_exact(at: datetime) -> None:
    assert schema.from_microseconds(schema.to_microseconds(at)) == at


def test_a_time_without_a_zone_is_no_time() -> None:
    with pytest.raises(ValueError, match="no zone"):
        schema.to_microseconds(datetime(2026, 1, 1))  # noqa: DTZ001

"""From a run's events to its outcome, and from outcomes to what the next estimate starts from."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from costgpu.ledger import Ledger, schema
from costgpu.ledger.records.measured_speeds import LAST_RUNS, measured_speeds
from costgpu.models.run import EventKind, RunEvent
from tests.unit.ledger.closed import Closed, events_of, plant

AT = datetime(2026, 11, 20, 8, tzinfo=UTC)
ESTIMATE = {
    "seconds": 3300.0,
    "seconds_low": 2900.0,
    "seconds_high": 3900.0,
    "cost_usd": 0.95,
    "cost_usd_low": 0.8,
    "cost_usd_high": 1.1,
    "job_seconds": 3000.0,
}


def outcomes(*facts: RunEvent) -> list[dict[str, Any]]:
    with Ledger.open("sqlite://") as ledger:
        for sequence, fact in enumerate(facts):
            ledger.append(RunEvent(run_id="aaaa", sequence=sequence, at=fact.at, kind=fact.kind, data=fact.data))
        assert ledger.open_runs() == ()
        return ledger.read(lambda c: [dict(row) for row in c.execute(select(schema.outcomes)).mappings()], [])


def changed(events: list[RunEvent], kind: EventKind, **data: Any) -> list[RunEvent]:
    return [
        RunEvent(run_id=e.run_id, sequence=e.sequence, at=e.at, kind=e.kind, data={**e.data, **data})
        if e.kind is kind
        else e
        for e in events
    ]


def estimated(**more: Any) -> list[RunEvent]:
    return events_of(
        "aaaa", Closed(started=AT, job_seconds=3100.0, estimate=ESTIMATE, workload="k" * 32, steps=500.0, **more)
    )


def test_a_run_that_was_estimated_and_succeeded() -> None:
    assert outcomes(*estimated()) == [
        {
            "run": 1,
            "at_us": schema.to_microseconds(AT + timedelta(hours=1)),
            "workload": "k" * 32,
            "provider": "aws",
            "instance_type": "g5.xlarge",
            "purchase_option": "on_demand",
            "reason": "succeeded",
            "job_seconds": 3100.0,
            "steps": 500.0,
            "estimated_job_seconds": 3000.0,
            "estimated_seconds": 3300.0,
            "estimated_seconds_low": 2900.0,
            "estimated_seconds_high": 3900.0,
            "estimated_nano_usd": 950_000_000,
            "estimated_nano_usd_low": 800_000_000,
            "estimated_nano_usd_high": 1_100_000_000,
        }
    ]


def test_nothing_is_known_and_nothing_is_written() -> None:
    assert outcomes(*events_of("aaaa", Closed(started=AT))) == []


def test_an_estimate_is_not_held_against_another_machine_or_price() -> None:
    offer = next(e.data["offer"] for e in estimated() if e.kind is EventKind.ATTEMPTED)
    (other,) = outcomes(*changed(estimated(), EventKind.ATTEMPTED, offer={**offer, "instance_type": "g6.xlarge"}))
    assert (other["estimated_seconds"], other["estimated_nano_usd"], other["job_seconds"]) == (None, None, 3100.0)
    assert other["instance_type"] == "g6.xlarge"
    (dearer,) = outcomes(*changed(estimated(), EventKind.ATTEMPTED, offer={**offer, "region": "eu-west-1"}))
    assert (dearer["estimated_seconds"], dearer["estimated_nano_usd"]) == (3300.0, None)


@pytest.mark.parametrize(
    ("status", "seconds"),
    [
        ({}, 3100.0),
        ({"job_started_epoch": None}, None),
        ({"finished_epoch": None}, None),
        ({"job_started_epoch": 9e9}, None),  # the clock was set back
        ({"job_started_epoch": 1.0}, None),  # and forward
        ({"job_started_epoch": "soon", "finished_epoch": {}}, None),
    ],
)
def test_how_long_the_job_took(status: dict[str, Any], seconds: float | None) -> None:
    (row,) = outcomes(*changed(estimated(), EventKind.FINISHED, **status))
    assert row["job_seconds"] == seconds


class TestSpeeds:
    def ran(self, *seconds: float, **more: Any) -> list[Closed]:
        facts = {"workload": "w", "steps": 500.0, "seconds": 10_000.0, **more}
        return [Closed(started=AT + timedelta(days=n), job_seconds=s, **facts) for n, s in enumerate(seconds)]

    def test_the_median_of_the_last_runs(self) -> None:
        with Ledger.open("sqlite://") as ledger:
            plant(ledger, self.ran(9000.0, 100.0, 103.0, 99.0, 101.0, 700.0))
            (speed,) = measured_speeds(ledger, "w").values()
        assert (round(speed.job_seconds), speed.runs, speed.steps) == (101, LAST_RUNS, 500.0)
        assert speed.last_at == AT + timedelta(days=5, seconds=10_000)
        assert speed.log_spread > 0.5

    def test_only_what_succeeded_of_this_workload_and_on_this_computer(self) -> None:
        runs = [
            *self.ran(100.0),
            *self.ran(50.0, reason="job_failed"),
            *self.ran(60.0, workload="another"),
            *self.ran(70.0, provider="local", account="desk", instance_type="this-machine"),
            *self.ran(80.0, provider="local", account="laptop", instance_type="this-machine"),
            *self.ran(90.0, spot=True, instance_type="g6.xlarge"),
        ]
        with Ledger.open("sqlite://") as ledger:
            plant(ledger, runs)
            found = measured_speeds(ledger, "w", here=("local", "laptop"))
            assert measured_speeds(ledger, "") == measured_speeds(ledger, "unheard of") == {}
        assert {place: round(speed.job_seconds) for place, speed in found.items()} == {
            ("aws", "g5.xlarge"): 100,
            ("local", "this-machine"): 80,
            ("aws", "g6.xlarge"): 90,
        }

    def test_runs_of_another_length_are_another_job(self) -> None:
        with Ledger.open("sqlite://") as ledger:
            plant(ledger, [*self.ran(100.0, 110.0), *self.ran(1000.0, steps=5000.0)])
            (speed,) = measured_speeds(ledger, "w").values()
            assert (round(speed.job_seconds), speed.runs, speed.steps) == (1000, 1, 5000.0)
            plant(ledger, self.ran(1100.0, steps=None))  # not measured: as long as the script makes it
            (speed,) = measured_speeds(ledger, "w").values()
            assert (round(speed.job_seconds), speed.runs, speed.steps) == (1050, 2, 5000.0)

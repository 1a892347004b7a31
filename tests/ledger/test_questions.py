"""What is asked of closed runs, of both databases: the same answers."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from sqlalchemy import Connection

from costgpu.ledger import Ledger
from costgpu.ledger.costs.charges import RunFilter, spent
from costgpu.ledger.costs.closed_runs import closed_runs
from costgpu.ledger.costs.totals import By, totals
from costgpu.ledger.records.accuracy import comparisons
from costgpu.ledger.records.measured_speeds import measured_speeds
from costgpu.ledger.schema import billed, to_microseconds
from tests.unit.ledger.closed import Closed, plant

AT = datetime(2026, 10, 31, 22, 30, tzinfo=UTC)
NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC)
ESTIMATE = {"seconds": 7000.0, "seconds_low": 6500.0, "seconds_high": 7500.0, "cost_usd": 1.9, "job_seconds": 6900.0}
RUNS = [
    Closed(
        started=AT,
        seconds=7200.0,
        cost=Decimal("2.000000001"),
        tags={"team": "nlp"},
        job_seconds=7000.0,
        estimate=ESTIMATE,
        workload="w",
        steps=10.0,
    ),
    Closed(started=AT + timedelta(days=1), cost=Decimal("0.75"), name="eval", owner="Ann@desk", spot=True, gpu=""),
    Closed(started=AT + timedelta(days=2), cost=Decimal("0.25"), reason="idle", tags={"team": "vision"}),
    Closed(started=AT + timedelta(days=2), seconds=0.0, cost=Decimal(0), reason="no_capacity", instance=False),
]


@pytest.fixture
def ids(ledger: Ledger) -> list[str]:
    return plant(ledger, RUNS)


def test_who_is_meant(ledger: Ledger, ids: list[str]) -> None:
    for selection, meant in (
        (RunFilter(), ids),
        (RunFilter(owner="ann"), [ids[0], *ids[2:]]),
        (RunFilter(owner="Ann"), ids[1:2]),
        (RunFilter(tags={"team": "nlp"}, provider="aws", name="train"), ids[:1]),
    ):
        assert [run.run_id for run in closed_runs(ledger, selection)] == meant
        assert [run.run_id for run in closed_runs(ledger, selection, newest_first=True)] == meant[::-1]
    assert [run.run_id for run in closed_runs(ledger, RunFilter(), since=NOVEMBER, limit=2)] == ids[:2]


def test_sums(ledger: Ledger, ids: list[str]) -> None:
    assert spent(ledger, RunFilter(), None, None) == Decimal("3.000000001")
    assert spent(ledger, RunFilter(), None, NOVEMBER) + spent(ledger, RunFilter(), NOVEMBER, None) == Decimal(
        "3.000000001"
    )
    for by in By:
        found = totals(ledger, RunFilter(), by, tag="team", since=AT - timedelta(days=9), until=AT + timedelta(days=9))
        assert sum(total.cost_usd for total in found) == Decimal("3.000000001"), by
        assert sum(total.runs for total in found) == 4, by
        assert sum(total.wasted_usd for total in found) == Decimal("0.25"), by
        assert sum(total.machine_seconds for total in found) == pytest.approx(14400.0)
    assert [(t.key, t.runs) for t in totals(ledger, RunFilter(), By.MONTH)] == [("2026-10", 1), ("2026-11", 3)]
    by_tag = totals(ledger, RunFilter(tags={"team": "nlp"}), By.TAG, tag="team")
    assert [(t.key, t.runs) for t in by_tag] == [("nlp", 1)]


def test_outcomes_and_bills(ledger: Ledger, ids: list[str]) -> None:
    def bill(connection: Connection) -> None:
        for nano in (5, 2_100_000_000):
            said = to_microseconds(AT + timedelta(days=9))  # late enough to be whole
            row = {"at_us": said, "provider": "aws", "account": "1", "run_id": ids[0], "start_us": 1, "end_us": 2}
            connection.execute(billed.insert(), {**row, "nano_usd": nano, "source": "test"})

    ledger.write(bill)
    (one,) = comparisons(ledger, RunFilter())
    assert (one.run.run_id, one.billed_usd, one.held) == (ids[0], Decimal("2.1"), True)
    (speed,) = measured_speeds(ledger, "w").values()
    assert (speed.job_seconds, speed.runs, speed.steps) == (7000.0, 1, 10.0)

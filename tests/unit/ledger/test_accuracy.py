"""Estimates against what happened."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from costgpu.ledger import Ledger
from costgpu.ledger.costs.charges import RunFilter
from costgpu.ledger.records.accuracy import accuracy, comparisons
from costgpu.ledger.schema import billed, to_microseconds, to_nano
from costgpu.render.text.ledger import accuracy_text
from tests.unit.ledger.closed import Closed, plant

AT = datetime(2026, 11, 20, tzinfo=UTC)


def estimate(seconds: float, cost: float) -> dict[str, float | str]:
    return {
        "seconds": seconds,
        "seconds_low": seconds * 0.9,
        "seconds_high": seconds * 1.2,
        "cost_usd": cost,
        "cost_usd_low": cost * 0.9,
        "cost_usd_high": cost * 1.2,
        "job_seconds": seconds - 100,
    }


def ran(seconds: float, cost: str, expected: float = 1000.0, price: float = 1.0, **more: Any) -> Closed:
    facts = {"job_seconds": seconds - 100, "estimate": estimate(expected, price), **more}
    return Closed(started=AT, seconds=seconds, cost=Decimal(cost), **facts)


def bill(
    run_id: str, cost: str, day: int = 0, said: timedelta = timedelta(days=9), account: str = "1"
) -> dict[str, Any]:
    start = to_microseconds(AT + timedelta(days=day))
    return {
        "at_us": to_microseconds(AT + said),
        "provider": "aws",
        "account": account,
        "run_id": run_id,
        "start_us": start,
        "end_us": start + 1,
        "nano_usd": to_nano(Decimal(cost)),
        "source": "test",
    }


def test_run_by_run_and_by_provider() -> None:
    runs = [
        ran(1100.0, "1.1"),
        ran(1300.0, "1.3"),
        ran(950.0, "0.95"),
        ran(1000.0, "0", price=0.0, provider="local", instance_type="this-machine"),
        ran(10.0, "0.1", reason="job_failed"),
        Closed(started=AT, job_seconds=5.0),
    ]
    with Ledger.open("sqlite://") as ledger:
        ids = plant(ledger, runs)
        corrected = [bill(ids[0], "9"), bill(ids[0], "1.2"), bill(ids[0], "1.2", account="2")]
        ledger.insert(billed, [*corrected, bill(ids[0], "0.12", day=1), bill("", "5"), bill("other", "7")])
        found = comparisons(ledger, RunFilter())
        none = comparisons(ledger, RunFilter(name="nobody"))
    assert [one.run.run_id for one in found] == ids[:4]
    assert [round(one.time_error, 3) for one in found] == [0.1, 0.3, -0.05, 0.0]
    assert [one.held for one in found] == [True, False, True, True]
    assert [one.billed_usd for one in found] == [
        Decimal("1.32"),
        None,
        None,
        None,
    ]  # the last word on each period, once
    assert found[3].cost_error is None
    everything, aws, local = accuracy(found)
    assert (everything.provider, aws.provider, local.provider) == ("", "aws", "local")
    assert (everything.runs, everything.held, everything.intervals) == (4, 3, 4)
    assert everything.median_time_error == pytest.approx(0.075)
    assert everything.median_cost_error == pytest.approx(0.1)
    assert everything.median_billed_error == pytest.approx(0.2)
    assert (local.median_cost_error, local.median_billed_error, local.billed_runs) == (None, None, 0)
    assert accuracy(none) == ()
    text = accuracy_text(accuracy(found), found[::-1])
    assert max(map(len, text.splitlines())) <= 80
    assert "Median error of the time 7.5%, of the cost 10%." in text
    assert "The 80 % interval held for 3 of 4 (75%)." in text
    assert "Billed differs from metered by 20% (1 run)." in text
    assert "+30%!" in text


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("1", 0, 47.9)], None),  # less than 48 h after the run's end
        ([("1", 0, 49.1)], Decimal(1)),
        ([("1", 0, 49.1), ("2", 1, 49.1)], Decimal(3)),
        ([("1", 0, 30), ("2", 1, 99)], None),  # the first part was never asked for again
        ([("1", 0, 47), ("1", 0, 99)], Decimal(1)),
    ],
)
def test_a_bill_that_may_be_incomplete_is_none(rows: list[tuple[str, int, float]], expected: Decimal | None) -> None:
    with Ledger.open("sqlite://") as ledger:
        (run,) = plant(ledger, [ran(3600.0, "3", expected=3600.0)])
        facts = [bill(run, usd, day, timedelta(hours=hours)) for usd, day, hours in rows]
        ledger.insert(billed, facts)
        found = comparisons(ledger, RunFilter())
    assert [one.billed_usd for one in found] == [expected]
    assert accuracy(found)[0].billed_runs == (expected is not None)
    words = accuracy_text(accuracy(found), found).splitlines()[-1].split()
    assert (words[-1] == "-") == (expected is None)


def test_nothing_to_compare_is_said() -> None:
    assert accuracy_text((), ()).startswith("Nothing to compare yet")

"""Billed rows in the ledger, and metered beside billed on a page."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from textwrap import dedent

import pytest
from sqlalchemy import func, select

from costgpu.ledger import Ledger
from costgpu.ledger.records.billed import BilledCost, Compared, compare_with_bills, latest_bills, record_bill
from costgpu.ledger.schema import billed
from costgpu.models.bill import Bill, BilledRow
from costgpu.render.text.ledger import BilledPeriod, billed_json, billed_text
from tests.unit.ledger.closed import Closed, events_of

START = datetime(2026, 11, 1, tzinfo=UTC)
DAY = timedelta(days=1)
END = START + 30 * DAY


def cost(run_id: str, usd: str, *, day: int = 0, said: float = 40, **facts: str) -> BilledCost:
    return BilledCost(
        provider=facts.get("provider", "aws"),
        account=facts.get("account", "1"),
        run_id=run_id,
        start=START + day * DAY,
        end=START + (day + 1) * DAY,
        amount_usd=Decimal(usd),
        source="AWS Cost Explorer",
        said_at=START + said * DAY,
    )


def said(
    ledger: Ledger, *costs: BilledCost, provider: str = "aws", account: str = "1", end: datetime = END, at: float = 99
) -> int:
    rows = (BilledRow(run_id=one.run_id, start=one.start, end=one.end, amount_usd=one.amount_usd) for one in costs)
    bill = Bill(
        provider=provider,
        account=account,
        start=START,
        end=end,
        rows=tuple(rows),
        asked_at=max((one.said_at for one in costs), default=START + at * DAY),
        source="AWS Cost Explorer",
        requests=1,
    )
    return record_bill(ledger, bill)


def rows(ledger: Ledger) -> int:
    return ledger.read(lambda c: c.scalar(select(func.count()).select_from(billed)) or 0, 0)


def amounts(ledger: Ledger) -> dict[tuple[str, int], Decimal]:
    return {(one.run_id, (one.start - START).days): one.amount_usd for one in latest_bills(ledger, START, END)}


def test_a_row_only_for_what_is_new(ledger: Ledger) -> None:
    assert latest_bills(ledger, START, END) == ()
    assert said(ledger, cost("a", "1.5"), cost("a", "2", day=1), cost("", "7")) == 3
    assert said(ledger, cost("a", "1.5", said=41), cost("a", "2", day=1, said=41), cost("", "7", said=41)) == 0
    assert said(ledger, cost("a", "1.75", said=42), cost("a", "2", day=1), cost("", "7")) == 1
    assert rows(ledger) == 4
    assert amounts(ledger) == {("a", 0): Decimal("1.75"), ("a", 1): 2, ("", 0): 7}
    assert latest_bills(ledger, START, END)[-1].said_at == START + 40 * DAY
    assert [one.amount_usd for one in latest_bills(ledger, START + DAY, END)] == [2]


def test_what_is_not_said_any_more_is_zero_and_only_there(ledger: Ledger) -> None:
    said(ledger, cost("a", "1"), cost("b", "2"), cost("late", "9", day=20))
    said(ledger, cost("a", "3", account="2"), account="2")
    said(ledger, cost("a", "4", provider="gcp"), provider="gcp")
    assert said(ledger, cost("b", "2", said=41), end=START + 10 * DAY) == 1
    found = {(one.provider, one.account, one.run_id): one.amount_usd for one in latest_bills(ledger, START, END)}
    assert found == {("aws", "1", "b"): 2, ("aws", "1", "late"): 9, ("aws", "2", "a"): 3, ("gcp", "1", "a"): 4}
    assert said(ledger, cost("b", "2", said=42), end=START + 10 * DAY) == 0
    assert said(ledger, cost("b", "2", said=43), cost("a", "1", said=43), cost("late", "9", day=20, said=43)) == 1
    assert said(ledger) == 3
    assert amounts(ledger) == {("a", 0): 4} | {}


def test_an_answer_that_is_older_than_what_is_known_changes_nothing(ledger: Ledger) -> None:
    said(ledger, cost("a", "2", said=41), cost("new", "5", said=41))
    assert said(ledger, cost("a", "1", said=40.8)) == 0  # a kept one, of before the run "new"
    assert said(ledger, at=40.8) == 0
    assert amounts(ledger) == {("a", 0): 2, ("new", 0): 5}
    assert said(ledger, at=42) == 2
    assert amounts(ledger) == {}


def test_the_same_amount_is_kept_once_more_when_it_is_final(ledger: Ledger) -> None:
    assert [said(ledger, cost("a", "2", said=day)) for day in (1, 2, 2.9, 3, 4)] == [1, 0, 0, 1, 0]
    assert [one.said_at for one in latest_bills(ledger, START, END)] == [START + 3 * DAY]


def test_two_accounts_that_bill_the_same_run_count_once(ledger: Ledger) -> None:
    said(ledger, cost("a", "2", said=41), cost("", "10", said=41))
    said(
        ledger,
        cost("a", "1.5", account="2"),
        cost("a", "1", day=1, account="2"),
        cost("", "5", account="2"),
        account="2",
    )
    found = {one.run_id: one.billed_usd for one in compare_with_bills(ledger, START, END)}
    assert found == {"a": Decimal(3), "": Decimal(15)}


def test_money_is_exact(ledger: Ledger) -> None:
    said(ledger, cost("a", "0.3052441009"), cost("b", "0.000000001"), cost("c", "-0.25"))
    assert amounts(ledger) == {("a", 0): Decimal("0.305244101"), ("b", 0): Decimal("1e-9"), ("c", 0): Decimal("-0.25")}
    with pytest.raises(ValueError, match="cannot be kept"):
        said(ledger, cost("a", "1e12"))


def closed(ledger: Ledger, run_id: str, hours: tuple[float, float], usd: str, provider: str = "aws") -> None:
    """A closed run of that name in these hours of the month."""
    begin, end = (START + timedelta(hours=each) for each in hours)
    seconds = (end - begin).total_seconds()
    run = Closed(started=begin, seconds=seconds, cost=Decimal(usd), name=f"job-{run_id}", provider=provider)
    for event in events_of(run_id, run):
        ledger.append(event)


def test_metered_beside_billed(ledger: Ledger) -> None:
    closed(ledger, "both", (10, 12), "2.00")
    closed(ledger, "unbilled", (20, 21), "1.00")
    closed(ledger, "edge", (-2, 2), "4.00")
    closed(ledger, "before", (-9, -8), "8.00")
    closed(ledger, "here", (1, 2), "0.00", provider="local")
    said(
        ledger, cost("both", "1.25"), cost("both", "1", day=1), cost("stranger", "3"), cost("", "50"), cost("edge", "2")
    )
    found = compare_with_bills(ledger, START, END)
    assert found == (
        Compared(run_id="stranger", name="", metered_usd=None, billed_usd=Decimal(3)),
        Compared(run_id="both", name="job-both", metered_usd=Decimal(2), billed_usd=Decimal("2.25")),
        Compared(run_id="edge", name="job-edge", metered_usd=Decimal(2), billed_usd=Decimal(2)),
        Compared(run_id="unbilled", name="job-unbilled", metered_usd=Decimal(1), billed_usd=None),
        Compared(run_id="", name="", metered_usd=None, billed_usd=Decimal(50)),
    )
    assert {one.run_id for one in compare_with_bills(ledger, START, END, ["local"])} == {"here"}
    assert compare_with_bills(ledger, START - 40 * DAY, START - 39 * DAY) == ()


def test_a_ledger_that_nobody_told_anything(ledger: Ledger) -> None:
    closed(ledger, "both", (10, 12), "2.00")
    assert compare_with_bills(ledger, START, END) == ()
    assert [one.run_id for one in compare_with_bills(ledger, START, END, ["aws"])] == ["both"]


ROWS = (
    Compared(
        run_id="k3v9x2m7q1ab",
        name="a-job-with-a-name-that-is-long",
        metered_usd=Decimal("12.5"),
        billed_usd=Decimal("12.75"),
    ),
    Compared(run_id="b", name="train", metered_usd=Decimal("0.075"), billed_usd=Decimal("0.07")),
    Compared(run_id="c", name="", metered_usd=None, billed_usd=Decimal("1.006")),
    Compared(run_id="", name="", metered_usd=None, billed_usd=Decimal(431)),
)
SOURCES = (("AWS Cost Explorer", END - timedelta(hours=3)),)
PERIOD = BilledPeriod(rows=ROWS, start=START, end=END, sources=SOURCES)


def test_the_page() -> None:
    text = billed_text(replace(PERIOD, notes=["Do something."]), END)
    expected = """
        Billed from 2026-11-01 to 2026-11-30 (UTC)
        RUN           JOB                          METERED      BILLED      DIFFERENCE
        k3v9x2m7q1ab  a-job-with-a-name-that…       $12.50      $12.75     +$0.25 (+2%)
        b             train                         $0.075      $0.070    -$0.0050 (-7%)
        c             -                                  -       $1.01               -
        in all                                      $12.57      $13.83               -
        Without a run's tag, the whole account: $431.00
        AWS Cost Explorer, asked 3.0 h ago.
        The last two days may not be complete: bills come about a day late.
        Do something.
    """
    assert [line.split() for line in text.splitlines()] == [
        line.split() for line in dedent(expected).strip().splitlines()
    ]
    assert max(map(len, text.splitlines())) <= 80
    both = billed_text(replace(PERIOD, rows=ROWS[:2], sources=()), END + 9 * DAY)
    assert both.splitlines()[-1].split() == ["in", "all", "$12.57", "$12.82", "+$0.24", "(+2%)"]
    nothing = billed_text(replace(PERIOD, rows=(), sources=()), END + 9 * DAY)
    assert nothing.splitlines()[1:] == ["No run was metered or billed in these days."]


def test_the_document() -> None:
    document = json.loads(billed_json(PERIOD, END))
    assert (document["schema"], document["version"]) == ("costgpu.billed", 1)
    assert [run["run_id"] for run in document["runs"]] == ["k3v9x2m7q1ab", "b", "c"]
    assert document["runs"][2] == {"run_id": "c", "name": "", "metered_usd": None, "billed_usd": "1.006"}
    assert (document["metered_usd"], document["billed_usd"]) == ("12.575", "13.826")
    assert document["untagged_billed_usd"] == "431"
    assert document["sources"] == [{"name": "AWS Cost Explorer", "asked_at": SOURCES[0][1].isoformat()}]

"""The HTML report: its figures are the ledger's, its texts are harmless, and it needs nothing else."""

import dataclasses
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.config import data_path
from costgpu.ledger import Ledger
from costgpu.ledger.costs.charges import RunFilter, charges, spent
from costgpu.ledger.costs.periods import Calendar, Every, bounds
from costgpu.ledger.costs.totals import summarise
from costgpu.ledger.records.budget_rules import Budget
from costgpu.ledger.records.budget_store import set_budget
from costgpu.ledger.records.budget_sums import budget_use
from costgpu.ledger.schema import to_microseconds
from costgpu.models.job import CostOutcome, EndReason
from costgpu.models.run import EventKind, RunEvent
from costgpu.render.html.ledger_page import LedgerPeriod, ledger_report
from costgpu.render.html.page import report_html
from costgpu.render.html.svg import usd_axis
from tests.cli.here import Result, told
from tests.properties import examples
from tests.unit.ledger.closed import Closed, plant
from tests.unit.providers.planted import opened
from tests.unit.render.html_page import EVIL, harmless
from tests.unit.render.ledgers import DAY, NOW, RUNS, SINCE, ledger_with, report_with


def page_of(report: LedgerPeriod) -> str:
    return report_html(ledger_report(report, place="/x/ledger.sqlite", all_time=report.summary.total.cost_usd))


def test_the_figures_of_a_small_ledger() -> None:
    report = report_with(ledger_with(*RUNS))
    found = report.summary
    assert found.total.cost_usd == Decimal("6.75")
    assert found.total.runs == 6
    assert sum(found.gpu_usd) == Decimal("5.75")
    assert sum(found.cpu_usd) == Decimal("1.00")
    assert found.wasted.cost_usd == Decimal("2.50")
    assert found.wasted.runs == 3
    assert found.outcomes[CostOutcome.SUCCEEDED].cost_usd == Decimal("3.25")
    assert found.outcomes[CostOutcome.OVERHEAD].cost_usd == Decimal(
        "0.75"
    )  # a quarter of the first run's time was not its job
    assert found.outcomes[CostOutcome.SPOT].cost_usd == Decimal("0.50")
    assert found.outcomes[CostOutcome.FAILED].cost_usd == Decimal("2.00")
    assert {key: tally.cost_usd for key, tally in found.providers.items()} == {
        ("aws", "on_demand"): Decimal("4.25"),
        ("aws", "spot"): Decimal(2),
        ("gcp", "on_demand"): Decimal("0.50"),
        ("", ""): Decimal(0),
    }
    assert found.accelerators[""].cost_usd == Decimal("1.00")
    assert [pytest.approx(one.time_error) for one in report.comparisons] == [0.2, 2.6]
    assert [one.held for one in report.comparisons] == [True, False]
    assert found.people["bob@ws"].cost_usd == 2


@examples(40)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 80 * 86400),
            st.integers(0, 6 * 86400),
            st.decimals(0, 1000, places=6),
            st.sampled_from(["A10G", ""]),
            st.sampled_from(list(EndReason)),
        ),
        max_size=6,
    ),
    st.sampled_from(["UTC", "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Pacific/Apia"]),
)
def test_every_way_to_look_at_it_adds_up_to_what_the_ledger_says(
    drawn: list[tuple[int, int, Decimal, str, EndReason]], zone: str
) -> None:
    runs = [
        Closed(
            started=SINCE + timedelta(seconds=at - 3 * 86400), seconds=seconds, cost=cost, gpu=gpu, reason=reason.value
        )
        for at, seconds, cost, gpu, reason in drawn
    ]
    with ledger_with(*runs) as ledger:
        budget = Budget(name="b", amount_usd=Decimal(100), every=Every.MONTHLY, time_zone=zone)
        whole = Budget(name="w", amount_usd=Decimal(100), every=Every.TOTAL, time_zone=zone)
        report = report_with(ledger, [budget, whole])
        exact = spent(ledger, RunFilter(), SINCE, NOW)
        since_period = spent(ledger, RunFilter(), bounds(Every.MONTHLY, zone, SINCE).start, NOW)
        ever = spent(ledger, RunFilter(), None, NOW)
    found = report.summary
    assert found.total.cost_usd == exact
    for part in (found.providers, found.accelerators, found.outcomes, found.jobs, found.people):
        assert sum((total.cost_usd for total in part.values()), Decimal(0)) == exact
    assert sum(found.gpu_usd) + sum(found.cpu_usd) == exact
    monthly, total = report.budgets
    assert sum((period.usd[-1] for period in monthly.periods), Decimal(0)) == since_period
    assert [period.usd[-1] for period in total.periods] == [ever]
    assert sum(len(period.usd) for period in monthly.periods) - len(found.days) in (0, 1)  # a part of a day there


def test_a_budget_counts_what_it_is_for_and_what_came_before_the_report() -> None:
    budget = Budget(name="nlp", amount_usd=Decimal(1), every=Every.MONTHLY, provider="gcp", tags={"team": "nlp"})
    earlier = Closed(started=NOW - 16 * DAY, cost=Decimal("0.40"), provider="gcp", tags={"team": "nlp"})
    found = report_with(ledger_with(*RUNS, earlier), [budget], since=NOW - 10 * DAY)
    (use,) = found.budgets
    assert [period.usd[-1] for period in use.periods] == [Decimal("0.90")]
    assert use.periods[0].partial
    html = page_of(found)
    assert "$0.90" in html
    assert "90\N{NO-BREAK SPACE}%" in html


def test_days_of_a_zone_with_summer_time() -> None:
    since = datetime(2026, 10, 24, 12, tzinfo=UTC)
    calendar = Calendar(Every.DAILY, "Europe/Berlin", since, datetime(2026, 10, 27, tzinfo=UTC))
    assert [f"{day:%d}" for day in calendar.days.values()] == ["24", "25", "26", "27"]
    begin = to_microseconds(since.replace(hour=22))  # midnight there; that day has 25 hours
    parts = calendar.split(50, begin, begin + 50 * 3600 * 10**6)
    assert [(calendar.days[part.start].day, part.amount) for part in parts] == [(25, 25), (26, 24), (27, 1)]


def test_whatever_people_call_things_the_page_stays_harmless() -> None:
    run = Closed(
        started=NOW - DAY,
        name=EVIL,
        owner=EVIL,
        provider=EVIL,
        instance_type=EVIL,
        gpu=EVIL,
        tags={"team": EVIL},
        job_seconds=3000,
        estimate={"seconds": 3000, "seconds_low": 2000, "seconds_high": 4000, "cost_usd": 1},
    )
    budget = Budget(name="team", amount_usd=Decimal(5), every=Every.MONTHLY, owner=EVIL, tags={"team": EVIL})
    html = report_html(ledger_report(report_with(ledger_with(run), [budget]), place=EVIL, all_time=Decimal(1)))
    assert "alert(1)" in harmless(html).text


@examples(30)
@given(st.text(max_size=60))
def test_any_name_is_only_a_text(name: str) -> None:
    estimate = {"seconds": 3000, "seconds_low": 2000, "seconds_high": 4000}
    with ledger_with(Closed(started=NOW - DAY, name=name, estimate=estimate)) as ledger:
        harmless(page_of(report_with(ledger)))


@pytest.mark.parametrize(
    "runs",
    [
        (Closed(started=NOW - DAY, cost=Decimal(0), provider="local", gpu="", job_seconds=1),),
        (Closed(started=NOW - DAY, seconds=0, cost=Decimal(1)),),
        (Closed(started=NOW - DAY, cost=Decimal("123456789.12")),),
        (Closed(started=NOW - DAY, cost=Decimal("0.000001")),),
        (
            Closed(
                started=NOW - DAY,
                seconds=0.001,
                job_seconds=0.001,
                estimate={"seconds": 1e9, "seconds_low": 0, "seconds_high": 1e9},
            ),
        ),
        (Closed(started=SINCE - DAY, seconds=200 * 86400, cost=Decimal(900)),),
        (Closed(started=NOW - DAY, instance=False, reason="no_capacity"),),
    ],
)
def test_odd_ledgers_have_a_page(runs: tuple[Closed, ...]) -> None:
    budget = Budget(name="b", amount_usd=Decimal("0.01"), every=Every.DAILY)
    html = page_of(report_with(ledger_with(*runs), [budget]))
    harmless(html)
    assert not re.search(r"\b(nan|inf|None)\b", html)


def test_no_bar_is_wider_than_its_column_where_the_rest_is_summed_up() -> None:
    runs = [Closed(started=NOW - DAY, cost=Decimal(1), gpu=f"G{n}" if n else "", name=f"j{n}") for n in range(13)]
    with ledger_with(*runs) as ledger:
        html = page_of(report_with(ledger))
    assert max(float(width) for width in re.findall(r'style="width:([\d.]+)%"', html)) == 100
    assert html.count("3 others") == 2


def test_a_long_period_goes_by_week_or_month() -> None:
    runs = [Closed(started=NOW - n * 30 * DAY) for n in range(30)]
    with ledger_with(*runs) as ledger:
        assert "Spent by week" in page_of(report_with(ledger, since=NOW - 300 * DAY))
        assert "Spent by month" in page_of(report_with(ledger, since=NOW - 900 * DAY))


def test_the_page_is_for_dark_screens_phones_and_paper_too() -> None:
    with ledger_with(Closed(started=NOW - DAY)) as ledger:
        html = page_of(report_with(ledger))
    for rule in ("prefers-color-scheme: dark", "max-width: 640px", "@media print"):
        assert rule in html


def test_many_runs_make_a_small_page() -> None:
    with ledger_with(Closed(started=NOW - DAY, estimate={"seconds": 3000, "seconds_low": 2000})) as ledger:
        report = report_with(ledger)
        (one,) = charges(ledger, RunFilter(), None, None)
    (pair,) = report.comparisons
    many = [
        one._replace(name=f"job {n % 5000}", owner=f"p{n % 50}", began=one.began - 3 * 10**8 * n) for n in range(20_000)
    ]
    budgets = [Budget(name=f"b{n}", amount_usd=Decimal(100), every=Every.MONTHLY) for n in range(3)]
    html = page_of(
        dataclasses.replace(
            report,
            summary=summarise(many, SINCE, NOW),
            budgets=[budget_use(budget, many, SINCE, NOW) for budget in budgets],
            comparisons=[dataclasses.replace(pair, actual=600.0 + n) for n in range(20_000)],
        )
    )
    assert len(html) < 1_000_000
    assert "20,000" in html


@given(st.floats(1e-6, 1e9))
def test_ticks_are_round_few_and_reach_the_top(largest: float) -> None:
    ticks = usd_axis(largest)
    assert ticks[-1][0] >= largest * 0.999
    assert 2 <= len(ticks) <= 7
    assert len({name for _, name in ticks}) == len(ticks), ticks


# -- the command


def report(*words: str) -> Result:
    return told("ledger", "report", "--html", *words)


@pytest.fixture
def own_ledger() -> None:
    """The user's ledger, with closed runs, an open one and a budget."""
    now = datetime.now(UTC)
    with Ledger.open(folder=data_path()) as ledger:
        plant(ledger, [Closed(started=now - n * DAY, cost=Decimal(2)) for n in range(1, 4)])
        opened(ledger, "openrunaaaaa", now - timedelta(hours=2), owner="me@here")
        set_budget(ledger, Budget(name="all", amount_usd=Decimal(50), every=Every.MONTHLY), now)


def test_the_command_writes_a_page(own_ledger: None, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    report(str(out)).check(0)
    page = harmless(out.read_text())
    assert "Running now" in page.text
    assert "openrunaaaaa" in page.text
    assert "$8.0" in page.text  # 3 x $2 and two hours at $1 so far
    assert [path.name for path in tmp_path.iterdir()] == ["out.html"]


def test_an_open_run_that_cannot_be_read_is_named_and_the_rest_is_shown(own_ledger: None) -> None:
    with Ledger.open(folder=data_path()) as ledger:
        for sequence, kind in enumerate((EventKind.INTENDED, EventKind.ATTEMPTED)):
            ledger.append(RunEvent(run_id="brokenaaaaaa", sequence=sequence, at=NOW, kind=kind, data={}))
    said = ["1 open run cannot be read", "openrunaaaaa"]
    report("-").check(0, out=said, err="run brokenaaaaaa cannot be read")


def test_the_command_never_overwrites_unless_forced(own_ledger: None, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    out.write_text("precious")
    report(str(out)).check(2)
    assert out.read_text() == "precious"
    report(str(out), "--force").check(0)
    assert out.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    "words",
    ["--since yesterday", "--since 2026-11-02 --until 2026-11-01", "--since 2999", "--since 1900"],
)
def test_what_is_no_period_is_refused(tmp_path: Path, words: str) -> None:
    report(str(tmp_path / "x.html"), *words.split()).check(2)
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_that_does_not_exist_is_an_empty_page_and_stays_away() -> None:
    page = harmless(report("-").check(0).out)
    assert "No runs in this period" in page.text
    assert not page.count("svg")
    assert not data_path().exists()

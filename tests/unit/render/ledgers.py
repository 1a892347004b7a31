"""A small ledger to report on."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from costgpu.ledger import Ledger
from costgpu.ledger.records.budget_rules import Budget
from costgpu.ledger.records.budget_store import set_budget
from costgpu.render.html.ledger_page import LedgerPeriod
from costgpu.workflows.spending.report import report_of
from tests.unit.ledger.closed import Closed, plant

NOW = datetime(2026, 11, 21, 10, 30, tzinfo=UTC)
SINCE = datetime(2026, 9, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def ledger_with(*runs: Closed) -> Ledger:
    ledger = Ledger.open("sqlite://")
    plant(ledger, runs)
    return ledger


def report_with(ledger: Ledger, budgets: Sequence[Budget] = (), *, since: datetime = SINCE) -> LedgerPeriod:
    for budget in budgets:
        set_budget(ledger, budget, NOW)
    return report_of(ledger, since, NOW, NOW)


RUNS = (
    Closed(
        started=NOW - 2 * DAY,
        seconds=7200,
        cost=Decimal("3.00"),
        name="a",
        job_seconds=5400,
        estimate={"seconds": 6000, "seconds_low": 5000, "seconds_high": 8000, "cost_usd": 2.5},
    ),
    Closed(
        started=NOW - 3 * DAY,
        seconds=3600,
        cost=Decimal("1.00"),
        gpu="",
        instance_type="c6i.4xlarge",
        name="b",
        job_seconds=3600,
        estimate={"seconds": 1000, "seconds_low": 900, "seconds_high": 1100, "cost_usd": 1},
    ),
    Closed(started=NOW - 4 * DAY, cost=Decimal("2.00"), reason="job_failed", spot=True, owner="bob@ws"),
    Closed(started=NOW - 5 * DAY, cost=Decimal("0.50"), reason="preempted", provider="gcp", tags={"team": "nlp"}),
    Closed(started=NOW - 6 * DAY, cost=Decimal("0.25"), reason="cancelled"),
    Closed(started=NOW - 7 * DAY, cost=Decimal(0), reason="no_capacity", instance=False),
    Closed(started=SINCE - 10 * DAY, cost=Decimal(99)),  # before the report
)

"""A ledger that version 0.1.0 wrote, and the answers that it gave about it: later versions give the same.

``data/ledger-0.1.0.sql`` is the dump of that ledger, ``data/answers-0.1.0.json`` what 0.1.0 said. Neither is ever changed.
"""

import json
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from costgpu.job.find_run import load_run
from costgpu.job.spending import gather
from costgpu.ledger import Ledger, to_json
from costgpu.ledger.costs.charges import RunFilter, spent
from costgpu.ledger.costs.closed_runs import closed_runs
from costgpu.ledger.costs.export import as_json
from costgpu.ledger.costs.focus import as_focus
from costgpu.ledger.costs.periods import bounds
from costgpu.ledger.costs.totals import By, totals
from costgpu.ledger.records.accuracy import accuracy, comparisons
from costgpu.ledger.records.billed import compare_with_bills
from costgpu.ledger.records.budget_store import alerts_of, all_budgets, claim_delivery
from costgpu.ledger.records.budget_sums import budget_state
from costgpu.ledger.records.measured_speeds import measured_speeds
from costgpu.ledger.records.unrecorded_machines import sightings_since
from costgpu.ledger.schema import from_microseconds, from_nano
from costgpu.models.instance import InstanceRef
from costgpu.models.run import EventKind, RunEvent
from costgpu.providers import registry
from costgpu.render.text.run import jobs_json

DATA = Path(__file__).parent / "data"
ANSWERS: dict[str, Any] = json.loads((DATA / "answers-0.1.0.json").read_text())
AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
NOVEMBER = (datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    file = tmp_path / "ledger.sqlite"
    with sqlite3.connect(file) as raw:
        raw.executescript((DATA / "ledger-0.1.0.sql").read_text())
    raw.close()
    with Ledger.open(f"sqlite:///{file}") as opened:
        yield opened


def test_jobs(ledger: Ledger) -> None:
    views = [load_run(ledger, run_id) for run_id in ledger.recent_runs()]
    assert json.loads(jobs_json(views, (), AT)) == ANSWERS["jobs"]
    assert ledger.open_runs() == ("run4open",)


def test_exports(ledger: Ledger) -> None:
    assert json.loads("".join(as_json(closed_runs(ledger, RunFilter()), AT))) == ANSWERS["export"]
    names = {spec.name: (spec.publisher, spec.service) for spec in registry.specs()}
    assert "".join(as_focus(closed_runs(ledger, RunFilter()), names)).splitlines() == ANSWERS["focus"]


@pytest.mark.parametrize("by", By)
def test_totals(ledger: Ledger, by: By) -> None:
    assert to_json(totals(ledger, RunFilter(), by, tag="team")) == ANSWERS["totals"][by.value]


def test_budgets_and_alerts(ledger: Ledger) -> None:
    stored = all_budgets(ledger)
    spending = gather(ledger, [each.budget for each in stored], None, AT, lambda *_: {})
    states = [budget_state(spending, each.budget) for each in stored]
    found = {state.budget.name: {**to_json(state), "percent": state.percent} for state in states}
    assert found == ANSWERS["budgets"]
    periods = [bounds(each.budget.every, each.budget.time_zone, AT) for each in stored]
    alerts = [alert for each, period in zip(stored, periods, strict=True) for alert in alerts_of(ledger, each, period)]
    assert to_json(alerts) == ANSWERS["alerts"]
    attempt = claim_delivery(ledger, stored[1], periods[1], (50, 80, 100), Decimal(201), AT)
    assert [(alert.threshold, alert.attempts) for alert in attempt.alerts] == [(100, 1)]  # its sender was killed


def test_bills_and_speeds(ledger: Ledger) -> None:
    assert to_json(compare_with_bills(ledger, *NOVEMBER)) == ANSWERS["billed"]
    assert to_json(accuracy(comparisons(ledger, RunFilter()))) == ANSWERS["accuracy"]
    speeds = [speed for workload in ("w-train", "w-aws") for speed in measured_speeds(ledger, workload).values()]
    assert to_json(speeds) == ANSWERS["speeds"]
    for machine, said in zip(sightings_since(ledger), map(dict, ANSWERS["unrecorded_machines"]), strict=True):
        assert machine.ref == InstanceRef(**{key: said.pop(key) for key in ("provider", "region", "instance_id")})
        assert from_microseconds(machine.began).isoformat() == said.pop("started_at")
        assert from_microseconds(machine.ended).isoformat() == said.pop("seen_at")
        price, usd = machine.nano_usd_per_hour, said.pop("usd_per_hour")
        assert (None if price is None else str(from_nano(price))) == usd
        assert machine.going is said.pop("ended")
        assert {key: getattr(machine, key) for key in said} == said


def test_it_goes_on(ledger: Ledger) -> None:
    before = spent(ledger, RunFilter(), None, None)
    (open_run,) = ledger.open_runs()
    data = {"reason": "succeeded", "metered_seconds": 60.0, "metered_cost_usd": "0.25"}
    ledger.append(RunEvent(run_id=open_run, sequence=7, at=AT, kind=EventKind.CLOSED, data=data))
    assert ledger.open_runs() == ()
    assert spent(ledger, RunFilter(), None, None) == before + Decimal("0.25")


def test_a_new_ledger_has_the_tables_of_that_version(ledger: Ledger, tmp_path: Path) -> None:
    """What a released step makes never changes: a change of the schema is another step, and another file in data/."""
    with Ledger.open(folder=tmp_path / "new") as new:
        new.append(RunEvent(run_id="aaaa", sequence=0, at=AT, kind=EventKind.NOTED))

        def tables(each: Ledger) -> set[str]:
            query = text("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
            none: set[str] = set()
            return each.read(lambda connection: {" ".join(sql.split()) for sql in connection.scalars(query)}, none)

        assert tables(new) == tables(ledger)
        assert len(tables(new)) > 40

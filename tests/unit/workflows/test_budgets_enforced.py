"""Budgets that enforce: spent, committed and the new cap together never exceed them, whatever is damaged.

One file of more than 400 lines: every case is held against the same small ledger.
"""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.errors import BudgetExceeded, CostGpuError, LedgerDamaged
from costgpu.job.drive.context import Services
from costgpu.job.find_run import load_run
from costgpu.job.plan import LaunchPlace, Limits, options_for
from costgpu.job.spending import gather, shipped_prices
from costgpu.ledger import Ledger
from costgpu.ledger.codec import to_json
from costgpu.ledger.costs.periods import Every
from costgpu.ledger.records.budget_rules import Budget, BudgetState
from costgpu.ledger.records.budget_store import all_budgets, set_budget
from costgpu.ledger.records.budget_sums import budget_state
from costgpu.ledger.store import FILE_NAME
from costgpu.models.job import EndReason, JobNode
from costgpu.models.run import EventKind, LaunchOption, RunEvent, RunState, RunView
from costgpu.units import Currency, format_usd, show_amounts_in
from costgpu.workflows.runs.budgets import BudgetAnswer, ask_budgets, fit_to_budgets
from tests.job.examples import facts_of, intent, spec
from tests.job.world import World
from tests.properties import examples
from tests.unit.providers.planted import HOUR, NOW, closed, finish, on, opened

BUDGET = Budget(name="e", amount_usd=Decimal(2000), every=Every.MONTHLY, enforce=True)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(folder=tmp_path) as found:
        set_budget(found, BUDGET, NOW - 900 * HOUR)
        yield found


@pytest.fixture
def another(tmp_path: Path) -> Callable[[], Ledger]:
    return lambda: Ledger.open(folder=tmp_path)


def ask(ledger: Ledger, cap: str, **changes: Any) -> BudgetAnswer:
    return ask_budgets(ledger, spec(**changes), [on(cap=cap)], "me@here", NOW)


def state(ledger: Ledger) -> BudgetState:
    (stored,) = all_budgets(ledger)
    return budget_state(gather(ledger, [stored.budget], None, NOW, shipped_prices), stored.budget)


def together(ledger: Ledger) -> Decimal:
    now = state(ledger)
    return now.spent_usd + now.committed_usd


class TestRule:
    def test_a_cap_of_more_than_what_is_left_is_refused(self, ledger: Ledger) -> None:
        closed(ledger, "a1", NOW - 2 * HOUR, 1, "1200")
        answer = ask(ledger, "19200")
        assert isinstance(answer.refusal, BudgetExceeded)
        assert answer.refusal.exit_code == 81
        assert "its cap of $19,200.00 is more than the $800.00 left of $2,000.00 this month." in answer.refusal.message
        assert "--fit" in answer.refusal.hint
        assert "could exceed it by $18,400.00: it is refused." in answer.notes[0]
        assert ask(ledger, "800").refusal is None
        assert ask(ledger, "800.01").refusal is not None

    def test_what_is_committed_counts(self, ledger: Ledger) -> None:
        opened(ledger, "a1", NOW, where=on(cap="1500"))
        answer = ask(ledger, "501")
        assert isinstance(answer.refusal, BudgetExceeded)
        assert "$500.00 left of $2,000.00 this month, with $1,499.98 committed" in answer.refusal.message
        assert ask(ledger, "500").refusal is None

    def test_all_machines_of_a_job_count(self, ledger: Ledger) -> None:
        assert ask(ledger, "600", nodes=4).refusal is not None
        assert ask(ledger, "500", nodes=4).refusal is None

    def test_the_rule_of_before(self, ledger: Ledger) -> None:
        set_budget(ledger, replace(BUDGET, enforce_spent=True), NOW - 800 * HOUR, replace=True)
        closed(ledger, "a1", NOW - 2 * HOUR, 1, "1200")
        answer = ask(ledger, "19200")
        assert answer.refusal is None
        assert answer.notes[0].endswith("could exceed it by $18,400.00.")
        closed(ledger, "a2", NOW - 2 * HOUR, 1, "800")
        assert isinstance(ask(ledger, "1").refusal, BudgetExceeded)

    def test_one_that_only_counts_refuses_nothing(self, ledger: Ledger) -> None:
        set_budget(ledger, replace(BUDGET, enforce=False), NOW - 800 * HOUR, replace=True)
        closed(ledger, "a1", NOW - 2 * HOUR, 1, "2500")
        assert ask(ledger, "19200").refusal is None


def test_refusals_and_notes_are_in_us_dollars(ledger: Ledger) -> None:
    closed(ledger, "a1", NOW - 2 * HOUR, 1, "1999.99")
    show_amounts_in(Currency(code="EUR", rate=Decimal("0.92")))
    try:
        answer = ask(ledger, "50")
        place = LaunchPlace(offer=on().offer)
        with pytest.raises(BudgetExceeded) as caught:
            fit_to_budgets(ledger, spec(), Limits(max_cost_usd=Decimal(50)), [place], "me@here", NOW)
        assert format_usd(1) == "€0.92"
    finally:
        show_amounts_in(None)
    assert answer.refusal is not None
    told = [answer.refusal.message, *answer.notes, caught.value.message, caught.value.hint]
    assert "€" not in " ".join(told)
    assert "$50.00" in answer.refusal.message


def begin(ledger: Ledger, run_id: str, where: LaunchOption, nodes: tuple[str, ...] = ()) -> None:
    """The intent of a run."""
    node = JobNode(node=nodes.index(run_id), run_ids=nodes) if nodes else None
    facts = intent(run_id, options=[to_json(where)], spec=to_json(spec(node=node, nodes=len(nodes) or 1))).data
    ledger.append(RunEvent(run_id=run_id, sequence=0, at=NOW, kind=EventKind.INTENDED, data=facts))


def attempt(ledger: Ledger, run_id: str, sequence: int = 1) -> None:
    """The record of a create call, as the engine makes it. Raises why a budget refuses."""

    def admit() -> None:
        view = load_run(ledger, run_id)
        refusal = ask_budgets(ledger, view.spec, view.options, view.owner, NOW).refusal
        if refusal is not None:
            raise refusal

    until = (NOW + timedelta(hours=20)).isoformat()
    data = {**facts_of(EventKind.ATTEMPTED), "token": run_id, "lease_until": until}
    ledger.append(RunEvent(run_id=run_id, sequence=sequence, at=NOW, kind=EventKind.ATTEMPTED, data=data), admit)


class TestAtOnce:
    def test_of_two_clients_the_second_decides_after_the_first(
        self, ledger: Ledger, another: Callable[[], Ledger]
    ) -> None:
        begin(ledger, "a1", on(cap="1200"))
        begin(ledger, "a2", on(cap="1200"))
        deciding, outcome = threading.Event(), list[CostGpuError | None]()

        def second() -> None:
            with another() as other:
                try:
                    attempt(cast("Ledger", _Telling(other, deciding)), "a2")
                    outcome.append(None)
                except CostGpuError as error:
                    outcome.append(error)

        client = threading.Thread(target=second)

        def first() -> None:
            client.start()
            assert ask_budgets(ledger, spec(), [on(cap="1200")], "me@here", NOW).refusal is None
            assert not deciding.wait(0.3), "the second client decides while the first one does"

        data = {**facts_of(EventKind.ATTEMPTED), "lease_until": (NOW + timedelta(hours=20)).isoformat()}
        ledger.append(RunEvent(run_id="a1", sequence=1, at=NOW, kind=EventKind.ATTEMPTED, data=data), first)
        client.join(60)
        assert isinstance(outcome[0], BudgetExceeded)
        assert load_run(ledger, "a2").state is RunState.INTENT
        assert together(ledger) <= 2000

    def test_machines_that_a_job_still_lacks_are_committed_with_its_first(self, ledger: Ledger) -> None:
        ids = ("n0", "n1", "n2")
        for run_id in ids:
            begin(ledger, run_id, on(cap="600"), ids)
        assert state(ledger).committed_usd == 0
        attempt(ledger, "n0")
        assert state(ledger).committed_usd == 1800
        assert ask(ledger, "300").refusal is not None
        ledger.append(
            RunEvent(run_id="n0", sequence=2, at=NOW, kind=EventKind.REFUSED, data=facts_of(EventKind.REFUSED))
        )
        assert state(ledger).committed_usd == 0


class _Telling:
    """A ledger that says when somebody begins to decide."""

    def __init__(self, target: Ledger, told: threading.Event) -> None:
        self._target, self._told = target, told

    def append(self, event: RunEvent, admit: Any) -> None:
        def telling() -> None:
            self._told.set()
            admit()

        self._target.append(event, telling)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 1500), st.integers(0, 100)), max_size=12))
@examples(80)
def test_no_order_of_two_clients_exceeds_it(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[bool, int, int]]
) -> None:
    """A step begins a run of the first or second client with a cap, or ends its oldest at a share of the cap."""
    folder = tmp_path_factory.mktemp("property")
    with Ledger.open(folder=folder) as one, Ledger.open(folder=folder) as two:
        set_budget(one, BUDGET, NOW - 900 * HOUR)
        alive: list[tuple[str, int]] = []
        for number, (first, cap, share) in enumerate(steps):
            client, run_id = (one if first else two), f"r{number}"
            before = together(client)
            if share > 60 and alive:
                ended, limit = alive.pop(0)
                ref = {"provider": "aws", "region": "us-east-1", "instance_id": f"i-{ended}"}
                story = (EventKind.CREATED, EventKind.REACHED, EventKind.SYNCED, EventKind.STARTED)
                for sequence, kind in enumerate(story, 2):
                    data = {**ref, "launched_at": NOW.isoformat()} if kind is EventKind.CREATED else {}
                    client.append(RunEvent(run_id=ended, sequence=sequence, at=NOW, kind=kind, data=data))
                finish(client, ended, NOW, 0.001, str(Decimal(limit) * (share - 60) / 40))
            else:
                begin(client, run_id, on(cap=str(cap)))
                try:
                    attempt(client, run_id)
                    alive.append((run_id, cap))
                    assert before + cap <= BUDGET.amount_usd
                except BudgetExceeded:
                    assert before + cap > BUDGET.amount_usd
            assert together(client) <= BUDGET.amount_usd


DAMAGE = [
    "UPDATE closings SET metered_nano_usd = 'much'",
    "UPDATE closings SET metered_nano_usd = 0.5",
    "UPDATE closings SET metered_seconds = 'long'",
    "UPDATE closings SET ended_us = 'soon'",
    "UPDATE closings SET ended_us = 9223372036854775807",
    "UPDATE closings SET ended_us = 6940000000000000",
    "UPDATE closings SET started_us = 6940000000000000, ended_us = 6940000000000001",
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_row_opens_no_budget(ledger: Ledger, tmp_path: Path, damage: str) -> None:
    closed(ledger, "a1", NOW - 2 * HOUR, 1, "1999")
    harm(ledger, tmp_path, damage)
    refusal = ask(ledger, "100").refusal
    assert isinstance(refusal, LedgerDamaged), refusal
    assert refusal.exit_code == 72
    assert "a1" in refusal.message
    assert "The budget e cannot be counted, and refuses new runs" in refusal.message
    assert "without --enforce" in refusal.hint


def test_an_open_run_whose_times_cannot_be_right_is_named_with_the_way_out(ledger: Ledger, tmp_path: Path) -> None:
    begin(ledger, "b1", on(cap="1"))
    attempt(ledger, "b1")
    harm(
        ledger,
        tmp_path,
        "UPDATE events SET data = replace(data, '\"lease_until\":\"202', '\"lease_until\":\"201') WHERE kind = 'attempted'",
    )
    refusal = ask(ledger, "100").refusal
    assert isinstance(refusal, LedgerDamaged), refusal
    assert "Run b1 is open, and its times cannot be right; costgpu cancel b1 closes it." in refusal.message


@pytest.mark.parametrize("damage", DAMAGE[:3])
def test_a_damaged_amount_of_another_period_closes_no_budget(ledger: Ledger, tmp_path: Path, damage: str) -> None:
    closed(ledger, "a1", NOW - 2000 * HOUR, 1, "1999")
    harm(ledger, tmp_path, damage)
    assert ask(ledger, "100").refusal is None


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_row_of_another_tag_closes_no_budget(ledger: Ledger, tmp_path: Path, damage: str) -> None:
    set_budget(ledger, replace(BUDGET, tags={"team": "nlp"}), NOW - 800 * HOUR, replace=True)
    closed(ledger, "a1", NOW - 2 * HOUR, 1, "1999", tags={"team": "cv"})
    harm(ledger, tmp_path, damage)
    assert ask(ledger, "100", tags={"team": "nlp"}).refusal is None


@pytest.mark.parametrize("when", ["2026-11-01T00:00:00+00:00", "1999-01-01T00:00:00+00:00", "never"])
def test_a_damaged_lease_of_an_open_run_opens_no_budget(ledger: Ledger, tmp_path: Path, when: str) -> None:
    opened(ledger, "a1", NOW - HOUR, where=on(cap="1900"))
    harm(
        ledger, tmp_path, f"UPDATE events SET data = json_set(data, '$.lease_until', '{when}') WHERE kind = 'attempted'"
    )
    refusal = ask(ledger, "500").refusal
    assert isinstance(refusal, CostGpuError)
    assert "a1" in refusal.message
    assert refusal.exit_code == 72


def test_a_damaged_budget_opens_nothing(ledger: Ledger, tmp_path: Path) -> None:
    harm(ledger, tmp_path, "UPDATE budgets SET data = replace(data, '2000', 'x')")
    refusal = ask(ledger, "1").refusal
    assert isinstance(refusal, LedgerDamaged)
    assert "budget e" in refusal.message


def test_one_that_only_counts_says_what_it_can(ledger: Ledger, tmp_path: Path) -> None:
    set_budget(ledger, replace(BUDGET, enforce=False), NOW - 800 * HOUR, replace=True)
    closed(ledger, "a1", NOW - 2 * HOUR, 1, "1999")
    harm(ledger, tmp_path, DAMAGE[0])
    assert ask(ledger, "100").refusal is None


def harm(ledger: Ledger, folder: Path, statement: str) -> None:
    ledger.close()
    raw = sqlite3.connect(folder / FILE_NAME)
    for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        raw.execute(f"DROP TRIGGER {name}")
    raw.execute(statement)
    raw.commit()
    raw.close()


class TestEngine:
    """The decision where the create call is recorded, in runs of the fake cloud."""

    def kit(self, world: World, ledger: Ledger, now: Any) -> Services:
        def refusal(view: RunView) -> CostGpuError | None:
            return ask_budgets(ledger, view.spec, view.options, view.owner, now()).refusal

        return replace(world.tools, refusal=refusal)

    def world(self, tmp_path: Path, amount: str, nodes: int = 1) -> tuple[Any, Ledger]:
        world, ledger = World(tmp_path, nodes=nodes), Ledger.open(folder=tmp_path / "ledger")
        set_budget(ledger, replace(BUDGET, every=Every.TOTAL, amount_usd=Decimal(amount)), world.clock.now())
        world.tools = self.kit(world, ledger, world.clock.now)
        return world, ledger

    def test_a_run_that_was_planned_before_another_one_began(self, tmp_path: Path) -> None:
        world, ledger = self.world(tmp_path, "3")
        with ledger:
            world.launch(book=ledger, run_id="a1", max_cost="2.00")
            assert load_run(ledger, "a1").instance is not None
            refused = world.launch(book=ledger, run_id="a2", max_cost="3.00")
            assert isinstance(refused.error, BudgetExceeded)
            assert (refused.view.state, refused.view.instance) == (RunState.CLOSED, None)
            assert refused.view.reason is EndReason.PROVISION_FAILED
            assert len([call for call in world.cloud.calls if call.method == "create"]) == 1

    def test_a_job_on_several_machines_asks_once_for_all(self, tmp_path: Path) -> None:
        for amount, machines in (("3.9", 0), ("4", 2)):
            world, ledger = self.world(tmp_path / amount, amount, nodes=2)
            with ledger:
                world.book = ledger
                driver = world.launch(max_cost="2.00")
                assert isinstance(driver.error, BudgetExceeded) is (machines == 0)
                assert len(world.machines()) == machines
                assert all(view.state is RunState.CLOSED for view in driver.views)


class TestFit:
    def fit(self, ledger: Ledger, **limits: Any) -> Limits:
        place = LaunchPlace(offer=on().offer)
        return fit_to_budgets(ledger, spec(), Limits(**limits), [place], "me@here", NOW)

    def test_the_cap_is_what_is_left(self, ledger: Ledger) -> None:
        closed(ledger, "a1", NOW - 2 * HOUR, 1, "1200")
        opened(ledger, "a2", NOW, where=on(cap="700"))
        fitted = self.fit(ledger, max_cost_usd=Decimal(19200))
        assert fitted.max_cost_usd == 100
        option = options_for([LaunchPlace(offer=on().offer)], fitted)[0]
        assert option.lease.limited_by == "what the budget e leaves, $100.00"
        assert option.lease.worst_cost_usd <= 100
        assert ask_budgets(ledger, spec(), [option], "me@here", NOW).refusal is None
        assert self.fit(ledger).max_cost_usd == 100

    def test_a_smaller_cap_stays(self, ledger: Ledger) -> None:
        mine = Limits(max_cost_usd=Decimal(5))
        assert self.fit(ledger, max_cost_usd=Decimal(5)) == mine

    def test_the_tightest_of_several_budgets_counts(self, ledger: Ledger) -> None:
        set_budget(ledger, replace(BUDGET, name="tight", amount_usd=Decimal(30)), NOW - 800 * HOUR)
        assert self.fit(ledger).max_cost_usd == 30

    def test_one_that_would_not_refuse_does_not_limit(self, ledger: Ledger) -> None:
        set_budget(ledger, replace(BUDGET, name="soft", enforce=False, amount_usd=Decimal(30)), NOW - 800 * HOUR)
        late = replace(BUDGET, name="late", enforce_spent=True, amount_usd=Decimal(40))
        set_budget(ledger, late, NOW - 800 * HOUR)
        closed(ledger, "a1", NOW - 2 * HOUR, 1, "39.99")
        assert self.fit(ledger, max_cost_usd=Decimal(50)) == Limits(max_cost_usd=Decimal(50))
        assert ask(ledger, "50").refusal is None
        closed(ledger, "a2", NOW - 2 * HOUR, 1, "0.01")
        with pytest.raises(BudgetExceeded, match="The budget late leaves too little"):
            self.fit(ledger, max_cost_usd=Decimal(50))

    def test_damage_does_not_limit_where_nothing_enforces(self, ledger: Ledger, tmp_path: Path) -> None:
        set_budget(ledger, replace(BUDGET, enforce=False), NOW - 800 * HOUR, replace=True)
        closed(ledger, "a1", NOW - 2 * HOUR, 1, "1999")
        harm(ledger, tmp_path, DAMAGE[0])
        assert self.fit(ledger, max_cost_usd=Decimal(50)) == Limits(max_cost_usd=Decimal(50))

    @pytest.mark.parametrize("spent", ["1999.99", "2000", "3000"])
    def test_too_little_for_a_machine_is_refused(self, ledger: Ledger, spent: str) -> None:
        closed(ledger, "a1", NOW - 2 * HOUR, 1, spent)
        with pytest.raises(BudgetExceeded, match="leaves too little for this run"):
            self.fit(ledger, max_cost_usd=Decimal(50))

    def test_what_cannot_be_counted_gives_no_cap(self, ledger: Ledger, tmp_path: Path) -> None:
        closed(ledger, "a1", NOW - 2 * HOUR, 1, "1999")
        harm(ledger, tmp_path, DAMAGE[0])
        with pytest.raises(LedgerDamaged):
            self.fit(ledger, max_cost_usd=Decimal(50))

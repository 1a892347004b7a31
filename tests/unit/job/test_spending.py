"""What counts as spent: closed and open runs, strangers, shares of periods, what cannot be asked or read.

One file of more than 400 lines: runs, strangers and prices are counted against the same budgets.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import text

from costgpu.errors import AuthError, LedgerDamaged, PriceNotFound, ProviderError, Unreachable
from costgpu.job.spending import gather, shipped_prices
from costgpu.ledger import Ledger
from costgpu.ledger.costs.periods import Every
from costgpu.ledger.records.budget_rules import Budget
from costgpu.ledger.records.budget_sums import Spending, budget_state
from costgpu.ledger.records.unrecorded_machines import last_sightings, sightings_since
from costgpu.models.instance import Identity, Instance, InstanceRef, InstanceState
from costgpu.models.run import EventKind, RunEvent
from costgpu.pricing import price_store
from costgpu.providers.base import Provider
from tests.unit.providers.planted import HOUR, NOW, Answers, closed, finish, machine, on, opened

TODAY = NOW.replace(hour=0)
ALL = Budget(name="all", amount_usd=Decimal(200), every=Every.MONTHLY)
SELECTED: dict[str, tuple[dict[str, Any], int]] = {
    "tag": ({"tags": {"team": "nlp"}}, 1 + 2 + 16),
    "person": ({"owner": "alice"}, 1 + 16),
    "at": ({"owner": "alice@a"}, 1),
    "gcp": ({"provider": "gcp"}, 2),
    "aws": ({"provider": "aws"}, 1 + 4 + 16),
    "none": ({"tags": {"team": "x"}}, 0),
    "any": ({}, 23),
}
DAY = Budget(name="day", amount_usd=Decimal(20), every=Every.DAILY)
MINE = [Budget(name=name, amount_usd=Decimal(9), every=Every.MONTHLY, **more) for name, (more, _) in SELECTED.items()]
EACH = [Budget(name=every.value, amount_usd=Decimal(9), every=every) for every in Every]
BUDGETS = [ALL, DAY, *MINE, *EACH]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(folder=tmp_path) as found:
        yield found


def prices(machines: Sequence[Instance]) -> Mapping[InstanceRef, Decimal]:
    known = {"g5.xlarge": Decimal(2)}
    return {each.ref: known[each.instance_type] for each in machines if each.instance_type in known}


def look(
    ledger: Ledger,
    *machines: Instance,
    provider: Answers | None = None,
    now: datetime = NOW,
    asked: bool = True,
    prices: Any = prices,
) -> Spending:
    """Of a provider with these machines, or of that provider."""
    found = cast("list[Provider]", [provider or Answers(*machines)])
    return gather(ledger, BUDGETS, found if asked else None, now, prices)


def of(*values: Decimal | int) -> list[Decimal]:
    return [Decimal(value) for value in values]


def spent(spending: Spending, budget: Budget = ALL) -> Decimal:
    return budget_state(spending, budget).spent_usd


class TestRuns:
    def test_an_empty_ledger_has_spent_nothing_and_stays_empty(self, ledger: Ledger, tmp_path: Path) -> None:
        spending = look(ledger)
        state = budget_state(spending, ALL)
        assert of(state.spent_usd, state.committed_usd, state.open_runs, state.at_least) == of(0, 0, 0, False)
        assert list(tmp_path.iterdir()) == []

    def test_closed_runs_count_by_their_share_of_the_period(self, ledger: Ledger) -> None:
        closed(ledger, "a1", NOW - 20 * HOUR, 4, "4.00")  # from 16:00 yesterday
        closed(ledger, "a2", TODAY - HOUR, 4, "8.00")  # three quarters of it today
        spending = look(ledger)
        assert spent(spending) == 12
        assert spent(spending, DAY) == 6

    def test_open_runs_are_metered_until_now_and_commit_the_rest_of_their_cap(self, ledger: Ledger) -> None:
        opened(ledger, "b1", TODAY - HOUR, where=on(price="1.00", cap="20.00"), lease=timedelta(hours=21))
        state = budget_state(look(ledger, asked=False), ALL)
        assert of(state.spent_usd, state.committed_usd, state.open_runs) == of(13, 7, 1)
        day = budget_state(look(ledger, asked=False), DAY)
        assert day.spent_usd == 12  # of 13 hours, 12 are today
        assert day.committed_usd == 7

    def test_what_is_committed_beyond_the_period_is_not_its_own(self, ledger: Ledger) -> None:
        opened(ledger, "b2", NOW, where=on(price="1.00", cap="24.00"), lease=timedelta(hours=24))
        state = budget_state(look(ledger, asked=False), DAY)
        assert state.committed_usd == pytest.approx(Decimal(12), abs=Decimal("0.02"))
        assert state.forecast_usd == pytest.approx(Decimal(12), abs=Decimal("0.05"))  # it is there: it counts

    def test_no_run_is_metered_beyond_its_lease_unless_it_is_seen_alive(self, ledger: Ledger) -> None:
        opened(ledger, "c1", NOW - 10 * HOUR, lease=timedelta(hours=4))
        for spending in (look(ledger, asked=False), look(ledger)):  # nobody asked; asked, and it is not there any more
            state = budget_state(spending, ALL)
            assert state.spent_usd == pytest.approx(Decimal(4), abs=Decimal("0.02"))
            assert of(state.committed_usd, state.open_runs) == of(0, 0)
        alive = look(ledger, machine("c1", NOW - 10 * HOUR, lease=timedelta(hours=4)))
        assert spent(alive) == 10

    def test_one_whose_machine_has_ended_is_metered_until_then(self, ledger: Ledger) -> None:
        opened(ledger, "c2", NOW - 10 * HOUR)
        over = look(ledger, machine("c2", NOW - 10 * HOUR, ended=NOW - 7 * HOUR))
        assert spent(over) == 3
        assert budget_state(over, ALL).committed_usd == 0

    def test_a_machine_that_is_not_listed_right_after_its_create_call_is_there(self, ledger: Ledger) -> None:
        opened(ledger, "c3", NOW - timedelta(seconds=90))
        state = budget_state(look(ledger), ALL)
        assert state.open_runs == 1
        assert state.spent_usd == Decimal("0.025000")

    def test_a_create_call_without_an_answer(self, ledger: Ledger) -> None:
        opened(ledger, "c4", NOW - HOUR, created=False)
        state = budget_state(look(ledger), ALL)
        assert of(state.spent_usd, state.committed_usd, state.open_runs) == of(0, 20, 1)
        found = budget_state(look(ledger, machine("c4", NOW - HOUR)), ALL)
        assert of(found.spent_usd, found.committed_usd) == of(1, 19)
        assert sightings_since(ledger) == ()  # it is ours

    def test_one_that_is_closed_while_it_is_looked_at_is_never_counted_twice(
        self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened(ledger, "c5", NOW - 4 * HOUR)
        usual = Ledger.open_runs

        def closes_first(self: Ledger) -> tuple[str, ...]:
            finish(self, "c5", NOW, 4, "4.00")
            monkeypatch.setattr(Ledger, "open_runs", usual)
            return usual(self)

        monkeypatch.setattr(Ledger, "open_runs", closes_first)
        assert spent(look(ledger, machine("c5", NOW - 4 * HOUR))) == 0
        assert spent(look(ledger)) == 4

    def test_selections(self, ledger: Ledger) -> None:
        closed(ledger, "d1", NOW - 9 * HOUR, 1, "1", tags={"team": "nlp"}, owner="alice@a")
        opened(ledger, "d2", NOW - 2 * HOUR, tags={"team": "nlp"}, owner="bob@b", where=on("gcp"))
        opened(ledger, "d3", NOW - 4 * HOUR, owner="alicia@a")
        live = [machine("d4", NOW - 8 * HOUR, owner="alice@c", tags={"team": "nlp", "costgpu-run": "d4"})]
        spending = look(ledger, *live, machine("d3", NOW - 4 * HOUR))
        for budget in MINE:
            assert spent(spending, budget) == SELECTED[budget.name][1], budget

    def test_this_computer_is_free(self, ledger: Ledger) -> None:
        opened(ledger, "e1", NOW - 9 * HOUR, where=on("local", "0", cap="0"))
        spending = look(ledger, provider=Answers(machine("e9", NOW - HOUR, provider="local"), name="local"))
        state = budget_state(spending, ALL)
        assert of(state.spent_usd, state.committed_usd, state.at_least) == of(0, 0, False)


class TestStrangers:
    def test_they_count_while_they_live_and_after_their_end(self, ledger: Ledger) -> None:
        started = NOW - 3 * HOUR
        assert spent(look(ledger, machine("s1", started))) == 6
        assert spent(look(ledger, machine("s1", started), now=NOW + HOUR)) == 8
        ended = machine("s1", started, ended=NOW + HOUR + timedelta(minutes=3))
        assert spent(look(ledger, ended, now=NOW + 2 * HOUR)) == Decimal("8.1")
        for later in (look(ledger, now=NOW + 5 * HOUR), look(ledger, now=NOW + 5 * HOUR, asked=False)):
            assert spent(later) == Decimal("8.1")
            assert budget_state(later, ALL).open_runs == 0

    def test_a_row_only_when_there_is_something_new(self, ledger: Ledger) -> None:
        for minute in (0, 1, 9, 10, 11, 19, 20):
            look(ledger, machine("s1", NOW - HOUR), now=NOW + timedelta(minutes=minute))
        assert count(ledger) == 3
        look(ledger, machine("s1", NOW - HOUR, owner="carol@x"), now=NOW + timedelta(minutes=21))
        assert count(ledger) == 4
        for _ in range(2):
            look(ledger, machine("s1", NOW - HOUR, owner="carol@x", ended=NOW + timedelta(minutes=22)), now=NOW + HOUR)
        assert count(ledger) == 5

    def test_its_price_is_that_of_the_first_look(self, ledger: Ledger) -> None:
        def dearer(machines: Sequence[Instance]) -> Mapping[InstanceRef, Decimal]:
            return {each.ref: Decimal(50) for each in machines}

        look(ledger, machine("s1", NOW - HOUR))
        again = look(ledger, machine("s1", NOW - HOUR), now=NOW + HOUR, prices=dearer)
        assert spent(again) == 4

    def test_one_without_a_price_makes_it_at_least(self, ledger: Ledger) -> None:
        closed(ledger, "a1", NOW - 9 * HOUR, 1, "5")
        unpriced = machine("s1", NOW - HOUR, kind="z9.huge")
        state = budget_state(look(ledger, unpriced), ALL)
        assert of(state.spent_usd, state.at_least) == of(5, True)
        priced = look(ledger, unpriced, prices=lambda machines: {machines[0].ref: Decimal(3)})
        assert spent(priced) == 8
        assert spent(look(ledger, asked=False)) == 8

    def test_prices_that_cannot_be_read_are_a_problem_and_not_the_end(self, ledger: Ledger) -> None:
        def broken(_: Sequence[Instance]) -> Mapping[InstanceRef, Decimal]:
            raise PriceNotFound("no prices")

        spending = look(ledger, machine("s1", NOW - HOUR), prices=broken)
        assert [problem.message for problem in spending.problems] == ["no prices"]
        assert budget_state(spending, ALL).at_least

    def test_a_stopped_one_is_not_billed_by_the_hour(self, ledger: Ledger) -> None:
        assert spent(look(ledger, machine("s1", NOW - 9 * HOUR, state=InstanceState.STOPPED))) == 0

    def test_a_foreign_machine_without_our_run_tag_is_none(self, ledger: Ledger) -> None:
        assert look(ledger, machine("", NOW - HOUR, instance_id="i-1")).live == []

    def test_once_a_run_accounts_for_it_it_is_not_counted_twice(self, ledger: Ledger) -> None:
        look(ledger, machine("s1", NOW - HOUR))
        opened(ledger, "s1", NOW - HOUR)
        assert spent(look(ledger, asked=False)) == 1
        assert spent(look(ledger, machine("s1", NOW - HOUR))) == 1

    def test_the_machine_of_a_closed_run_counts_from_its_end_on_if_it_lives(self, ledger: Ledger) -> None:
        closed(ledger, "s2", NOW - 5 * HOUR, 2, "2.00")
        ended = machine("s2", NOW - 5 * HOUR, ended=NOW - 3 * HOUR)
        assert spent(look(ledger, ended)) == 2
        alive = look(ledger, machine("s2", NOW - 5 * HOUR))
        assert spent(alive) == 2 + 3 * 2
        assert spent(look(ledger, asked=False)) == 8
        just = NOW - 3 * HOUR + timedelta(minutes=1)  # its end was confirmed a minute ago, and the list is behind
        with Ledger.open("sqlite://") as other:
            closed(other, "s2", NOW - 5 * HOUR, 2, "2.00")
            assert spent(look(other, machine("s2", NOW - 5 * HOUR), now=just)) == 2

    def test_another_machine_with_the_tag_of_a_closed_run_counts(self, ledger: Ledger) -> None:
        closed(ledger, "s3", NOW - 5 * HOUR, 2, "2.00")
        assert spent(look(ledger, machine("s3", NOW - HOUR, instance_id="i-other"))) == 4
        assert spent(look(ledger, asked=False)) == 4

    def test_they_commit_what_their_lease_leaves(self, ledger: Ledger) -> None:
        state = budget_state(look(ledger, machine("s1", NOW - HOUR, lease=timedelta(hours=3))), ALL)
        assert of(state.spent_usd, state.committed_usd, state.open_runs) == of(2, 4, 1)
        endless = budget_state(look(ledger, machine("s1", NOW - HOUR, lease=None)), DAY)
        assert endless.committed_usd == 24

    def test_a_thousand_of_them(self, ledger: Ledger) -> None:
        many = [machine(f"t{n:04}", NOW - HOUR) for n in range(1000)]
        assert spent(look(ledger, *many)) == 2000
        assert spent(look(ledger, *many, now=NOW + HOUR)) == 4000
        assert len(last_sightings(ledger, sightings_since(ledger))) == 1000

    def test_only_what_was_there_in_the_period_is_looked_at(self, ledger: Ledger) -> None:
        look(ledger, machine("old", NOW - 800 * HOUR), now=NOW - 700 * HOUR)
        assert len(sightings_since(ledger)) == 1
        assert sightings_since(ledger, NOW - 600 * HOUR) == ()


class TestWhatCannotBeAsked:
    def test_a_provider_a_region_and_one_without_credentials(self, ledger: Ledger) -> None:
        opened(ledger, "g1", NOW - HOUR, where=on("gcp"))
        regions = Answers(machine("s1", NOW - HOUR), unreachable=(("eu-west-1", "timed out"),))
        broken = Answers(name="azure")
        broken.error = Unreachable("no network")
        spending = gather(ledger, BUDGETS, cast("list[Provider]", [regions, broken]), NOW, prices)
        assert spending.not_asked == {
            "aws/eu-west-1": "timed out",
            "azure": "no network",
            "gcp": "no credentials here, and run g1 has a machine there",
        }
        state = budget_state(spending, ALL)
        assert of(state.spent_usd, state.at_least) == of(3, True)
        assert look(ledger, asked=False).not_asked == {}

    def test_what_concerns_another_provider_makes_no_lower_bound(self, ledger: Ledger) -> None:
        broken = Answers()
        broken.error = AuthError("expired")
        spending = look(ledger, provider=broken)
        gcp = next(budget for budget in MINE if budget.name == "gcp")
        assert not budget_state(spending, gcp).at_least
        assert budget_state(spending, ALL).at_least

    def test_an_open_run_in_a_region_that_does_not_answer_is_metered_until_now(self, ledger: Ledger) -> None:
        opened(ledger, "g2", NOW - 3 * HOUR)
        silent = Answers(unreachable=(("us-east-1", "timed out"),))
        assert spent(look(ledger, provider=silent)) == 3


class OneAccount(Answers):
    """A provider whose credentials are of one account, and which lists nobody else's machines."""

    def __init__(self, account: str, name: str) -> None:
        super().__init__(name=name)
        self.account: str | ProviderError = account
        self.asked = 0

    def identity(self) -> Identity:
        self.asked += 1
        if isinstance(self.account, ProviderError):
            raise self.account
        return Identity(provider=self.name, account=self.account, principal="me")


class TestOtherAccounts:
    """A machine that these credentials cannot see is not gone."""

    def test_a_run_of_another_account_stays_committed_until_its_lease_and_is_said(self, ledger: Ledger) -> None:
        for run in ("h1", "h2"):
            opened(ledger, run, NOW - 4 * HOUR, where=on("fake"))
        cloud = OneAccount("111", "fake")
        spending = look(ledger, provider=cloud)
        state = budget_state(spending, ALL)
        assert of(state.spent_usd, state.committed_usd, state.open_runs, state.at_least) == of(8, 32, 2, True)
        assert spending.not_asked == {"fake account 000000000000": "these credentials are of another account"}
        assert cloud.asked == 1
        assert budget_state(
            spending, Budget(name="f", amount_usd=Decimal(9), every=Every.TOTAL, provider="fake")
        ).at_least
        over = look(ledger, provider=cloud, now=NOW + 20 * HOUR)
        assert of(budget_state(over, ALL).committed_usd, len(over.not_asked)) == of(0, 0)
        own = look(ledger, provider=OneAccount("000000000000", "fake"))
        assert of(budget_state(own, ALL).committed_usd, len(own.not_asked)) == of(0, 0)

    def test_the_account_of_the_attempt_counts_and_one_that_does_not_say_is_not_asked(self, ledger: Ledger) -> None:
        opened(ledger, "h1", NOW - 4 * HOUR)
        change(ledger, "UPDATE events SET data = json_set(data, '$.account', '222') WHERE sequence = 1")
        cloud = OneAccount("111", "aws")
        assert list(look(ledger, provider=cloud).not_asked) == ["aws account 222"]
        cloud.account = AuthError("expired")
        spending = look(ledger, provider=cloud)
        assert spending.not_asked == {"aws": "expired"}
        assert budget_state(spending, ALL).committed_usd == 16


class TestTrouble:
    def test_an_open_run_that_makes_no_sense_does_not_hide_the_others(self, ledger: Ledger) -> None:
        closed(ledger, "a1", NOW - 9 * HOUR, 1, "5")
        opened(ledger, "b1", NOW - HOUR)
        ledger.append(RunEvent(run_id="bad", sequence=0, at=NOW, kind=EventKind.INTENDED, data={"name": "x"}))
        state = budget_state(spending := look(ledger, asked=False), ALL)
        assert of(state.spent_usd, state.at_least) == of(6, True)
        assert [p.message for p in spending.problems] == [
            "Run bad is open and is not counted: Event 0 (intended) of run bad cannot be read: spec: Field required."
        ]

    def test_a_damaged_event_does_not_hide_the_others(self, ledger: Ledger) -> None:
        opened(ledger, "b1", NOW - HOUR)
        opened(ledger, "b2", NOW - HOUR)
        change(ledger, "UPDATE events SET data = '{' WHERE run_id = 'b2' AND sequence = 3")
        state = budget_state(spending := look(ledger, asked=False), ALL)
        assert of(state.spent_usd, state.at_least) == of(1, True)
        assert "Run b2 is open and is not counted" in spending.problems[0].message
        seen_alive = look(ledger, machine("b2", NOW - HOUR))
        assert spent(seen_alive) == 3  # by its tag, at its price

    def test_a_ledger_that_cannot_be_written(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        closed(ledger, "a1", NOW - 9 * HOUR, 1, "5")

        def full(*_: object) -> None:
            raise LedgerDamaged("The disk is full")

        monkeypatch.setattr(Ledger, "write", full)
        spending = look(ledger, machine("s1", NOW - HOUR))
        state = budget_state(spending, ALL)
        assert of(state.spent_usd, state.at_least) == of(7, True)
        assert [problem.message for problem in spending.problems] == ["The disk is full"]

    @pytest.mark.parametrize("year", [1970, 2000, 2023, 2500, 9999])
    def test_a_clock_years_off_counts_until_the_last_entry_and_writes_nothing(self, ledger: Ledger, year: int) -> None:
        opened(ledger, "b0", NOW - 2 * HOUR)
        closed(ledger, "a1", NOW - 9 * HOUR, 9, "5")
        spending = look(ledger, machine("s1", NOW - HOUR), now=NOW.replace(year=year))
        assert spending.clock_off
        assert spending.at == NOW
        assert f"says {year}-11-21" in spending.problems[0].message
        assert spent(spending) == 5 + 2 + 2
        assert count(ledger) == 0

    def test_a_clock_years_off_and_an_empty_ledger(self, ledger: Ledger) -> None:
        for now in (datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)):
            spending = look(ledger, machine("s1", NOW - HOUR), now=now)
            assert spending.clock_off
            assert all(budget_state(spending, budget) for budget in EACH)

    def test_a_clock_a_few_hours_behind_is_none(self, ledger: Ledger) -> None:
        closed(ledger, "a1", NOW - 9 * HOUR, 9, "5")
        assert not look(ledger, now=NOW - 20 * HOUR).clock_off
        assert look(ledger, now=NOW - 25 * HOUR).clock_off


class TestPrices:
    def test_on_demand_and_spot_from_the_shipped_prices(self) -> None:
        usual, spot = machine("a", NOW), machine("b", NOW, spot=True)
        unknown = [
            machine("c", NOW, kind="z9.huge"),
            machine("d", NOW, region="mars-1"),
            machine("e", NOW, provider="fake"),
        ]
        free = machine("f", NOW, provider="local")
        found = shipped_prices([usual, spot, *unknown, free])
        assert set(found) == {usual.ref, spot.ref, free.ref}
        assert found[usual.ref] > found[spot.ref] > found[free.ref] == 0
        assert shipped_prices([free]) == {free.ref: 0}

    def test_refreshed_prices_count_where_there_are_some(self) -> None:
        one = machine("a", NOW)
        before = shipped_prices([one])[one.ref]
        price_store.store_prices(
            "aws",
            ["us-east-1"],
            NOW,
            lambda known: [replace(offer, price_usd_per_hour=offer.price_usd_per_hour * 3) for offer in known],
        )
        assert shipped_prices([one]) == {one.ref: before * 3}


def count(ledger: Ledger) -> int:
    query = text("SELECT count(*) FROM sightings")
    return ledger.read(lambda connection: int(connection.scalar(query) or 0), 0)


def change(ledger: Ledger, statement: str) -> None:
    """What costgpu itself never does, and its triggers forbid."""

    def write(connection: object) -> None:
        execute: Callable[[str], object] = connection.exec_driver_sql  # type: ignore[attr-defined]
        for verb in ("update", "delete"):
            execute(f"DROP TRIGGER IF EXISTS events_no_{verb}")
        execute(statement)

    ledger.write(write)

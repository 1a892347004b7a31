"""Budgets and alerts as rows: set once, told once, by one; and when whoever tells is killed, by another."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import IO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Executable, func, select

from costgpu.errors import BudgetError, LedgerDamaged, LedgerError
from costgpu.ledger import Ledger, schema
from costgpu.ledger.costs.periods import Every, Period, bounds
from costgpu.ledger.records.budget_rules import Budget, crossed
from costgpu.ledger.records.budget_store import (
    DeliveryAttempt,
    StoredBudget,
    alerts_of,
    all_budgets,
    claim_delivery,
    finish_delivery,
    newest_entry,
    remove_budget,
    set_budget,
)
from tests.job.examples import START, intent
from tests.properties import examples

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
NLP = Budget(
    name="team-nlp", amount_usd=Decimal(200), every=Every.MONTHLY, time_zone="Europe/Berlin", tags={"team": "nlp"}
)
NOVEMBER = bounds(Every.MONTHLY, "Europe/Berlin", NOW)
OCTOBER = bounds(Every.MONTHLY, "Europe/Berlin", NOW - timedelta(days=30))
MINUTE = timedelta(minutes=1)
CHECK = """
import sys
from datetime import datetime
from decimal import Decimal
from costgpu.ledger import Ledger
from costgpu.ledger.costs.periods import bounds
from costgpu.ledger.records.budget_rules import crossed
from costgpu.ledger.records.budget_store import all_budgets, finish_delivery, claim_delivery
now, how = datetime.fromisoformat(sys.argv[2]), sys.argv[3]
with Ledger.open(sys.argv[1]) as ledger:
    stored, = all_budgets(ledger)
    period = bounds(stored.budget.every, stored.budget.time_zone, now)
    print("ready", flush=True)
    sys.stdin.readline()
    turn = claim_delivery(ledger, stored, period, crossed(stored.budget, Decimal(170)), Decimal(170), now)
    print("taken", len(turn.alerts), len(turn.new), flush=True)
    if how == "hang":
        sys.stdin.readline()
    finish_delivery(ledger, turn.alerts, now, delivered=True, detail="mail")
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.sqlite'}"


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with Ledger.open(url) as found:
        yield found


def the_one(ledger: Ledger) -> StoredBudget:
    (stored,) = all_budgets(ledger)
    return stored


def turn_of(ledger: Ledger, spent: str, now: datetime = NOW, period: Period = NOVEMBER) -> DeliveryAttempt:
    stored, usd = the_one(ledger), Decimal(spent)
    return claim_delivery(ledger, stored, period, crossed(stored.budget, usd), usd, now)


def rows(ledger: Ledger, table: str) -> int:
    query = select(func.count()).select_from(schema.metadata.tables[table])
    return ledger.read(lambda connection: connection.scalar(query) or 0, 0)


def plant(ledger: Ledger, statement: Executable) -> None:
    ledger.write(lambda connection: connection.execute(statement))


def marks(turn: DeliveryAttempt) -> list[int]:
    return [alert.threshold for alert in turn.alerts]


class TestSet:
    def test_what_is_set_is_there(self, ledger: Ledger) -> None:
        assert all_budgets(ledger) == ()
        assert set_budget(ledger, NLP, NOW)
        stored = the_one(ledger)
        assert (stored.budget, stored.numbers) == (NLP, (stored.number,))

    def test_the_same_again_is_no_row_and_another_one_needs_replace(self, ledger: Ledger) -> None:
        set_budget(ledger, NLP, NOW)
        assert not set_budget(ledger, NLP, NOW + MINUTE)
        assert not set_budget(ledger, replace(NLP, amount_usd=Decimal("200.00")), NOW + MINUTE, replace=True)
        more = replace(NLP, amount_usd=Decimal(300))
        with pytest.raises(BudgetError, match="says something else") as found:
            set_budget(ledger, more, NOW)
        assert "--replace" in found.value.hint
        assert rows(ledger, "budgets") == 1
        assert set_budget(ledger, more, NOW, replace=True)
        assert the_one(ledger).budget == more
        assert rows(ledger, "budgets") == 2

    def test_names_that_differ_only_by_case_are_refused(self, ledger: Ledger) -> None:
        set_budget(ledger, NLP, NOW)
        for again in (False, True):
            with pytest.raises(BudgetError, match="differ only by case"):
                set_budget(ledger, replace(NLP, name="Team-NLP"), NOW, replace=again)
        remove_budget(ledger, "team-nlp", NOW)
        assert set_budget(ledger, replace(NLP, name="Team-NLP"), NOW)

    def test_removed_and_unknown(self, ledger: Ledger) -> None:
        with pytest.raises(BudgetError, match="no budget 'x'") as found:
            remove_budget(ledger, "x", NOW)
        assert "costgpu budget set" in found.value.hint
        set_budget(ledger, NLP, NOW)
        with pytest.raises(BudgetError) as found:
            remove_budget(ledger, "team-nlq", NOW)
        assert "team-nlp" in found.value.hint
        remove_budget(ledger, "team-nlp", NOW)
        assert all_budgets(ledger) == ()
        assert set_budget(ledger, NLP, NOW)

    def test_many_at_once_set_one(self, url: str) -> None:
        def one(amount: int) -> bool:
            with Ledger.open(url) as mine:
                try:
                    return set_budget(mine, replace(NLP, amount_usd=Decimal(amount)), NOW)
                except BudgetError:
                    return False

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(one, range(1, 9))) == 1

    @pytest.mark.parametrize(
        "data", ["[]", "{", '{"name": "team-nlp"}', '{"name":"a","amount_usd":"x","every":"daily"}']
    )
    def test_a_damaged_one_is_named(self, ledger: Ledger, data: str) -> None:
        row = {"at_us": 0, "name": "team-nlp", "data": data, "writer": "0"}
        plant(ledger, schema.budgets.insert().values(row))
        with pytest.raises(LedgerDamaged, match="budget team-nlp cannot be read"):
            all_budgets(ledger)


class TestAlerts:
    @pytest.fixture(autouse=True)
    def one_budget(self, ledger: Ledger) -> None:
        set_budget(ledger, NLP, NOW)

    def test_several_thresholds_at_once_are_one_turn_with_all_rows(self, ledger: Ledger) -> None:
        assert turn_of(ledger, "99") == DeliveryAttempt()
        turn = turn_of(ledger, "170")
        assert marks(turn) == [50, 80]
        assert turn.new == turn.alerts
        finish_delivery(ledger, turn.alerts, NOW, delivered=True, detail="mail, Slack")
        assert turn_of(ledger, "170", NOW + MINUTE) == DeliveryAttempt()
        found = alerts_of(ledger, the_one(ledger), NOVEMBER)
        assert [(a.threshold, a.delivered, a.told_at, a.attempts, a.detail) for a in found] == [
            (50, True, NOW, 1, "mail, Slack"),
            (80, True, NOW, 1, "mail, Slack"),
        ]
        assert marks(turn_of(ledger, "201", NOW + MINUTE)) == [100]
        assert marks(turn_of(ledger, "170", NOW - timedelta(days=30), OCTOBER)) == [50, 80]

    def test_nothing_is_written_where_nothing_is_to_be_said(
        self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        finish_delivery(ledger, turn_of(ledger, "170").alerts, NOW, delivered=True, detail="mail")
        monkeypatch.setattr(Ledger, "write", lambda *_: pytest.fail("it writes"))
        assert turn_of(ledger, "170") == DeliveryAttempt()
        assert turn_of(ledger, "20") == DeliveryAttempt()

    def test_what_failed_is_tried_again_at_once_and_visible(self, ledger: Ledger) -> None:
        for attempt in (1, 2, 3):
            turn = turn_of(ledger, "101", NOW + attempt * MINUTE)
            assert marks(turn) == [50]
            assert len(turn.new) == (attempt == 1)
            finish_delivery(ledger, turn.alerts, NOW, delivered=attempt == 3, detail=f"try {attempt}")
            (alert,) = alerts_of(ledger, the_one(ledger), NOVEMBER)
            assert (alert.attempts, alert.delivered, alert.detail) == (attempt, attempt == 3, f"try {attempt}")
            assert alert.last_attempt_at == NOW + attempt * MINUTE
        assert turn_of(ledger, "101", NOW + timedelta(hours=1)) == DeliveryAttempt()

    def test_an_attempt_without_a_result_is_somebody_elses_for_10_minutes(self, ledger: Ledger) -> None:
        assert marks(turn_of(ledger, "101")) == [50]
        (alert,) = alerts_of(ledger, the_one(ledger), NOVEMBER)
        assert (alert.delivered, alert.attempts) == (None, 1)
        assert turn_of(ledger, "101", NOW + 9 * MINUTE) == DeliveryAttempt()
        assert marks(turn_of(ledger, "161", NOW + 9 * MINUTE)) == [80]  # that one is nobody's yet
        again = turn_of(ledger, "161", NOW + 10 * MINUTE)
        assert (marks(again), again.new) == ([50], ())
        finish_delivery(ledger, again.alerts, NOW + 10 * MINUTE, delivered=True, detail="mail")
        assert marks(turn_of(ledger, "161", NOW + 30 * MINUTE)) == [80]

    def test_a_failed_result_of_the_one_before_does_not_free_the_one_after(self, ledger: Ledger) -> None:
        first = turn_of(ledger, "101")
        second = turn_of(ledger, "101", NOW + 11 * MINUTE)  # the first one was taken for dead, and was only slow
        finish_delivery(ledger, first.alerts, NOW + 12 * MINUTE, delivered=False, detail="late")
        assert turn_of(ledger, "101", NOW + 12 * MINUTE) == DeliveryAttempt()
        finish_delivery(ledger, second.alerts, NOW + 13 * MINUTE, delivered=True, detail="mail")
        assert turn_of(ledger, "101", NOW + 60 * MINUTE) == DeliveryAttempt()

    def test_what_could_not_be_told_last_month_is_told_now_for_a_week(self, ledger: Ledger) -> None:
        end = OCTOBER.end
        assert end is not None
        before, after = end - MINUTE, end + MINUTE
        failed = turn_of(ledger, "170", before, OCTOBER)
        finish_delivery(ledger, failed.alerts, before, delivered=False, detail="no network")
        turn = turn_of(ledger, "1", after)
        assert ([a.period_start for a in turn.alerts], marks(turn), turn.new) == ([OCTOBER.start] * 2, [50, 80], ())
        finish_delivery(ledger, turn.alerts, after, delivered=False, detail="no network")
        assert turn_of(ledger, "1", end + timedelta(days=8)) == DeliveryAttempt()

    def test_replacing_only_the_thresholds_repeats_nothing(self, ledger: Ledger) -> None:
        finish_delivery(ledger, turn_of(ledger, "170").alerts, NOW, delivered=True, detail="mail")
        set_budget(ledger, replace(NLP, thresholds=(50, 75, 80, 100), enforce=True), NOW, replace=True)
        assert marks(turn_of(ledger, "170")) == [75]
        set_budget(ledger, replace(NLP, amount_usd=Decimal(180)), NOW, replace=True)
        assert marks(turn_of(ledger, "170")) == [50, 80]  # of another amount it is news

    def test_removed_and_made_again_it_tells_again(self, ledger: Ledger) -> None:
        finish_delivery(ledger, turn_of(ledger, "170").alerts, NOW, delivered=True, detail="mail")
        remove_budget(ledger, "team-nlp", NOW)
        set_budget(ledger, NLP, NOW)
        assert marks(turn_of(ledger, "170")) == [50, 80]

    def test_a_total_has_one_period(self, ledger: Ledger) -> None:
        remove_budget(ledger, "team-nlp", NOW)
        set_budget(ledger, replace(NLP, every=Every.TOTAL), NOW)
        finish_delivery(ledger, turn_of(ledger, "170", NOW, Period()).alerts, NOW, delivered=True, detail="mail")
        assert turn_of(ledger, "170", NOW + timedelta(days=400), Period()) == DeliveryAttempt()
        assert [a.threshold for a in alerts_of(ledger, the_one(ledger), Period())] == [50, 80]

    def test_a_result_that_cannot_be_written_is_an_error_and_is_told_once_more(self, ledger: Ledger) -> None:
        turn = turn_of(ledger, "101")
        finish_delivery(ledger, turn.alerts, NOW, delivered=True, detail="mail")
        with pytest.raises(LedgerError, match="result of an alert"):
            finish_delivery(ledger, turn.alerts, NOW, delivered=True, detail="mail")


# Not in a class: those run once more on PostgreSQL, and Hypothesis wants one instance per test.
@examples(25)
@given(st.lists(st.tuples(st.integers(-3000, 3000), st.integers(-20, 60)), min_size=1, max_size=12))
def test_a_clock_that_goes_back_repeats_and_unsends_nothing(checks: list[tuple[int, int]]) -> None:
    told: list[tuple[datetime, int]] = []
    now, spent = NOW, 90
    with Ledger.open("sqlite://") as ledger:
        set_budget(ledger, NLP, NOW)
        for minutes, more in checks:
            now, spent = now + minutes * MINUTE, max(0, spent + more)  # a figure may also become smaller
            period = bounds(Every.MONTHLY, "Europe/Berlin", now)
            turn = turn_of(ledger, str(spent), now, period)
            assert turn.new == turn.alerts
            told += [(alert.period_start, alert.threshold) for alert in turn.new]
            finish_delivery(ledger, turn.alerts, now, delivered=True, detail="mail")
            known = {alert.threshold for alert in alerts_of(ledger, the_one(ledger), period)}
            assert known == {threshold for start, threshold in told if start == period.start}
    assert len(told) == len(set(told))


class TestAtOnce:
    @pytest.fixture(autouse=True)
    def one_budget(self, url: str) -> None:
        with Ledger.open(url) as ledger:
            set_budget(ledger, NLP, NOW)

    def test_of_8_threads_exactly_one_tells(self, url: str) -> None:
        def one(_: int) -> int:
            with Ledger.open(url) as mine:
                return len(turn_of(mine, "201").alerts)

        with ThreadPoolExecutor(8) as pool:
            assert sorted(pool.map(one, range(8))) == [0] * 7 + [3]

    @pytest.mark.slow
    def test_one_that_is_killed_between_claim_and_result_is_followed_after_10_minutes(self, url: str) -> None:
        first = check(url, NOW, "hang")
        assert go(first).readline() == "taken 2 2\n"
        first.kill()
        first.communicate(timeout=20)
        for after, said in ((9, "taken 0 0\n"), (11, "taken 2 0\n")):
            next_one = check(url, NOW + after * MINUTE, "finish")
            go(next_one)
            assert next_one.communicate(timeout=20)[0] == said
        with Ledger.open(url) as ledger:
            found = alerts_of(ledger, the_one(ledger), NOVEMBER)
            assert [(a.threshold, a.attempts, a.delivered) for a in found] == [(50, 2, True), (80, 2, True)]


def check(url: str, now: datetime, how: str) -> subprocess.Popen[str]:
    """A check in a process of its own, that waits for the word."""
    return subprocess.Popen(
        [sys.executable, "-c", CHECK, url, now.isoformat(), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def go(process: subprocess.Popen[str]) -> IO[str]:
    """Gives the word to a check that is ready; where it says what it does then."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("go\n")
    process.stdin.flush()
    return process.stdout


class TestNewest:
    def test_the_last_event_else_the_last_budget(self, ledger: Ledger) -> None:
        assert newest_entry(ledger) is None
        set_budget(ledger, NLP, NOW)
        assert newest_entry(ledger) == NOW
        ledger.append(intent("abcd"))
        assert newest_entry(ledger) == START

    def test_a_time_that_cannot_be_one_is_none(self, ledger: Ledger) -> None:
        set_budget(ledger, NLP, NOW)
        plant(ledger, schema.budgets.insert().values(at_us=9 * 10**18, name="x", writer="0"))
        assert newest_entry(ledger) is None

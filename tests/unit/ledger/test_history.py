"""Periods, sums and pages over closed runs, against sums made by hand."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costgpu.ledger import Ledger
from costgpu.ledger.costs.charges import RunFilter, spent
from costgpu.ledger.costs.closed_runs import closed_runs
from costgpu.ledger.costs.periods import Calendar, Every, Period, bounds, share
from costgpu.ledger.costs.totals import By, totals
from costgpu.ledger.schema import from_microseconds, to_microseconds
from tests.properties import examples
from tests.unit.ledger.closed import Closed, plant

START = datetime(2026, 10, 30, tzinfo=UTC)
SPAN = timedelta(days=5)
MICROSECOND = timedelta(microseconds=1)


@contextmanager
def ledger_of(*runs: Closed) -> Iterator[Ledger]:
    with Ledger.open("sqlite://") as ledger:
        plant(ledger, runs)
        yield ledger


@pytest.fixture(scope="module")
def shared() -> Iterator[Ledger]:
    """One ledger for all examples: making one takes longer than asking it. Each has its runs by a tag."""
    with Ledger.open("sqlite://") as ledger:
        yield ledger


def planted(ledger: Ledger, runs: list[Closed]) -> tuple[list[Closed], RunFilter]:
    mine = {"example": str(next(EXAMPLES))}
    tagged = [replace(run, tags={**run.tags, **mine}) for run in runs]
    plant(ledger, tagged)
    return tagged, RunFilter(tags=mine)


EXAMPLES = itertools.count()
MOMENTS = st.timedeltas(timedelta(), SPAN).map(lambda after: START + after)
RUNS = st.lists(
    st.builds(
        Closed,
        started=MOMENTS,
        seconds=st.one_of(st.just(0.0), st.integers(1, 400_000).map(lambda n: n / 10)),
        cost=st.decimals(0, 500, places=6),
        owner=st.sampled_from(["ann@laptop", "ann@desk", "bob@desk", "Ann"]),
        provider=st.sampled_from(["aws", "local"]),
        reason=st.sampled_from(["succeeded", "job_failed", "idle"]),
        name=st.sampled_from(["train", "eval"]),
        tags=st.sampled_from([{}, {"team": "nlp"}, {"team": "vision", "paper": "1"}]),
    ),
    max_size=10,
)


def by_hand(run: Closed, low: datetime | None, high: datetime | None) -> Fraction:
    """A run's share of a period, unrounded, in US dollars."""
    began, ended = run.started, run.started + timedelta(seconds=run.seconds)
    cost = Fraction(run.cost)
    if began == ended:
        return cost if (low is None or low <= began) and (high is None or began < high) else Fraction(0)
    inside = min(ended, high or ended) - max(began, low or began)
    return cost * Fraction(max(0, inside // MICROSECOND), (ended - began) // MICROSECOND)


@settings(deadline=None)
@given(RUNS, st.none() | MOMENTS, st.none() | MOMENTS)
def test_spent_is_the_sum_by_hand(
    shared: Ledger, runs: list[Closed], one: datetime | None, other: datetime | None
) -> None:
    low, high = (min(one, other), max(one, other)) if one and other else (one, other)
    runs, mine = planted(shared, runs)
    for more in (mine, replace(mine, owner="ann"), replace(mine, provider="aws", tags={**mine.tags, "team": "nlp"})):
        meant = [
            run for run in runs if more.includes(provider=run.provider, owner=run.owner, name=run.name, tags=run.tags)
        ]
        exact = sum((by_hand(run, low, high) for run in meant), Fraction(0))
        assert abs(Fraction(spent(shared, more, low, high)) - exact) <= Fraction(len(meant), 10**9)


@given(
    st.integers(0, 10**18),
    st.integers(-(10**15), 10**15),
    st.integers(0, 10**13),
    st.lists(st.integers(-(10**15), 10**16)),
)
def test_shares_add_up_exactly(amount: int, began: int, length: int, cuts: list[int]) -> None:
    ends: list[int | None] = [None, *sorted(cuts), None]
    parts = [share(amount, began, began + length, low, high) for low, high in pairwise(ends)]
    assert sum(parts) == amount
    assert all(0 <= part <= amount for part in parts)


@settings(deadline=None)
@given(
    st.sampled_from([Every.DAILY, Every.WEEKLY, Every.MONTHLY, Every.TOTAL]),
    st.sampled_from(["UTC", "America/St_Johns", "Pacific/Apia", "Australia/Lord_Howe"]),
    st.lists(
        st.tuples(st.integers(0, 10**12), MOMENTS, st.timedeltas(timedelta(), timedelta(days=90))),
        min_size=1,
        max_size=4,
    ),
    st.none() | MOMENTS,
    st.none() | MOMENTS,
)
def test_the_parts_of_a_calendar_are_the_whole_and_each_is_in_its_period(
    every: Every,
    zone: str,
    amounts: list[tuple[int, datetime, timedelta]],
    one: datetime | None,
    other: datetime | None,
) -> None:
    since, until = (min(one, other), max(one, other)) if one and other else (one, other)
    calendar = Calendar(every, zone, since, until)
    low, high = Period(start=since, end=until).low, Period(start=since, end=until).high
    for amount, began, long in amounts:
        first, last = to_microseconds(began), to_microseconds(began + long)
        parts = list(calendar.split(amount, first, last))
        assert sum(part.amount for part in parts) == share(amount, first, last, low, high)
        for part in parts:
            assert part.start <= part.began <= part.ended <= part.end
            if every is not Every.TOTAL:
                period = bounds(every, zone, from_microseconds(part.start))
                assert (period.low, period.high) == (part.start, part.end)
        for earlier, later in pairwise(parts):
            assert earlier.ended == earlier.end == later.start == later.began


@examples(50)
@given(RUNS, st.none() | MOMENTS, st.none() | MOMENTS, st.sampled_from(By))
def test_totals_add_up_to_what_was_spent(
    shared: Ledger, runs: list[Closed], one: datetime | None, other: datetime | None, by: By
) -> None:
    low, high = (min(one, other), max(one, other)) if one and other else (one, other)
    runs, mine = planted(shared, runs)
    found = totals(shared, mine, by, tag="team", since=low, until=high)
    assert sum((total.cost_usd for total in found), Decimal(0)) == spent(shared, mine, low, high)
    assert sum(total.runs for total in found) == len(list(closed_runs(shared, mine, since=low, until=high)))
    wasted = sum((by_hand(run, low, high) for run in runs if run.reason != "succeeded"), Fraction(0))
    assert abs(Fraction(sum(total.wasted_usd for total in found)) - wasted) <= Fraction(len(runs), 10**9)
    used = sum(by_hand(replace(run, cost=Decimal(str(run.seconds))), low, high) for run in runs)
    assert sum(total.machine_seconds for total in found) == pytest.approx(float(used), abs=1e-3)


@examples(50)
@given(RUNS, st.sampled_from([By.DAY, By.MONTH]))
def test_a_day_costs_what_was_spent_in_it(shared: Ledger, runs: list[Closed], by: By) -> None:
    _, mine = planted(shared, runs)
    for total in totals(shared, mine, by):
        first = datetime.fromisoformat(total.key if by is By.DAY else f"{total.key}-01").replace(tzinfo=UTC)
        after = first + timedelta(days=1) if by is By.DAY else (first + timedelta(days=31)).replace(day=1)
        assert total.cost_usd == spent(shared, mine, first, after)


def test_pages_in_both_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("costgpu.ledger.costs.charges.AT_ONCE", 3)
    runs = [Closed(started=START + timedelta(hours=n), name=f"n{n}") for n in range(10)]
    with ledger_of(*runs) as ledger:
        names = [run.name for run in closed_runs(ledger, RunFilter())]
        assert names == [f"n{n}" for n in range(10)]
        newest = [run.name for run in closed_runs(ledger, RunFilter(), newest_first=True, limit=7)]
        assert newest == names[::-1][:7]
        assert list(closed_runs(ledger, RunFilter(), limit=0)) == []
        later = closed_runs(ledger, RunFilter(), since=START + timedelta(hours=8), newest_first=True)
        assert [run.name for run in later] == ["n9", "n8"]


def test_a_run_that_ends_in_the_year_9999_is_damaged() -> None:
    far = Closed(started=START, seconds=(datetime(9999, 12, 31, 12, tzinfo=UTC) - START).total_seconds())
    with ledger_of(Closed(started=START), far) as ledger:
        for by in (By.MONTH, By.DAY):
            assert [(total.runs, total.cost_usd) for total in totals(ledger, RunFilter(), by)] == [(1, Decimal(1))]
        assert len(ledger.damage) == 1

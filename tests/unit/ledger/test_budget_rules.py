"""The pure rules of budgets: periods in every odd time zone, thresholds, forecast, and what people write."""

import contextlib
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from costgpu.errors import UsageError
from costgpu.ledger.costs.periods import Every, Period, bounds
from costgpu.ledger.records.budget_rules import (
    Budget,
    BudgetState,
    clock_is_off,
    crossed,
    forecast,
    parse_amount,
    parse_name,
    parse_thresholds,
    parse_zone,
)

ODD = (
    "Europe/Berlin",
    "America/Sao_Paulo",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Asia/Kathmandu",
    "America/St_Johns",
    "Pacific/Apia",
    "America/Havana",
    "Asia/Gaza",
    "Antarctica/Troll",
    "America/Toronto",
    "Africa/Monrovia",
    "Pacific/Kwajalein",
    "UTC",
)
PERIODS = (Every.DAILY, Every.WEEKLY, Every.MONTHLY)
instants = st.integers(-20 * 365 * 86400, 90 * 365 * 86400).map(
    lambda s: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=s)
)
zones = st.sampled_from(ODD)
amounts = st.decimals("0.01", "10000000", places=2)
spends = st.decimals("0", "20000000", places=6)


def at(text: str, zone: str = "UTC") -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)


def budget(amount: str = "200", *thresholds: int, every: Every = Every.MONTHLY) -> Budget:
    return Budget(name="b", amount_usd=Decimal(amount), every=every, thresholds=thresholds or (50, 80, 100))


def ends(period: Period) -> tuple[datetime, datetime]:
    assert period.start is not None
    assert period.end is not None
    return period.start, period.end


class TestPeriods:
    @given(st.sampled_from(PERIODS), zones, instants)
    @example(Every.DAILY, "America/St_Johns", datetime(2010, 11, 7, 2, 45, tzinfo=UTC))  # midnight twice
    @example(Every.DAILY, "Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC))  # the day that never was
    @example(Every.WEEKLY, "Pacific/Apia", datetime(2011, 12, 31, 9, tzinfo=UTC))
    def test_every_instant_is_in_exactly_one_and_they_tile(self, every: Every, zone: str, now: datetime) -> None:
        start, end = ends(period := bounds(every, zone, now))
        assert start <= now < end
        assert bounds(every, zone, start) == period  # so no other one has any instant of it
        assert bounds(every, zone, end - timedelta(microseconds=1)) == period
        assert bounds(every, zone, end).start == end
        assert bounds(every, zone, start - timedelta(microseconds=1)).end == start
        there = start.astimezone(ZoneInfo(zone))
        assert every is not Every.WEEKLY or there.weekday() == 0
        assert every is not Every.MONTHLY or there.day == 1

    @given(zones, instants)
    def test_a_day_is_in_one_week_and_one_month(self, zone: str, now: datetime) -> None:
        day_start, day_end = ends(bounds(Every.DAILY, zone, now))
        for longer in (Every.WEEKLY, Every.MONTHLY):
            start, end = ends(bounds(longer, zone, now))
            assert start <= day_start < day_end <= end

    @pytest.mark.parametrize(
        ("zone", "now", "start", "end"),
        [
            ("Europe/Berlin", "2026-03-29T12:00+00:00", "2026-03-28T23:00+00:00", "2026-03-29T22:00+00:00"),  # 23 h
            ("Europe/Berlin", "2026-10-25T12:00+00:00", "2026-10-24T22:00+00:00", "2026-10-25T23:00+00:00"),  # 25 h
            # Midnight does not exist: the day begins at 01:00.
            ("America/Sao_Paulo", "2017-10-15T12:00+00:00", "2017-10-15T03:00+00:00", "2017-10-16T02:00+00:00"),
            # At 00:01 it was 23:01 again: the day begins at the first midnight.
            ("America/St_Johns", "2010-11-07T02:45+00:00", "2010-11-07T02:30+00:00", "2010-11-08T03:30+00:00"),
            # December 30 never was: the 29th ends where the 31st begins.
            ("Pacific/Apia", "2011-12-30T09:59+00:00", "2011-12-29T10:00+00:00", "2011-12-30T10:00+00:00"),
            ("Pacific/Apia", "2011-12-30T10:00+00:00", "2011-12-30T10:00+00:00", "2011-12-31T10:00+00:00"),
            ("Australia/Lord_Howe", "2026-04-05T00:00+00:00", "2026-04-04T13:00+00:00", "2026-04-05T13:30+00:00"),
            ("Asia/Kathmandu", "2026-11-21T18:14+00:00", "2026-11-20T18:15+00:00", "2026-11-21T18:15+00:00"),
        ],
    )
    def test_days_that_are_not_24_hours(self, zone: str, now: str, start: str, end: str) -> None:
        period = bounds(Every.DAILY, zone, datetime.fromisoformat(now))
        assert period == Period(start=datetime.fromisoformat(start), end=datetime.fromisoformat(end))

    @pytest.mark.parametrize(
        ("every", "now", "start", "end"),
        [
            (Every.MONTHLY, "2026-01-31T23:59:59", "2026-01-01", "2026-02-01"),
            (Every.MONTHLY, "2026-02-28T12:00", "2026-02-01", "2026-03-01"),
            (Every.MONTHLY, "2028-02-29T12:00", "2028-02-01", "2028-03-01"),
            (Every.MONTHLY, "2026-12-31T23:59", "2026-12-01", "2027-01-01"),
            (Every.WEEKLY, "2026-11-22T23:59", "2026-11-16", "2026-11-23"),  # a Sunday
            (Every.WEEKLY, "2027-01-01T00:00", "2026-12-28", "2027-01-04"),
            (Every.DAILY, "2026-11-21T00:00", "2026-11-21", "2026-11-22"),
        ],
    )
    def test_ends_of_months_weeks_and_years(self, every: Every, now: str, start: str, end: str) -> None:
        assert bounds(every, "Europe/Berlin", at(now, "Europe/Berlin")) == Period(
            start=at(start, "Europe/Berlin"), end=at(end, "Europe/Berlin")
        )

    @pytest.mark.parametrize("year", [1, 1899, 9001, 9999])
    @pytest.mark.parametrize("every", PERIODS)
    def test_a_clock_that_is_thousands_of_years_off_is_no_crash(self, year: int, every: Every) -> None:
        for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago"):
            for day in (date(year, 1, 1), date(year, 12, 31)):
                start, end = ends(bounds(every, zone, datetime(year, day.month, day.day, 23, tzinfo=UTC)))
                assert start < end

    def test_a_total_never_begins_anew(self) -> None:
        assert bounds(Every.TOTAL, "Europe/Berlin", at("2026-11-21")) == Period()


class TestThresholds:
    @given(amounts, spends, spends, st.sets(st.integers(1, 1000), min_size=1, max_size=9))
    def test_more_spent_never_crosses_fewer(self, amount: Decimal, a: Decimal, b: Decimal, marks: set[int]) -> None:
        rule = budget(str(amount), *sorted(marks | {100}))
        less, more = sorted((a, b))
        assert set(crossed(rule, less)) <= set(crossed(rule, more))

    @given(amounts, spends)
    def test_what_is_shown_is_what_is_told(self, amount: Decimal, spent: Decimal) -> None:
        state = BudgetState(budget=budget(str(amount), *range(1, 1001)), period=Period(), spent_usd=spent)
        assert state.crossed == tuple(range(1, min(state.percent, 1000) + 1))
        assert state.exceeded == (100 in state.crossed) == (state.left_usd == 0)

    def test_exactly_at_and_just_below(self) -> None:
        assert crossed(budget("200"), Decimal("159.999999999")) == (50,)
        assert crossed(budget("200"), Decimal(160)) == (50, 80)
        assert crossed(budget("200"), Decimal("199.999999999")) == (50, 80)
        assert BudgetState(budget=budget("200"), period=Period(), spent_usd=Decimal("199.999")).percent == 99


class TestForecast:
    MONTH = Period(start=at("2026-11-01"), end=at("2026-12-01"))

    def test_it_goes_on_as_until_now(self) -> None:
        assert forecast(self.MONTH, at("2026-11-11"), Decimal(80), Decimal(0)) == Decimal(240)

    def test_machines_that_are_there_count_at_least(self) -> None:
        assert forecast(self.MONTH, at("2026-11-30"), Decimal(58), Decimal(30)) == Decimal(88)

    @pytest.mark.parametrize(
        ("period", "early", "late"),
        [
            (MONTH, "2026-11-01T23:59", "2026-11-02T00:00"),  # a day
            (Period(start=at("2026-11-16"), end=at("2026-11-23")), "2026-11-16T08:23", "2026-11-16T08:24"),  # 5 %
            (Period(start=at("2026-11-21"), end=at("2026-11-22")), "2026-11-21T01:11", "2026-11-21T01:12"),
        ],
    )
    def test_too_early_to_say(self, period: Period, early: str, late: str) -> None:
        assert forecast(period, at(early), Decimal(1), Decimal(0)) is None
        assert forecast(period, at(late), Decimal(1), Decimal(0)) is not None

    def test_without_an_end_there_is_none(self) -> None:
        assert forecast(Period(), at("2026-11-21"), Decimal(1), Decimal(0)) is None

    @given(instants, spends, spends)
    def test_never_below_what_is_spent_and_coming(self, now: datetime, spent: Decimal, coming: Decimal) -> None:
        found = forecast(bounds(Every.MONTHLY, "Europe/Berlin", now), now, spent, coming)
        assert found is None or found >= spent + coming


@pytest.mark.parametrize(
    ("now", "newest", "off"),
    [
        ("2026-11-21", None, False),
        ("2026-11-21", "2026-11-21T23:00", False),
        ("2026-11-21", "2026-11-22T00:01", True),
        ("1970-01-01", None, True),
        ("2023-12-31", None, True),
        ("2200-01-01", "2026-11-21", True),
        ("2099-01-01", "2026-11-21", False),
    ],
)
def test_a_clock_that_cannot_be_right(now: str, newest: str | None, off: bool) -> None:
    assert clock_is_off(at(now), at(newest) if newest else None) is off


class TestWhatPeopleWrite:
    @pytest.mark.parametrize(
        ("text", "amount"),
        [
            ("200", "200"),
            ("$200", "200"),
            (" 99.50 ", "99.50"),
            ("200 USD", "200"),
            ("usd 200", "200"),
            ("1e3", "1000"),
            ("0.01", "0.01"),
            ("10000000", "10000000"),
        ],
    )
    def test_amounts(self, text: str, amount: str) -> None:
        assert str(parse_amount(text)) == amount

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("-5", "cannot be negative"),
            ("$-5", "cannot be negative"),
            ("-inf", "cannot be negative"),
            ("0", "not a positive amount"),
            ("", "not a positive amount"),
            ("nan", "not a positive"),
            ("inf", "not a positive"),
            ("1,000", "not a positive"),
            ("lots", "not a positive"),
            ("0.009", "less than a cent"),
            ("200 EUR", "no other currency"),
            ("€200", "no other currency"),
            ("200€", "no other currency"),
            ("£5", "no other currency"),
            ("chf 20", "no other currency"),
            ("20eur", "no other currency"),
            ("-5 EUR", "no other currency"),
        ],
    )
    def test_amounts_that_are_none(self, text: str, words: str) -> None:
        with pytest.raises(UsageError, match=words) as found:
            parse_amount(text)
        assert found.value.hint

    @given(st.text(max_size=12))
    def test_any_text_is_an_amount_or_an_error(self, text: str) -> None:
        with contextlib.suppress(UsageError):
            assert Decimal("0.01") <= parse_amount(text)

    @pytest.mark.parametrize(
        ("text", "marks"),
        [
            ("50,80,100", (50, 80, 100)),
            ("80", (80, 100)),
            ("100,50,50", (50, 100)),
            ("50%, 90 %", (50, 90, 100)),
            ("1,1000", (1, 100, 1000)),
        ],
    )
    def test_thresholds(self, text: str, marks: tuple[int, ...]) -> None:
        assert parse_thresholds(text) == marks

    @pytest.mark.parametrize("text", ["", "0", "1001", "-5", "50,,80", "half", "50.5", "٥٠", "50;80", "99999"])
    def test_thresholds_that_are_none(self, text: str) -> None:
        with pytest.raises(UsageError, match="whole number of percent from 1 to 1000"):
            parse_thresholds(text)

    def test_too_many_thresholds(self) -> None:
        with pytest.raises(UsageError, match="too many"):
            parse_thresholds(",".join(map(str, range(1, 60))))

    @pytest.mark.parametrize(
        ("text", "near"),
        [
            ("Europe/Berln", "Europe/Berlin"),
            ("europe/berlin", "Europe/Berlin"),
            ("Berlin", "Europe/Berlin"),
            ("new york", "America/New_York"),
            ("right/Europe/Berlin", "Europe/Berlin"),
            ("Mars/Olympus", "Europe/Berlin"),
            ("", "Europe/Berlin"),
            ("../../etc/passwd", "UTC"),
            ("/etc/localtime", "UTC"),
            ("a\0b", "UTC"),
        ],
    )
    def test_time_zones_that_are_none(self, text: str, near: str) -> None:
        with pytest.raises(UsageError, match="no time zone") as found:
            parse_zone(text)
        assert near in found.value.hint or "Did you mean" in found.value.hint

    def test_every_known_time_zone_is_one(self) -> None:
        for name in sorted(available_timezones()):
            assert parse_zone(name) == name

    @pytest.mark.parametrize("text", ["team-nlp", "a", "2026.Q4", "x_1", "N" * 60])
    def test_names(self, text: str) -> None:
        assert parse_name(f" {text} ") == text

    @pytest.mark.parametrize("text", ["", " ", "-x", ".x", "a b", "a/b", "é", "N" * 61, "a\nb", "a\0"])
    def test_names_that_are_none(self, text: str) -> None:
        with pytest.raises(UsageError, match="not a valid name"):
            parse_name(text)

"""Amounts in another currency: only what is shown, marked once, with limits and documents in US dollars."""

import json
from collections.abc import Iterator
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu import units
from costgpu.cli import options as opt
from costgpu.errors import CapTooSmall, ConfigError, UsageError
from costgpu.job.plan import Limits, lease_for
from costgpu.render.document import document
from costgpu.render.html.svg import round_usd, usd_name
from costgpu.render.text.budget import exact_usd
from costgpu.units import (
    Currency,
    format_bare_usd,
    format_dollars,
    format_free,
    format_usd,
    parse_currency,
    show_amounts_in,
    with_currency_note,
)
from tests.job.examples import offer

EUR = Currency(code="EUR", rate=Decimal("0.92"))
NOTE = "Amounts in EUR at 0.92 a US dollar, as given."


@pytest.fixture(autouse=True)
def back() -> Iterator[None]:
    yield
    show_amounts_in(None)


def test_what_is_shown_is_converted_and_marked_once() -> None:
    show_amounts_in(EUR)
    assert (format_usd(10), format_bare_usd(10), format_free()) == ("€9.20", "9.20", "€0")
    assert (format_usd(-10), format_usd(Decimal(10_000)), format_usd(0.001)) == ("-€9.20", "€9,200", "€0.00092")
    assert exact_usd(Decimal("1234.50")) == "€1,136"
    assert (usd_name(2, 4), round_usd(20_000, 1000)) == ("€18,400", "€18,400")
    assert with_currency_note("Nothing of money.") == "Nothing of money."
    assert with_currency_note("It costs €9.20.") == f"It costs €9.20.\n\n{NOTE}"
    assert with_currency_note("It costs €9.20.") == "It costs €9.20."


def test_a_currency_without_a_sign_of_its_own() -> None:
    show_amounts_in(Currency(code="CHF", rate=Decimal("0.8")))
    assert (format_usd(10), format_bare_usd(10)) == ("CHF8.00", "8.00")


def test_documents_stay_in_dollars_and_name_the_rate() -> None:
    show_amounts_in(EUR, in_text=False)
    assert format_usd(10) == "$10.00"
    assert with_currency_note("It costs $10.00.") == "It costs $10.00."
    made = json.loads(document("costgpu.plan", cost_usd=Decimal(10)))
    assert made["currency"] == {"code": "EUR", "rate": "0.92"}
    assert made["cost_usd"] == "10"


def test_without_a_currency_nothing_changes() -> None:
    assert format_usd(10) == format_dollars(10) == "$10.00"
    assert "currency" not in json.loads(document("costgpu.plan"))
    assert with_currency_note("$10.00") == "$10.00"


def test_limits_stay_in_dollars() -> None:
    show_amounts_in(EUR)
    assert lease_for(offer(), Limits(max_cost_usd=Decimal(5))).limited_by == "--max-cost $5.00"
    with pytest.raises(CapTooSmall) as caught:
        lease_for(offer(), Limits(max_cost_usd=Decimal("0.001")))
    assert "Allow at least $" in caught.value.hint


@pytest.mark.parametrize(
    ("code", "rate"),
    [
        ("EURO", "1"),
        ("€", "1"),
        ("EUR", "0"),
        ("EUR", "-1"),
        ("EUR", "nan"),
        ("EUR", "1e3"),
        ("EUR", "0,92"),
        ("", "1"),
    ],
)
def test_what_is_no_currency_or_rate(code: str, rate: str) -> None:
    with pytest.raises(UsageError, match="is no"):
        parse_currency(code, rate)


def test_spelling() -> None:
    assert parse_currency(" eur ", " 0.92 ") == EUR
    assert parse_currency("usd", "1") is None


@given(st.decimals("0.000001", "1000000"), st.floats(0, 1e9))
def test_no_rate_hides_a_cost(rate: Decimal, amount: float) -> None:
    show_amounts_in(Currency(code="EUR", rate=rate))
    shown = format_usd(amount)
    assert shown.startswith("€")
    assert "$" not in shown
    show_amounts_in(None)


class TestOptions:
    def test_both_or_neither(self) -> None:
        for currency, rate in (("EUR", None), (None, "0.92")):
            with pytest.raises(UsageError, match="--currency and --rate go together"):
                opt.show_amounts(currency, rate, as_json=False)
        opt.show_amounts("EUR", "0.92", as_json=False)
        assert units.shown_currency() == EUR

    def test_settings(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COSTGPU_CURRENCY", "EUR")
        monkeypatch.setenv("COSTGPU_CURRENCY_RATE", "0.92")
        opt.show_amounts(None, None, as_json=True)
        assert units.shown_currency() == EUR
        opt.show_amounts("CHF", "0.8", as_json=False)
        assert format_usd(10) == "CHF8.00"
        opt.show_amounts("USD", "1", as_json=False)
        assert format_usd(10) == "$10.00"
        monkeypatch.delenv("COSTGPU_CURRENCY_RATE")
        with pytest.raises((UsageError, ConfigError)):
            opt.show_amounts(None, None, as_json=False)

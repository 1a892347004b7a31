"""Parsing and formatting: what is formatted reads back, and what cannot be meant is refused."""

import contextlib
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.errors import UsageError
from costgpu.units import (
    COUNT,
    SECONDS,
    USD,
    AcceleratorRequest,
    NumberRange,
    format_binary_size,
    format_count,
    format_duration,
    format_frequency,
    format_number,
    format_percent,
    format_ratio,
    format_size,
    format_usd,
    parse_accelerator,
    parse_count,
    parse_duration,
    parse_range,
    parse_rate,
    parse_usd,
    plural_unit,
)

names = st.from_regex(r"[A-Z][A-Z0-9-]{0,8}", fullmatch=True).filter(lambda name: name != "CPU")
counts = st.integers(min_value=0, max_value=10_000)
amounts = st.decimals(min_value="0.000001", max_value="1000000", places=6)


SPANS = """
90=90  90s=90  15m=900  1.5h=5400  1h30m=5400  1h 30m=5400  2 days=172800  2 Hours=7200  1w=604800  .5h=1800
"""
COUNTS = """
7B=7e9  7b=7e9  124M=124e6  1.3e9=1.3e9  300k=3e5  2T=2e12  1_000_000=1e6  1,000,000=1e6   70 B =7e10  5=5  1G=1e9
"""
AMOUNTS = "1234.5=$1,234  12.5=$12.50  -12.5=-$12.50  0.92=$0.92  0=$0.00  0.0041=$0.0041  0.000012=$0.000012"
DURATIONS = """
0.0000005=0 µs  0.000012=12 µs  0.083=83 ms  0.4=400 ms  5.25=5.2 s  42=42 s  720=12 min  4800=80 min  9000=2.5 h
450000=5.2 days  1e9=32 years  1e8=3.2 years
"""
SHORT_COUNTS = "0=0  950=950  999.9=1k  25450=25.4k  999900=1M  11.2e6=11.2M  7e9=7B  1.4e12=1.4T  5e15=5,000T"
RATIOS = "14.2=14x  2.6=2.6x  1=1.0x  0.314=0.31x"
SIZES = """
0=0 bytes  1=1 byte  999=999 bytes  1000=1.0 kB  999949=999.9 kB  999950=1.0 MB  2.5e9=2.5 GB  7e12=7.0 TB
"""
BINARY_SIZES = "1=1 byte  1023=1023 bytes  1024=1.0 KiB  1536=1.5 KiB  5242880=5.0 MiB  1099511627776=1.0 TiB"


def pairs(table: str) -> list[tuple[str, str]]:
    """What stands on either side of each ``=``; entries are two spaces or a line apart."""
    entries = re.split(r"(?<=\S)(?:  |\n)", table.strip("\n"))
    return [(left, right) for left, _, right in (entry.partition("=") for entry in entries)]


@pytest.mark.parametrize(("text", "seconds"), pairs(SPANS))
def test_time_spans(text: str, seconds: str) -> None:
    assert parse_duration(text) == float(seconds)


@pytest.mark.parametrize("text", ["", "  ", "0", "0h", "-1h", "1x", "h", "1h-", "inf", "nan", "1e3s", "1:30"])
def test_what_is_no_time_span(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time span") as caught:
        parse_duration(text)
    assert "1h30m" in caught.value.hint


@given(st.integers(0, 400), st.integers(0, 23), st.integers(0, 59), st.integers(1, 59))
def test_a_written_time_span_reads_back(days: int, hours: int, minutes: int, seconds: int) -> None:
    expected = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    assert parse_duration(f"{days}d {hours}h{minutes}min {seconds} seconds") == expected


@given(amounts)
def test_an_amount_reads_back(amount: Decimal) -> None:
    assert parse_usd(f"{amount:f}") == parse_usd(f"${amount:f}") == parse_usd(f"{amount:f} USD") == amount


@pytest.mark.parametrize("text", ["", "$", "0", "-5", "$-5", "nan", "inf", "5 EUR", "€5", "five"])
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(UsageError, match="positive amount of US dollars"):
        parse_usd(text)


@given(counts, counts)
def test_a_range_reads_back(first: int, second: int) -> None:
    low, high = sorted((first, second))
    assert parse_range(f"{low}", what="x") == NumberRange(low, low)
    assert parse_range(f"{low}+", what="x") == parse_range(f"{low}..", what="x") == NumberRange(low, None)
    assert parse_range(f"{low}..{high}", what="x") == NumberRange(low, high)
    if low < high:
        with pytest.raises(UsageError, match="ends before it starts"):
            parse_range(f"{high}..{low}", what="x")


@pytest.mark.parametrize("text", ["", "+", "..", "..8", "8-16", "8..16+", "-8", "eight", "1e3"])
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(UsageError, match="number or range for cores"):
        parse_range(text, what="cores")


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.none() | st.floats(0, 1e6))
def test_a_range_holds_what_lies_between_its_ends(value: float, low: float, high: float | None) -> None:
    assert (value in NumberRange(low, high)) == (low <= value <= (float("inf") if high is None else high))


@given(names, counts)
def test_an_accelerator_reads_back(name: str, count: int) -> None:
    assert parse_accelerator(name) == AcceleratorRequest(name=name)
    assert parse_accelerator(f"{name}:{count}") == AcceleratorRequest(name=name, count=NumberRange(count, count))


@given(st.integers(1, 999), st.sampled_from(["GB", "gb", "GiB", " GB", "GB+"]))
def test_an_accelerator_memory_reads_back(gib: int, unit: str) -> None:
    assert parse_accelerator(f"{gib}{unit}") == AcceleratorRequest(memory_gib=gib)


@pytest.mark.parametrize("text", ["none", "None", "0", "cpu"])
def test_no_accelerator(text: str) -> None:
    assert parse_accelerator(text) == AcceleratorRequest(none=True)


@pytest.mark.parametrize("text", ["", ":", ":1", "A100:"])
def test_what_is_no_accelerator(text: str) -> None:
    with pytest.raises(UsageError, match="not an accelerator request"):
        parse_accelerator(text)


@pytest.mark.parametrize(
    ("written", "value", "text"),
    [
        (written, *each)
        for written, table in [
            (format_usd, AMOUNTS),
            (format_duration, DURATIONS),
            (format_count, SHORT_COUNTS),
            (format_ratio, RATIOS),
            (format_size, SIZES),
            (format_binary_size, BINARY_SIZES),
        ]
        for each in pairs(table)
    ],
)
def test_formatted_values(written: Callable[[float], str], value: str, text: str) -> None:
    assert written(float(value)) == text


def test_exact_amounts() -> None:
    assert (format_usd(0.0000012), format_usd(4.7e-9)) == ("$0.0000012", "$0.0000000047")
    assert (format_usd(Decimal("1234.5")), format_usd(Decimal("-12.5"))) == ("$1,234", "-$12.50")


@given(amounts)
def test_a_formatted_amount_is_near_the_amount(amount: Decimal) -> None:
    shown = Decimal(format_usd(amount).removeprefix("$").replace(",", ""))
    assert abs(shown - amount) <= max(amount * Decimal("0.051"), Decimal("0.0000005"))


@pytest.mark.parametrize(("text", "number"), pairs(COUNTS))
def test_counts(text: str, number: str) -> None:
    assert parse_count(text, what="--params") == pytest.approx(float(number))


@pytest.mark.parametrize("text", ["", "B", "7 billion", "-7B", "0", "1,00", "7BB", "nan", "1e999", "7.B"])
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(UsageError, match="--params"):
        parse_count(text, what="--params")


@given(st.text(max_size=12))
def test_any_text_is_a_count_or_a_clear_error(text: str) -> None:
    try:
        assert parse_count(text, what="--tokens") > 0
    except UsageError as error:
        message = error.message
    else:
        message = "--tokens"
    assert "--tokens" in message


@given(st.floats(0, 1e15))
def test_no_size_is_longer_than_a_column(size: float) -> None:
    assert max(len(format_size(size)), len(format_binary_size(size))) <= 11


@pytest.mark.parametrize(
    ("text", "per_second"),
    [
        ("5/s", 5.0),
        ("0.5/s", 0.5),
        (".5 / sec", 0.5),
        ("300/min", 5.0),
        ("3600/h", 1.0),
        ("1000/hour", 1000 / 3600),
        ("1M/day", 1e6 / 86400),
        ("2k/minute", 2000 / 60),
        ("1,000,000/d", 1e6 / 86400),
        ("7/week", 7 / 604800),
    ],
)
def test_rates(text: str, per_second: float) -> None:
    assert parse_rate(text) == pytest.approx(per_second)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "/s",
        "5/",
        "5/x",
        "-5/s",
        "0/s",
        "five/s",
        "5/s/s",
        "5 s",
        "nan/s",
        "inf/s",
        "1e99/s",
        "1/year",
        "1e-9/s",
    ],
)
def test_what_is_no_rate_is_told_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_rate(text)
    assert text in error.value.message or "number" in error.value.message
    assert error.value.hint == "Write it as 5/s, 300/min, 1000/h or 1M/day."


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0421, "0.042"),
        (3.14, "3.1"),
        (9.96, "10"),
        (27.4, "27"),
        (99.6, "100"),
        (1234.0, "1,230"),
        (58_600.0, "58.6k"),
        (0.0, "0"),
    ],
)
def test_numbers_of_two_or_three_digits(value: float, words: str) -> None:
    assert format_number(value) == words


@pytest.mark.parametrize(
    ("per_second", "words"),
    [
        (210.0, "210 images/s"),
        (5.0, "5 images/s"),
        (0.02, "1.2 images/min"),
        (1.0, "1 image/s"),
        (1e-4, "0.36 images/h"),
    ],
)
def test_frequencies_are_told_in_the_time_in_which_there_is_one(per_second: float, words: str) -> None:
    assert format_frequency(per_second, "image") == words


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.414, "41 %"), (0.0251, "2.5 %"), (0.0031, "0.3 %"), (0.00012, "0.01 %"), (2e-7, "<0.01 %"), (0.0, "0 %")],
)
def test_shares_are_never_rounded_away(share: float, words: str) -> None:
    assert format_percent(share) == words


@pytest.mark.parametrize(
    ("one", "many"),
    [
        ("step", "steps"),
        ("batch", "batches"),
        ("epoch", "epochs"),
        ("query", "queries"),
        ("hour of audio", "hours of audio"),
    ],
)
def test_plurals(one: str, many: str) -> None:
    assert plural_unit(one) == many


@given(st.floats(0.001, 100 * 365.25 * 86400), st.floats(1e-9, 1e9), st.floats(1e-6, 1e18))
def test_whatever_is_in_range_can_be_shown_and_counted_with(seconds: float, usd: float, count: float) -> None:
    assert format_duration(seconds)
    assert format_usd(usd).startswith("$")
    assert format_usd(Decimal(str(usd)) * 10**6)
    assert format_count(count)
    assert format_number(count)
    assert format_frequency(count, "item")
    assert (datetime(2026, 11, 21, tzinfo=UTC) + timedelta(seconds=seconds)).year < 2200
    assert int(Decimal(str(usd)) * 10**9) < 2**63


@given(st.text())
def test_a_text_is_a_quantity_of_the_range_or_an_error_of_ours(text: str) -> None:
    for parse, within in (
        (parse_duration, SECONDS),
        (lambda said: float(parse_usd(said)), USD),
        (lambda said: parse_count(said, what="--tokens"), COUNT),
    ):
        with contextlib.suppress(UsageError):
            assert parse(text) in within

"""Parsing and formatting of amounts, times, sizes and accelerator requests. Imports only `errors`.

Money is `decimal.Decimal` in US dollars, time is seconds, memory is GiB. The ranges of everything that a user can say are
here, and nowhere else: past the parsers nothing overflows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal, InvalidOperation

from costgpu.errors import UsageError

SHORTENED = 60  # characters of somebody's text in a message


@dataclass(frozen=True, slots=True)
class NumberRange:
    """An inclusive range of a quantity; `high` None means no upper end."""

    low: float
    high: float | None

    def __contains__(self, value: float) -> bool:
        return value >= self.low and (self.high is None or value <= self.high)


SECONDS = NumberRange(0.001, 100 * 365.25 * 86400)  # a time span: a millisecond to a century
USD = NumberRange(1e-9, 1e9)  # an amount: the least that the ledger can keep, to a billion
COUNT = NumberRange(1, 1e18)  # parameters, tokens
WORK = NumberRange(1e-6, 1e15)  # epochs, steps; there are parts of an epoch
ACCELERATORS = NumberRange(0, 1e6)
HARDWARE = NumberRange(0, 1e9)  # vCPUs, GiB
DISK_GIB = NumberRange(10, 16_000)  # a root disk
SYNC_MIB = NumberRange(0, 1e9)  # size of a folder
ANY = NumberRange(0, None)
LARGEST_WHOLE = 10**9  # rows of a table, timed steps
FIRST_YEAR, LAST_YEAR = 1970, 2199  # of a time that is said or kept


def parse_time(text: object) -> datetime:
    """Return the time that a file of ours says, with its zone.

    Raises:
        ValueError: It is none, or years off.
    """
    at = datetime.fromisoformat(text) if isinstance(text, str) else None
    if at is None or at.tzinfo is None or not FIRST_YEAR <= at.year <= LAST_YEAR:
        raise ValueError(f"{shortened(str(text))} is no time between the years {FIRST_YEAR} and {LAST_YEAR}")
    return at


def shortened(text: str) -> str:
    """Somebody's text in a message: without what is not printable, and not longer than a line."""
    return repr(text if len(text) <= SHORTENED else f"{text[:SHORTENED]}...")


SECONDS_PER_HOUR = 3600.0
_TIME_UNITS = {
    "": 1.0,
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "m": 60.0,
    "min": 60.0,
    "minute": 60.0,
    "h": 3600.0,
    "hr": 3600.0,
    "hour": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
    "w": 604800.0,
    "week": 604800.0,
}
_TIME_PART = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([a-z]*)\s*", re.ASCII)


def parse_duration(text: str, what: str = "") -> float:
    """Return the seconds of a time span such as ``90``, ``90s``, ``1.5h``, ``1h30m`` or ``2 days``.

    Args:
        text: Text of the user.
        what: The option that it was given for; empty if there is none.

    Raises:
        UsageError: The text is not a time span from a millisecond to a century.
    """
    rest, total = text.strip().lower(), 0.0
    position = 0
    while position < len(rest):
        match = _TIME_PART.match(rest, position)
        unit = match.group(2) if match else ""
        seconds = _TIME_UNITS.get(unit, _TIME_UNITS.get(unit.removesuffix("s")))
        if match is None or seconds is None:
            break
        total += float(match.group(1)) * seconds
        position = match.end()
    said = f"{what} {shortened(text)}".strip()
    if position < len(rest) or not rest or total <= 0:
        raise UsageError(f"{said} is not a time span.", hint="Write it as 90s, 15m, 2h, 1h30m or 3d.")
    if total not in SECONDS:
        raise UsageError(f"{said} is out of range: a time span is from a millisecond to 100 years.")
    return total


_USD = re.compile(r"[0-9][0-9_]{0,40}(?:\.[0-9]{0,60})?(?:[eE][+-]?[0-9]{1,6})?|\.[0-9]{1,60}")


def parse_usd(text: str, what: str = "") -> Decimal:
    """Return a positive amount of US dollars: ``5``, ``$5``, ``0.25``, ``5 USD``.

    Args:
        text: Text of the user.
        what: The option that it was given for; empty if there is none.

    Raises:
        UsageError: Not a positive amount, out of range, or another currency.
    """
    cleaned = text.strip().removeprefix("$").strip()
    if cleaned[-3:].lower() == "usd":
        cleaned = cleaned[:-3].strip()
    said = f"{what} {shortened(text)}".strip()
    try:
        amount = Decimal(cleaned) if _USD.fullmatch(cleaned) else Decimal(0)
    except InvalidOperation:
        amount = Decimal(0)
    if amount <= 0:
        raise UsageError(
            f"{said} is not a positive amount of US dollars.",
            hint="Write it as 5, $5 or 0.25; options take only USD.",
        )
    if float(amount) not in USD:
        raise UsageError(f"{said} is out of range: an amount is from $0.000000001 to ${USD.high:,.0f}.")
    return amount


_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_RANGE = re.compile(rf"{_NUMBER}(?:(\+)|\.\.{_NUMBER}?)?")


def parse_range(text: str, *, what: str, within: NumberRange = HARDWARE) -> NumberRange:
    """``8`` (exactly), ``8+`` or ``8..`` (at least), ``8..16`` (from, to).

    Raises:
        UsageError: Not a range, not `within` that one, or its ends are the wrong way round.
    """
    match = _RANGE.fullmatch(text.strip().replace(" ", ""))
    if match is None:
        raise UsageError(f"{shortened(text)} is not a number or range for {what}.", hint="Write 8, 8+ or 8..16.")
    low, plus, high = float(match.group(1)), match.group(2), match.group(3)
    open_ended = plus is not None or (".." in text and high is None)
    upper = None if open_ended else float(high) if high is not None else low
    if low not in within or (upper is not None and upper not in within):
        raise UsageError(f"{shortened(text)} is out of range: {what} is at most {within.high:,.0f}.")
    if upper is not None and upper < low:
        raise UsageError(f"The range {text!r} for {what} ends before it starts.", hint=f"Write {high}..{low:g}.")
    return NumberRange(low, upper)


@dataclass(frozen=True, slots=True)
class AcceleratorRequest:
    """Request of ``--gpus``."""

    none: bool = False  # True for ``none``: only offers without an accelerator
    name: str | None = None  # accelerator name as the user wrote it; None when only a memory size was given
    memory_gib: float | None = None  # least memory per accelerator in GiB; None when a name was given
    count: NumberRange | None = None  # number of accelerators; None means any number
    others: tuple[AcceleratorRequest, ...] = ()  # requests that do as well; they have no others

    @property
    def alternatives(self) -> tuple[AcceleratorRequest, ...]:
        """This request and the others, one by one."""
        return (replace(self, others=()), *self.others)


_COUNT = re.compile(rf"{_NUMBER}(?:e(\d{{1,2}}))?([kmgbt]?)", re.IGNORECASE)
_COUNT_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12}


def parse_count(text: str, *, what: str, within: NumberRange = COUNT) -> float:
    """Return a positive number of things: ``7B``, ``124M``, ``1.5e9``, ``300k``, ``1_000_000``, ``1,000,000``.

    Args:
        text: Text of the user. B and G are 10**9, T is 10**12.
        what: The option that it was given for.
        within: The numbers that make sense.

    Raises:
        UsageError: Not such a number, or out of range.
    """
    cleaned = text.strip().replace("_", "").replace(" ", "")
    if re.fullmatch(r"[0-9]{1,3}(,[0-9]{3})+", cleaned):
        cleaned = cleaned.replace(",", "")
    match = _COUNT.fullmatch(cleaned)
    number = float(match.group(1)) * 10.0 ** int(match.group(2) or 0) if match else 0.0
    if match is None or number <= 0:
        raise UsageError(f"{shortened(text)} is not a number for {what}.", hint="Write it as 7B, 124M, 300k or 1.5e9.")
    number *= _COUNT_UNITS[match.group(3).lower()]
    if number not in within:
        raise UsageError(f"{shortened(text)} is out of range: {what} is from {within.low:g} to {within.high:g}.")
    return number


_DECIMAL = re.compile(r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+")
_RATE = re.compile(r"([^/]+)/\s*(?:1\s*)?([a-z]+)", re.IGNORECASE)
MOST_DECIMALS = 12  # of an amount of dollars
LEAST_PERCENT = 0.01
LEAST_RATE, MOST_RATE = 1 / (30 * 86400.0), 1e9  # per second: one a month, and more than any service gets


def parse_rate(text: str) -> float:
    """Return the items per second of ``5/s``, ``300/min``, ``1000/h`` or ``1M/day``.

    Raises:
        UsageError: Not a number of items per time, or one that no service has.
    """
    match = _RATE.fullmatch(text.strip())
    unit = match.group(2).lower() if match else ""
    seconds = _TIME_UNITS.get(unit, _TIME_UNITS.get(unit.removesuffix("s")))
    hint = "Write it as 5/s, 300/min, 1000/h or 1M/day."
    said = shortened(text)
    if match is None or seconds is None:
        raise UsageError(f"{said} is not a rate: a number of items, a slash, and a unit of time.", hint=hint)
    number = match.group(1).strip()
    # A small m is a million here as anywhere; fractions of an item, such as 0.5/s, are rates too.
    try:
        rate = (
            float(number) if _DECIMAL.fullmatch(number) else parse_count(number, what="a rate", within=ANY)
        ) / seconds
    except UsageError:
        raise UsageError(f"{said} is not a rate: {shortened(number)} is not a number of items.", hint=hint) from None
    if not LEAST_RATE <= rate <= MOST_RATE:
        raise UsageError(
            f"{said} is no rate of a service: one a month is the least, a billion a second the most.", hint=hint
        )
    return rate


_MEMORY = re.compile(rf"{_NUMBER}\s*gi?b\+?", re.IGNORECASE)


def parse_accelerator(text: str) -> AcceleratorRequest:
    """``A100``, ``A100:1``, ``none``, ``24GB``, ``24GB:1..2``, ``L4:1+``; ``T4,L4:2`` is any of them.

    Raises:
        UsageError: Not of that form.
    """
    elements = dict.fromkeys(element.strip() for element in text.split(",") if element.strip())
    if len(elements) < 2:
        return _accelerator(next(iter(elements), ""))
    found = [_accelerator(element) for element in elements]
    if any(each.none for each in found):
        raise UsageError(f"--gpus {text}: none stands alone.", hint="Write T4,L4, or none for machines without GPUs.")
    return replace(found[0], others=tuple(found[1:]))


def _accelerator(text: str) -> AcceleratorRequest:
    name, colon, count_text = text.strip().partition(":")
    if name.lower() in {"none", "0", "cpu"} and not colon:
        return AcceleratorRequest(none=True)
    if not name or (colon and not count_text):
        raise UsageError(
            f"{shortened(text)} is not an accelerator request.",
            hint="Write A100, A100:1, 24GB:1..2 or none.",
        )
    count = parse_range(count_text, what="the number of accelerators", within=ACCELERATORS) if colon else None
    memory = _MEMORY.fullmatch(name)
    if memory:
        return AcceleratorRequest(memory_gib=float(memory.group(1)), count=count)
    return AcceleratorRequest(name=name, count=count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Currency:
    """In what amounts are shown; limits, errors and documents stay in US dollars."""

    code: str  # ISO 4217
    rate: Decimal  # for one US dollar


@dataclass(slots=True)
class _Shown:
    """How this process shows amounts."""

    currency: Currency | None = None  # None for US dollars
    in_text: bool = True  # whether texts are converted, too; documents only name the currency
    marked: bool = False  # whether it was said already


_shown = _Shown()
_SYMBOLS = {"EUR": "€", "GBP": "£", "INR": "₹", "JPY": "¥", "KRW": "₩"}
RATE = NumberRange(1e-6, 1e6)


def show_amounts_in(currency: Currency | None, *, in_text: bool = True) -> None:
    """Choose the currency of the amounts that this process shows. Called once, by the command line."""
    _shown.currency, _shown.in_text, _shown.marked = currency, in_text, False


@contextmanager
def us_dollars() -> Iterator[None]:
    """Show amounts in US dollars for a while: those of budgets and limits, which are typed in them."""
    kept, _shown.in_text = _shown.in_text, False
    try:
        yield
    finally:
        _shown.in_text = kept


def shown_currency() -> Currency | None:
    """Return the currency that was chosen; None for US dollars."""
    return _shown.currency


def currency_note() -> str:
    """Return what an answer with converted amounts says once; empty in US dollars."""
    chosen = _shown.currency
    if chosen is None or not _shown.in_text:
        return ""
    return f"Amounts in {chosen.code} at {chosen.rate:f} a US dollar, as given."


def with_currency_note(text: str) -> str:
    """Return a text with `currency_note` below it, if it is the first one with converted amounts."""
    note = currency_note()
    if _shown.marked or not note or _symbol() not in text:
        return text
    _shown.marked = True
    return f"{text}\n\n{note}"


def parse_currency(code: str, rate: str) -> Currency | None:
    """Return the currency of ``EUR`` and ``0.92``, its units for one US dollar; None for US dollars themselves.

    Raises:
        UsageError: It is no code of three letters, or no positive number.
    """
    name, number = code.strip().upper(), rate.strip()
    if not re.fullmatch(r"[A-Z]{3}", name):
        raise UsageError(f"{shortened(code)} is no currency.", hint="Write its code: --currency EUR --rate 0.92.")
    if not _DECIMAL.fullmatch(number) or float(number) not in RATE:
        raise UsageError(
            f"{shortened(rate)} is no rate: how much of {name} is one US dollar?", hint="--currency EUR --rate 0.92"
        )
    return None if name == "USD" else Currency(code=name, rate=Decimal(number))


def _symbol() -> str:
    chosen = _shown.currency if _shown.in_text else None
    return "$" if chosen is None else _SYMBOLS.get(chosen.code, chosen.code)


def format_usd(amount: Decimal | float) -> str:
    """Return an amount of US dollars as it is shown: ``$0.92``, or ``€0.85`` where another currency was chosen."""
    chosen = _shown.currency if _shown.in_text else None
    if chosen is None:
        return format_dollars(amount)
    return format_dollars(float(amount) * float(chosen.rate)).replace("$", _symbol(), 1)


def format_bare_usd(amount: Decimal | float) -> str:
    """Return the same without its sign, for the ends of an interval."""
    return format_usd(amount).removeprefix(_symbol())


def format_free() -> str:
    """Return the cost of what is free: ``$0``."""
    return f"{_symbol()}0"


def format_dollars(amount: Decimal | float) -> str:
    """``$0.92``, ``-$1,234``, ``$0.0041``: two significant digits at least, never a rounded-away cost."""
    value = float(amount)
    if value < 0:
        return f"-{format_dollars(-value)}"
    if value >= 1000:
        return f"${value:,.0f}"
    if value >= 0.1 or value == 0:
        return f"${value:.2f}"
    digits = min(MOST_DECIMALS, 1 - math.floor(math.log10(value)))
    return f"${value:.{digits}f}"


def format_duration(seconds: float) -> str:
    """``83 ms``, ``42 s``, ``12 min``, ``1.3 h``, ``5.2 days``: what a person would say."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.2g} ms" if seconds < 0.0995 else f"{seconds * 1e3:.0f} ms"
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 2 * SECONDS_PER_HOUR:
        return f"{seconds / 60:.0f} min"
    if seconds < 3 * 86400:
        return f"{seconds / SECONDS_PER_HOUR:.1f} h"
    if seconds < 730 * 86400:
        days = seconds / 86400
        return f"{days:.1f} days" if days < 99.95 else f"{days:.0f} days"
    years = seconds / (365.25 * 86400)
    return f"{years:.1f} years" if years < 9.95 else f"{years:,.0f} years"


def format_ratio(ratio: float) -> str:
    """``2.6x``, ``14x``, ``0.31x``."""
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.2g}x" if ratio < 1 else f"{ratio:.1f}x"


def format_count(count: float) -> str:
    """``950``, ``25k``, ``11.2M``, ``7B``, ``1T``: as models are called by their parameters."""
    for least, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= least * 0.9995:
            return f"{count / least:,.3g}{unit}" if count < 999.5 * least else f"{count / least:,.0f}{unit}"
    return f"{count:.3g}"


def format_size(size: float) -> str:
    """Return the bytes in decimal units, as disks and networks are sold: ``17 bytes``, ``3.4 kB``, ``1.2 GB``."""
    return _scaled_bytes(size, 1000, ("kB", "MB", "GB", "TB"))


def format_binary_size(size: float) -> str:
    """Return the bytes in binary units: ``17 bytes``, ``3.4 MiB``, ``1.2 GiB``."""
    return _scaled_bytes(size, 1024, ("KiB", "MiB", "GiB", "TiB"))


def _scaled_bytes(size: float, base: int, units: tuple[str, ...]) -> str:
    if size < base:
        return "1 byte" if size == 1 else f"{size:.0f} bytes"
    for unit in units[:-1]:
        size /= base
        if size < base - 0.05:
            return f"{size:.1f} {unit}"
    return f"{size / base:.1f} {units[-1]}"


def format_number(value: float) -> str:
    """``0.042``, ``3.1``, ``210``, ``1,230``, ``12.3k``: two significant digits, three from 100 on."""
    if value <= 0 or not math.isfinite(value):
        return f"{value:g}"
    if value >= 9995:
        return format_count(value)
    digits = 3 if value >= 99.5 else 2
    places = digits - 1 - math.floor(math.log10(value))
    rounded = round(value, places)
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:.{max(0, places)}f}"


def format_percent(share: float) -> str:
    """``41 %``, ``0.3 %``; never a rounded-away share."""
    percent = 100 * share
    if 0 < percent < LEAST_PERCENT:
        return f"<{LEAST_PERCENT:g} %"
    return (
        f"{percent:.0f} %"
        if percent >= 9.5 or percent == 0
        else f"{percent:.1g} %"
        if percent < 1
        else f"{percent:.1f} %"
    )


def format_frequency(per_second: float, noun: str) -> str:
    """``210 images/s``, ``72 images/h``: in the shortest time in which there is one."""
    times = ((1.0, "s"), (60.0, "min"), (3600.0, "h"))
    seconds, unit = next((time for time in times if per_second * time[0] >= 1), times[-1])
    count = format_number(per_second * seconds).removesuffix(".0")
    return f"{count} {noun if count == '1' else plural_unit(noun)}/{unit}"


def plural_unit(unit: str) -> str:
    """Return the plural: ``steps``, ``trees``, ``batches``, ``hours of audio``."""
    noun, of, rest = unit.partition(" of ")
    sibilant = noun.endswith(("ch", "sh", "s", "x")) and noun != "epoch"
    plural = (
        f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2:-1] not in "aeiou" else f"{noun}{'es' if sibilant else 's'}"
    )
    return f"{plural}{of}{rest}"

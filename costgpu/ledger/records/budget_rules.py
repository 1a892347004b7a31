"""The rules of budgets: thresholds, forecast, and what a person may write. Pure: no clock, no database."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from costgpu.errors import UsageError
from costgpu.ledger.costs.charges import RunFilter
from costgpu.ledger.costs.periods import Every, Period
from costgpu.units import parse_usd

FULL = 100  # percent; always one of the thresholds
DEFAULT_THRESHOLDS = (50, 80, FULL)
LARGEST_THRESHOLD = 1000  # percent
MOST_THRESHOLDS = 20
LEAST_USD = Decimal("0.01")
PACE_SHARE = 0.05  # of a period must be over before its end is forecast; a day is always enough
PACE_SECONDS = 86400.0
FIRST_YEAR, LAST_YEAR = 2024, 2199  # a clock that says otherwise is wrong
LONGEST_NAME = 60

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CODE = re.compile(r"^([A-Za-z]{3})(?=[\s\d.,]|$)|(?<=[\s\d.,])([A-Za-z]{3})$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much may be spent on what."""

    name: str
    amount_usd: Decimal  # the limit of each period
    every: Every  # how often a period begins
    time_zone: str = "UTC"  # IANA name: where days, weeks and months begin
    thresholds: tuple[int, ...] = DEFAULT_THRESHOLDS  # percent at which people are told; ascending, 100 is among them
    provider: str = ""  # the only provider that counts; empty for all
    owner: str = ""  # the only person whose runs count, ``user`` or ``user@host``; empty for everybody
    tags: Mapping[str, str] = field(default_factory=dict)  # the tags that a run must have to count, with these values
    enforce: bool = False  # whether a run is refused whose cap is more than what is neither spent nor committed
    enforce_spent: bool = False  # with `enforce`: whether only a budget that is spent refuses

    @property
    def selection(self) -> RunFilter:
        """Return which runs it counts."""
        return RunFilter(provider=self.provider, owner=self.owner, tags=self.tags)

    def same_rule(self, other: Budget) -> bool:
        """Return whether the same money is counted against the same amount: what was told once need not be told again."""
        mine, theirs = (
            (b.name, b.amount_usd, b.every, b.time_zone, b.provider, b.owner, dict(b.tags)) for b in (self, other)
        )
        return mine == theirs


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetState:
    """How a budget stands."""

    budget: Budget
    period: Period
    spent_usd: Decimal  # what was spent in the period until now
    committed_usd: Decimal = Decimal(0)  # what open runs may still cost in the period under their caps
    open_runs: int = 0  # the number of those runs
    at_least: bool = False  # whether something could not be counted: all figures are lower bounds
    # what will be spent by the end of the period at this pace; None without an end, or too early to say
    forecast_usd: Decimal | None = None

    @property
    def percent(self) -> int:
        """Return the share of the amount that is spent, rounded down: it shows 100 only when it is."""
        return int(self.spent_usd * 100 / self.budget.amount_usd)

    @property
    def left_usd(self) -> Decimal:
        """Return what is not spent yet; never negative."""
        return max(Decimal(0), self.budget.amount_usd - self.spent_usd)

    @property
    def open_usd(self) -> Decimal:
        """Return what is neither spent nor committed; negative if both together are more than the amount."""
        return self.budget.amount_usd - self.spent_usd - self.committed_usd

    def refuses(self, cap_usd: Decimal) -> bool:
        """Return whether a run that may cost so much is not to begin."""
        beyond = self.exceeded or (not self.budget.enforce_spent and cap_usd > self.open_usd)
        return self.budget.enforce and beyond

    @property
    def crossed(self) -> tuple[int, ...]:
        """Return the thresholds that are reached, ascending."""
        return crossed(self.budget, self.spent_usd)

    @property
    def exceeded(self) -> bool:
        """Return whether nothing is left."""
        return self.spent_usd >= self.budget.amount_usd


def crossed(budget: Budget, spent_usd: Decimal) -> tuple[int, ...]:
    """Return the thresholds that this much has reached, ascending."""
    return tuple(t for t in budget.thresholds if spent_usd * 100 >= budget.amount_usd * t)


def forecast(period: Period, now: datetime, spent_usd: Decimal, upcoming_usd: Decimal) -> Decimal | None:
    """Return what will be spent at the period's end if it goes on as until now.

    Args:
        period: The one that `now` is in.
        now: Aware.
        spent_usd: What was spent in the period until now.
        upcoming_usd: What machines that are there will add by their rates until they, or the period, end: the
            forecast is never below what that makes.

    Returns:
        None if the period has no end, or if less than 5 % of it and less than a day is over.
    """
    if period.start is None or period.end is None:
        return None
    over, whole = (now - period.start).total_seconds(), (period.end - period.start).total_seconds()
    if over < min(PACE_SHARE * whole, PACE_SECONDS) or over <= 0 or whole <= 0:
        return None
    at_this_pace = spent_usd * Decimal(str(whole)) / Decimal(str(min(over, whole)))
    return max(at_this_pace, spent_usd + upcoming_usd)


def clock_is_off(now: datetime, newest: datetime | None) -> bool:
    """Return whether a clock cannot be right: years off, or more than a day before what the ledger has seen last."""
    return not FIRST_YEAR <= now.year <= LAST_YEAR or (newest is not None and newest - now > timedelta(days=1))


def parse_name(text: str) -> str:
    """Return the name of a budget.

    Raises:
        UsageError: Empty, too long, or with other characters than letters, digits, dot, dash and underscore.
    """
    name = text.strip()
    if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise UsageError(
            f"{text!r} is not a valid name for a budget.",
            hint=f"Letters, digits, dots, dashes and underscores, at most {LONGEST_NAME}: team-nlp.",
        )
    return name


def parse_amount(text: str) -> Decimal:
    """Return the amount of a budget, US dollars: ``200``, ``$200``, ``99.50 USD``.

    Raises:
        UsageError: Another currency, not positive, or less than a cent.
    """
    stripped = text.strip()
    code = next((c.upper() for pair in _CODE.findall(stripped) for c in pair if c), "")
    symbols = [c for c in stripped if unicodedata.category(c) == "Sc" and c != "$"]
    if symbols or (code and code not in ("USD", "NAN", "INF")):
        raise UsageError(
            f"{text!r}: budgets are in US dollars, and take no other currency.",
            hint="Providers bill in US dollars. Write 200, $200 or 99.50.",
        )
    if stripped.lstrip("$ ").startswith("-"):
        raise UsageError(f"{text!r}: a budget cannot be negative.", hint="Write 200, $200 or 99.50.")
    amount = parse_usd(re.sub(r"^usd", "", stripped, flags=re.IGNORECASE))
    if amount < LEAST_USD:
        raise UsageError(f"{text!r}: a budget of less than a cent can only be exceeded.", hint="Write 5 or 0.25.")
    return Decimal(f"{amount:f}")


def parse_thresholds(text: str) -> tuple[int, ...]:
    """``50,80,100``: percent, ascending, each once; 100 is always among them.

    Raises:
        UsageError: Not whole numbers from 1 to 1000, or too many.
    """
    found = {FULL}
    for word in text.replace("%", " ").split(","):
        number = word.strip()
        if not re.fullmatch(r"[0-9]{1,4}", number) or not 1 <= int(number) <= LARGEST_THRESHOLD:
            raise UsageError(
                f"--alert {text!r}: {number!r} is not a whole number of percent from 1 to {LARGEST_THRESHOLD}.",
                hint="Write --alert 50,80,100.",
            )
        found.add(int(number))
    if len(found) > MOST_THRESHOLDS:
        raise UsageError(f"{len(found)} thresholds are too many.", hint=f"At most {MOST_THRESHOLDS}: --alert 50,80.")
    return tuple(sorted(found))


def parse_zone(text: str) -> str:
    """Return the IANA name of the time zone that a user wrote.

    Raises:
        UsageError: There is no such zone; the hint names the nearest ones.
    """
    name = text.strip()
    try:
        if name and not name.startswith(("posix/", "right/")):
            ZoneInfo(name)
            return name
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    names = {each.lower(): each for each in available_timezones()}
    asked = name.lower().replace(" ", "_")
    cities: dict[str, str] = {}
    for lower, each in names.items():
        cities.setdefault(lower.rpartition("/")[2], each)
    near = [names[word] for word in difflib.get_close_matches(asked, names, 3, 0.7)]
    near += [cities[word] for word in difflib.get_close_matches(asked.rpartition("/")[2], cities, 3, 0.8)]
    hint = f"Did you mean {' or '.join(list(dict.fromkeys(near))[:3])}?" if near else "Write Europe/Berlin or UTC."
    raise UsageError(f"There is no time zone {text!r}.", hint=hint)

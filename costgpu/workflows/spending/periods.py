"""The times that `--since` and `--until` mean."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from costgpu.errors import UsageError
from costgpu.units import FIRST_YEAR, LAST_YEAR, parse_duration, shortened

_AGO = re.compile(r"\d+(?:\.\d+)?\s*[a-z]+", re.IGNORECASE | re.ASCII)
HINT = "Write 2026-11, 2026-11-01, 2026-11-01T12:00, or 30d for 30 days ago."
_MONTH = re.compile(r"(\d{4})(?:-(\d{2}))?", re.ASCII)


def period(since: str | None, until: str | None, now: datetime) -> tuple[datetime | None, datetime | None]:
    """Return the period that is meant. Raises `UsageError` for what is no time, or ends before it begins."""
    low = when("--since", since, now) if since is not None else None
    high = when("--until", until, now) if until is not None else None
    if low is not None and high is not None and low >= high:
        raise UsageError(f"--until {until} is not after --since {since}.")
    return low, high


def when(option: str, text: str, now: datetime) -> datetime:
    """Return a year, month, day or time of UTC, or so long ago; to the second."""
    words = text.strip()
    try:
        if _AGO.fullmatch(words):
            at = now - timedelta(seconds=parse_duration(words, option))
        elif month := _MONTH.fullmatch(words):
            at = datetime(int(month.group(1)), int(month.group(2) or 1), 1, tzinfo=UTC)
        else:
            at = datetime.fromisoformat(words)
            at = (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
        if not FIRST_YEAR <= at.year <= LAST_YEAR:
            raise OverflowError
        return at.replace(microsecond=0)
    except (ValueError, OverflowError, UsageError) as error:
        years = f" between the years {FIRST_YEAR} and {LAST_YEAR}" if isinstance(error, OverflowError) else ""
        raise UsageError(f"{option} {shortened(text)} is no time{years}.", hint=HINT) from error

"""The times that `--since` and `--until` mean."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from costgpu.errors import UsageError

_AGO = re.compile(r"\d+(?:\.\d+)?\s*[a-z]+", re.IGNORECASE)
_MONTH = re.compile(r"(\d{4})(?:-(\d{2}))?")


def period(since: str | None, until: str | None, now: datetime) -> tuple[datetime | None, datetime | None]:
    """The period that is meant. Raises `UsageError` for what is no time, or ends before it begins."""
    low = when("--since", since, now) if since is not None else None
    high = when("--until", until, now) if until is not None else None
    if low is not None and high is not None and low >= high:
        raise UsageError(f"--until {until} is not after --since {since}.")
    return low, high


def when(option: str, text: str, now: datetime) -> datetime:
    """A year, month, day or time of UTC, or so long ago; to the second."""
    from costgpu.units import parse_duration

    words = text.strip()
    try:
        if _AGO.fullmatch(words):
            at = now - timedelta(seconds=parse_duration(words))
        elif month := _MONTH.fullmatch(words):
            at = datetime(int(month.group(1)), int(month.group(2) or 1), 1, tzinfo=UTC)
        else:
            at = datetime.fromisoformat(words)
            at = (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
        return at.replace(microsecond=0)
    except (ValueError, OverflowError, UsageError) as error:
        raise UsageError(
            f"{option} {text!r} is no time.",
            hint="Write 2026-11, 2026-11-01, 2026-11-01T12:00, or 30d for 30 days ago.",
        ) from error

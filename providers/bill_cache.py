"""What providers have said about bills, kept for some hours: some charge for the answer."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import platformdirs

from costgpu import border
from costgpu.clock import Clock
from costgpu.errors import ConfigError, InvalidRequest
from costgpu.files import FileKind, read_json, write_whole
from costgpu.models.bill import Bill, BilledRow

STORED = FileKind(most_bytes=64 * 2**20)
MOST_USD = 1e9  # of one run and day; more stands in a damaged file
KEEP = timedelta(hours=6)
DAY = timedelta(days=1)


class CachedBilling(ABC):
    """A `Billing` whose answers are kept for six hours. Subclasses say who is asked, and ask."""

    name: str
    source: str  # of the figures, for people
    usd_per_request: Decimal
    no_tag_note: str  # what to tell people if costs are known, and none of them carries our tag

    def __init__(self, clock: Clock, folder: Path | None = None) -> None:
        self._clock = clock
        self._folder = folder or platformdirs.user_cache_path("costgpu", appauthor=False) / "billing"

    @abstractmethod
    def account(self) -> str:
        """Whose bills are asked about."""

    @abstractmethod
    def ask(self, start: datetime, end: datetime) -> tuple[Sequence[BilledRow], int]:
        """Return the rows, and how many requests they took."""

    def kept(self, start: datetime, end: datetime) -> Bill | None:
        """Return the answer that is not older than six hours, if there is one; asks nobody for money."""
        start, end = self.days(start, end)
        return self._read(self.account(), start, end)

    def billed(self, start: datetime, end: datetime, *, fresh: bool = False) -> Bill:
        """By run and day, from the kept answer or from the provider.

        Raises:
            InvalidRequest: Not whole UTC days, or none of them has begun.
            AuthError: The provider may not be asked.
            ProviderError: It does not answer, or not in US dollars.
        """
        start, end = self.days(start, end)
        account = self.account()
        known = None if fresh else self._read(account, start, end)
        if known is not None:
            return known
        rows, requests = self.ask(start, end)
        untagged = any(row.amount_usd for row in rows) and not any(row.run_id for row in rows)
        bill = Bill(
            provider=self.name,
            account=account,
            start=start,
            end=end,
            rows=tuple(rows),
            asked_at=self._clock.now(),
            source=self.source,
            requests=requests,
            note=self.no_tag_note if untagged else "",
        )
        self._write(bill)
        return bill

    def _read(self, account: str, start: datetime, end: datetime) -> Bill | None:
        """Return the answer about exactly these days that is not older than six hours; None if there is none."""
        try:
            bill = border.read(Bill, read_json(self._path(account, start, end), STORED), ConfigError)
        except ConfigError:
            return None
        if any(abs(row.amount_usd) > MOST_USD for row in bill.rows):
            return None
        age = self._clock.now() - bill.asked_at
        same = (bill.account, bill.start, bill.end) == (account, start, end)
        return replace(bill, requests=0) if same and timedelta(0) <= age < KEEP else None

    def _write(self, bill: Bill) -> None:
        """Keep it. An answer that cannot be kept costs as much again the next time, and nothing else."""
        from pydantic_core import to_json  # noqa: PLC0415 - 0.1 s

        path = self._path(bill.account, bill.start, bill.end)
        with contextlib.suppress(OSError, ConfigError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(path, [to_json(bill).decode()], STORED, mode=0o600)

    def days(self, start: datetime, end: datetime) -> tuple[datetime, datetime]:
        """Whole UTC days, not beyond today: no bill knows the future.

        Raises:
            InvalidRequest: They are not whole, or none of them has begun.
        """
        for at in (start, end):
            if at.tzinfo is None or at.astimezone(UTC).time() != datetime.min.time():
                raise InvalidRequest(f"{at} is not the beginning of a UTC day: bills are by the day.")
        tomorrow = self._clock.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + DAY
        first, last = start.astimezone(UTC), min(end.astimezone(UTC), tomorrow)
        if first >= last:
            raise InvalidRequest(f"No day from {first:%Y-%m-%d} on has begun before {end:%Y-%m-%d}.")
        return first, last

    def _path(self, account: str, start: datetime, end: datetime) -> Path:
        return self._folder / f"{self.name}-{account}-{start:%Y%m%d}-{end:%Y%m%d}.json"

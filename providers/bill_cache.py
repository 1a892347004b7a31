"""What providers have said about bills, kept for some hours: some charge for the answer. Imports `base` and `clock`."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import platformdirs

from costgpu.clock import Clock
from costgpu.errors import InvalidRequest
from costgpu.providers.base import Bill, BilledRow

KEEP = timedelta(hours=6)
DAY = timedelta(days=1)


class KeptBills:
    """Answers of one provider.

    Args:
        provider: Whose.
        source: Of the figures, for people.
        clock: Tells how old an answer is.
        folder: For the answers; None for costgpu's own in the user's cache folder.
    """

    def __init__(self, provider: str, source: str, clock: Clock, folder: Path | None = None) -> None:
        self._provider = provider
        self._source = source
        self._clock = clock
        self._folder = folder or platformdirs.user_cache_path("costgpu", appauthor=False) / "billing"

    def read(self, account: str, start: datetime, end: datetime) -> Bill | None:
        """The answer about exactly these days that is not older than six hours; None if there is none."""
        try:
            bill = self._bill(json.loads(self._path(account, start, end).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, KeyError, InvalidOperation):
            return None
        age = self._clock.now() - bill.asked_at
        same = (bill.account, bill.start, bill.end) == (account, start, end)
        return bill if same and timedelta(0) <= age < KEEP else None

    def write(self, bill: Bill) -> None:
        """Keeps it. An answer that cannot be kept costs as much again the next time, and nothing else."""
        path = self._path(bill.account, bill.start, bill.end)
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    json.dump(_document(bill), file)
                Path(name).replace(path)
            finally:
                Path(name).unlink(missing_ok=True)

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
        return self._folder / f"{self._provider}-{account}-{start:%Y%m%d}-{end:%Y%m%d}.json"

    def _bill(self, document: Mapping[str, Any]) -> Bill:
        when = datetime.fromisoformat
        return Bill(
            provider=self._provider,
            account=str(document["account"]),
            start=when(document["start"]),
            end=when(document["end"]),
            rows=tuple(
                BilledRow(
                    run_id=str(run_id),
                    start=when(start),
                    end=when(end),
                    amount_usd=Decimal(amount),
                    estimated=bool(estimated),
                )
                for run_id, start, end, amount, estimated in document["rows"]
            ),
            asked_at=when(document["asked_at"]),
            source=self._source,
            requests=0,
            note=str(document["note"]),
        )


def _document(bill: Bill) -> dict[str, Any]:
    return {
        "account": bill.account,
        "start": bill.start.isoformat(),
        "end": bill.end.isoformat(),
        "asked_at": bill.asked_at.isoformat(),
        "note": bill.note,
        "rows": [
            [row.run_id, row.start.isoformat(), row.end.isoformat(), str(row.amount_usd), row.estimated]
            for row in bill.rows
        ],
    }

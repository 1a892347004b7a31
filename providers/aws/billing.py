"""What AWS itself says it has charged: Cost Explorer, by day and by our tag.

Every request costs $0.01 (Source: AWS Cost Management pricing, read 2026-11), so it is made only on a person's word, and
an answer is kept for six hours in the user's cache folder. Cost Explorer knows of a tag only from the day on which it was
activated as a cost allocation tag, and of costs about a day late.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from costgpu.clock import Clock
from costgpu.errors import AuthError, ProviderError
from costgpu.providers.aws.session import FALLBACK_REGION, Clients
from costgpu.providers.base import TAG_RUN, Bill, BilledRow
from costgpu.providers.bill_cache import KeptBills

SOURCE = "AWS Cost Explorer"
USD_PER_REQUEST = Decimal("0.01")
METRIC = "UnblendedCost"
NO_TAG = (
    f"No cost carries the tag {TAG_RUN}. If there were runs in these days, activate it: Billing console, Cost allocation"
    " tags. It takes up to 24 hours, and counts from then on."
)
ACCESS_HINT = (
    "Allow ce:GetCostAndUsage; what costgpu needs is in the file providers/aws/policy.json of the package. Cost Explorer"
    " must have been opened once in the Billing console, and the account must let IAM users see billing."
)


class CostExplorer:
    """The `Billing` of AWS.

    Args:
        clock: Tells how old a kept answer is.
        session: A ``boto3.Session``; None for the default one.
        cache: Folder for answers; None for costgpu's own in the user's cache folder.
    """

    def __init__(self, *, clock: Clock, session: Any | None = None, cache: Path | None = None) -> None:
        self._clock = clock
        self._clients = Clients(session)
        self._kept = KeptBills("aws", SOURCE, clock, cache)

    @property
    def name(self) -> str:
        """``aws``."""
        return "aws"

    @property
    def usd_per_request(self) -> Decimal:
        """One cent."""
        return USD_PER_REQUEST

    def kept(self, start: datetime, end: datetime) -> Bill | None:
        """The answer that is not older than six hours, if there is one; asks nobody for money."""
        start, end = self._kept.days(start, end)
        return self._kept.read(self._clients.identity().account, start, end)

    def billed(self, start: datetime, end: datetime, *, fresh: bool = False) -> Bill:
        """By run and day, from the kept answer or from Cost Explorer ($0.01 a request; one for each 5,000 rows).

        Raises:
            InvalidRequest: Not whole UTC days, or none of them has begun.
            AuthError: Cost Explorer may not be asked.
            ProviderError: It does not answer, or not in US dollars.
        """
        start, end = self._kept.days(start, end)
        account = self._clients.identity().account
        known = None if fresh else self._kept.read(account, start, end)
        if known is not None:
            return known
        pages = list(self._pages(start, end))
        rows = tuple(_rows(pages))
        spent = any(row.amount_usd for row in rows)
        bill = Bill(
            provider="aws",
            account=account,
            start=start,
            end=end,
            rows=rows,
            asked_at=self._clock.now(),
            source=SOURCE,
            requests=len(pages),
            note=NO_TAG if spent and not any(row.run_id for row in rows) else "",
        )
        self._kept.write(bill)
        return bill

    def _pages(self, start: datetime, end: datetime) -> Iterator[Mapping[str, Any]]:
        question: dict[str, Any] = {
            "TimePeriod": {"Start": f"{start:%Y-%m-%d}", "End": f"{end:%Y-%m-%d}"},
            "Granularity": "DAILY",
            "Metrics": [METRIC],
            "GroupBy": [{"Type": "TAG", "Key": TAG_RUN}],
        }
        seen: set[str] = set()
        while True:
            reply = self._ask(question)
            yield reply
            token = reply.get("NextPageToken")
            if not token or token in seen:
                return
            seen.add(token)
            question["NextPageToken"] = token

    def _ask(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            with self._clients.speaking("ask Cost Explorer what was billed"):
                client = self._clients.client("ce", FALLBACK_REGION, attempts=2)
                reply: Mapping[str, Any] = client.get_cost_and_usage(**question)
                return reply
        except AuthError as error:
            denied = "GetCostAndUsage" in error.message or "Cost Explorer" in str(error.__cause__)
            if not denied:
                raise
            raise AuthError(error.message, hint=ACCESS_HINT) from error.__cause__


def _rows(pages: list[Mapping[str, Any]]) -> Iterator[BilledRow]:
    for page in pages:
        for day in page.get("ResultsByTime", ()):
            start, end = (_day(day["TimePeriod"][key]) for key in ("Start", "End"))
            for group in day.get("Groups", ()):
                amount, unit = (group["Metrics"][METRIC][key] for key in ("Amount", "Unit"))
                if unit != "USD":
                    raise ProviderError(f"Cost Explorer answers in {unit}; costgpu counts in US dollars only.")
                run_id = str(group["Keys"][0]).removeprefix(f"{TAG_RUN}$")
                try:
                    usd = Decimal(str(amount))
                except InvalidOperation as exc:
                    raise ProviderError(f"Cost Explorer says {amount!r}, which is no amount.") from exc
                if usd:
                    yield BilledRow(
                        run_id=run_id, start=start, end=end, amount_usd=usd, estimated=bool(day.get("Estimated"))
                    )


def _day(text: str) -> datetime:
    return datetime.strptime(text[:10], "%Y-%m-%d").replace(tzinfo=UTC)

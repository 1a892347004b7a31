"""What AWS itself says it has charged: Cost Explorer, by day and by our tag.

Every request costs $0.01 (Source: AWS Cost Management pricing, read 2026-11), so it is made only on a person's word, and
an answer is kept for six hours in the user's cache folder. Cost Explorer knows of a tag only from the day on which it was
activated as a cost allocation tag, and of costs about a day late.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from costgpu.clock import Clock
from costgpu.errors import AuthError, ProviderError
from costgpu.models.bill import BilledRow
from costgpu.providers.aws.sdk import FALLBACK_REGION, Clients
from costgpu.providers.base import TAG_RUN
from costgpu.providers.bill_cache import CachedBilling

METRIC = "UnblendedCost"
NO_TAG = (
    f"No cost carries the tag {TAG_RUN}. If there were runs in these days, activate it: Billing console, Cost allocation"
    " tags. It takes up to 24 hours, and counts from then on."
)
ACCESS_HINT = (
    "Allow ce:GetCostAndUsage; what costgpu needs is in the file providers/aws/policy.json of the package. Cost Explorer"
    " must have been opened once in the Billing console, and the account must let IAM users see billing."
)


class CostExplorer(CachedBilling):
    """The `Billing` of AWS: $0.01 a request, one for each 5,000 rows."""

    name = "aws"
    source = "AWS Cost Explorer"
    usd_per_request = Decimal("0.01")
    no_tag_note = NO_TAG

    def __init__(self, *, clock: Clock, cache: Path | None = None) -> None:
        super().__init__(clock, cache)
        self._clients = Clients()

    def account(self) -> str:
        """Return the number of the account."""
        return self._clients.identity().account

    def ask(self, start: datetime, end: datetime) -> tuple[Sequence[BilledRow], int]:
        """By run and day."""
        pages = list(self._pages(start, end))
        return list(_rows(pages)), len(pages)

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
                reply: Mapping[str, Any] = self._clients.client(
                    "ce", FALLBACK_REGION, max_attempts=2
                ).get_cost_and_usage(**question)
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

"""What Google itself says it has charged: the billing export in BigQuery, by day and by our label.

Google Cloud has no API for costs by label; who wants them turns the export to BigQuery on once, in the Billing console.
A query is billed by the bytes that it reads, $6.25 per TiB (Source: BigQuery pricing, on-demand compute, 2026-11); each
is limited to less than a cent's worth, made only on a person's word, and its answer is kept for six hours.
Source of the table's columns: Cloud Billing, "Structure of Standard data export" (2026-11).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from costgpu.clock import Clock
from costgpu.errors import InvalidRequest, ProviderError, Unreachable
from costgpu.models.bill import BilledRow
from costgpu.providers.base import TAG_RUN
from costgpu.providers.bill_cache import DAY, CachedBilling
from costgpu.providers.gcp import sdk
from costgpu.providers.gcp.session import Clients, endpoint

BIGQUERY = "https://bigquery.googleapis.com"
MOST_BYTES = 1_600_000_000  # $0.0091
LATE = timedelta(days=3)  # so long Google adds to a day. Source: "Data export delays", same documentation (2026-11)
TRIES, WAIT_SECONDS = 30, 2.0
DOING = "ask BigQuery what was billed"
QUERY = """
SELECT
  IFNULL((SELECT value FROM UNNEST(labels) WHERE key = @label LIMIT 1), '') AS run,
  FORMAT_TIMESTAMP('%F', usage_start_time, 'UTC') AS day,
  currency,
  CAST(SUM(CAST(cost AS NUMERIC) + IFNULL((SELECT SUM(CAST(amount AS NUMERIC)) FROM UNNEST(credits)), 0)) AS STRING) AS net
FROM `{table}`
WHERE usage_start_time >= @start AND usage_start_time < @end
  AND DATE(_PARTITIONTIME) >= DATE_SUB(DATE(@start), INTERVAL 1 DAY)
  AND project.id = @project
GROUP BY run, day, currency
ORDER BY day, run, currency
"""


class BillingExport(CachedBilling):
    """The `Billing` of Google Cloud.

    Args:
        table: ``PROJECT.DATASET.TABLE`` of the export.
        project: Whose costs, and who pays for the query; None for that of the credentials, or of gcloud.
    """

    name = "gcp"
    source = "Google Cloud's billing export"
    usd_per_request = Decimal("0.01")  # a query that would read more is refused by BigQuery, and costs nothing
    no_tag_note = (
        f"No cost carries the label {TAG_RUN}: there were no runs in these days, or the export was turned on later."
    )

    def __init__(
        self,
        *,
        clock: Clock,
        table: str,
        project: str | None = None,
        cache: Path | None = None,
    ) -> None:
        super().__init__(clock, cache)
        self._table = table
        self._clients = Clients(clock, project)

    def account(self) -> str:
        """Return the project."""
        return self._clients.project

    def ask(self, start: datetime, end: datetime) -> tuple[Sequence[BilledRow], int]:
        """By run and day, credits subtracted."""
        return list(self._rows(start, end)), 1

    def _rows(self, start: datetime, end: datetime) -> Iterator[BilledRow]:
        for run_id, day, currency, net in self._answer(start, end):
            if currency != "USD":
                raise ProviderError(f"Google bills this project in {currency}; costgpu counts in US dollars only.")
            try:
                usd, first = Decimal(net), datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC)
            except (InvalidOperation, ValueError) as exc:
                raise ProviderError(f"BigQuery says {net!r} for {day!r}, which makes no sense.") from exc
            if usd:
                late = self._clock.now() - (first + DAY) < LATE
                yield BilledRow(run_id=run_id, start=first, end=first + DAY, amount_usd=usd, estimated=late)

    def _answer(self, start: datetime, end: datetime) -> Iterator[tuple[str, str, str, str]]:
        reply = self._ask("POST", "queries", self._question(start, end))
        job = reply.get("jobReference") or {}
        for _ in range(TRIES):
            if reply.get("jobComplete"):
                break
            self._clock.sleep(WAIT_SECONDS)
            reply = self._ask("GET", _results(job))
        else:
            raise Unreachable(f"Could not {DOING}: the query does not end.", hint="Try again later.")
        seen = {""}
        while True:
            for row in reply.get("rows") or ():
                run_id, day, currency, net = (str(cell.get("v") or "") for cell in row["f"])
                yield run_id, day, currency, net
            token = str(reply.get("pageToken") or "")
            if token in seen:
                return
            seen.add(token)
            reply = self._ask("GET", _results(job, token))

    def _question(self, start: datetime, end: datetime) -> dict[str, Any]:
        values = {
            "label": ("STRING", TAG_RUN),
            "project": ("STRING", self._clients.project),
            "start": ("TIMESTAMP", start.isoformat()),
            "end": ("TIMESTAMP", end.isoformat()),
        }
        return {
            "query": QUERY.format(table=self._table),
            "useLegacySql": False,
            "timeoutMs": 15000,
            "maximumBytesBilled": str(MOST_BYTES),
            "parameterMode": "NAMED",
            "queryParameters": [
                {"name": name, "parameterType": {"type": kind}, "parameterValue": {"value": value}}
                for name, (kind, value) in values.items()
            ],
        }

    def _ask(self, method: str, path: str, document: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        url = f"{endpoint() or BIGQUERY}/bigquery/v2/projects/{self._clients.project}/{path}"
        try:
            return sdk.document(self._clients.asked(DOING, method, url, document))
        except ProviderError as error:
            reasons = sdk.reasons_of(error.__cause__)
            if "bytesBilledLimitExceeded" in reasons:
                raise ProviderError(
                    f"The export {self._table} is so large that the query would cost more than a cent.",
                    hint="Ask about fewer days: the table is divided by day.",
                ) from error.__cause__
            if sdk.is_missing(error.__cause__):
                raise InvalidRequest(
                    f"BigQuery knows no table {self._table}.",
                    hint="Turn the export on in the Billing console (Billing export, standard usage cost), and set"
                    " gcp_billing_table = PROJECT.DATASET.gcp_billing_export_v1_...",
                ) from error.__cause__
            raise


def _results(job: Mapping[str, Any], token: str = "") -> str:
    fields = {"timeoutMs": "15000", "location": job.get("location"), "pageToken": token}
    query = urlencode({key: value for key, value in fields.items() if value})
    return f"queries/{job.get('jobId', '')}?{query}"

"""Google's billing export, asked over HTTP as BigQuery's API is: the query, pages, slow jobs, refusals, kept answers."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from costgpu.clock import ManualClock
from costgpu.config import config_file
from costgpu.errors import AuthError, InvalidRequest, ProviderError, Unreachable
from costgpu.providers.gcp.billing import BillingExport
from tests.cli.here import told

START, END = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 4, tzinfo=UTC)
DAY = timedelta(days=1)
TABLE = "research-42.billing.gcp_billing_export_v1_0123AB"
JOB = {"projectId": "research-42", "jobId": "job_1", "location": "EU"}


class BigQuery:
    """Answers in turn; remembers what was asked."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, Any]]] = []
        self.asked: list[tuple[str, str, dict[str, Any]]] = []

    def says(self, document: dict[str, Any], status: int = 200) -> None:
        self.answers.append((status, document))


@pytest.fixture
def bigquery(monkeypatch: pytest.MonkeyPatch) -> Iterator[BigQuery]:
    state = BigQuery()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            state.asked.append((self.command, self.path, json.loads(self.rfile.read(length) or b"{}")))
            status, document = state.answers.pop(0)
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("COSTGPU_GCP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "research-42")
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 11, 5, 12, tzinfo=UTC))


@pytest.fixture
def bills(bigquery: BigQuery, clock: ManualClock, tmp_path: Path) -> BillingExport:
    return BillingExport(clock=clock, table=TABLE, cache=tmp_path / "kept")


def rows(*cells: tuple[str | None, ...], **more: Any) -> dict[str, Any]:
    found = [{"f": [{"v": cell} for cell in row]} for row in cells]
    return {"jobComplete": True, "jobReference": JOB, "rows": found, **more}


def refusal(status: int, reason: str, message: str) -> dict[str, Any]:
    return {"error": {"code": status, "message": message, "errors": [{"reason": reason, "message": message}]}}


def test_days_runs_and_what_has_no_run(bigquery: BigQuery, bills: BillingExport, clock: ManualClock) -> None:
    bigquery.says(
        rows(
            ("", "2026-11-01", "USD", "10.5"),
            ("aaaa", "2026-11-01", "USD", "0.305244100"),
            ("bbbb", "2026-11-03", "USD", "1.25"),
            ("free", "2026-11-03", "USD", "0"),
        )
    )
    bill = bills.billed(START, END)
    assert [(row.run_id, row.start, row.end, row.amount_usd, row.estimated) for row in bill.rows] == [
        ("", START, START + DAY, Decimal("10.5"), False),
        ("aaaa", START, START + DAY, Decimal("0.3052441"), False),
        ("bbbb", END - DAY, END, Decimal("1.25"), True),
    ]
    assert (bill.provider, bill.account, bill.asked_at, bill.requests, bill.note) == (
        "gcp",
        "research-42",
        clock.now(),
        1,
        "",
    )
    ((method, path, question),) = bigquery.asked
    assert (method, path) == ("POST", "/bigquery/v2/projects/research-42/queries")
    assert f"`{TABLE}`" in question["query"]
    assert not question["useLegacySql"]
    assert int(question["maximumBytesBilled"]) * 6.25 / 2**40 < bills.usd_per_request, "less than it says"
    values = {each["name"]: each["parameterValue"]["value"] for each in question["queryParameters"]}
    assert values == {
        "label": "costgpu-run",
        "project": "research-42",
        "start": "2026-11-01T00:00:00+00:00",
        "end": "2026-11-04T00:00:00+00:00",
    }


def test_a_slow_query_and_several_pages(bigquery: BigQuery, bills: BillingExport) -> None:
    bigquery.says({"jobComplete": False, "jobReference": JOB})
    bigquery.says({"jobComplete": False, "jobReference": JOB})
    bigquery.says(rows(("aaaa", "2026-11-01", "USD", "1"), pageToken="next+1/=="))
    bigquery.says(rows(("bbbb", "2026-11-02", "USD", "2")))
    assert [row.run_id for row in bills.billed(START, END).rows] == ["aaaa", "bbbb"]
    assert [path.partition("?")[0] for _, path, _ in bigquery.asked[1:]] == [
        "/bigquery/v2/projects/research-42/queries/job_1"
    ] * 3
    assert all("location=EU" in path for _, path, _ in bigquery.asked[1:])
    assert parse_qs(urlsplit(bigquery.asked[3][1]).query)["pageToken"] == ["next+1/=="]


def test_a_query_that_never_ends(bigquery: BigQuery, bills: BillingExport) -> None:
    for _ in range(40):
        bigquery.says({"jobComplete": False, "jobReference": JOB})
    with pytest.raises(Unreachable, match="does not end"):
        bills.billed(START, END)


def test_what_nothing_is_labelled_says_so(bigquery: BigQuery, bills: BillingExport) -> None:
    bigquery.says(rows(("", "2026-11-01", "USD", "10")))
    assert "costgpu-run" in bills.billed(START, END).note


@pytest.mark.parametrize(
    ("status", "reason", "message", "kind", "words"),
    [
        (404, "notFound", "Not found: Table research-42:billing.x", InvalidRequest, "gcp_billing_table"),
        (403, "accessDenied", "Access Denied: User does not have bigquery.jobs.create permission", AuthError, ""),
        (400, "bytesBilledLimitExceeded", "Query exceeded limit for bytes billed", ProviderError, "fewer days"),
    ],
)
def test_refusals(
    bigquery: BigQuery, bills: BillingExport, status: int, reason: str, message: str, kind: type[Exception], words: str
) -> None:
    bigquery.says(refusal(status, reason, message), status)
    with pytest.raises(kind) as caught:
        bills.billed(START, END)
    assert type(caught.value) is kind
    assert words in caught.value.hint  # type: ignore[attr-defined]
    assert not list(Path().glob("kept/*"))


def test_another_currency_is_refused(bigquery: BigQuery, bills: BillingExport) -> None:
    bigquery.says(rows(("aaaa", "2026-11-01", "EUR", "1")))
    with pytest.raises(ProviderError, match="EUR"):
        bills.billed(START, END)


def test_the_command_stores_what_google_says(bigquery: BigQuery) -> None:
    config_file().parent.mkdir(parents=True)
    config_file().write_text(f'gcp_billing_table = "{TABLE}"\n')
    month = f"{datetime.now(UTC) - timedelta(days=40):%Y-%m}"
    bigquery.says(rows(("aaaa", f"{month}-05", "USD", "1.75")))
    code, out, err = told("ledger", "billed", "--month", month, "-y")
    assert (code, "$1.75" in out, "billing export" in out) == (0, True, True), (out, err)
    code, out, err = told("ledger", "billed", "--month", month, "--stored")
    assert (code, "$1.75" in out) == (0, True), (out, err)
    assert len(bigquery.asked) == 1

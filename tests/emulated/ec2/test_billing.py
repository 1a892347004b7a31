"""Cost Explorer on the emulated account: what is asked, what is kept, what it says when it may not be asked."""

import json
import urllib.request
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from costgpu.clock import ManualClock
from costgpu.errors import AuthError, InvalidRequest, ProviderError, Throttled, Unreachable
from costgpu.ledger import Ledger
from costgpu.ledger.records.billed import latest_bills
from costgpu.ledger.schema import billed
from costgpu.providers.aws.billing import CostExplorer
from tests.cli.here import told
from tests.emulators.ec2.client import RunningEc2
from tests.emulators.ec2.planted_orphans import as_user

START, END = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 4, tzinfo=UTC)
DAY = timedelta(days=1)


def day(number: int, *, estimated: bool = False, **usd: str) -> dict[str, Any]:
    """One entry of ResultsByTime; the key ``none`` is what has no tag."""
    start = START + number * DAY
    return {
        "TimePeriod": {"Start": f"{start:%Y-%m-%d}", "End": f"{start + DAY:%Y-%m-%d}"},
        "Estimated": estimated,
        "Total": {},
        "Groups": [
            {
                "Keys": [f"costgpu-run${'' if run == 'none' else run}"],
                "Metrics": {"UnblendedCost": {"Amount": amount, "Unit": "USD"}},
            }
            for run, amount in usd.items()
        ],
    }


def says(cloud: RunningEc2, *pages: dict[str, Any]) -> None:
    """What Cost Explorer answers to the next questions."""
    request = urllib.request.Request(
        f"{cloud.url}/moto-api/static/ce/cost-and-usage-results",
        data=json.dumps({"results": list(pages)}).encode(),
        headers={"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=10).close()


def page(*days: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"ResultsByTime": list(days), "DimensionValueAttributes": [], **more}


def asked(cloud: RunningEc2) -> list[dict[str, Any]]:
    return [row for row in cloud.requests() if row["action"] == "GetCostAndUsage"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 11, 21, 12, tzinfo=UTC))


@pytest.fixture
def bills(cloud: RunningEc2, clock: ManualClock, tmp_path: Path) -> CostExplorer:
    return CostExplorer(clock=clock, cache=tmp_path / "kept")


def test_days_and_runs_and_what_has_no_run(cloud: RunningEc2, bills: CostExplorer, clock: ManualClock) -> None:
    says(cloud, page(day(0, none="10.5", aaaa="0.3052441000"), day(1, aaaa="0"), day(2, estimated=True, bbbb="2E-7")))
    bill = bills.billed(START, END)
    rows = [(row.run_id, row.start, row.end, row.amount_usd, row.estimated) for row in bill.rows]
    assert rows == [
        ("", START, START + DAY, Decimal("10.5"), False),
        ("aaaa", START, START + DAY, Decimal("0.3052441"), False),
        ("bbbb", START + 2 * DAY, END, Decimal("2E-7"), True),
    ]
    assert (bill.provider, bill.account, bill.start, bill.end) == ("aws", "123456789012", START, END)
    assert (bill.asked_at, bill.requests, bill.note, bill.source) == (clock.now(), 1, "", "AWS Cost Explorer")
    [row] = asked(cloud)
    assert row["region"] == "us-east-1"
    assert row["params"] == {
        "TimePeriod": {"Start": "2026-11-01", "End": "2026-11-04"},
        "Granularity": "DAILY",
        "Metrics": ["UnblendedCost"],
        "GroupBy": [{"Type": "TAG", "Key": "costgpu-run"}],
    }


def test_all_pages_are_read_and_counted(cloud: RunningEc2, bills: CostExplorer) -> None:
    says(cloud, page(day(0, aaaa="1"), NextPageToken="more"), page(day(0, bbbb="2")))
    bill = bills.billed(START, END)
    assert {row.run_id: row.amount_usd for row in bill.rows} == {"aaaa": 1, "bbbb": 2}
    assert bill.requests == 2
    assert [row["params"].get("NextPageToken") for row in asked(cloud)] == [None, "more"]


def test_a_token_that_comes_again_is_no_reason_to_pay_for_ever(cloud: RunningEc2, bills: CostExplorer) -> None:
    says(cloud, *[page(day(0, aaaa="1"), NextPageToken="same")] * 5)
    assert bills.billed(START, END).requests == 2


def test_an_answer_is_kept_for_six_hours_and_shows_its_age(
    cloud: RunningEc2, bills: CostExplorer, clock: ManualClock, tmp_path: Path
) -> None:
    assert bills.kept(START, END) is None
    says(cloud, page(day(0, aaaa="1", none="3")))
    first = bills.billed(START, END)
    clock.sleep(6 * 3600 - 1)
    again = CostExplorer(clock=clock, cache=tmp_path / "kept")
    assert again.billed(START, END) == again.kept(START, END) == replace(first, requests=0)
    assert len(asked(cloud)) == 1
    assert again.kept(START, END - DAY) is None
    clock.sleep(2)
    assert bills.kept(START, END) is None
    assert bills.billed(START, END).asked_at == clock.now()
    assert len(asked(cloud)) == 2
    bills.billed(START, END, fresh=True)
    assert len(asked(cloud)) == 3
    assert CostExplorer(clock=ManualClock(START), cache=tmp_path / "kept").kept(START, END) is None  # from the future
    [kept] = (tmp_path / "kept").iterdir()
    assert kept.name == "aws-123456789012-20261101-20261104.json"
    assert kept.stat().st_mode & 0o077 == 0
    for damage in ("", "[]", "{}", '{"account": 1}', "null"):
        kept.write_text(damage)
        assert bills.kept(START, END) is None


def test_an_answer_that_cannot_be_kept_is_an_answer(cloud: RunningEc2, clock: ManualClock, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    says(cloud, page(day(0, aaaa="1")))
    bills = CostExplorer(clock=clock, cache=tmp_path / "file")
    assert len(bills.billed(START, END).rows) == 1
    assert bills.kept(START, END) is None
    assert (tmp_path / "file").read_text() == "not a folder"


def test_a_tag_that_is_not_activated_is_told_with_what_to_do(cloud: RunningEc2, bills: CostExplorer) -> None:
    says(cloud, page(day(0, none="4.2"), day(1, none="4.2")))
    note = bills.billed(START, END).note
    assert "costgpu-run" in note
    assert "activate" in note
    assert "24 hours" in note
    assert bills.billed(START, END).note == note
    assert bills.billed(START, END - DAY).note == ""  # an account without any cost is no sign of it


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (
            {
                "code": "AccessDeniedException",
                "message": "User: arn:aws:iam::1:user/ann is not authorized to perform:"
                " ce:GetCostAndUsage on resource: x",
                "status": 400,
            },
            AuthError,
            "ce:GetCostAndUsage is not allowed",
        ),
        (
            {"code": "AccessDeniedException", "message": "User not enabled for cost explorer access"},
            AuthError,
            "enabled",
        ),
        ({"code": "LimitExceededException", "message": "Rate exceeded"}, Throttled, "LimitExceeded"),
        ({"code": "ThrottlingException", "message": "Rate exceeded"}, Throttled, "Rate"),
        ({"code": "DataUnavailableException", "message": "not ready"}, ProviderError, "not ready"),
        ({"drop": True}, Unreachable, "Cost Explorer"),
    ],
)
def test_failures_have_their_class(
    cloud: RunningEc2, bills: CostExplorer, fault: dict[str, Any], kind: type[ProviderError], words: str
) -> None:
    cloud.fault({"action": "GetCostAndUsage", "times": -1, **fault})
    with pytest.raises(ProviderError) as caught:
        bills.billed(START, END)
    assert type(caught.value) is kind
    assert words in caught.value.message
    assert caught.value.__cause__ is not None
    if kind is AuthError:
        assert "ce:GetCostAndUsage" in caught.value.hint
    assert bills.kept(START, END) is None


def test_another_currency_is_refused(cloud: RunningEc2, bills: CostExplorer) -> None:
    answer = page(day(0, aaaa="1"))
    answer["ResultsByTime"][0]["Groups"][0]["Metrics"]["UnblendedCost"]["Unit"] = "CNY"
    says(cloud, answer)
    with pytest.raises(ProviderError, match="CNY"):
        bills.billed(START, END)


def test_only_days_that_have_begun_can_be_asked_for(cloud: RunningEc2, bills: CostExplorer) -> None:
    for start, end in (
        (START + timedelta(hours=1), END),
        (START.replace(tzinfo=None), END),
        (END, START),
        (START, START),
        (datetime(2026, 12, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)),
    ):
        with pytest.raises(InvalidRequest):
            bills.billed(start, end)
    assert not asked(cloud)
    assert bills.billed(START, datetime(2026, 12, 1, tzinfo=UTC)).end == datetime(2026, 11, 22, tzinfo=UTC)
    assert asked(cloud)[0]["params"]["TimePeriod"]["End"] == "2026-11-22"


def test_the_shipped_policy_allows_it(cloud: RunningEc2, bills: CostExplorer, monkeypatch: pytest.MonkeyPatch) -> None:
    as_user(cloud, monkeypatch)
    assert bills.billed(START, END).rows == ()


class TestCommand:
    """`costgpu ledger billed`."""

    @pytest.fixture(autouse=True)
    def here(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.chdir(tmp_path)

    def test_nobody_pays_without_a_word(self, cloud: RunningEc2) -> None:
        code, out, err = told("ledger", "billed")
        assert (code, out) == (7, "")
        assert "$0.01 a request" in err
        assert "-y" in err
        assert not asked(cloud)

    def test_metered_beside_billed_is_shown_and_stored(self, cloud: RunningEc2) -> None:
        month = datetime.now(UTC).replace(day=1)
        start = f"{month:%Y-%m-01}"
        answer = day(0, aaaa="1.25", none="40")
        answer["TimePeriod"] = {"Start": start, "End": f"{month:%Y-%m-02}"}
        says(cloud, page(answer))
        code, out, err = told("ledger", "billed", "--yes")
        assert code == 0, err
        assert "aaaa" in out
        assert "$1.25" in out
        assert "the whole account: $40.00" in out
        assert "AWS Cost Explorer, asked just now." in out
        assert len(asked(cloud)) == 1
        # Kept: nobody has to agree, and nothing new is written.
        code, again, _ = told("ledger", "billed")
        assert code == 0
        assert again.splitlines()[:3] == out.splitlines()[:3]
        assert len(asked(cloud)) == 1
        with Ledger.open() as ledger:
            start_of, end_of = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
            kept = [(cost.run_id, cost.amount_usd) for cost in latest_bills(ledger, start_of, end_of)]
            assert sorted(kept) == [("", Decimal(40)), ("aaaa", Decimal("1.25"))]
            assert ledger.read(lambda c: c.scalar(select(func.count()).select_from(billed)) or 0, 0) == 2
        cloud.fault({"drop": True, "times": -1})
        code, stored, _ = told("ledger", "billed", "--stored", "--json")
        document = json.loads(stored)
        assert code == 0
        assert (document["schema"], document["billed_usd"], document["untagged_billed_usd"]) == (
            "costgpu.billed",
            "1.250000000",
            "40.000000000",
        )

    def test_a_refusal_is_an_error_with_the_action(self, cloud: RunningEc2) -> None:
        cloud.fault({"action": "GetCostAndUsage", "code": "AccessDeniedException", "times": -1})
        code, out, err = told("ledger", "billed", "--yes")
        assert (code, out) == (41, "")
        assert "ce:GetCostAndUsage" in err

    @pytest.mark.parametrize("words", [("--month", "2026"), ("--month", "9999-12"), ("--stored", "--fresh")])
    def test_what_cannot_be_meant(self, cloud: RunningEc2, words: tuple[str, ...]) -> None:
        code, out, err = told("ledger", "billed", *words)
        assert (code, out) == (2, ""), err
        assert not asked(cloud)

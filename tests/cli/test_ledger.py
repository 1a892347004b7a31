"""`costgpu ledger` as a person uses it, and the loop from a run to the next estimate."""

import csv
import io
import json
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from costgpu.errors import AuthError, ProviderError, Throttled
from costgpu.ledger import Ledger
from costgpu.ledger.records.measured_speeds import measured_speeds
from costgpu.measure import workload_key
from costgpu.measure.profile_file import save_profile
from costgpu.models.bill import Bill, BilledRow
from costgpu.models.run import RunState
from costgpu.workflows.spending import billed
from tests.cli.here import Here, told
from tests.unit.estimator.test_profiles import phase, profile
from tests.unit.ledger.closed import Closed, plant

AT = datetime(2026, 10, 31, 22, 30, tzinfo=UTC)
RUNS = [
    Closed(started=AT, seconds=7200.0, cost=Decimal("2.00"), tags={"team": "nlp"}),
    Closed(started=AT + timedelta(days=1), cost=Decimal("0.75"), name="eval", owner="bob@desk", spot=True, gpu=""),
    Closed(started=AT + timedelta(days=2), cost=Decimal("0.25"), reason="idle", tags={"team": "vision"}),
]


@pytest.fixture
def ids(here: Here) -> list[str]:
    return planted(here, *RUNS)


def planted(here: Here, *runs: Closed) -> list[str]:
    with Ledger.open(folder=here.data) as ledger:
        return plant(ledger, runs)


def lines(here: Here, *words: str) -> list[str]:
    result = here.told("ledger", *words).check(0)
    found = result.out.splitlines()
    assert max(map(len, found), default=0) <= 80
    return found


def test_an_empty_ledger_says_so_and_stays_empty(here: Here) -> None:
    assert lines(here) == ["No closed runs yet. costgpu run train.py starts one."]
    assert lines(here, "--by", "month") == ["No such runs."]
    assert lines(here, "accuracy") == ["Nothing to compare yet: no run that had an estimate has succeeded."]
    assert len(here.told("ledger", "export").out.splitlines()) == 1
    assert json.loads(here.told("ledger", "export", "--format", "json").out)["runs"] == []
    assert not (here.data / "ledger.sqlite").exists()


def test_history(here: Here, ids: list[str]) -> None:
    head, *rows = lines(here)
    assert head.split() == ["RUN", "JOB", "BEGAN", "(UTC)", "WHERE", "TIME", "COST", "END"]
    assert [row.split()[0] for row in rows] == ids[::-1]
    assert rows[2].split()[1:] == ["train", "2026-10-31", "22:30", "g5.xlarge", "2.0", "h", "$2.00", "ok"]
    for words, meant in {
        ("--limit", "1"): ids[2:],
        ("--person", "bob"): ids[1:2],
        ("--name", "eval"): ids[1:2],
        ("--tag", "team=nlp"): ids[:1],
        ("--provider", "AWS", "--since", "2026-11"): ids[::-1],  # the first one ran into November
        ("--since", "2026-11-01T01:00"): ids[:0:-1],
        ("--until", "2026-11"): ids[:1],
        ("--since", "2026-11-02", "--until", "2026-11-02T22:00"): [],
    }.items():
        document = json.loads(here.told("ledger", "--json", *words).out)
        assert (document["schema"], document["version"]) == ("costgpu.ledger", 1)
        assert [run["run_id"] for run in document["runs"]] == meant, words
    assert lines(here, "--name", "nobody") == ["No such runs."]
    assert lines(here, "--limit", "2")[-1].startswith("The newest 2")


def test_names_of_any_length_fit(here: Here) -> None:
    planted(
        here, Closed(started=AT, name="n" * 60, instance_type="u-24tb1.112xlarge", seconds=9e6, cost=Decimal(10**8))
    )
    assert "…" in lines(here)[1]
    for by in ("job", "instance", "month"):
        lines(here, "--by", by)


@pytest.mark.slow
def test_open_runs_are_pointed_at(here: Here) -> None:
    here.write("train.py", "import time; time.sleep(60)")
    run_id = here.detached("train.py")
    result = here.told("ledger")
    assert "1 run is not closed yet: costgpu jobs" in result.err
    assert run_id not in result.out
    here.told("cancel", run_id, "-y", "--now")


@pytest.mark.parametrize(
    ("by", "rows"),
    [
        ("month", [("2026-10", 1, "1.5"), ("2026-11", 2, "1.5")]),
        ("day", [("2026-10-31", 1, "1.5"), ("2026-11-01", 1, "1.25"), ("2026-11-02", 1, "0.25")]),
        ("job", [("train", 2, "2.25"), ("eval", 1, "0.75")]),
        ("person", [("ann", 2, "2.25"), ("bob", 1, "0.75")]),
        ("provider", [("aws", 3, "3")]),
        ("instance", [("aws g5.xlarge", 3, "3")]),
        ("reason", [("succeeded", 2, "2.75"), ("idle", 1, "0.25")]),
        ("tag:team", [("nlp", 1, "2"), (None, 1, "0.75"), ("vision", 1, "0.25")]),
    ],
)
def test_totals(here: Here, ids: list[str], by: str, rows: list[tuple[str | None, int, str]]) -> None:
    document = json.loads(here.told("ledger", "--by", by, "--json").out)
    assert [(group["key"], group["runs"], group["cost_usd"]) for group in document["groups"]] == rows
    total = document["total"]
    assert (total["runs"], total["cost_usd"], total["wasted_usd"], total["machine_hours"]) == (3, "3", "0.25", 4.0)
    shown = lines(here, "--by", by)
    assert shown[0].split() == [by.upper(), "RUNS", "HOURS", "COST", "WASTED"]
    assert [line.rsplit(maxsplit=4)[0] for line in shown[1 : 1 + len(rows)]] == [key or "(none)" for key, *_ in rows]
    assert shown[-1] == "Wasted: runs that failed, were lost or idled, 8% of the cost."


def test_totals_of_a_period_count_shares(here: Here, ids: list[str]) -> None:
    shown = lines(here, "--by", "job", "--since", "2026-11", "--until", "2026-11-01T01:00")
    assert shown[1].split() == ["train", "1", "0.50", "$0.50", "$0.00"]
    assert shown[2] == "Charged from 2026-11-01 00:00 UTC and before 2026-11-01 01:00 UTC."


class TestExport:
    def test_csv_to_a_file_that_is_not_overwritten(self, here: Here, ids: list[str]) -> None:
        done = here.told("ledger", "export", "-o", "runs.csv")
        assert (done.code, done.out, done.err) == (0, "", "Written: runs.csv\n")
        file = here.project / "runs.csv"
        first = file.read_text()
        assert [row["run_id"] for row in csv.DictReader(io.StringIO(first))] == ids
        here.told("ledger", "export", "-o", "runs.csv", "--name", "eval").check(
            2, err=["runs.csv exists already", "--force"]
        )
        assert file.read_text() == first
        file.chmod(0o640)
        assert here.told("ledger", "export", "-o", "runs.csv", "--name", "eval", "--force").code == 0
        assert len(file.read_text().splitlines()) == 2
        assert file.stat().st_mode & 0o777 == 0o640
        assert list(here.project.iterdir()) == [file], "no drafts are left"

    def test_a_link_is_followed_and_other_things_are_refused(self, here: Here, ids: list[str]) -> None:
        (here.project / "real.csv").write_text("old")
        (here.project / "link.csv").symlink_to("real.csv")
        assert here.told("ledger", "export", "-o", "link.csv").code == 2
        assert here.told("ledger", "export", "-o", "link.csv", "--force").code == 0
        assert (here.project / "link.csv").is_symlink()
        assert "run_id" in (here.project / "real.csv").read_text()
        for target in (".", "nowhere/runs.csv", "/dev/null"):
            refused = here.told("ledger", "export", "-o", target, "--force").check(2)
            assert "Traceback" not in refused.err

    def test_nothing_is_left_of_a_file_that_could_not_be_finished(self, here: Here, ids: list[str]) -> None:
        (here.data / "ledger.sqlite").write_bytes(b"dear diary " * 1000)
        here.told("ledger", "export", "-o", "runs.csv").check(72)
        assert list(here.project.iterdir()) == []

    def test_focus(self, here: Here, ids: list[str]) -> None:
        rows = list(csv.DictReader(io.StringIO(here.told("ledger", "export", "--format", "focus").out)))
        assert [(row["x_RunId"], row["BillingPeriodStart"][:7], row["BilledCost"]) for row in rows] == [
            (ids[0], "2026-10", "1.5"),
            (ids[0], "2026-11", "0.5"),
            (ids[1], "2026-11", "0.75"),
            (ids[2], "2026-11", "0.25"),
        ]
        assert rows[2]["PricingCategory"] == "Dynamic"
        words = ("ledger", "export", "--format", "focus", "--since", "2026-11")
        november = list(csv.DictReader(io.StringIO(here.told(*words).out)))
        assert november == rows[1:]
        metadata = json.loads(here.told("ledger", "export", "--format", "focus-metadata").out)
        assert metadata["Schema"][0]["FocusVersion"] == "1.2"

    def test_json_is_what_the_history_says(self, here: Here, ids: list[str]) -> None:
        exported = json.loads(here.told("ledger", "export", "--format", "json").out)["runs"]
        assert exported == json.loads(here.told("ledger", "--json", "--limit", "0").out)["runs"][::-1]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--by", "colour"], "job, month, day"),
        (["--by", "tag"], "--by tag:team"),
        (["--by", "job:x"], "no such totals"),
        (["--since", "yesterday"], "is no time"),
        (["--since", "2026-13"], "is no time"),
        (["--since", "99999999d"], "is no time"),
        (["--since", "2026-11", "--until", "2026-10"], "is not after"),
        (["--tag", "team"], "key=value"),
        (["--limit", "-1"], "--limit"),
        (["--since", "2026", "export"], "stand behind it"),
        (["export", "--format", "xlsx"], "no format"),
        (["rewrite"], "No such command"),
    ],
)
def test_mistakes(here: Here, words: list[str], text: str) -> None:
    here.told("ledger", *words).check(2, out="", err=text)


def test_accuracy(here: Here) -> None:
    times = {"seconds": 3000.0, "seconds_low": 2800.0, "seconds_high": 3500.0, "job_seconds": 2900.0}
    estimate = {**times, "cost_usd": 1.0, "cost_usd_low": 0.9, "cost_usd_high": 1.2}
    ids = planted(here, Closed(started=AT, job_seconds=3500.0, estimate=estimate, cost=Decimal("1.2")), *RUNS)
    shown = lines(here, "accuracy")
    assert shown[:2] == [
        "1 run compared. Median error of the time 20%, of the cost 20%.",
        "The 80 % interval held for 0 of 1 (0%).",
    ]
    assert shown[-2].split() == [ids[0], "g5.xlarge", "50", "min", "60", "min", "+20%!", "$1.00", "$1.20", "-"]
    document = json.loads(here.told("ledger", "accuracy", "--json").out)
    assert document["groups"][0]["held"] == 0
    assert document["runs"][0]["interval_held"] is False


# ------------------------------------------------------------------------------- the loop: run, measured, estimated


def measured_profile(here: Here, **more: Any) -> Path:
    """As of a script that takes 20 s a step here, 5,000 times."""
    slow = phase(5000, 500)
    slow = replace(slow, step=replace(slow.step, median_seconds=20, mean_seconds=20, low_seconds=19, high_seconds=21))
    file = here.project / "profile.json"
    save_profile(replace(profile(slow), workload="w" * 32, **more), file)
    return file


def estimated(here: Here, *words: str) -> dict[str, Any]:
    result = here.told("estimate", "--json", "--infra", "aws/us-east-1", *words, "profile.json").check(0)
    document: dict[str, Any] = json.loads(result.out)
    return document


def ran(seconds: float, **more: Any) -> Closed:
    facts = {"workload": "w" * 32, "steps": 5000.0, "seconds": seconds + 200, **more}
    return Closed(started=AT, job_seconds=seconds, **facts)


def test_the_next_estimate_starts_from_what_was_measured(here: Here) -> None:
    measured_profile(here)
    modelled = estimated(here)
    assert {row["provenance"] for row in modelled["table"]} == {"modelled"}
    planted(here, ran(990.0), ran(1000.0), ran(1015.0, spot=True))
    document = estimated(here)
    best = document["recommended"]
    assert (best["offer"]["instance_type"], best["provenance"]) == ("g5.xlarge", "measured")
    assert best["run_seconds"]["value"] == pytest.approx(1000.0, abs=1e-3)
    assert 900 < best["run_seconds"]["low"] < 960 < 1040 < best["run_seconds"]["high"] < 1100
    hours = (best["wall_seconds"]["value"]) / 3600
    assert best["cost_usd"]["value"] == pytest.approx(
        hours * (float(best["offer"]["price_usd_per_hour"]) + 0.016), rel=0.01
    )
    shown = here.told("estimate", "--explain", "--infra", "aws/us-east-1", "profile.json").out
    assert "measured in 3 runs, last 2026-10-31" in shown
    assert "this machine: measured" not in shown
    assert any("g5.xlarge" in line and "measured" in line for line in shown.splitlines())


def test_another_length_or_another_workload_is_not_what_was_measured(here: Here) -> None:
    measured_profile(here)
    planted(here, ran(1000.0), ran(10.0, workload="x" * 32, instance_type="g6.xlarge"))
    assert estimated(here)["recommended"]["provenance"] == "measured"
    for words in (["--epochs", "20"], ["--total-steps", "2500"]):
        assert {row["provenance"] for row in estimated(here, *words)["table"]} == {"modelled"}
    measured_profile(here, script="other.py")
    profile_file = here.project / "profile.json"
    profile_file.write_text(profile_file.read_text().replace("w" * 32, "y" * 32))
    assert {row["provenance"] for row in estimated(here)["table"]} == {"modelled"}


def test_a_ledger_that_cannot_be_used_does_not_stop_an_estimate(here: Here) -> None:
    measured_profile(here)
    here.data.mkdir(parents=True)
    (here.data / "ledger.sqlite").write_bytes(b"dear diary " * 1000)
    result = here.told("estimate", "profile.json").check(0, out="GPU")
    (line,) = result.err.splitlines()
    assert line.startswith("costgpu: Earlier runs are not known: The ledger")


@pytest.mark.skipif(sys.platform != "linux", reason="this machine as a machine needs Linux")
def test_a_real_run_leaves_its_speed(here: Here) -> None:
    script = here.write("train.py", "import time\ntime.sleep(1.2)\n")
    for _ in range(2):
        assert here.run("train.py", "--epochs", "3").code == 0
    assert here.last().state is RunState.CLOSED
    key = workload_key(
        script=script.resolve(), module=None, arguments=["--epochs", "3"], workdir=here.project.resolve()
    )
    with Ledger.open(folder=here.data) as ledger:
        (speed,) = measured_speeds(ledger, key, here=("local", here.last().identity.account)).values()
        assert measured_speeds(ledger, key, here=("local", "another computer")) == {}
    assert (speed.runs, speed.steps) == (2, None)
    assert 1.2 <= speed.job_seconds < 10
    assert [line.split()[-1] for line in lines(here)[1:]] == ["ok", "ok"]
    script.write_text("import time\ntime.sleep(1.3)\n")
    assert key != workload_key(
        script=script.resolve(), module=None, arguments=["--epochs", "3"], workdir=here.project.resolve()
    )


class Teller:
    """A provider that tells what it has billed, or refuses at one of the two questions."""

    def __init__(self, name: str, *, kept: ProviderError | None = None, refusal: ProviderError | None = None) -> None:
        self.name, self.usd_per_request = name, Decimal("0.01")
        self._kept, self._refusal = kept, refusal

    def kept(self, start: datetime, end: datetime) -> Bill | None:
        if self._kept:
            raise self._kept
        return self._bill(start, end)

    def billed(self, start: datetime, end: datetime, *, fresh: bool = False) -> Bill:
        if self._kept or self._refusal:
            raise self._kept or self._refusal or AssertionError
        return self._bill(start, end)

    def _bill(self, start: datetime, end: datetime) -> Bill:
        row = BilledRow(run_id=f"of-{self.name}", start=start, end=start.replace(day=2), amount_usd=Decimal("1.25"))
        return Bill(
            provider=self.name,
            account="1",
            start=start,
            end=end,
            rows=(row,),
            asked_at=datetime.now(UTC),
            source=f"{self.name}'s bill",
            requests=0,
        )


def asking(monkeypatch: pytest.MonkeyPatch, *who: Teller) -> None:
    monkeypatch.setattr(billed, "billing_providers", lambda _context: list(who))


@pytest.mark.parametrize("words", [(), ("-y",)])
@pytest.mark.parametrize("where", ["kept", "refusal"])
def test_one_that_refuses_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], where: str
) -> None:
    refusal = AuthError("The credentials have expired.", hint="Log in again.")
    asking(monkeypatch, Teller("gcp", **{where: refusal}), Teller("aws"))
    _, out, err = told("ledger", "billed", *words).check(41, out=["of-aws", "$1.25"])
    assert "of-gcp" not in out
    assert "gcp has not told" in err
    assert "The credentials have expired." in err
    assert "hint: Log in again." in err


def test_all_that_refuse_are_named_and_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    asking(
        monkeypatch, Teller("aws", refusal=Throttled("Too many questions.")), Teller("gcp", kept=AuthError("Expired."))
    )
    told("ledger", "billed", "-y").check(
        45, out="", err=["aws has not told", "gcp has not told what it has billed: Expired."]
    )

"""Own prices, another currency and fitted caps, as people type them."""

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cli.here import LOCAL, Here, plant, words
from tests.unit.providers.planted import on

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="this machine as a machine needs Linux")
UNTIL = (datetime.now(UTC) + timedelta(days=30)).strftime("%Y-%m-%d")
NOTE = "Amounts in EUR at 0.92 a US dollar, as given."


def test_an_own_price_from_set_to_unset(here: Here) -> None:
    assert "No own prices" in here.told("prices", "list").check(0).out
    price = ("prices", "set", "aws", "P5.48xlarge", "--region", "us-east-1", "42.00", "--until", UNTIL)
    assert f"aws p5.48xlarge in us-east-1: $42.00/h until {UNTIL}" in words(here.told(*price).check(0))
    offers = ("offers", "--gpus", "H100:8", "--infra", "aws/us-east-1", "--on-demand")
    listed = here.told(*offers).check(0)
    assert "*42.00" in listed.out
    assert f"until {UNTIL}; list $55.04 of 2026-07-20." in words(listed)
    (offer,) = json.loads(here.told(*offers, "--json").out)["offers"]
    assert (offer["price_usd_per_hour"], offer["own_price"]["list_usd_per_hour"]) == ("42.00", "55.04")
    assert len(json.loads(here.told("prices", "--json").out)["own_prices"]) == 1
    assert "Own prices:" in here.told("prices").out
    here.told("prices", "unset", "aws", "p5.48xlarge").check(2, err="aws p5.48xlarge in us-east-1")
    here.told("prices", "unset", "aws", "p5.48xlarge", "--region", "us-east-1").check(0)
    assert "55.04" in here.told(*offers).out
    here.told("prices", "set", "aws", "p5.48xlrge", "1", "--until", UNTIL).check(2, err="p5.48xlarge")
    here.told("prices", "set", "aws", "p5.48xlarge", "1", "--until", "2020-01-01").check(2, err="is over")


def test_an_estimate_that_outlasts_an_own_price_says_so(here: Here) -> None:
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    here.told("prices", "set", "gcp", "g2-standard-4", "0.10", "--until", today).check(0)
    model = ("estimate", "--params", "124M", "--infra", "gcp/us-central1", "--gpus", "L4:1")
    assert "the job may last longer" in words(here.told(*model, "--tokens", "10B").check(0))
    document = json.loads(here.told(*model, "--tokens", "1M", "--json").check(0).out)
    assert "own_price" in json.dumps(document["table"])


def test_a_damaged_file_of_own_prices_keeps_nobody_from_looking_at_runs(here: Here) -> None:
    file = Path(here.environment["XDG_CONFIG_HOME"]) / "costgpu" / "own-prices.json"
    file.parent.mkdir(parents=True)
    file.write_text("[")
    here.told("offers", "--top", "1").check(3, out="", err=str(file))
    here.told("jobs").check(0)
    here.told("reap", "--infra", "local").check(0)


def test_another_currency(here: Here) -> None:
    euros = ("--currency", "EUR", "--rate", "0.92")
    offers = here.told("offers", "--gpus", "L4:1", "--top", "1", *euros).check(0)
    assert "€/h" in offers.out
    assert offers.out.count(NOTE) == 1
    document = json.loads(here.told("offers", "--gpus", "L4:1", "--top", "1", "--json", *euros).out)
    assert document["currency"] == {"code": "EUR", "rate": "0.92"}
    assert "currency" not in json.loads(here.told("offers", "--top", "1", "--json").out)
    here.told("budget", "set", "all", "--total", "100")
    plant(here, "50", where=on("local"))
    shown = words(here.told("budget", "show", *euros).check(0))
    assert "spent €46.00, 50 % left €46.00" in shown
    assert NOTE in shown
    assert "€46.00" in here.told("ledger", *euros).check(0).out
    assert "$50.00" in here.told("ledger").check(0).out
    here.told("ledger", "--currency", "EUR").check(2, err="go together")
    assert "$50.00" in here.told("ledger", "--currency", "usd").check(0).out


def test_the_rate_of_estimate_is_of_requests_or_of_a_currency(here: Here) -> None:
    model = ("estimate", "--params", "124M", "--tokens", "1M", "--infra", "gcp")
    for rate in ("--rate", "--exchange-rate"):
        answer = here.told(*model, "--currency", "EUR", rate, "0.92").check(0)
        assert answer.out.count(NOTE) == 1
        assert "$" not in answer.out
    here.told(*model, "--currency", "EUR", "--rate", "5/s").check(2)
    here.told(*model, "--rate", "0.92").check(2, err="is not a rate")


def test_a_cap_that_is_fitted(here: Here) -> None:
    here.write("train.py", "print('ran')\n")
    here.told("budget", "set", "all", "--total", "100", "--enforce")
    plant(here, "98", where=on("local"))
    run = (*LOCAL, "--dry-run", "--assume-price", "1", "--max-cost", "50")
    refused = words(here.told(*run, "train.py").check(0))
    assert "could exceed it by $48.00: it is refused." in refused
    fitted = words(here.told(*run, "--fit", "train.py").check(0))
    assert "(what the budget all leaves, $2.00)" in fitted
    assert "this run's cap of $2.00 leaves $0.00." in fitted
    plant(here, "2", "a2", where=on("local"))
    here.told(*run, "--fit", "train.py").check(81, err="The budget all leaves too little for this run")
    here.told(*LOCAL, "--dry-run", "--fit", "train.py").check(0)

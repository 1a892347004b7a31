"""What a person reads of a run at 80 columns, and what a program reads of it."""

import json
from datetime import timedelta

import pytest

from costgpu.models.run import EndedBy
from costgpu.render.text.receipt import receipt_text
from costgpu.render.text.run import jobs_json, jobs_text, plan_text
from tests.unit.render.runs import NOW, UNTIL, closed, plan, receipt, view


@pytest.mark.parametrize(("days", "words"), [(0, "of today"), (1, "1 day old"), (30, "30 days old")])
def test_the_age_of_a_price(days: int, words: str) -> None:
    text = plan_text(plan(price_as_of=NOW.date() - timedelta(days=days)), NOW)
    assert f"an hour, {words};" in " ".join(text.split())


@pytest.mark.parametrize("by", [by for by in EndedBy if by is not EndedBy.NOTHING_CREATED])
def test_whoever_ends_a_machine_has_a_name(by: EndedBy) -> None:
    row = next(line for line in receipt_text(receipt(ended_by=by), closed()).splitlines() if "ended by" in line)
    assert "_" not in row


def test_an_open_run_that_nobody_follows_is_metered_until_its_lease_and_no_longer() -> None:
    rows = jobs_text([view()], [], UNTIL + timedelta(seconds=60)).splitlines()
    later = jobs_text([view()], [], UNTIL + timedelta(days=20)).splitlines()
    assert later[1].split()[-1] == rows[1].split()[-1] != "$0.00"
    document = json.loads(jobs_json([view()], [], UNTIL + timedelta(days=20)))
    assert document["runs"][0]["metered_seconds"] == (UNTIL - NOW).total_seconds() + 60 + 540

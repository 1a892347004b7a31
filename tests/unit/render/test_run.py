"""What a person reads of a run at 80 columns, and what a program reads of it."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from costgpu.models.run import EndedBy
from costgpu.render.text.receipt import receipt_text
from costgpu.render.text.run import jobs_json, jobs_text, plan_text
from tests.unit.render.runs import GPU, NOW, SPEC, UNTIL, closed, option, plan, receipt, view


def test_a_plan_that_goes_on_elsewhere() -> None:
    sizes = [replace(option(replace(GPU, instance_type=f"g6e.{number}xlarge")), size=number) for number in (1, 1, 2)]
    spec = replace(SPEC, retry_until_up=True, search_seconds=21600.0, on_oom_next_size=True)
    text = " ".join(plan_text(plan(spec=spec, options=(*plan().options, *sizes)), NOW).split())
    assert "else 1 other place if there is no capacity" in text
    assert "at last every 10 min; that costs nothing, for 6.0 h" in text
    assert "memory if the job runs out of it, it begins again on a larger machine: aws g6e.1xlarge (A10G), at" in text
    assert ", then aws g6e.2xlarge (A10G), at most" in text
    assert "one after the other" in text
    assert "it ends: no larger machine" in " ".join(plan_text(plan(spec=spec), NOW).split())


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

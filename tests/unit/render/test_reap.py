"""What a person reads of what was found and ended, and what a program reads."""

import json
from datetime import timedelta
from decimal import Decimal

import pytest

from costgpu.errors import ProviderError
from costgpu.models.instance import InstanceState, OrphanedResource
from costgpu.models.reap import Orphan, OrphanReason, ReapFindings
from costgpu.render.text import reap as render
from tests.unit.render.runs import NOW, RUN, golden, machine


def findings() -> ReapFindings:
    past = machine("i-1", InstanceState.RUNNING, NOW - timedelta(hours=3))
    return ReapFindings(
        orphans=[
            Orphan(instance=past, why=OrphanReason.PAST_LEASE, usd_per_hour=Decimal("32.79")),
            Orphan(
                instance=machine("i-2", InstanceState.STOPPED, None, ""),
                why=OrphanReason.NO_LEASE,
                usd_per_hour=Decimal("0.010959"),
            ),
        ],
        leftovers=[
            OrphanedResource(
                provider="aws", region="eu-west-1", kind="disk", resource_id="vol-1", run_id=RUN, usd_per_hour=0.011
            ),
            OrphanedResource(
                provider="aws", region="eu-west-1", kind="security group", resource_id="sg-1", run_id=RUN, owner="bob"
            ),
        ],
        kept=[machine("i-3", InstanceState.RUNNING, NOW + timedelta(hours=2))],
        unreachable={"aws/ap-south-1": "it does not answer"},
    )


def test_what_is_found_with_its_price() -> None:
    golden(
        render.reap_text(findings(), NOW, done=False),
        """
        orphan: aws i-1 in eu-west-1, p4d.24xlarge, running, $32.79 an hour, past its
          lease (3.0 h over), run k3v9x2m7q1ab of bob@desk
        orphan: aws i-2 in eu-west-1, p4d.24xlarge, stopped, $0.011 an hour, its lease
          tag is missing or unreadable (no lease), run unknown of unknown
        left behind: aws disk vol-1 in eu-west-1, $0.011 an hour, run k3v9x2m7q1ab of
          unknown
        left behind: aws security group sg-1 in eu-west-1, free, run k3v9x2m7q1ab of bob
        not asked: aws/ap-south-1: it does not answer
        Together $32.81 an hour, $23,953 a month.
        Nothing was changed. End them with: costgpu reap --yes
    """,
    )


def test_what_was_done() -> None:
    found = findings()
    found.ended, found.removed = [found.orphans[0].instance.ref], [found.leftovers[0]]
    found.failed = {"i-2": ProviderError("i-2 is protected.")}
    golden(
        render.reap_text(found, NOW, done=True),
        """
        ended: aws i-1 in eu-west-1, p4d.24xlarge, running, $32.79 an hour, past its
          lease (3.0 h over), run k3v9x2m7q1ab of bob@desk
        NOT ENDED: aws i-2 in eu-west-1, p4d.24xlarge, stopped, $0.011 an hour, its
          lease tag is missing or unreadable (no lease), run unknown of unknown
        removed: aws disk vol-1 in eu-west-1, $0.011 an hour, run k3v9x2m7q1ab of
          unknown
        NOT REMOVED: aws security group sg-1 in eu-west-1, free, run k3v9x2m7q1ab of bob
        failed: i-2: i-2 is protected.
        not asked: aws/ap-south-1: it does not answer
        Together $32.81 an hour, $23,953 a month.
    """,
    )


def test_all_is_well_is_nothing() -> None:
    assert render.reap_text(ReapFindings(kept=findings().kept), NOW, done=False) == ""
    assert render.reap_text(ReapFindings(kept=findings().kept), NOW, done=True) == ""


def test_a_price_that_is_not_known_is_not_zero() -> None:
    found = findings()
    found.orphans[0] = Orphan(instance=found.orphans[0].instance, why=OrphanReason.PAST_LEASE)
    text = render.reap_text(found, NOW, done=False)
    assert "running, price not known, past" in text
    assert "Together at least $0.022 an hour, $16.03 a month." in text
    assert json.loads(render.reap_json(found, NOW))["prices_known"] is False


def test_what_is_free_is_said_to_be() -> None:
    assert render.rate_text(ReapFindings(leftovers=findings().leftovers[1:])) == "free"


@pytest.mark.parametrize(
    ("orphans", "leftovers", "words"),
    [
        (1, 0, "1 machine"),
        (2, 1, "2 machines and 1 other resource"),
        (0, 2, "2 resources"),
        (1, 2, "1 machine and 2 other resources"),
    ],
)
def test_how_much_was_found(orphans: int, leftovers: int, words: str) -> None:
    found = findings()
    assert (
        render.count_text(ReapFindings(orphans=found.orphans[:orphans], leftovers=found.leftovers[:leftovers])) == words
    )


def test_the_document_says_what_programs_need() -> None:
    found = findings()
    found.failed = {"i-2": ProviderError("i-2 is protected.")}
    document = json.loads(render.reap_json(found, NOW))
    assert (document["schema"], document["version"]) == ("costgpu.reap", 1)
    assert [orphan["why"] for orphan in document["orphans"]] == [
        "past its lease",
        "its lease tag is missing or unreadable",
    ]
    assert [orphan["usd_per_hour"] for orphan in document["orphans"]] == ["32.79", "0.010959"]
    assert document["orphans"][0]["instance"]["ref"]["instance_id"] == "i-1"
    assert document["failed"] == {"i-2": "i-2 is protected."}
    assert document["unreachable"] == {"aws/ap-south-1": "it does not answer"}
    assert Decimal(document["usd_per_hour"]) == Decimal("32.811959")
    assert Decimal(document["usd_per_month"]) == Decimal("32.811959") * 730
    assert document["prices_known"] is True
    assert [item["resource_id"] for item in document["leftovers"]] == ["vol-1", "sg-1"]

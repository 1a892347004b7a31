"""What a person reads of what was found and ended, and what a program reads."""

import json

import pytest

from costgpu.models.reap import Orphan, OrphanReason, ReapFindings
from costgpu.render.text import reap as render
from tests.unit.render.documents.texts import findings
from tests.unit.render.runs import NOW


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

"""The part of the contract that is about machines which work on one job."""

import pytest

from costgpu.errors import QuotaExceeded
from costgpu.models.instance import Instance, OrphanedResource
from costgpu.providers.base import TAG_GROUP
from tests.contract.harness import RUN, Harness, run_of


def shared(harness: Harness) -> set[str]:
    """Ids of everything that carries node 0's run, as a new client finds it."""
    return {one.resource_id for one in _left(harness)}


def _left(harness: Harness) -> list[OrphanedResource]:
    return [one for one in harness.client().list_owned().leftovers if one.run_id == RUN]


def both(harness: Harness) -> list[Instance]:
    return [harness.running(harness.node(number)) for number in (0, 1)]


def ended(harness: Harness, *machines: Instance) -> None:
    for one in machines:
        harness.client().terminate(one.ref)
    assert harness.until(lambda: all(harness.over(one.ref) for one in machines), harness.end_seconds)


def cleaned(harness: Harness, node: int) -> bool:
    """Whether a node's clean-up has nothing in the way, in time."""
    return harness.until(lambda: not harness.client().clean_up(run_of(node), harness.region), harness.end_seconds)


def test_machines_of_a_group_are_told_by_their_tag(harness: Harness) -> None:
    alone = harness.client().create(harness.request("alone0000000"))
    assert (alone.group_id, TAG_GROUP in alone.tags) == ("", False)
    made = both(harness)
    assert len({one.ref for one in made}) == 2
    listed = {one.ref: one for one in harness.client().list_owned().instances}
    for number, one in enumerate(made):
        for seen in (one, listed[one.ref]):
            assert (seen.run_id, seen.group_id, seen.tags[TAG_GROUP]) == (run_of(number), RUN, RUN)
            assert seen.private_address
    assert listed[alone.ref].group_id == ""
    if harness.shares_resources:
        assert len({one.private_address for one in made}) == 2


def test_what_a_group_shares_is_made_once(harness: Harness) -> None:
    asked = [harness.node(number) for number in (0, 1)]  # once: a later request has a later lease
    first = harness.client().create(asked[0])
    before = shared(harness)
    assert bool(before) is harness.shares_resources
    second = harness.client().create(asked[1])
    assert shared(harness) == before
    for request, one in zip(asked, (first, second), strict=True):
        assert harness.client().create(request).ref == one.ref
    assert shared(harness) == before
    assert all(one.lease_until is not None for one in _left(harness))


def test_the_clean_up_of_another_node_leaves_what_is_shared(harness: Harness) -> None:
    first, second = both(harness)
    before = shared(harness)
    ended(harness, second)
    assert cleaned(harness, 1)
    assert shared(harness) == before
    ended(harness, first)
    assert cleaned(harness, 1)
    assert shared(harness) == before
    assert cleaned(harness, 0)
    assert not shared(harness)


def test_what_is_shared_stays_while_a_machine_of_the_group_is_left(harness: Harness) -> None:
    if not harness.shares_resources:
        pytest.skip("nothing is shared here")
    first, second = both(harness)
    ended(harness, first)
    harness.until(lambda: len(harness.client().clean_up(RUN, harness.region)) < len(shared(harness)), 1)
    left = harness.client().clean_up(RUN, harness.region)
    assert left, "it was taken away from the other machine"
    assert {one.run_id for one in left} == {RUN}
    assert not any(harness.client().remove(one) for one in left)
    assert shared(harness) == {one.resource_id for one in left}
    ended(harness, second)
    assert cleaned(harness, 1)
    assert cleaned(harness, 0)
    assert not shared(harness)


def test_what_a_group_leaves_is_removed_by_median(harness: Harness) -> None:
    """By somebody who knows nothing but tags."""
    if not harness.shares_resources:
        pytest.skip("nothing is shared here")
    ended(harness, *both(harness))
    assert cleaned(harness, 1)
    for one in _left(harness):
        provider = harness.client()
        assert harness.until(lambda one=one, provider=provider: provider.remove(one), harness.end_seconds)  # type: ignore[misc]
        assert one.resource_id not in shared(harness)
    assert harness.client().clean_up(RUN, harness.region) == ()


def test_a_quota_must_hold_the_whole_group(harness: Harness) -> None:
    if not harness.limit_machines(3):
        pytest.skip("there is no quota here")
    harness.client().check(harness.node(0, nodes=3))
    with pytest.raises(QuotaExceeded, match="3 of them fit"):
        harness.client().check(harness.node(0, nodes=4))
    assert not shared(harness)
    assert not harness.client().list_owned().instances

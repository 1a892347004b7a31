"""The contract of `costgpu.providers.base`, sentence by sentence: every provider is held to it.

One file, however long: it is read beside the contract.
"""

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from costgpu.errors import InvalidRequest, ProviderError, Unreachable
from costgpu.models.instance import CreateRequest, Instance, InstanceRef, InstanceState, OrphanedResource
from costgpu.providers.base import TAG_LEASE, TAG_NAME, TAG_OWNER, TAG_RUN
from tests.contract.harness import RUN, SECRET, Harness

CLIENTS = 4  # that create at once


def refused(call: Callable[[], Any]) -> str:
    """The message of the InvalidRequest that a call must raise."""
    with pytest.raises(InvalidRequest) as caught:
        call()
    assert caught.value.message
    return caught.value.message


def ours(harness: Harness, run_id: str = RUN) -> list[Instance]:
    """What a new client finds of a run by tag."""
    return [one for one in harness.client().list_owned().instances if one.run_id == run_id]


def settled(harness: Harness) -> None:
    """Waits out the provider's consistency window."""
    harness.clock.sleep(harness.consistency_seconds + 0.1)


# -- create -----------------------------------------------------------------------------------------------------------


def test_create_returns_an_instance_with_everything_on_it(harness: Harness) -> None:
    request = harness.request()
    made = harness.client().create(request)
    assert made.ref.provider == harness.name == harness.client().name
    assert made.ref.region == request.offer.region
    assert made.ref.instance_id
    assert made.state in (InstanceState.PENDING, InstanceState.RUNNING)
    assert made.instance_type == request.offer.instance_type
    assert (made.run_id, made.name, made.owner) == (RUN, "train", "ann@laptop")
    assert made.lease_until == request.lease_until
    assert made.tags["team"] == "vision"
    assert abs((made.launched_at - harness.clock.now()).total_seconds()) < 60


def test_create_waits_for_nothing(harness: Harness) -> None:
    provider = harness.client()
    provider.create(harness.request(attempt=2))  # an SDK takes its time to load
    before = harness.clock.monotonic()
    made = provider.create(harness.request())
    assert harness.clock.monotonic() - before < 5
    assert made.state in (InstanceState.PENDING, InstanceState.RUNNING)


def test_the_same_token_is_the_same_instance(harness: Harness) -> None:
    request = harness.request()
    first = harness.client().create(request)
    assert harness.client().create(request).ref == first.ref
    settled(harness)
    assert harness.client().create(request).ref == first.ref
    assert [one.ref for one in ours(harness)] == [first.ref]


def test_the_same_token_at_once_is_one_instance(harness: Harness) -> None:
    request = harness.request()
    clients = [harness.client() for _ in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as pool:
        made = list(pool.map(lambda client: client.create(request), clients))
    assert len({one.ref for one in made}) == 1
    settled(harness)
    assert len(ours(harness)) == 1


def test_another_token_is_another_instance(harness: Harness) -> None:
    provider = harness.client()
    first, second = provider.create(harness.request(attempt=1)), provider.create(harness.request(attempt=2))
    assert first.ref != second.ref
    settled(harness)
    assert len(ours(harness)) == 2


def test_a_token_with_other_parameters_creates_nothing(harness: Harness) -> None:
    request = harness.request()
    made = harness.client().create(request)
    settled(harness)
    other = replace(request, run_id="other0000000", offer=replace(request.offer, instance_type=harness.other_type))
    try:
        answer = harness.client().create(other)
    except InvalidRequest:
        pass
    else:
        assert answer.ref == made.ref, "another instance for a token that was used"
    settled(harness)
    assert len(ours(harness)) == 1
    assert not ours(harness, "other0000000")


def test_a_token_whose_instance_is_gone_creates_no_second_one(harness: Harness) -> None:
    request = harness.request()
    made = harness.running(request)
    harness.client().terminate(made.ref)
    assert harness.until(lambda: harness.over(made.ref), harness.end_seconds)
    again = harness.client().create(request)
    assert again.ref == made.ref
    assert not again.state.alive


def test_unanswered_means_call_again(harness: Harness) -> None:
    request, provider = harness.request(), harness.client()
    if not harness.lose_next_reply():
        pytest.skip("every call is answered here")
    with pytest.raises(Unreachable):
        provider.create(request)
    made = provider.create(request)
    settled(harness)
    assert [one.ref for one in ours(harness)] == [made.ref]


def test_what_a_create_call_has_begun_can_be_cleaned_up(harness: Harness) -> None:
    """Whoever makes the call is gone after any of its requests, and somebody else knows the run alone."""
    if not harness.break_off(0):
        pytest.skip("a create call is no request here")
    assert any(_broken_off(harness, requests) for requests in range(20)), "it never came to a machine"


def _broken_off(harness: Harness, requests: int) -> bool:
    """Breaks a create call off after so many requests, and cleans up; whether there was a machine."""
    run_id = f"broken{requests:06d}"
    request = harness.request(run_id)
    harness.break_off(requests)
    with contextlib.suppress(Unreachable):
        harness.client().create(request)
    harness.heal()
    settled(harness)
    provider = harness.client()
    found = provider.find(request)
    if found is not None:
        provider.terminate(found.ref)
        assert harness.until(lambda: harness.over(found.ref), harness.end_seconds)
    assert len(ours(harness, run_id)) <= 1
    assert harness.until(lambda: not provider.clean_up(run_id, harness.region), harness.end_seconds)
    assert not [one for one in provider.list_owned().leftovers if one.run_id == run_id]
    return found is not None


def test_a_refused_create_call_creates_nothing(harness: Harness) -> None:
    request = harness.request()
    nowhere = replace(request, offer=replace(request.offer, region="atlantis-1"))
    refused(lambda: harness.client().create(nowhere))
    refused(lambda: harness.client().check(nowhere))
    settled(harness)
    assert not ours(harness)


def test_a_check_creates_nothing(harness: Harness) -> None:
    provider, request = harness.client(), harness.request()
    provider.check(request)
    assert provider.layers(request)
    settled(harness)
    assert provider.find(request) is None
    assert not ours(harness)
    assert not [one for one in provider.list_owned().leftovers if one.run_id == RUN]


# -- find, describe, list ---------------------------------------------------------------------------------------------


def test_tags_and_lease_are_there_for_everybody(harness: Harness) -> None:
    request = harness.request()
    made = harness.client().create(request)
    settled(harness)
    (found,) = ours(harness)
    described = harness.client().describe(made.ref)
    for seen in (found, described):
        assert seen is not None
        assert seen.ref == made.ref
        assert (seen.run_id, seen.name, seen.owner, seen.lease_until) == (
            RUN,
            "train",
            "ann@laptop",
            request.lease_until,
        )
        assert seen.tags[TAG_RUN] == RUN
        assert seen.tags[TAG_NAME] == "train"
        assert seen.tags[TAG_OWNER] == "ann@laptop"
        assert seen.tags[TAG_LEASE] == str(int(request.lease_until.timestamp()))
        assert seen.tags["team"] == "vision"


def test_describe_knows_no_stranger(harness: Harness) -> None:
    assert harness.client().describe(harness.unknown()) is None


def test_find_goes_by_token_in_any_state(harness: Harness) -> None:
    request = harness.request()
    assert harness.client().find(request) is None
    made = harness.running(request)
    found = harness.client().find(request)
    assert found is not None
    assert found.ref == made.ref
    assert harness.client().find(harness.request(attempt=2)) is None
    harness.client().terminate(made.ref)
    ending = harness.client().find(request)
    assert ending is not None
    assert ending.ref == made.ref
    assert harness.until(lambda: harness.over(made.ref), harness.end_seconds)
    over = harness.client().find(request)
    assert over is None or (over.ref == made.ref and not over.state.alive)


def test_list_owned_reports_ours_alone(harness: Harness) -> None:
    stranger = harness.foreign()
    made = harness.client().create(harness.request())
    settled(harness)
    owned = harness.client().list_owned()
    assert [one.ref for one in owned.instances] == [made.ref]
    assert stranger.ref not in [one.ref for one in owned.instances]
    assert not owned.unreachable


def test_list_owned_looks_where_it_is_told_to(harness: Harness) -> None:
    if harness.other_region is None:
        pytest.skip("one region")
    made = harness.client().create(harness.request())
    settled(harness)
    assert [one.ref for one in harness.client().list_owned([harness.region]).instances] == [made.ref]
    assert not harness.client().list_owned([harness.other_region]).instances


def test_a_silent_region_hides_no_other(harness: Harness) -> None:
    made = harness.client().create(harness.request())
    settled(harness)
    silent = harness.other_region or harness.region
    if not harness.silence(silent):
        pytest.skip("one region, and it answers")
    owned = harness.client().list_owned()
    assert [one.ref for one in owned.instances] == [made.ref]
    assert [region for region, _ in owned.unreachable] == [silent]
    assert all(why for _, why in owned.unreachable)


# -- the end ----------------------------------------------------------------------------------------------------------


def test_terminate_is_confirmed_by_describe(harness: Harness) -> None:
    made = harness.running(harness.request())
    before = harness.clock.monotonic()
    harness.client().terminate(made.ref)
    assert harness.clock.monotonic() - before < 5, "it waited"
    seen: set[InstanceState | None] = set()

    def confirmed() -> bool:
        seen.add(harness.state(made.ref))
        return harness.over(made.ref)

    assert harness.until(confirmed, harness.end_seconds)
    assert seen <= {InstanceState.RUNNING, InstanceState.TERMINATING, InstanceState.TERMINATED, None}
    last = harness.client().describe(made.ref)
    assert last is None or (last.endpoint is None and not last.state.alive and not last.preempted)


def test_terminate_may_be_repeated(harness: Harness) -> None:
    made = harness.running(harness.request())
    for _ in range(3):
        harness.client().terminate(made.ref)
    assert harness.until(lambda: harness.over(made.ref), harness.end_seconds)
    harness.client().terminate(made.ref)
    harness.client().terminate(harness.unknown())
    assert harness.over(made.ref)


def test_terminate_works_at_once(harness: Harness) -> None:
    provider = harness.client()
    made = provider.create(harness.request())
    assert harness.until(lambda: _accepted(provider, made.ref), 30)
    settled(harness)
    assert harness.until(lambda: harness.over(made.ref), harness.end_seconds)


def _accepted(provider: Any, ref: InstanceRef) -> bool:
    try:
        provider.terminate(ref)
    except Unreachable:  # it may say so, but not that all is well
        return False
    return True


def test_terminate_works_on_a_stopped_instance(harness: Harness) -> None:
    made = harness.running(harness.request())
    if not harness.stop(made.ref):
        pytest.skip("nothing can be stopped here")
    assert harness.until(lambda: harness.state(made.ref) is InstanceState.STOPPED, 30)
    assert InstanceState.STOPPED.alive
    harness.client().terminate(made.ref)
    assert harness.until(lambda: harness.over(made.ref), harness.end_seconds)


def test_a_power_off_from_inside_terminates(harness: Harness) -> None:
    made = harness.running(harness.request())
    harness.power_off(made.ref)
    if harness.power_off_stops:
        assert harness.until(lambda: harness.state(made.ref) is InstanceState.STOPPED, harness.end_seconds)
        harness.client().terminate(made.ref)
    assert harness.until(lambda: harness.over(made.ref), harness.end_seconds)


@pytest.mark.slow
def test_the_lease_ends_it_without_anybody(harness: Harness) -> None:
    if not harness.enforces_the_lease():
        pytest.skip("no boot script is carried out here")
    until = harness.clock.now() + timedelta(seconds=harness.short_lease_seconds)
    made = harness.running(harness.request(lease_until=until))
    assert harness.clock.now() < until
    assert harness.until(lambda: harness.over(made.ref), harness.short_lease_seconds + harness.end_seconds)
    harness.until(lambda: harness.clock.now() >= until, 60)
    assert harness.over(made.ref)


def test_what_is_not_ours_is_refused(harness: Harness) -> None:
    stranger = harness.foreign()
    refused(lambda: harness.client().terminate(stranger.ref))
    refused(lambda: harness.client().open_access(stranger, "203.0.113.8/32"))
    settled(harness)
    assert harness.foreign_is_well()


def test_clean_up_leaves_nothing(harness: Harness) -> None:
    made = harness.running(harness.request())
    provider = harness.client()
    for _ in provider.clean_up(RUN, harness.region):
        assert harness.state(made.ref) is InstanceState.RUNNING
    settled(harness)
    assert harness.state(made.ref) is InstanceState.RUNNING, "it cleaned up the machine"
    provider.terminate(made.ref)
    assert harness.until(lambda: harness.over(made.ref), harness.end_seconds)
    assert harness.until(lambda: not provider.clean_up(RUN, harness.region), harness.end_seconds)
    assert provider.clean_up(RUN, harness.region) == ()
    assert not [one for one in provider.list_owned().leftovers if one.run_id == RUN]


def test_clean_up_of_one_run_leaves_the_others(harness: Harness) -> None:
    other = harness.running(harness.request("another0000a"))
    made = harness.running(harness.request())
    provider = harness.client()
    provider.terminate(made.ref)
    assert harness.until(lambda: harness.over(made.ref), harness.end_seconds)
    assert harness.until(lambda: not provider.clean_up(RUN, harness.region), harness.end_seconds)
    assert provider.clean_up("nobody00000a", harness.region) == ()
    found = provider.describe(other.ref)
    assert found is not None
    assert found.state is InstanceState.RUNNING
    assert harness.let_in(found) in (None, {"203.0.113.7/32"})


def test_clean_up_spares_what_is_not_ours(harness: Harness) -> None:
    harness.foreign()
    if not harness.foreign_resource(RUN):
        pytest.skip("nothing to be confused with")
    with contextlib.suppress(InvalidRequest):
        assert harness.client().clean_up(RUN, harness.region) == ()
    assert harness.foreign_is_well()


def test_remove_takes_one_thing_and_no_other(harness: Harness) -> None:
    first, second = harness.leave_behind(RUN), harness.leave_behind(RUN)
    if first is None or second is None:
        pytest.skip("a run leaves no such things here")
    provider = harness.client()
    found = {one.resource_id: one for one in provider.list_owned().leftovers}
    assert found.keys() >= {first, second}
    assert found[first].run_id == RUN
    for _ in range(2):
        assert provider.remove(found[first])
        assert [one.resource_id for one in harness.client().list_owned().leftovers] == [second]


def test_remove_refuses_what_is_not_ours(harness: Harness) -> None:
    harness.foreign()
    stranger = harness.leave_behind(RUN, tagged=False) or "somebodys"
    assert stranger not in [one.resource_id for one in harness.client().list_owned().leftovers]
    as_if = OrphanedResource(
        provider=harness.name, region=harness.region, kind="disk", resource_id=stranger, run_id=RUN, lease_until=None
    )
    refused(lambda: harness.client().remove(as_if))
    assert harness.foreign_is_well()


# -- access, console, words -------------------------------------------------------------------------------------------


def test_access_is_for_one_address(harness: Harness) -> None:
    made = harness.running(harness.request())
    if harness.let_in(made) is None:
        pytest.skip("no network between")
    assert harness.let_in(made) == {"203.0.113.7/32"}
    for _ in range(2):
        harness.client().open_access(made, "198.51.100.9/32")
        assert harness.let_in(made) == {"198.51.100.9/32"}


def test_the_console_is_text_at_any_time(harness: Harness) -> None:
    assert harness.client().console(harness.unknown()) == ""
    request = harness.request()
    ref = harness.client().create(request).ref
    assert isinstance(harness.client().console(ref), str)
    harness.running(request)
    assert harness.until(lambda: bool(harness.client().console(ref).strip()), 10)
    harness.client().terminate(ref)
    assert harness.until(lambda: harness.over(ref), harness.end_seconds)
    assert isinstance(harness.client().console(ref), str)


def test_no_secret_shows(harness: Harness) -> None:
    provider, request = harness.client(), harness.request()
    made = harness.running(request)
    shown = [
        provider.identity(),
        made,
        request,
        provider.layers(request),
        provider.find(request),
        provider.list_owned(),
    ]
    assert SECRET in request.boot_script
    assert SECRET not in " ".join(map(repr, shown)) + provider.console(made.ref)


def test_the_identity_names_account_and_principal(harness: Harness) -> None:
    identity = harness.client().identity()
    assert identity.provider == harness.name
    assert identity.account
    assert identity.principal


def test_layers_act_by_the_lease(harness: Harness) -> None:
    request = harness.request()
    layers = harness.client().layers(request)
    assert any(layer.armed and layer.deadline is not None for layer in layers)
    assert len({layer.name for layer in layers}) == len(layers)
    for layer in layers:
        assert layer.detail
        assert layer.deadline is None or layer.deadline <= request.lease_until


def test_zones_are_places_to_try(harness: Harness) -> None:
    request = harness.request()
    zones = harness.client().zones(request.offer)
    assert zones
    assert len(set(zones)) == len(zones)
    made = harness.client().create(replace(request, zone=zones[-1]))
    assert made.zone == zones[-1] or zones[-1] is None
    refused(lambda: harness.client().zones(replace(request.offer, region="atlantis-1")))


def test_only_provider_errors_leave(harness: Harness) -> None:
    request = harness.request()
    made = harness.running(request)
    harness.cut_off()
    raised: list[ProviderError] = []
    for call in _every_call(harness, request, made):
        try:
            call()
        except ProviderError as error:
            raised.append(error)
    assert len(raised) > 3, "it was not cut off"
    assert all(error.message for error in raised)


def _every_call(harness: Harness, request: CreateRequest, made: Instance) -> list[Callable[[], Any]]:
    provider = harness.client()
    second = replace(request, token=f"{RUN}-2")
    return [
        provider.identity,
        lambda: provider.check(request),
        lambda: provider.layers(request),
        lambda: provider.zones(request.offer),
        lambda: provider.create(second),
        lambda: provider.find(request),
        lambda: provider.describe(made.ref),
        lambda: provider.terminate(made.ref),
        lambda: provider.open_access(made, "203.0.113.8/32"),
        lambda: provider.clean_up(RUN, made.ref.region),
        provider.list_owned,
        lambda: provider.console(made.ref),
        lambda: provider.remove(
            OrphanedResource(
                provider=harness.name, region=made.ref.region, kind="disk", resource_id="vol-1", run_id=RUN
            )
        ),
    ]

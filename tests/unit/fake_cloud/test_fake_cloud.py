"""The fake cloud's provider side: time, consistency, faults, and the questions that tests ask of it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.clock import ManualClock
from costgpu.errors import AuthError, InvalidRequest, NoCapacity, ProviderError, QuotaExceeded, Throttled, Unreachable
from costgpu.models.instance import CreateRequest, InstanceState
from costgpu.models.job import EndReason
from costgpu.models.offer import PurchaseOption
from costgpu.models.run import EndedBy
from costgpu.providers.base import Provider
from tests.contract.harness import FakeHarness
from tests.fake_cloud import FakeCloud, FakeProvider, MachineScript
from tests.fake_cloud.script import NEVER


class Killed(BaseException):
    """Stands for SIGKILL."""


@pytest.fixture
def harness() -> FakeHarness:
    made = FakeHarness()
    made.cloud.visible_after_seconds = 0
    return made


def spot(request: CreateRequest) -> CreateRequest:
    return replace(request, offer=replace(request.offer, purchase_option=PurchaseOption.SPOT))


def test_a_client_is_a_provider(harness: FakeHarness) -> None:
    provider: Provider = harness.cloud.provider()
    assert provider.name == "fake"


def test_an_instance_lives_on_its_own_time(harness: FakeHarness) -> None:
    cloud, clock = harness.cloud, harness.clock
    made = harness.client().create(harness.request())
    assert made.state is InstanceState.PENDING
    assert made.endpoint is None
    clock.sleep(5)
    running = harness.client().describe(made.ref)
    assert running is not None
    assert running.state is InstanceState.RUNNING
    assert running.endpoint is not None
    clock.sleep(10_000)
    (only,) = cloud.instances_of(made.run_id)
    assert only.state is InstanceState.TERMINATED
    assert only.ended_by is EndedBy.WATCHDOG
    assert cloud.billing_seconds(made.ref.instance_id) <= 600
    assert only.terminated_at == pytest.approx(cloud.billing_seconds(made.ref.instance_id) + 30)
    assert not cloud.alive()
    assert not cloud.past_lease()


def test_alive_can_be_asked_of_the_past(harness: FakeHarness) -> None:
    cloud, before = harness.cloud, harness.clock.now()
    harness.clock.sleep(10)
    made = harness.client().create(harness.request())
    harness.clock.sleep(10)
    harness.client().terminate(made.ref)
    harness.clock.sleep(100)
    assert not cloud.alive(before)
    assert len(cloud.alive(before + timedelta(seconds=15))) == 1
    assert len(cloud.alive(before + timedelta(seconds=49))) == 1
    assert not cloud.alive(before + timedelta(seconds=51))
    assert cloud.billing_seconds(made.ref.instance_id) == 10


@pytest.mark.parametrize("broken", ["nothing", "watchdog", "boot"])
def test_each_layer_can_be_broken(harness: FakeHarness, broken: str) -> None:
    cloud = harness.cloud
    cloud.watchdog_works = broken != "watchdog"
    cloud.machine = MachineScript(boots=broken != "boot")
    harness.client().create(harness.request())
    harness.clock.sleep(1000)
    assert bool(cloud.past_lease()) is (broken != "nothing")
    assert bool(cloud.alive()) is (broken != "nothing")


def test_the_providers_own_deadline_needs_no_machine(harness: FakeHarness) -> None:
    cloud = harness.cloud
    cloud.provider_deadline, cloud.machine = True, MachineScript(boots=False)
    made = harness.client().create(harness.request())
    harness.clock.sleep(1000)
    assert not cloud.past_lease()
    assert cloud.instance(made.ref.instance_id).ended_by is EndedBy.PROVIDER
    described = harness.client().describe(made.ref)
    assert described is not None
    assert not described.preempted


@pytest.mark.parametrize("skew", [-500.0, 0.0, 500.0, 5000.0])
def test_a_wrong_clock_on_the_machine_gives_it_no_more_time(harness: FakeHarness, skew: float) -> None:
    harness.cloud.machine = MachineScript(clock_skew_seconds=skew)
    harness.client().create(harness.request())
    harness.clock.sleep(2000)
    assert not harness.cloud.past_lease(slack_seconds=MachineScript().pending_seconds)


def test_a_provider_whose_clock_is_wrong(harness: FakeHarness) -> None:
    harness.cloud.skew_seconds = 90
    made = harness.client().create(harness.request())
    assert made.launched_at == harness.clock.now() + timedelta(seconds=90)


def test_queries_lag_behind_and_forget(harness: FakeHarness) -> None:
    cloud, request = harness.cloud, harness.request()
    cloud.visible_after_seconds, cloud.remembers_seconds = 7, 60
    made = harness.client().create(request)
    for seconds, seen in ((0, False), (6.9, False), (0.2, True)):
        harness.clock.sleep(seconds)
        provider = harness.client()
        assert (provider.describe(made.ref) is not None) is seen
        assert (provider.find(request) is not None) is seen
        assert bool(provider.list_owned().instances) is seen
    harness.client().terminate(made.ref)
    harness.clock.sleep(30 + 59)
    assert harness.state(made.ref) is InstanceState.TERMINATED
    harness.clock.sleep(2)
    assert harness.state(made.ref) is None
    assert harness.client().create(request).ref == made.ref  # the token is known for ever


def test_terminating_can_stick(harness: FakeHarness) -> None:
    cloud = harness.cloud
    cloud.terminating_seconds = NEVER
    made = harness.client().create(harness.request())
    harness.client().terminate(made.ref)
    harness.clock.sleep(1e6)
    assert harness.state(made.ref) is InstanceState.TERMINATING
    assert cloud.alive()
    cloud.unstick()
    assert harness.state(made.ref) is InstanceState.TERMINATED


def test_preemption(harness: FakeHarness) -> None:
    harness.cloud.machines = [MachineScript(preempted_at=40)]
    made = harness.client().create(spot(harness.request()))
    other = harness.client().create(spot(harness.request(attempt=2)))
    harness.clock.sleep(100)
    taken, kept = harness.client().describe(made.ref), harness.client().describe(other.ref)
    assert taken is not None
    assert kept is not None
    assert taken.preempted
    assert taken.reason
    assert (taken.spot, kept.spot, kept.preempted) == (True, True, False)
    assert kept.state is InstanceState.RUNNING


def test_capacity_by_place_type_and_purchase_option(harness: FakeHarness) -> None:
    cloud, provider = harness.cloud, harness.client()
    cloud.no_capacity(zone="us-east-1a")
    assert provider.create(harness.request(attempt=1)).zone == "us-east-1b"
    with pytest.raises(NoCapacity, match="us-east-1a"):
        provider.create(harness.request(attempt=2, zone="us-east-1a"))
    cloud.no_capacity(spot=True, times=1)
    with pytest.raises(NoCapacity):
        provider.create(spot(harness.request(attempt=3, zone="us-east-1c")))
    assert provider.create(spot(harness.request(attempt=3, zone="us-east-1c"))).zone == "us-east-1c"
    assert len(cloud.instances) == 2


def test_a_refused_create_call_may_leave_its_access_rule(harness: FakeHarness) -> None:
    cloud, provider = harness.cloud, harness.client()
    cloud.no_capacity()
    with pytest.raises(NoCapacity):
        provider.create(harness.request())
    assert not cloud.leftovers()
    cloud.leaves_rules = True
    with pytest.raises(NoCapacity):
        provider.create(harness.request())
    (rule,) = provider.list_owned().leftovers
    assert (rule.kind, rule.run_id, rule.usd_per_hour) == ("security group", harness.request().run_id, 0)
    assert rule.lease_until == harness.request().lease_until
    assert provider.clean_up(rule.run_id, rule.region) == ()
    assert not cloud.leftovers()


def test_disks_can_stay_and_are_removed(harness: FakeHarness) -> None:
    cloud, provider = harness.cloud, harness.client()
    cloud.disks_stay = True
    made = provider.create(harness.request())
    provider.terminate(made.ref)
    assert provider.clean_up(made.run_id, "us-east-1")
    harness.clock.sleep(31)
    assert {one.kind for one in cloud.leftovers(made.run_id)} == {"security group", "disk"}
    assert provider.clean_up(made.run_id, "us-east-1") == ()
    assert not cloud.leftovers()


def test_quota_counts_what_is_alive(harness: FakeHarness) -> None:
    harness.cloud.quota_vcpus = 3
    first = harness.client().create(harness.request(attempt=1))
    with pytest.raises(QuotaExceeded, match="3 vCPUs"):
        harness.client().create(harness.request(attempt=2))
    with pytest.raises(QuotaExceeded):
        harness.client().check(harness.request(attempt=2))
    assert harness.client().create(harness.request(attempt=1)).ref == first.ref
    harness.client().terminate(first.ref)
    harness.clock.sleep(31)
    harness.client().create(harness.request(attempt=2))


def test_credentials_expire(harness: FakeHarness) -> None:
    cloud, provider = harness.cloud, harness.client()
    made = provider.create(harness.request())
    cloud.credentials_expire_at = harness.clock.now() + timedelta(seconds=10)
    assert provider.identity().account
    harness.clock.sleep(10)
    calls: list[Callable[[], Any]] = [
        provider.identity,
        provider.list_owned,
        lambda: provider.terminate(made.ref),
        lambda: provider.describe(made.ref),
    ]
    for call in calls:
        with pytest.raises(AuthError):
            call()
    assert cloud.instance(made.ref.instance_id).terminate_calls == 0
    cloud.credentials_expire_at = None
    provider.terminate(made.ref)


def test_wrong_places_and_tags(harness: FakeHarness) -> None:
    request = harness.request()
    for wrong in (
        replace(request, zone="us-west-2a"),
        replace(request, offer=replace(request.offer, region="mars")),
        replace(request, tags={"costgpu-run": "other"}),
    ):
        with pytest.raises(InvalidRequest):
            harness.client().create(wrong)
    assert not harness.cloud.instances


def test_stopped_by_hand_and_ended_by_hand(harness: FakeHarness) -> None:
    cloud = harness.cloud
    first, second = harness.running(harness.request(attempt=1)), harness.running(harness.request(attempt=2))
    cloud.stop_by_somebody(first.ref.instance_id)
    cloud.terminate_by_somebody(second.ref.instance_id)
    harness.clock.sleep(31)
    assert harness.state(first.ref) is InstanceState.STOPPED
    assert harness.state(second.ref) is InstanceState.TERMINATED
    assert cloud.instance(second.ref.instance_id).ended_by is EndedBy.SOMEBODY_ELSE
    harness.clock.sleep(100_000)
    assert cloud.billing_seconds(first.ref.instance_id) > 100_000  # its watchdog is off, its disks are billed
    assert cloud.past_lease()


def test_the_foreign_are_watched(harness: FakeHarness) -> None:
    cloud = harness.cloud
    ref = cloud.add_foreign()
    assert cloud.foreign_untouched()
    cloud.terminate_by_somebody(ref.instance_id)
    assert not cloud.foreign_untouched()
    with pytest.raises(ValueError, match="ours"):
        cloud.add_foreign(tags={"costgpu-run": "x"})


# -- faults -----------------------------------------------------------------------------------------------------------


def test_an_error_before_and_after(harness: FakeHarness) -> None:
    cloud, provider = harness.cloud, harness.client()
    cloud.faults.next("create", error=Throttled("slow down"), times=2)
    cloud.faults.next("create", after=True, error=Unreachable("timed out"))
    seen = []
    for _ in range(4):
        try:
            provider.create(harness.request())
        except ProviderError as error:
            seen.append((type(error).__name__, len(cloud.instances)))
    assert seen == [("Throttled", 0), ("Throttled", 0), ("Unreachable", 1)]
    assert len(cloud.instances) == 1
    errors = [(call.error, call.took_effect) for call in cloud.calls if call.method == "create"]
    assert errors == [("Throttled", False), ("Throttled", False), ("Unreachable", True), ("", True)]
    assert not cloud.faults.pending


def test_each_error_is_a_new_one(harness: FakeHarness) -> None:
    harness.cloud.faults.next("identity", error=AuthError("no", hint="log in"), times=2)
    caught = []
    for _ in range(2):
        with pytest.raises(AuthError) as info:
            harness.client().identity()
        caught.append(info.value)
    assert caught[0] is not caught[1]
    assert caught[1].hint == "log in"


def test_without_effect_and_late(harness: FakeHarness) -> None:
    cloud, provider = harness.cloud, harness.client()
    made = provider.create(harness.request())
    cloud.faults.next("terminate", without_effect=True, delay_seconds=4)
    before = harness.clock.monotonic()
    provider.terminate(made.ref)
    assert harness.clock.monotonic() == before + 4
    assert cloud.instance(made.ref.instance_id).state is not InstanceState.TERMINATING
    provider.terminate(made.ref)
    assert harness.state(made.ref) is InstanceState.TERMINATING


def test_a_client_dies_at_any_call(harness: FakeHarness) -> None:
    cloud = harness.cloud
    for number in (1, 2):
        cloud.faults.nth(number, error=Killed(), after=number == 2)
    provider = harness.client()
    with pytest.raises(Killed):
        provider.create(harness.request())
    assert not cloud.instances
    with pytest.raises(Killed):
        provider.create(harness.request())
    assert len(cloud.instances_of(harness.request().run_id)) == 1
    assert cloud.provider().list_owned().instances


def test_faults_about_one_subject(harness: FakeHarness) -> None:
    cloud, provider = harness.cloud, harness.client()
    first, second = provider.create(harness.request(attempt=1)), provider.create(harness.request(attempt=2))
    cloud.faults.next("describe", error=Throttled("x"), subject=second.ref.instance_id, skip=1)
    provider.describe(first.ref)
    provider.describe(second.ref)
    provider.describe(first.ref)
    with pytest.raises(Throttled):
        provider.describe(second.ref)
    cloud.faults.next("*", error=Throttled("x"))
    cloud.faults.clear()
    assert provider.describe(second.ref) is not None


def test_actions_happen_in_their_order(harness: FakeHarness) -> None:
    cloud = harness.cloud
    seen: list[tuple[str, float, int]] = []
    for name, seconds in (("late", 50.0), ("early", 3.0), ("middle", 20.0)):
        cloud.schedule(seconds, lambda name=name: seen.append((name, cloud.time(), len(cloud.alive()))))  # type: ignore[misc]
    made = harness.client().create(harness.request())
    cloud.schedule(10, lambda: harness.client().terminate(made.ref))
    harness.clock.sleep(100)
    cloud.settle()
    assert seen == [("early", 3.0, 1), ("middle", 20.0, 1), ("late", 50.0, 0)]


@given(
    seconds=st.lists(st.floats(0, 400), max_size=12),
    watchdog=st.booleans(),
    lease=st.floats(1, 600),
    skew=st.floats(-300, 300),
    preempted=st.none() | st.floats(0, 500),
)
def test_it_does_not_matter_when_anybody_looks(
    seconds: list[float], watchdog: bool, lease: float, skew: float, preempted: float | None
) -> None:
    def life(steps: list[float]) -> tuple[Any, ...]:
        clock = ManualClock()
        cloud = FakeCloud(clock, machine=MachineScript(clock_skew_seconds=skew, preempted_at=preempted))
        cloud.watchdog_works = watchdog
        harness = FakeHarness()
        request = harness.request(lease_until=clock.now() + timedelta(seconds=lease))
        made = FakeProvider(cloud).create(request)
        for step in steps:
            clock.sleep(step)
            cloud.settle()
        clock.sleep(5000 - clock.monotonic())
        one = cloud.instance(made.ref.instance_id)
        return (one.state, one.ended_by, one.end_reason, one.terminating_at, one.terminated_at)

    assert life(seconds) == life([])
    if watchdog and preempted is None:
        assert life([])[2] is EndReason.DEADLINE

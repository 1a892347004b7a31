"""The questions that tests ask of the fake cloud: they can be answered otherwise than the tests hope."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.clock import ManualClock
from costgpu.models.instance import InstanceState
from costgpu.models.job import EndReason
from costgpu.models.run import EndedBy
from tests.contract.harness import FakeHarness
from tests.fake_cloud import FakeCloud, FakeProvider, MachineScript


@pytest.fixture
def harness() -> FakeHarness:
    made = FakeHarness()
    made.cloud.visible_after_seconds = 0
    return made


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
    preempted=st.none() | st.floats(0, 500),
)
def test_it_does_not_matter_when_anybody_looks(
    seconds: list[float], watchdog: bool, lease: float, preempted: float | None
) -> None:
    def life(steps: list[float]) -> tuple[Any, ...]:
        clock = ManualClock()
        cloud = FakeCloud(clock)
        cloud.watchdog_works = watchdog
        request = FakeHarness().request(lease_until=clock.now() + timedelta(seconds=lease))
        ref = FakeProvider(cloud).create(request).ref
        if preempted is not None:
            cloud.preempt(ref.instance_id, after=preempted)
        for step in steps:
            clock.sleep(step)
            cloud.settle()
        clock.sleep(5000 - clock.monotonic())
        one = cloud.instance(ref.instance_id)
        return (one.state, one.ended_by, one.end_reason, one.terminating_at, one.terminated_at)

    assert life(seconds) == life([])
    if watchdog and preempted is None:
        assert life([])[2] is EndReason.DEADLINE

"""The fake cloud's own time."""

from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from costgpu.clock import ManualClock
from costgpu.models.job import EndReason
from tests.contract.harness import FakeHarness
from tests.fake_cloud import FakeCloud, FakeProvider


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

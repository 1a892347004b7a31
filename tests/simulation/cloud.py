"""The fake cloud, with answers that lag behind what is so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from costgpu.models.instance import CreateRequest, Instance, InstanceState
from tests.fake_cloud import FakeCloud, FakeProvider, JobScript
from tests.fake_cloud.provider import FakeProvider as _Provider

VISIBLE_SECONDS = 110.0  # within this after a create call, an instance may be unknown to the next question


class LaggingCloud(FakeCloud):
    """Eventually consistent.

    Attributes:
        forgets_until: A young instance may be shown in one answer and not in the next.
        lags_until: One that ends is shown as it was.
        lag_seconds: For so long.
        choose: What the job of a machine does.
    """

    forgets_until = -1.0
    lags_until = -1.0
    lag_seconds = 0.0
    asked = 0
    choose: Callable[[CreateRequest, JobScript], JobScript] = staticmethod(lambda _, script: script)

    def script_of(self, request: CreateRequest) -> JobScript:
        return self.choose(request, self.script)

    def provider(self) -> FakeProvider:
        return LaggingProvider(self)


class LaggingProvider(_Provider):
    """A client of it."""

    cloud: LaggingCloud

    def _visible(self, instance_id: str) -> Instance | None:
        found, cloud = super()._visible(instance_id), self.cloud
        if found is None:
            return None
        known, now = cloud.instances[instance_id], cloud.time()
        if now < cloud.forgets_until and known.ours and now < known.created_at + VISIBLE_SECONDS:
            cloud.asked += 1
            if cloud.asked % 3:
                return None
        ending = known.terminating_at
        if ending is not None and now < cloud.lags_until and now < ending + cloud.lag_seconds:
            return replace(found, state=InstanceState.RUNNING)
        return found

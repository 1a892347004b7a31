"""Leases are held against this computer's clock and the provider's: the one that is behind decides."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from costgpu.clock import ManualClock
from costgpu.errors import Unreachable
from costgpu.job.reap import agreed_now

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


class Clocked:
    """A provider with a clock that is so far from ours."""

    name = "clocked"

    def __init__(self, behind: float | None) -> None:
        self.behind = behind

    def time_now(self) -> datetime | None:
        if self.behind is None:
            raise Unreachable("It does not answer.")
        return NOW - timedelta(seconds=self.behind)


@pytest.mark.parametrize(
    ("behind", "now", "ahead"), [(86400.0, -86400, 86400), (-86400.0, 0, -86400), (None, 0, 0), (0.0, 0, 0)]
)
def test_the_clock_that_is_behind_decides(behind: float | None, now: float, ahead: float) -> None:
    provider: Any = Clocked(behind)
    assert agreed_now(provider, ManualClock(NOW)) == (NOW + timedelta(seconds=now), ahead)


def test_a_provider_without_a_clock() -> None:
    provider: Any = object()
    assert agreed_now(provider, ManualClock(NOW)) == (NOW, 0.0)

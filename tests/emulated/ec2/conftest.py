"""What the tests of AWS share."""

import functools
from collections.abc import Callable

import pytest

from tests.emulators.ec2 import planted_orphans
from tests.emulators.ec2.client import RunningEc2


@pytest.fixture
def role(cloud: RunningEc2) -> str:
    """ARN of a role that may end machines when their time is over."""
    return planted_orphans.scheduler_role()


@pytest.fixture
def as_user(cloud: RunningEc2, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """From its call on this process is a user who has the shipped policy, less one action."""
    return functools.partial(planted_orphans.as_user, cloud, monkeypatch)

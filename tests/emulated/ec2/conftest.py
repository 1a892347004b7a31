"""What the tests of AWS share."""

import pytest

from tests.emulators.ec2.client import RunningEc2
from tests.emulators.ec2.planted_orphans import scheduler_role


@pytest.fixture
def role(cloud: RunningEc2) -> str:
    """ARN of a role that may end machines when their time is over."""
    return scheduler_role()

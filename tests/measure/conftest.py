"""What tests of measurements need of this machine."""

import functools
import os
import tempfile
from pathlib import Path

import pytest

from costgpu.measure.isolation.levels import Isolation
from costgpu.measure.isolation.start import examine_isolation


@functools.cache
def best_isolation() -> tuple[Isolation, str]:
    """The strongest level that this machine gives, and why not a stronger one."""
    with tempfile.TemporaryDirectory() as cache:
        level, refused = examine_isolation(Path(cache))
    return level, "; ".join(refused.values())


@pytest.fixture
def copy_on_write() -> None:
    """Skips the test where namespaces are forbidden; with TESTBED_REQUIRED=1, that is a failure."""
    level, why = best_isolation()
    if level is not Isolation.COPY_ON_WRITE:
        assert not os.environ.get("TESTBED_REQUIRED"), why
        pytest.skip(f"this machine gives no copy-on-write world: {why}")

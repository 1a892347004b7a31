"""A fresh harness for each check."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.harness import FakeHarness, Harness, LocalHarness
from tests.emulators.fixtures import cloud, cloud_process, gce, gce_process, loopback

__all__ = ["cloud", "cloud_process", "gce", "gce_process", "loopback"]


@pytest.fixture(params=["fake", "local", *(pytest.param(name, marks=pytest.mark.wire) for name in ("aws", "gcp"))])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    """Every provider in turn."""
    made: Harness
    if request.param == "fake":
        made = FakeHarness()
    elif request.param == "local":
        made = LocalHarness(tmp_path / "machines")
    elif request.param == "gcp":
        from tests.contract.gcp_harness import GcpHarness

        made = GcpHarness(request.getfixturevalue("gce"))
    else:
        from tests.contract.aws_harness import AwsHarness

        made = AwsHarness(request.getfixturevalue("cloud"))
    yield made
    made.close()

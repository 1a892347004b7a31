"""A fresh harness for each check; an emulated account is one process for all of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_socket

from tests.contract.harness import FakeHarness, Harness, LocalHarness


@pytest.fixture(scope="session")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The emulated AWS account."""
    from tests.emulators.ec2.client import RunningEc2

    cloud = RunningEc2.launch(log=tmp_path_factory.mktemp("cloud") / "stderr.log")
    yield cloud
    cloud.close()


@pytest.fixture(scope="session")
def emulated_gce(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The emulated project of Google Cloud."""
    from tests.emulators.compute_engine.client import RunningComputeEngine

    cloud = RunningComputeEngine.launch(log=tmp_path_factory.mktemp("gce") / "stderr.log")
    yield cloud
    cloud.close()


@pytest.fixture(params=["fake", "local", "aws", "gcp"])
def harness(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    """Every provider in turn."""
    made: Harness
    if request.param == "fake":
        made = FakeHarness()
    elif request.param == "local":
        made = LocalHarness(tmp_path / "machines")
    elif request.param == "gcp":
        pytest_socket.enable_socket()
        from tests.contract.gcp_harness import GcpHarness

        gce = request.getfixturevalue("emulated_gce")
        gce.reset()
        for name, value in gce.environment().items():
            monkeypatch.setenv(name, value)
        made = GcpHarness(gce)
    else:
        pytest_socket.enable_socket()
        from tests.contract.aws_harness import AwsHarness

        cloud = request.getfixturevalue("emulated")
        cloud.reset()
        cloud.enforce_permissions(on=False)
        for name, value in cloud.environment().items():
            monkeypatch.setenv(name, value)
        made = AwsHarness(cloud)
    yield made
    made.close()

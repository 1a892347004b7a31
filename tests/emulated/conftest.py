"""The emulated clouds for the tests of this folder."""

import importlib
from collections.abc import Iterator

import pytest
import pytest_socket

from costgpu.clock import SystemClock
from costgpu.providers.aws.provider import AwsProvider
from costgpu.providers.gcp.provider import GcpProvider
from tests.emulators.compute_engine.client import RunningComputeEngine
from tests.emulators.ec2.client import RunningEc2
from tests.emulators.fixtures import (
    cloud,
    cloud_process,
    gce,
    gce_process,
    guest_cloud,
    guest_cloud_process,
    guest_gce,
    guest_gce_process,
    machines,
)
from tests.emulators.guests import relay

__all__ = ["cloud", "cloud_process", "gce", "gce_process", "guest_cloud_process"]
__all__ += ["guest_cloud", "guest_gce", "guest_gce_process", "machines"]


def pytest_configure(config: pytest.Config) -> None:
    """Tests marked ``emulator`` run inside a testbed."""
    plugin = relay.plugin()
    if plugin is not None:
        config.pluginmanager.register(plugin, "testbed")


@pytest.fixture(autouse=True)
def loopback(nothing_of_the_users: None) -> None:
    """Sockets, after the guard of all tests has taken them away."""
    pytest_socket.enable_socket()


@pytest.fixture(scope="session", autouse=True)
def parsed_models() -> Iterator[None]:
    """botocore reads its descriptions of the services once for all sessions: 0.2 s for each new one otherwise."""
    loader = importlib.import_module("botocore.loaders").create_loader(None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.session.create_loader", lambda _: loader)
        yield


@pytest.fixture
def aws(cloud: RunningEc2) -> AwsProvider:
    return AwsProvider(clock=SystemClock())


@pytest.fixture
def gcp(gce: RunningComputeEngine) -> GcpProvider:
    """The adapter on the emulated project."""
    return GcpProvider(clock=SystemClock())

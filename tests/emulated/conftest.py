"""The emulated cloud for the tests of this folder: one process, a new account for each test."""

import importlib
from collections.abc import Iterator

import pytest
import pytest_socket

from costgpu.clock import SystemClock
from costgpu.providers.aws.provider import AwsProvider
from costgpu.providers.gcp.provider import GcpProvider
from tests.emulators.compute_engine.client import RunningComputeEngine
from tests.emulators.ec2.client import RunningEc2
from tests.emulators.guests import relay
from tests.emulators.guests.fixtures import guest_cloud, guest_cloud_process, guest_gce, guest_gce_process, machines

__all__ = ["guest_cloud", "guest_cloud_process", "guest_gce", "guest_gce_process", "machines"]


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


@pytest.fixture(scope="session")
def cloud_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEc2]:
    """One cloud without guests for all tests."""
    cloud = RunningEc2.launch(log=tmp_path_factory.mktemp("cloud") / "stderr.log")
    yield cloud
    cloud.close()


@pytest.fixture
def cloud(cloud_process: RunningEc2, loopback: None, monkeypatch: pytest.MonkeyPatch) -> RunningEc2:
    """A new account, and this process's environment pointing at it."""
    cloud_process.reset()
    cloud_process.enforce_permissions(on=False)
    for name, value in cloud_process.environment().items():
        monkeypatch.setenv(name, value)
    return cloud_process


@pytest.fixture
def aws(cloud: RunningEc2) -> AwsProvider:
    return AwsProvider(clock=SystemClock())


@pytest.fixture(scope="session")
def gce_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningComputeEngine]:
    """One Compute Engine without guests for all tests."""
    gce = RunningComputeEngine.launch(log=tmp_path_factory.mktemp("gce") / "stderr.log")
    yield gce
    gce.close()


@pytest.fixture
def gce(gce_process: RunningComputeEngine, loopback: None, monkeypatch: pytest.MonkeyPatch) -> RunningComputeEngine:
    """A new project, and this process's environment pointing at it."""
    gce_process.reset()
    for name, value in gce_process.environment().items():
        monkeypatch.setenv(name, value)
    return gce_process


@pytest.fixture
def gcp(gce: RunningComputeEngine) -> GcpProvider:
    """The adapter on the emulated project."""
    return GcpProvider(clock=SystemClock())

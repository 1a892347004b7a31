"""Fixtures for tests marked ``emulator``: a cloud whose instances are guests, or the guests without a cloud."""

from collections.abc import Iterator

import pytest

from tests.emulators.compute_engine.client import RunningComputeEngine
from tests.emulators.ec2.client import RunningEc2
from tests.emulators.guests import guest_control, namespace
from tests.emulators.guests.network import GATEWAY
from tests.emulators.guests.nspawn import NspawnMachines


@pytest.fixture(scope="session")
def guest_cloud_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEc2]:
    """One cloud with guests for all tests."""
    cloud = RunningEc2.launch(machines="nspawn", host=GATEWAY, log=tmp_path_factory.mktemp("cloud") / "stderr.log")
    yield cloud
    cloud.close()


@pytest.fixture
def guest_cloud(
    guest_cloud_process: RunningEc2, loopback: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunningEc2]:
    """A new account whose instances are real, and this process's environment pointing at it."""
    guest_control.set_traits(None)
    guest_cloud_process.reset()
    for name, value in {**guest_cloud_process.environment(), **namespace.CALLER}.items():
        monkeypatch.setenv(name, value)
    yield guest_cloud_process
    guest_cloud_process.reset()


@pytest.fixture(scope="session")
def guest_gce_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningComputeEngine]:
    """One Compute Engine with guests for all tests; it listens everywhere, as callers are known by the address asked."""
    gce = RunningComputeEngine.launch(
        machines="nspawn", host="0.0.0.0", log=tmp_path_factory.mktemp("gce") / "stderr.log"
    )
    yield gce
    gce.close()


@pytest.fixture
def guest_gce(
    guest_gce_process: RunningComputeEngine, loopback: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunningComputeEngine]:
    """A new project whose instances are real, and this process's environment pointing at it."""
    guest_control.set_traits(None)
    guest_gce_process.reset()
    for name, value in {**guest_gce_process.environment(), **namespace.CALLER}.items():
        monkeypatch.setenv(name, value)
    yield guest_gce_process
    guest_gce_process.reset()


@pytest.fixture
def machines(loopback: None) -> Iterator[NspawnMachines]:
    guest_control.set_traits(None)
    made = NspawnMachines()
    yield made
    made.close()

"""The emulated clouds as fixtures: one process for all tests, a new account for each; with guests or without."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import pytest_socket

from tests.emulators.compute_engine.client import RunningComputeEngine
from tests.emulators.ec2.client import RunningEc2
from tests.emulators.emulator_client import RunningEmulator
from tests.emulators.guests import guest_control, namespace, python_packages
from tests.emulators.guests.disk_seed import Traits
from tests.emulators.guests.network import GATEWAY
from tests.emulators.guests.nspawn import ROOTFS, NspawnMachines


def _process(kind: type[RunningEmulator], **options: str) -> Any:
    @pytest.fixture(scope="session")
    def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEmulator]:
        cloud = kind.launch(log=tmp_path_factory.mktemp("cloud") / "stderr.log", **options)  # type: ignore[arg-type]
        yield cloud
        cloud.close()

    return process


cloud_process, gce_process = _process(RunningEc2), _process(RunningComputeEngine)
guest_cloud_process = _process(RunningEc2, machines="nspawn", host=GATEWAY)
# It listens everywhere: callers are known by the address that they ask.
guest_gce_process = _process(RunningComputeEngine, machines="nspawn", host="0.0.0.0")


def _account(process: RunningEmulator, patch: pytest.MonkeyPatch, **more: str) -> Iterator[RunningEmulator]:
    """A new account, at which this process's environment points."""
    process.reset()
    for name, value in {**process.environment(), **more}.items():
        patch.setenv(name, value)
    yield process
    process.reset()


@pytest.fixture
def cloud(cloud_process: RunningEc2, loopback: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningEmulator]:
    yield from _account(cloud_process, monkeypatch)


@pytest.fixture
def gce(
    gce_process: RunningComputeEngine, loopback: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunningEmulator]:
    yield from _account(gce_process, monkeypatch)


@pytest.fixture
def guest_cloud(
    guest_cloud_process: RunningEc2, loopback: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunningEmulator]:
    guest_control.set_traits(None)
    yield from _account(guest_cloud_process, monkeypatch, **namespace.CALLER)


@pytest.fixture
def guest_gce(
    guest_gce_process: RunningComputeEngine, loopback: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunningEmulator]:
    guest_control.set_traits(None)
    yield from _account(guest_gce_process, monkeypatch, **namespace.CALLER)


@contextlib.contextmanager
def packages_in_guests(*instance_types: str, **more: Any) -> Iterator[None]:
    """Guests of these types (of all, if one is empty) can import torch if they first boot now; with more traits.

    The test is skipped where their Python is of another version than this one.
    """
    reason = python_packages.obstacle(ROOTFS)
    if reason:
        pytest.skip(reason)
    for each in instance_types:
        guest_control.set_traits(Traits(packages=True, **more), each)
    try:
        yield
    finally:
        for each in instance_types:
            guest_control.set_traits(None, each)


@pytest.fixture
def loopback() -> None:
    """Sockets, after the guard of all tests has taken them away."""
    pytest_socket.enable_socket()


@pytest.fixture
def machines(loopback: None) -> Iterator[NspawnMachines]:
    """Guests without a cloud."""
    guest_control.set_traits(None)
    made = NspawnMachines()
    yield made
    made.close()

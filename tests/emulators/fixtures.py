"""The emulated clouds as fixtures: one process for all tests, a new account for each; with guests or without."""

from collections.abc import Iterator
from typing import Any

import pytest
import pytest_socket

from tests.emulators.compute_engine.client import RunningComputeEngine
from tests.emulators.ec2.client import RunningEc2
from tests.emulators.emulator_client import RunningEmulator
from tests.emulators.guests import guest_control, namespace
from tests.emulators.guests.network import GATEWAY
from tests.emulators.guests.nspawn import NspawnMachines


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


def _account(process: str, **more: str) -> Any:
    @pytest.fixture
    def account(
        request: pytest.FixtureRequest, loopback: None, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[RunningEmulator]:
        cloud: RunningEmulator = request.getfixturevalue(process)
        cloud.reset()
        for name, value in {**cloud.environment(), **more}.items():  # this process's environment points at it
            monkeypatch.setenv(name, value)
        yield cloud
        cloud.reset()

    return account


cloud, gce = _account("cloud_process"), _account("gce_process")
guest_gce = _account("guest_gce_process", **namespace.CALLER)


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

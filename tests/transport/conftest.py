"""Loopback sockets are allowed here; sshd is needed for most."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_socket import enable_socket

from costgpu.job.machine.host import Transport
from costgpu.job.machine.transport.local import LocalTransport
from costgpu.job.machine.transport.ssh import SshTransport
from tests.transport.sshd import Server, find_sshd, serve


@pytest.fixture(autouse=True)
def sockets(nothing_of_the_users: None) -> None:
    enable_socket()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if find_sshd() is None:
        pytest.skip("sshd is not installed (Debian: apt-get install openssh-server)")
    with serve(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@pytest.fixture
def ssh(server: Server) -> Iterator[SshTransport]:
    transport = SshTransport(server.endpoint, server.keys)
    yield transport
    transport.close()


@pytest.fixture(params=["ssh", "local"])
def transport(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Transport]:
    if request.param == "local":
        (tmp_path / "instance").mkdir()
        yield LocalTransport(tmp_path / "instance")
    else:
        yield request.getfixturevalue("ssh")

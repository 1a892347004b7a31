"""From an instance to a host."""

import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from costgpu.errors import HostKeyMismatch, HostUnreachable, RunError
from costgpu.job.machine.agent_client import AgentHost
from costgpu.job.machine.connect import connect
from costgpu.job.machine.keys import make_keys
from costgpu.models.instance import Endpoint, Instance, InstanceRef, InstanceState
from tests.transport.sshd import Server
from tests.until import until


def instance(endpoint: Endpoint | None) -> Instance:
    return Instance(
        ref=InstanceRef(provider="aws", region="us-east-1", instance_id="i-0abc"),
        zone=None,
        instance_type="g5.xlarge",
        state=InstanceState.RUNNING,
        launched_at=datetime(2026, 11, 1, tzinfo=UTC),
        endpoint=endpoint,
    )


def test_over_ssh(server: Server) -> None:
    host = connect(instance(server.endpoint), server.keys)
    assert isinstance(host, AgentHost)
    host.close()
    until(lambda: "Accepted publickey" in server.log)  # it connects at once; written after the client was let in


def test_another_machine(server: Server, tmp_path: Path) -> None:
    with pytest.raises(HostKeyMismatch):
        connect(instance(server.endpoint), replace(server.keys, host_public=make_keys(tmp_path).host_public))


def test_here(tmp_path: Path) -> None:
    keys = make_keys(tmp_path / "keys")
    endpoint = Endpoint(kind="local", folder=str(tmp_path))
    assert isinstance(connect(instance(endpoint), keys), AgentHost)
    with pytest.raises(HostUnreachable, match="is gone"):
        connect(instance(replace(endpoint, folder=str(tmp_path / "none"))), keys)


def test_nowhere(tmp_path: Path) -> None:
    keys = make_keys(tmp_path / "keys")
    with pytest.raises(HostUnreachable, match=r"i-0abc \(running\) has no address"):
        connect(instance(None), keys)
    with pytest.raises(RunError, match="'carrier pigeon'"):
        connect(instance(Endpoint(kind="carrier pigeon")), keys)


def test_ssh_is_imported_only_when_it_is_needed(root: Path) -> None:
    import subprocess

    code = "import sys, costgpu.job.machine.connect, costgpu.job.machine.keys; print('asyncssh' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"

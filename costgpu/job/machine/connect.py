"""From an instance to a `Host`: the engine's default `Connector`. SSH libraries are imported only when needed."""

from __future__ import annotations

import sys
from pathlib import Path

from costgpu.errors import HostUnreachable, RunError
from costgpu.job.machine.host import Host, Keys
from costgpu.models.instance import Instance


def connect(instance: Instance, keys: Keys) -> Host:
    """Connect to a machine, now and once.

    Raises:
        HostUnreachable: It has no address yet, or does not answer or let us in (yet).
        HostKeyMismatch: Another machine answers there.
    """
    endpoint = instance.endpoint
    if endpoint is None:
        raise HostUnreachable(f"{instance.ref.instance_id} ({instance.state}) has no address.")
    from costgpu.job.machine.agent_client import AgentHost  # noqa: PLC0415 - not needed by a caller that brings its own

    if endpoint.folder:
        from costgpu.job.machine.transport.local import LocalTransport  # noqa: PLC0415

        here = LocalTransport(Path(endpoint.folder))
        here.open()
        return AgentHost(here, python=sys.executable)
    if endpoint.kind == "ssh":
        from costgpu.job.machine.transport.ssh import SshTransport  # noqa: PLC0415 - asyncssh takes 0.3 s to import

        there = SshTransport(endpoint, keys)
        try:
            there.open()
        except BaseException:
            there.close()
            raise
        return AgentHost(there)
    raise RunError(f"{instance.ref.instance_id} is reached by {endpoint.kind!r}, which has no transport.")

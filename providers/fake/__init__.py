r"""A cloud in memory, for tests: the provider, its machines and the agent on them, all in simulated time.

    clock = ManualClock()
    cloud = FakeCloud(clock, script=JobScript(seconds=60, stdout=[(1.0, b"hello\n")], outputs={"out/model.pt": b"..."}))
    provider = cloud.provider()            # any number of clients; a killed one is followed by a new one
    cloud.faults.next("create", after=True, error=Unreachable("timed out"))   # created, but the answer was lost

What a client sees is `FakeProvider` (the `Provider` protocol) and `FakeHost` (the `Host` protocol of the runner,
structurally). What a test asks afterwards is `FakeCloud`: who is alive, what is billed, what was touched.
"""

from __future__ import annotations

from costgpu.providers.fake.capacity import CapacityRule
from costgpu.providers.fake.cloud import FakeCloud
from costgpu.providers.fake.faults import Call, Faults
from costgpu.providers.fake.host import FakeHost
from costgpu.providers.fake.instance import FakeInstance
from costgpu.providers.fake.provider import FakeProvider
from costgpu.providers.fake.script import AgentRules, JobScript, MachineScript

__all__ = [
    "AgentRules",
    "Call",
    "CapacityRule",
    "FakeCloud",
    "FakeHost",
    "FakeInstance",
    "FakeProvider",
    "Faults",
    "JobScript",
    "MachineScript",
]

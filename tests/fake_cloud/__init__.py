r"""A cloud in memory, for tests: the provider, its machines and the agent on them, all in simulated time.

    clock = ManualClock()
    cloud = FakeCloud(clock, script=JobScript(seconds=60, stdout=[(1.0, b"hello\n")], outputs={"out/model.pt": b"..."}))
    provider = cloud.provider()            # any number of clients; a killed one is followed by a new one
    cloud.faults.next("create", after=True, error=Unreachable("timed out"))   # created, but the answer was lost

Machines of a group (`CreateRequest.group`) share a ``group network`` and, if they are placed, a ``placement group``: both
are leftovers of node 0's run, and stay while a machine of the group is left. A fault strikes one node if its `subject` is
that node's token.

What a client sees is `FakeProvider` (the `Provider` protocol) and `FakeHost` (the `Host` protocol of the runner,
structurally). What a test asks afterwards is `FakeCloud`: who is alive, what is billed, what was touched.
"""

from tests.fake_cloud.cloud import FakeCloud
from tests.fake_cloud.host import FakeHost
from tests.fake_cloud.provider import FakeProvider
from tests.fake_cloud.script import JobScript, MachineScript
from tests.fake_cloud.spec import SPEC

__all__ = ["SPEC", "FakeCloud", "FakeHost", "FakeProvider", "JobScript", "MachineScript"]

"""Machines of a group are real hosts that reach each other on every port, and that nobody else reaches."""

from dataclasses import dataclass, replace

import pytest

from costgpu.clock import SystemClock
from costgpu.models.instance import Instance, InstanceRef, InstanceState, NodeGroup
from costgpu.providers.aws.provider import AwsProvider
from costgpu.providers.base import Provider
from costgpu.providers.gcp.provider import GcpProvider
from tests.emulators.create_requests import AWS, GCP, Requests
from tests.emulators.emulator_client import RunningEmulator
from tests.emulators.guests import guest_control
from tests.emulators.guests.guest_control import InGuest
from tests.emulators.guests.network import GATEWAY

pytestmark = pytest.mark.emulator

PORT = 29500
GROUP = NodeGroup(group_id="r7k2m9x4q1ab", nodes=2, node=0, placement=True)
RUNS = (GROUP.group_id, "k3v9x2m7q1ab", "stranger0000")
LISTEN = f"""
import socket
socket.setdefaulttimeout(60)
with socket.create_server(("", {PORT})) as server:
    while True:
        server.accept()[0].close()
"""
KNOCK = """
import socket, sys
socket.create_connection((sys.argv[1], int(sys.argv[2])), 1).close()
"""


@dataclass
class House:
    """One of the emulated clouds, with guests."""

    cloud: RunningEmulator
    provider: Provider
    requests: Requests
    zone: str
    kind: str  # machine type

    def create(self, number: int, group: NodeGroup | None) -> InstanceRef:
        offer = self.requests.offer(self.kind, vcpus=2, accelerator=None)
        wanted = self.requests.request(
            offer, run_id=RUNS[number], zone=self.zone, group=group, allow_from=f"{GATEWAY}/32"
        )
        return self.provider.create(wanted).ref

    def booted(self, ref: InstanceRef) -> tuple[Instance, InGuest]:
        """A running machine whose sshd answers its user."""
        self.cloud.until(lambda: self.seen(ref).state is InstanceState.RUNNING)
        found = self.seen(ref)
        [row] = [row for row in self.cloud.alive() if row["private_ip"] == found.private_address]
        inside = InGuest(str(row.get("guest") or row["id"]))
        guest_control.until(lambda: inside.run("true", check=False).returncode == 0, 60)
        listens = ("systemctl", "is-active", "ssh.service")  # not the whole first boot: on Google it waits for snapd
        guest_control.until(lambda: inside.run(*listens, check=False).returncode == 0, 60)
        return found, inside

    def seen(self, ref: InstanceRef) -> Instance:
        found = self.provider.describe(ref)
        assert found is not None
        return found


@pytest.fixture(params=["aws", "gcp"])
def house(request: pytest.FixtureRequest) -> House:
    if request.param == "aws":
        cloud = request.getfixturevalue("guest_cloud")
        return House(cloud, AwsProvider(clock=SystemClock()), AWS, "us-east-1b", "c7i.large")
    cloud = request.getfixturevalue("guest_gce")
    return House(cloud, GcpProvider(clock=SystemClock()), GCP, "us-central1-a", "n2-standard-2")


def test_they_reach_each_other_and_nobody_else_reaches_them(house: House) -> None:
    made = [house.create(number, replace(GROUP, node=number)) for number in (0, 1)]
    made.append(house.create(2, None))
    (first, one), (second, two), (_, stranger) = map(house.booted, made)

    def reaches(inside: InGuest, address: str, port: int) -> bool:
        return inside.run("python3", "-c", KNOCK, address, str(port), check=False).returncode == 0

    for inside in (one, two):
        inside.run("systemd-run", "--quiet", "python3", "-c", LISTEN)
    guest_control.until(lambda: reaches(one, second.private_address, PORT), 20)
    guest_control.until(lambda: reaches(two, first.private_address, PORT), 20)
    assert reaches(two, first.private_address, 22)
    assert two.run("ping", "-c", "1", "-W", "3", first.private_address, check=False).returncode in (0, 127)
    for port in (PORT, 22):
        assert not reaches(stranger, first.private_address, port)
        assert not reaches(stranger, second.private_address, port)
        assert first.endpoint is not None
        assert not reaches(stranger, first.endpoint.host, port)

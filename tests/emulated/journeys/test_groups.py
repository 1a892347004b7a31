"""Jobs on two machines of the emulated AWS, from the command line: real hosts, real torch between them.

Clients of several machines are killed, and machines are taken back, in tests/simulation.
"""

import json
from collections.abc import Iterator

import boto3
import pytest

from costgpu.errors import NodesApart
from tests import examples
from tests.emulated.journeys import groups
from tests.emulated.journeys.conftest import Begin
from tests.emulated.journeys.journey import KILLABLE, WAITS, Journeys, Person, until
from tests.emulators.ec2.client import RunningEc2
from tests.emulators.fixtures import packages_in_guests
from tests.emulators.guests import guest_control
from tests.emulators.guests.disk_seed import Traits

pytestmark = pytest.mark.emulator
journeys = Journeys()
TORCH, CAP = "c7i.large", "0.20"
APART = "c6i.large"
QUICK_MEETING = "COSTGPU_AGENT_MEETING_SECONDS=12 COSTGPU_AGENT_CONNECT_SECONDS=2"
"""Machines that do not wait for each other as long as machines on two ends of a data centre."""


@pytest.fixture(scope="module", autouse=True)
def all_at_once(begin: Begin, guest_cloud_process: RunningEc2) -> Iterator[None]:
    guest_control.set_traits(Traits(agent=QUICK_MEETING), APART)
    with packages_in_guests(TORCH):
        yield from begin(guest_cloud_process)
    guest_control.set_traits(None, APART)


@journeys
def a_whole_run(person: Person) -> None:
    """DDP under torchrun from the command line to the receipt, and nothing is left."""
    person.write(examples.source_for_gloo("train_ddp.py"))
    small = "train.py --epochs 2 --steps 4 --samples 1024 --width 64"
    client = person.ran(*groups.TWO, kind=TORCH, cap=CAP, script=small)
    assert client.says(f"2x aws {TORCH}"), str(client)
    assert b"[rank0]:epoch 1: loss" in client.out, str(client)
    assert (person.work / "model.pt").exists()
    for run_id in person.run_ids():
        assert client.says(f"Receipt {run_id}"), str(client)
    assert client.says("together 2 machines"), str(client)
    listed = json.loads(person.do("jobs", "-a", "--json").out)["runs"]
    assert [(each["state"], each["reason"]) for each in listed] == [("closed", "succeeded")] * 2
    person.ended(instances=2)
    assert person.do("reap", "--infra", "aws/us-east-1").out == b""


@journeys
def they_do_not_reach_each_other(person: Person) -> None:
    """Somebody takes away the rule that lets them."""
    person.write(WAITS)
    client = person.launch(*groups.BARE, kind=APART, cap=CAP, command=(*KILLABLE, "--at", "reached:after:STOP", "--"))
    client.until_stopped(120)
    ec2 = boto3.Session("AKIASOMEBODY", "secret").client("ec2", endpoint_url=person.cloud.url, region_name="us-east-1")
    own = [
        group for group in ec2.describe_security_groups()["SecurityGroups"] if person.run_ids()[0] in group["GroupName"]
    ]
    (rule,) = [(group, each) for group in own for each in group["IpPermissions"] if each["UserIdGroupPairs"]]
    ec2.revoke_security_group_ingress(GroupId=rule[0]["GroupId"], IpPermissions=[rule[1]])
    client.go_on()
    assert client.wait(120) == NodesApart.exit_code, str(client)
    assert client.says("Node 1 "), str(client)
    assert client.says("node 0 at"), str(client)
    assert client.says("have to be allowed to connect to each other on every TCP port"), str(client)
    assert b"done" not in client.out
    until(lambda: person.states() == ["terminated"] * 2, 30, f"the machines of {person.name} are gone")
    person.ended(instances=2)


@pytest.mark.parametrize("name", journeys.names)
def test_journey(name: str) -> None:
    journeys.wait(name)

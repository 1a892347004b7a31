"""Jobs on two machines of the emulated AWS, from the command line: real hosts, real torch between them.

A zone that has room for one, and machine 1 that is taken back, are in `test_groups_google`.
"""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from costgpu.errors import NodesApart
from tests.emulated.journeys import groups
from tests.emulated.journeys.conftest import Begin
from tests.emulated.journeys.journey import KILLABLE, WAITS, Journeys, Person, bucket, until
from tests.emulators.ec2.client import RunningEc2
from tests.emulators.fixtures import packages_in_guests
from tests.emulators.guests import guest_control
from tests.emulators.guests.disk_seed import Traits

pytestmark = pytest.mark.emulator
journeys = Journeys()
TORCH, CAP = "c6i.large", "0.60"
APART = "c7i.large"
QUICK_MEETING = "COSTGPU_AGENT_MEETING_SECONDS=12 COSTGPU_AGENT_CONNECT_SECONDS=2"
"""Machines that do not wait for each other as long as machines on two ends of a data centre."""


@pytest.fixture(scope="module", autouse=True)
def all_at_once(begin: Begin, guest_cloud_process: RunningEc2) -> Iterator[None]:
    guest_control.set_traits(Traits(agent=QUICK_MEETING), APART)
    with packages_in_guests(TORCH, agent="COSTGPU_AGENT_CHECKPOINT_SECONDS=0.2"):
        yield from begin(guest_cloud_process)
    guest_control.set_traits(None, APART)


@journeys
def machine_0_is_taken_back(person: Person) -> None:
    """First without a notice and without a client: what it has brought into the bucket is enough for whoever comes next."""
    store = bucket(person, "costgpu-checkpoints")
    person.write(groups.source_with_gates())
    kept = ("-d", "--bucket", "s3://costgpu-checkpoints/team")
    client = person.ran(*groups.TWO, *groups.GOES_ON, *kept, kind=TORCH, cap=CAP, script=groups.script(30))
    assert client.says(f"2x aws {TORCH}"), str(client)
    lead = person.run_ids()[0]
    until(lambda: _is_there(store, f"team/{lead}/checkpoint.tar.gz"), 120, "a checkpoint is in the bucket")
    person.cloud.interrupt(groups.machine(person, 0), notice_seconds=0)
    until(lambda: person.machine_of(lead)["state"] == "terminated", 60, "it is gone")
    attached = person.start("attach", lead)
    groups.waits_at(attached, 20)
    person.cloud.interrupt(groups.machine(person, 0), notice_seconds=100)
    assert attached.wait(180) == 0, str(attached)
    assert attached.says("together 6 machines after 2 interruptions"), str(attached)
    assert (person.work / "model.pt").exists()
    groups.went_on(person, attempts=3)
    assert person.do("reap", "--infra", "aws/us-east-1").out == b""


def _is_there(s3: Any, name: str) -> bool:
    return bool(s3.list_objects_v2(Bucket="costgpu-checkpoints", Prefix=name).get("KeyCount"))


@journeys
def they_do_not_reach_each_other(person: Person) -> None:
    """Somebody takes away the rule that lets them."""
    person.write(WAITS)
    client = person.launch(*groups.BARE, kind=APART, cap=CAP, command=(*KILLABLE, "--stop", "reached", "--"))
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


@journeys
def cancelled_by_tag(person: Person) -> None:
    """From a computer whose ledger knows nothing, by what is on the machine."""
    person.write(WAITS)
    client = person.launch(*groups.BARE, cap="0.03")
    client.until(lambda: b"begun" in client.out, 120, "the job runs on machine 0")
    client.kill()
    other = Person(person.cloud, person.folder / "other", person.key)
    done = other.do("cancel", "-y", person.run_ids()[1])
    for run_id in person.run_ids():
        assert person.machine_of(run_id)["id"].encode() in done.out, str(done)
    assert person.states() == ["terminated"] * 2
    assert person.left() == []


@pytest.mark.parametrize("name", journeys.names)
def test_journey(name: str) -> None:
    journeys.wait(name)

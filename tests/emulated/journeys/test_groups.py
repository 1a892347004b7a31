"""Jobs on two machines of the emulated AWS, from the command line: real hosts, real torch between them."""

from collections.abc import Iterator

import boto3
import pytest

from tests.emulated.journeys import groups
from tests.emulated.journeys.conftest import Begin
from tests.emulated.journeys.journey import KILLABLE, WAITS, Journeys, Person
from tests.emulators.ec2.client import RunningEc2
from tests.emulators.fixtures import packages_in_guests
from tests.emulators.guests import guest_control
from tests.emulators.guests.disk_seed import Traits

pytestmark = pytest.mark.emulator
journeys = Journeys()
TORCH, CAP = "c7i.large", "0.20"
APART = "c6i.large"


@pytest.fixture(scope="module", autouse=True)
def all_at_once(begin: Begin, guest_cloud_process: RunningEc2) -> Iterator[None]:
    guest_control.set_traits(Traits(agent=groups.QUICK_MEETING), APART)
    with packages_in_guests(TORCH):
        yield from begin(guest_cloud_process)
    guest_control.set_traits(None, APART)


@journeys
def a_whole_run(person: Person) -> None:
    groups.whole_run(person, TORCH, CAP)
    assert person.do("reap", "--infra", "aws/us-east-1").out == b""


@journeys
def a_sharded_model(person: Person) -> None:
    groups.sharded_model(person, TORCH, CAP)


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
    groups.apart(person, client)


@journeys
def no_room_for_the_second(person: Person) -> None:
    """The zone that had room for one is left, and that one is ended before the next zone is asked."""
    words = "We currently do not have sufficient capacity."
    person.fault("RunInstances", skip=2, code="InsufficientInstanceCapacity", message=words)
    person.write("import os; open('rank', 'w').write(os.environ['RANK'])")
    client = person.ran(*groups.BARE, cap="0.03")
    assert client.says("could not be had"), str(client)
    assert len({each["zone"] for each in person.instances()}) == 2
    assert person.holds("rank", "0")
    person.ended(instances=3)


@journeys
def one_is_lost(person: Person) -> None:
    client = groups.both_begun(person, cap="0.03")
    ec2 = boto3.Session("AKIASOMEBODY", "secret").client("ec2", endpoint_url=person.cloud.url, region_name="us-east-1")
    ec2.terminate_instances(InstanceIds=[person.machine_of(person.run_ids()[1])["id"]])
    groups.one_is_lost(person, client)


@journeys
def cancelled_by_tag(person: Person) -> None:
    groups.cancelled_by_tag(person, cap="0.03")


@pytest.mark.parametrize("name", journeys.names)
def test_journey(name: str) -> None:
    journeys.wait(name)

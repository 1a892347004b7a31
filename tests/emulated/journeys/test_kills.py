"""Clients are killed at API requests and ledger writes, agents and networks in between: a sample, or with FULL=1 all.

Real processes, real SIGKILLs, real hosts. Afterwards only time passes, and cron runs `costgpu reap --yes`: nothing is
alive past its lease, no outputs are lost, no run has two machines, nothing foreign is touched. On Google Cloud there are
fewer points: the engine is the same, the adapter and what a power-off means are not.

Clients of thousands of drawn jobs, of groups and of those that go on, too, die at any call in tests/simulation.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import pytest

from costgpu.errors import OrphansFound
from costgpu.models.run import EventKind
from tests.emulated.journeys.journey import KILLABLE, LEASE_SECONDS, leftovers, until
from tests.emulated.journeys.kill_points import (
    Case,
    agent_killed,
    killed_at_a_request,
    killed_at_a_write,
    network_cut,
    points_of_a_journey,
    run_cases,
    sample,
)
from tests.emulated.journeys.kill_setup import Cron, KillSetup, Witness
from tests.emulators.compute_engine.client import PROJECT, RunningComputeEngine
from tests.emulators.compute_engine.google_client import Google, done
from tests.emulators.ec2.client import RunningEc2
from tests.emulators.guests import guest_control
from tests.emulators.guests.guest_control import InGuest

pytestmark = pytest.mark.emulator
NOTHING_BUT_TAGS = ("created", "started")  # when watchdog, agent, client and ledger are lost at once
BUCKET = "s3://costgpu-kills/runs"
AROUND = {
    ("firewalls.insert", 1): ("before", "after"),
    ("firewalls.insert", 2): ("after",),
    ("globalOperations.get", 1): ("after",),
    ("instances.insert", 1): ("before", "after"),
    ("zoneOperations.get", 1): ("after",),
    ("instances.delete", 1): ("before", "after"),
    ("instances.aggregatedList", 1): ("after",),
    ("firewalls.delete", 1): ("before", "after"),
    ("firewalls.delete", 2): ("before",),
}
"""Which call of a method: before or after it is executed."""


def new_setup(cloud: RunningEc2 | RunningComputeEngine, folder: Path) -> KillSetup:
    guest_control.set_traits(None)
    cloud.reset()
    return KillSetup(cloud=cloud, folder=folder, witness=Witness())


@pytest.fixture
def aws_setup(guest_cloud_process: RunningEc2, tmp_path: Path) -> Iterator[KillSetup]:
    made = new_setup(guest_cloud_process, tmp_path)
    yield made
    made.close()


@pytest.fixture
def gcp_setup(guest_gce_process: RunningComputeEngine, tmp_path: Path) -> Iterator[KillSetup]:
    made = new_setup(guest_gce_process, tmp_path)
    yield made
    made.close()


# -- AWS -------------------------------------------------------------------------------------------------------------


def killed_and_left_alone(setup: KillSetup, kind: str, *, cut: bool) -> None:
    """Nobody comes before the lease is over: what is done is in the bucket, and the machine ends itself."""
    person = setup.person(f"alone-{kind}-{'cut' if cut else 'bucket'}", "alone")
    client = setup.launch(person, f"{kind}:after:STOP", "--bucket", BUCKET, seconds=15.0 if cut else 1.0)
    client.until_stopped(120)
    guest = person.guest()
    if cut:
        guest.cut_network()
        setup.killed("network")
    client.kill()
    setup.killed("client at a ledger write")
    if "started" in person.events() and not cut:
        prefix = f"runs/{person.run_id()}/logs"
        until(lambda: any(key.startswith(prefix) for key in keys_in_bucket(setup)), 60, "its logs are up")
    if "started" in person.events() and cut:
        over = ("test", "-e", "/opt/costgpu/exit.json")
        until(lambda: guest.run(*over, check=False).returncode == 0, 60, "its job is over, and nobody hears of it")
    guest.shift_clock(LEASE_SECONDS)
    until(lambda: [each["state"] for each in person.instances()] == ["terminated"], 60, person.name)
    assert person.events()[-1] == kind, "somebody has come by"


def nothing_but_tags(setup: KillSetup, *, kind: str) -> None:
    """Watchdog and agent are dead, the client too, and its ledger is lost: the reaper is the last layer."""
    person = setup.person(f"tags-{kind}", f"lost-{kind}")
    client = setup.launch(person, f"{kind}:after:STOP")
    client.until_stopped(120)
    guest = person.guest()
    armed = ("systemctl", "is-active", "costgpu-deadline")
    until(lambda: guest.run(*armed, check=False).stdout == "active\n", 60, "the watchdog is armed")
    guest.run("systemctl", "mask", "--now", "--runtime", "costgpu-deadline", "costgpu-agent", check=False)
    guest.kill("[w]atchdog.sh")
    client.kill()
    setup.killed("client, agent, watchdog and ledger")
    for each in person.data.glob("ledger.sqlite*"):
        each.unlink()


def keys_in_bucket(setup: KillSetup) -> list[str]:
    s3 = boto3.Session("AKIALOOK", "secret").client("s3", endpoint_url=setup.cloud.url, region_name="us-east-1")
    return [each["Key"] for each in s3.list_objects_v2(Bucket="costgpu-kills").get("Contents", [])]


def aws_cases(requests: list[str], writes: list[str]) -> Iterator[Case]:
    """Everything that is done to runs; those that wait longest first."""
    yield from (Case(nothing_but_tags, (), {"kind": kind}) for kind in NOTHING_BUT_TAGS)
    yield from (Case(killed_and_left_alone, (kind,), {"cut": False}) for kind in writes[2:9])
    yield from (Case(killed_and_left_alone, (kind,), {"cut": True}) for kind in ("reached", "started"))
    for both in (True, False):
        for kind in ("reached", "started", "finished"):
            yield Case(network_cut, (kind, "after"), {"client_too": both})
        for point in ("synced:after", "started:before", "started:after", "finished:before", "finished:after"):
            yield Case(agent_killed, tuple(point.split(":")), {"client_too": both})
        for when in ("before", "after"):
            yield Case(agent_killed, ("collected", when), {"client_too": both})
        yield Case(agent_killed, ("started", "after"), {"client_too": both, "pattern": "[p]yz (daemon|supervise)"})
    for when in ("before", "after"):
        yield from (Case(killed_at_a_write, (kind, when)) for kind in writes)
        yield from (Case(killed_at_a_request, (number, when)) for number in range(1, len(requests) + 1))


@pytest.mark.timeout(900)
def test_kills_on_aws(aws_setup: KillSetup, record_property: Callable[[str, object], None]) -> None:
    setup, began = aws_setup, time.monotonic()
    owner = boto3.Session("AKIAOWNER", "secret", region_name="us-east-1")
    owner.client("s3", endpoint_url=setup.cloud.url).create_bucket(Bucket="costgpu-kills")
    ec2 = owner.client("ec2", endpoint_url=setup.cloud.url)
    foreign = foreigners_on_aws(ec2)
    requests, writes = points_of_a_journey(setup)
    assert set(writes) <= set(EventKind)
    cron = Cron(setup, "shared")
    cases, choice = sample(aws_cases(requests, writes))
    troubles = run_cases(setup, cases, at_once=8)
    cron.close()
    assert troubles == [], "\n\n".join([choice, *troubles])
    assert cron.failures == []
    homes = after_the_lease(setup)
    machines = [each for each in setup.cloud.instances() if each["id"] != foreign["instance"]]
    assert [each for each in machines if each["state"] != "terminated"] == []
    assert leftovers(setup.cloud) == []
    assert foreigners_now(ec2, foreign) == "running"
    runs = Counter(each["tags"].get("costgpu-run") for each in machines)
    assert max(runs.values()) == 1
    line = (
        f"{choice}: {len(cases)} runs, of which {len(runs)} had a machine:"
        f" {setup.summary(len(requests), len(writes), cron)}. No machine left, outputs of {homes} finished jobs home."
        f" {time.monotonic() - began:.0f} s"
    )
    record_property("said", line)
    print(line)


def after_the_lease(setup: KillSetup) -> int:
    """Time passes for everybody, and reap comes once more to each computer; the outputs that are home in the end."""
    setup.cloud.advance(LEASE_SECONDS)
    for instance_id in guest_control.running():
        InGuest(instance_id).shift_clock(LEASE_SECONDS)
    for kind in NOTHING_BUT_TAGS:
        assert [each["state"] for each in setup.cloud.instances_of(f"tags-{kind}")] == ["running"]
    clock = setup.folder / "late-clock"
    clock.write_text(f"{LEASE_SECONDS}")
    computers = sorted(path.name for path in (setup.folder / "computers").iterdir())

    def reap(computer: str) -> None:
        user = setup.person(f"late-{computer}", computer)
        where = () if computer == "alone" else ("--infra", "aws/us-east-1")  # one of them asks all regions
        reaped = user.start("reap", "--yes", *where, command=(*KILLABLE, "--clock", str(clock), "--"))
        assert reaped.wait(300) in (0, OrphansFound.exit_code), str(reaped)  # what it found leaking it has ended
        left = [(row["name"], row["state"]) for row in json.loads(user.do("jobs", "--json").out)["runs"]]
        assert left == [], f"{computer}: {left}\n{reaped}"

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(reap, computers))
    homes = 0
    for path in sorted(setup.folder.glob("*/work")):
        name = path.parent.name
        if setup.witness.heard[f"/done/{name}"] and not name.startswith("tags-"):
            assert (path / "model.bin").read_text() == f"weights of {name}", name
            homes += 1
    return homes


def foreigners_on_aws(ec2: Any) -> dict[str, str]:
    """A machine and a group of somebody else's, with names and tags close to ours."""
    image = ec2.describe_images(Owners=["amazon"], Filters=[{"Name": "architecture", "Values": ["x86_64"]}])["Images"][
        0
    ]
    group = ec2.create_security_group(GroupName="costgpu", Description="somebody else's")["GroupId"]
    tags = [{"Key": "Name", "Value": "costgpu-train"}, {"Key": "costgpu", "Value": "yes"}]
    answer = ec2.run_instances(
        ImageId=image["ImageId"],
        InstanceType="t3.micro",
        MinCount=1,
        MaxCount=1,
        SecurityGroupIds=[group],
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    return {"instance": answer["Instances"][0]["InstanceId"], "group": group}


def foreigners_now(ec2: Any, foreign: dict[str, str]) -> str:
    groups = [group["GroupId"] for group in ec2.describe_security_groups()["SecurityGroups"]]
    assert foreign["group"] in groups
    found = ec2.describe_instances(InstanceIds=[foreign["instance"]])["Reservations"][0]["Instances"][0]
    return str(found["State"]["Name"])


# -- Google Cloud ----------------------------------------------------------------------------------------------------


def power_off(setup: KillSetup, kind: str) -> None:
    """The client is dead and the machine ends itself: it is only stopped, and cron deletes it and its disk."""
    person = setup.person(f"off-{kind}", "shared")
    client = setup.launch(person, f"{kind}:after:STOP")
    client.until_stopped(120)
    person.guest().run(
        "systemctl", "poweroff", "--force", check=False
    )  # as long as it stands still, cron cannot have it
    client.kill()
    setup.killed("client at a ledger write")
    until(lambda: [each["state"] for each in person.instances()] != ["running"], 60, f"{person.name} has stopped")
    setup.settled(person)
    setup.check(person, home=False)


def gcp_cases(writes: list[str]) -> Iterator[Case]:
    """What is done to runs; those that wait longest first."""
    yield from (Case(power_off, (kind,)) for kind in ("reached", "finished"))
    for both in (True, False):
        yield Case(network_cut, ("started", "after"), {"client_too": both})
        yield Case(agent_killed, ("started", "after"), {"client_too": both})
    yield from (Case(killed_at_a_write, (kind, "after")) for kind in writes)
    yield from (Case(killed_at_a_write, (kind, "before")) for kind in ("created", "ending", "confirmed"))
    for (action, number), moments in AROUND.items():
        yield from (Case(killed_at_a_request, (number, when), {"action": action}) for when in moments)


@pytest.mark.timeout(600)
def test_kills_on_google_cloud(gcp_setup: KillSetup, record_property: Callable[[str, object], None]) -> None:
    setup, began = gcp_setup, time.monotonic()
    assert isinstance(setup.cloud, RunningComputeEngine)
    foreigners_on_google_cloud(Google(setup.cloud))
    requests, writes = points_of_a_journey(setup)
    assert {f"compute:{action}" for action, _ in AROUND} <= set(requests), requests
    cron = Cron(setup, "shared", at_once=1)
    cases, choice = sample(gcp_cases(writes))
    troubles = run_cases(setup, cases, at_once=6)
    cron.close()
    assert troubles == [], "\n\n".join([choice, *troubles])
    assert cron.failures == []
    homes = len(list(setup.folder.glob("*/work/model.bin")))  # of those for whom the machine could be reached
    assert sorted(each["id"] for each in setup.cloud.alive()) == ["costgpu-train"]
    assert setup.cloud.leftovers() == ["disks/costgpu-train", "firewalls/costgpu-rule"]
    runs = Counter(each["tags"]["costgpu-run"] for each in setup.cloud.instances() if "costgpu-run" in each["tags"])
    assert max(runs.values()) == 1
    line = (
        f"{choice}: {len(cases)} runs, of which {len(runs)} had a machine:"
        f" {setup.summary(len(requests), len(writes), cron)}. No machine, disk or rule left, outputs of {homes} finished"
        f" jobs home. {time.monotonic() - began:.0f} s"
    )
    record_property("said", line)
    print(line)


def foreigners_on_google_cloud(google: Google) -> None:
    """A machine and a rule of somebody else's, with names and labels close to ours."""
    google.made(name="costgpu-train", labels={"costgpu": "yes"}, lives=0)
    rule = {
        "name": "costgpu-rule",
        "network": "global/networks/default",
        "source_ranges": ["203.0.113.0/24"],
        "allowed": [{"I_p_protocol": "tcp", "ports": ["443"]}],
        "description": "costgpu",
    }
    done(google.wait(google.firewalls.insert_unary(project=PROJECT, firewall_resource=rule)))

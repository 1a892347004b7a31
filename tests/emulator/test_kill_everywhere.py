"""The client is killed at every API request and every ledger write, the agent and the network in between.

Real processes, real SIGKILLs, real hosts. Afterwards only time passes, and cron runs `costgpu reap --yes`: nothing is
alive past its lease, no outputs are lost, no run has two machines, nothing foreign is touched.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from costgpu.errors import OrphansFound
from costgpu.models.run import EventKind
from tests.emulator import guests
from tests.emulator.battlefield import Battlefield, Cron, Witness
from tests.emulator.client import RunningCloud
from tests.emulator.guests import InGuest, NoGuest
from tests.emulator.journey import LEASE_SECONDS, MORTAL, leftovers, until
from tests.emulator.kills import agent_killed, killed_at_a_request, killed_at_a_write, network_cut, points_of_a_journey

pytestmark = pytest.mark.emulator
AT_ONCE = 8
NOTHING_BUT_TAGS = ("created", "started")  # when watchdog, agent, client and ledger are lost at once
BUCKET = "s3://costgpu-kills/runs"


@pytest.fixture(autouse=True)
def nothing_of_the_users() -> None:
    """Every client here is a process with an environment of its own; threads of this one talk to the cloud."""


@pytest.fixture
def ground(guest_cloud_process: RunningCloud, tmp_path: Path) -> Iterator[Battlefield]:
    guest_cloud_process.reset()
    made = Battlefield(cloud=guest_cloud_process, folder=tmp_path, witness=Witness())
    yield made
    for client in made.clients:
        client.kill()
    made.witness.close()
    guest_cloud_process.reset()


# -- what happens to one run -----------------------------------------------------------------------------------------


def killed_and_left_alone(ground: Battlefield, kind: str, *, cut: bool) -> None:
    """Nobody comes before the lease is over: what is done is in the bucket, and the machine ends itself."""
    person = ground.person(f"alone-{kind}-{'cut' if cut else 'bucket'}", "alone")
    client = ground.launch(person, f"{kind}:after:STOP", "--bucket", BUCKET, seconds=15.0 if cut else 1.0)
    client.until_stopped(120)
    guest = person.guest()
    if cut:
        guest.cut_network()
        ground.killed("network")
    client.kill()
    ground.killed("client at a ledger write")
    if "started" in person.events() and not cut:
        prefix = f"runs/{person.run_id()}/logs"
        until(lambda: any(key.startswith(prefix) for key in keys_in_bucket(ground)), 60, "its logs are up")
    if "started" in person.events() and cut:
        over = ("test", "-e", "/opt/costgpu/exit.json")
        until(lambda: guest.run(*over, check=False).returncode == 0, 60, "its job is over, and nobody hears of it")
    guest.shift_clock(LEASE_SECONDS)
    until(lambda: [each["state"] for each in person.instances()] == ["terminated"], 60, person.name)
    assert person.events()[-1] == kind, "somebody has come by"


def nothing_but_tags(ground: Battlefield, kind: str) -> None:
    """Watchdog and agent are dead, the client too, and its ledger is lost: the reaper is the last layer."""
    person = ground.person(f"tags-{kind}", f"lost-{kind}")
    client = ground.launch(person, f"{kind}:after:STOP")
    client.until_stopped(120)
    guest = person.guest()
    armed = ("systemctl", "is-active", "costgpu-deadline")
    until(lambda: guest.run(*armed, check=False).stdout == "active\n", 60, "the watchdog is armed")
    guest.run("systemctl", "mask", "--now", "--runtime", "costgpu-deadline", "costgpu-agent", check=False)
    guest.kill("[w]atchdog.sh")
    client.kill()
    ground.killed("client, agent, watchdog and ledger")
    for each in person.data.glob("ledger.sqlite*"):
        each.unlink()


def keys_in_bucket(ground: Battlefield) -> list[str]:
    import boto3

    s3 = boto3.Session("AKIALOOK", "secret").client("s3", endpoint_url=ground.cloud.url, region_name="us-east-1")
    return [each["Key"] for each in s3.list_objects_v2(Bucket="costgpu-kills").get("Contents", [])]


# -- the whole -------------------------------------------------------------------------------------------------------


def cases(
    requests: list[str], writes: list[str]
) -> Iterator[tuple[Callable[..., None], tuple[Any, ...], dict[str, Any]]]:
    """Everything that is done to runs; those that wait longest first."""
    yield from ((nothing_but_tags, (kind,), {}) for kind in NOTHING_BUT_TAGS)
    yield from ((killed_and_left_alone, (kind,), {"cut": False}) for kind in writes[2:9])
    yield from ((killed_and_left_alone, (kind,), {"cut": True}) for kind in ("reached", "started"))
    for both in (True, False):
        yield from ((network_cut, (kind, "after"), {"client_too": both}) for kind in ("reached", "started", "finished"))
    for kind, when in (
        ("synced", "after"),
        ("started", "before"),
        ("started", "after"),
        ("finished", "before"),
        ("finished", "after"),
        ("collected", "before"),
        ("collected", "after"),
    ):
        yield agent_killed, (kind, when), {"client_too": False}
        yield agent_killed, (kind, when), {"client_too": True}
    yield agent_killed, ("started", "after"), {"client_too": False, "pattern": "[p]yz (daemon|supervise)"}
    yield agent_killed, ("started", "after"), {"client_too": True, "pattern": "[p]yz (daemon|supervise)"}
    yield from ((killed_at_a_write, (kind, when), {}) for kind in writes for when in ("before", "after"))
    for number in range(1, len(requests) + 1):
        yield from ((killed_at_a_request, (number, when), {}) for when in ("before", "after"))


@pytest.mark.timeout(900)
def test_kill_everywhere(ground: Battlefield, record_property: Callable[[str, object], None]) -> None:
    import boto3

    began = time.monotonic()
    owner = boto3.Session("AKIAOWNER", "secret", region_name="us-east-1")
    owner.client("s3", endpoint_url=ground.cloud.url).create_bucket(Bucket="costgpu-kills")
    foreign = foreigners(owner.client("ec2", endpoint_url=ground.cloud.url))
    requests, writes = points_of_a_journey(ground)
    assert set(writes) <= set(EventKind)
    cron = Cron(ground, "shared")
    troubles: list[str] = []

    def run(case: tuple[Callable[..., None], tuple[Any, ...], dict[str, Any]]) -> None:
        function, arguments, options = case
        try:
            function(ground, *arguments, **options)
        except (AssertionError, NoGuest, OSError) as trouble:
            troubles.append(f"{function.__name__}{arguments}{options}: {trouble}")

    todo = list(cases(requests, writes))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(run, todo))
    cron.close()
    killing = time.monotonic() - began
    assert troubles == [], "\n\n".join(troubles)
    assert cron.failures == []
    homes = after_the_lease(ground)
    alive = [each for each in ground.cloud.alive() if each["id"] != foreign["instance"]]
    assert alive == []
    assert leftovers(ground.cloud) == []
    assert foreigners_now(owner.client("ec2", endpoint_url=ground.cloud.url), foreign) == "running"
    runs = Counter(
        each["tags"].get("costgpu-run") for each in ground.cloud.instances() if each["id"] != foreign["instance"]
    )
    assert max(runs.values()) == 1
    line = (
        f"{len(todo)} runs, of which {len(runs)} had a machine: {sum(ground.kills.values())} kills"
        f" ({', '.join(f'{what}: {count}' for what, count in sorted(ground.kills.items()))}) around {len(requests)} API"
        f" requests and {len(writes)} ledger writes; cron came {cron.runs} times. No machine left, outputs of {homes}"
        f" finished jobs home. {killing:.0f} s, {time.monotonic() - began:.0f} s in all"
    )
    record_property("said", line)
    print(line)


def after_the_lease(ground: Battlefield) -> int:
    """Time passes for everybody, and reap comes once more to each computer; the outputs that are home in the end."""
    ground.cloud.advance(LEASE_SECONDS)
    for instance_id in guests.running():
        InGuest(instance_id).shift_clock(LEASE_SECONDS)
    for kind in NOTHING_BUT_TAGS:
        assert [each["state"] for each in ground.cloud.instances_of(f"tags-{kind}")] == ["running"]
    clock = ground.folder / "late-clock"
    clock.write_text(f"{LEASE_SECONDS}")
    computers = sorted(path.name for path in (ground.folder / "computers").iterdir())

    def reap(computer: str) -> None:
        user = ground.person(f"late-{computer}", computer)
        where = () if computer == "alone" else ("--infra", "aws/us-east-1")  # one of them asks all regions
        reaped = user.start("reap", "--yes", *where, command=(*MORTAL, "--clock", str(clock), "--"))
        assert reaped.wait(300) in (0, OrphansFound.exit_code), str(reaped)  # what it found leaking it has ended
        left = [(row["name"], row["state"]) for row in json.loads(user.do("jobs", "--json").out)["runs"]]
        assert left == [], f"{computer}: {left}\n{reaped}"

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(reap, computers))
    homes = 0
    for path in sorted(ground.folder.glob("*/work")):
        name = path.parent.name
        if ground.witness.heard[f"/done/{name}"] and not name.startswith("tags-"):
            assert (path / "model.bin").read_text() == f"weights of {name}", name
            homes += 1
    return homes


def foreigners(ec2: Any) -> dict[str, str]:
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

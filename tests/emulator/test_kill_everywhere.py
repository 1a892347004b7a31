"""The client is killed at every API request and every ledger write, the agent and the network in between.

Real processes, real SIGKILLs, real hosts. Afterwards only time passes, and cron runs `costgpu reap --yes`: nothing is
alive past its lease, no outputs are lost, no run has two machines, nothing foreign is touched.
"""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from costgpu.job import EventKind
from tests.emulator import guests
from tests.emulator.client import RunningCloud
from tests.emulator.guests import InGuest, NoGuest
from tests.emulator.journey import COMMAND, LEASE_SECONDS, MORTAL, Client, Person, leftovers, until
from tests.emulator.network import GATEWAY

pytestmark = pytest.mark.emulator
AT_ONCE = 8
CRON_AHEAD = 600.0  # cron comes some minutes later; then a machine that nobody can see was never created
BUCKET = "s3://costgpu-kills/runs"
JOB = """
import sys, time, urllib.request
def tell(what):
    try:
        urllib.request.urlopen("http://%s/%s/%s" % (sys.argv[1], what, sys.argv[2]), timeout=2).close()
    except OSError:
        pass  # its network is cut
tell("begun")
print("begun", flush=True)
time.sleep(1)
open("model.bin", "w").write("weights of " + sys.argv[2])
tell("done")
"""


@pytest.fixture(autouse=True)
def nothing_of_the_users() -> None:
    """Every client here is a process with an environment of its own; threads of this one talk to the cloud."""


class Witness:
    """Hears from the jobs themselves, wherever they run: what was begun and what was done."""

    def __init__(self) -> None:
        self.heard: Counter[str] = Counter()
        witness = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                witness.heard[self.path] += 1
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = http.server.ThreadingHTTPServer((GATEWAY, 0), Handler)
        self.address = f"{GATEWAY}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@dataclass
class Field:
    """Where it all happens.

    Attributes:
        cloud: The account.
        folder: Of everybody's files.
        witness: Of the jobs.
        waiting: How many runs wait for cron.
        kills: What was killed or cut, by kind.
        clients: All that were ever started.
    """

    cloud: RunningCloud
    folder: Path
    witness: Witness
    waiting: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    clients: list[Client] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _people: int = 0

    def person(self, name: str, computer: str) -> Person:
        """Somebody with a job of that name, on a computer that others may use, too."""
        with self._lock:
            self._people += 1
            number = self._people
        home = self.folder / "computers" / computer
        home.mkdir(parents=True, exist_ok=True)
        found = Person(self.cloud, self.folder / name, f"AKIACASE{number:04d}", computer=home)
        found.write(JOB)
        return found

    def launch(self, person: Person, at: str = "", *options: str) -> Client:
        """The person's run; with a point in it where it dies or stops."""
        script = f"train.py {self.witness.address} {person.name}"
        command = (*MORTAL, "--at", at, "--") if at else COMMAND
        client = person.launch(*options, script=script, command=command)
        with self._lock:
            self.clients.append(client)
        return client

    def killed(self, what: str) -> None:
        """Counts."""
        with self._lock:
            self.kills[what] += 1

    def settled(self, person: Person, seconds: float = 120.0) -> None:
        """Waits until cron has closed the person's run; a run that was never recorded needs no closing."""
        with self._lock:
            self.waiting += 1
        try:
            deadline = time.monotonic() + seconds
            while (events := person.events()) and events[-1] != "closed":
                assert time.monotonic() < deadline, f"{person.name} is not closed: {events} {person.instances()}"
                time.sleep(0.3)
        finally:
            with self._lock:
                self.waiting -= 1

    def check(self, person: Person, *, home: bool | None = None) -> None:
        """What must hold of a run that is over. `home`: whether its outputs must be; None for if the job was done."""
        machines = person.instances()
        assert len(machines) <= 1, machines
        assert [each["state"] for each in machines if each["state"] != "terminated"] == []
        assert machines == [] or person.run_id(), "a machine without a record"
        assert self.witness.heard[f"/begun/{person.name}"] <= 1, "the job ran twice"
        if home is None:
            home = bool(self.witness.heard[f"/done/{person.name}"])
        if home:
            assert (person.work / "model.bin").read_text() == f"weights of {person.name}", person.events()


class Cron:
    """`costgpu reap --yes`, again and again as long as somebody waits for it, several at a time."""

    def __init__(self, field: Field, computer: str, *, at_once: int = 2) -> None:
        self._field, self._done = field, threading.Event()
        self.runs = 0
        self.failures: list[str] = []
        clock = field.folder / "cron-clock"
        clock.write_text(f"{CRON_AHEAD}")
        users = [field.person(f"cron-{number}", computer) for number in range(at_once)]
        self._threads = [threading.Thread(target=self._run, args=(user, clock), daemon=True) for user in users]
        for each in self._threads:
            each.start()

    def _run(self, user: Person, clock: Path) -> None:
        last = 0.0
        while not self._done.wait(0.2):
            if self._field.waiting > 2 or (self._field.waiting and time.monotonic() - last > 4):
                client = user.start(
                    "reap", "--yes", "--infra", "aws/us-east-1", command=(*MORTAL, "--clock", str(clock), "--")
                )
                self.runs += 1
                if client.wait(300) != 0:
                    self.failures.append(str(client))
                last = time.monotonic()

    def close(self) -> None:
        self._done.set()
        for each in self._threads:
            each.join()


@pytest.fixture
def battle(guest_cloud_process: RunningCloud, tmp_path: Path) -> Iterator[Field]:
    guest_cloud_process.reset()
    made = Field(cloud=guest_cloud_process, folder=tmp_path, witness=Witness())
    yield made
    for client in made.clients:
        client.kill()
    made.witness.close()
    guest_cloud_process.reset()


def points_of_a_journey(field: Field) -> tuple[list[str], list[str]]:
    """The API requests and the ledger writes of a journey without trouble; requests that only wait count once."""
    person = field.person("whole", "whole")
    client = field.launch(person)
    assert client.wait() == 0, str(client)
    field.check(person, home=True)
    requests: list[tuple[str, Any]] = []
    for row in person.requests():
        if not requests or requests[-1] != (row["name"], row["params"]):
            requests.append((row["name"], row["params"]))
    return [name for name, _ in requests], person.events()


# -- what happens to one run -----------------------------------------------------------------------------------------


def killed_at_a_request(field: Field, number: int, when: str) -> None:
    person = field.person(f"api-{number:02d}-{when}", "shared")
    client = field.launch(person)
    field.cloud.kill(client.process.pid, number, when, access_key=person.key, series=True)
    assert client.wait(120) == -9, str(client)
    field.killed("client at an API request")
    field.settled(person)
    field.check(person)


def killed_at_a_write(field: Field, kind: str, when: str) -> None:
    person = field.person(f"ledger-{kind}-{when}", "shared")
    client = field.launch(person, f"{kind}:{when}:KILL")
    assert client.wait(120) == -9, str(client)
    field.killed("client at a ledger write")
    assert (kind in person.events()) is (when == "after"), person.events()
    field.settled(person)
    field.check(person)


def agent_killed(field: Field, kind: str, when: str, *, client_too: bool, pattern: str = "[p]yz daemon") -> None:
    person = field.person(f"agent-{kind}-{when}-{len(pattern)}-{'both' if client_too else 'alone'}", "shared")
    client = field.launch(person, f"{kind}:{when}:STOP")
    client.until_stopped(120)
    assert person.guest().kill(pattern) > 0
    field.killed("agent")
    if client_too:
        client.kill()
        field.killed("client beside it")
        field.settled(person)
    else:
        client.go_on()
        supervisor_too = pattern != "[p]yz daemon"
        assert client.wait(120) == (137 if supervisor_too and kind == "started" else 0), str(client)
    field.check(person)


def network_cut(field: Field, kind: str, when: str, *, client_too: bool) -> None:
    person = field.person(f"network-{kind}-{when}-{'both' if client_too else 'alone'}", "shared")
    client = field.launch(person, f"{kind}:{when}:STOP")
    client.until_stopped(120)
    guest = person.guest()
    guest.cut_network()
    field.killed("network")
    if client_too:
        client.kill()
        field.killed("client beside it")
    else:
        client.go_on()
    time.sleep(4)
    guest.restore_network()
    if client_too:
        field.settled(person)
        field.check(person)
    else:
        assert client.wait(120) == 0, str(client)
        field.check(person, home=True)


def killed_and_left_alone(field: Field, kind: str, *, cut: bool) -> None:
    """Nobody comes before the lease is over: what is done is in the bucket, and the machine ends itself."""
    person = field.person(f"alone-{kind}-{'cut' if cut else 'bucket'}", "alone")
    client = field.launch(person, f"{kind}:after:STOP", "--bucket", BUCKET)
    client.until_stopped(120)
    guest = person.guest()
    if cut:
        guest.cut_network()
        field.killed("network")
    client.kill()
    field.killed("client at a ledger write")
    if "started" in person.events() and not cut:
        prefix = f"runs/{person.run_id()}/logs"
        until(lambda: any(key.startswith(prefix) for key in keys_in_bucket(field)), 60, "its logs are up")
    guest.shift_clock(LEASE_SECONDS)
    until(lambda: [each["state"] for each in person.instances()] == ["terminated"], 60, person.name)
    assert person.events()[-1] == kind, "somebody has come by"


def nothing_but_tags(field: Field, kind: str) -> None:
    """Watchdog and agent are dead, the client too, and its ledger is lost: the reaper is the last layer."""
    person = field.person(f"tags-{kind}", f"lost-{kind}")
    client = field.launch(person, f"{kind}:after:STOP")
    client.until_stopped(120)
    guest = person.guest()
    guest.run("systemctl", "mask", "--now", "--runtime", "costgpu-deadline", "costgpu-agent", check=False)
    guest.kill("[w]atchdog.sh")
    client.kill()
    field.killed("client, agent, watchdog and ledger")
    for each in person.data.glob("ledger.sqlite*"):
        each.unlink()


def keys_in_bucket(field: Field) -> list[str]:
    import boto3

    s3 = boto3.Session("AKIALOOK", "secret").client("s3", endpoint_url=field.cloud.url, region_name="us-east-1")
    return [each["Key"] for each in s3.list_objects_v2(Bucket="costgpu-kills").get("Contents", [])]


# -- the whole -------------------------------------------------------------------------------------------------------


def cases(requests: list[str], writes: list[str]) -> Iterator[tuple[Callable[..., None], tuple[Any, ...], dict[str, Any]]]:
    """Everything that is done to runs; those that wait longest first."""
    yield from ((nothing_but_tags, (kind,), {}) for kind in ("created", "started"))
    yield from ((killed_and_left_alone, (kind,), {"cut": False}) for kind in writes[2:9])
    yield from ((killed_and_left_alone, (kind,), {"cut": True}) for kind in ("reached", "started"))
    for both in (True, False):
        yield from ((network_cut, (kind, "after"), {"client_too": both}) for kind in ("reached", "started", "finished"))
    for kind, when in (("synced", "after"), ("started", "before"), ("started", "after"), ("finished", "before"),
                       ("finished", "after"), ("collected", "before"), ("collected", "after")):  # fmt: skip
        yield agent_killed, (kind, when), {"client_too": False}
        yield agent_killed, (kind, when), {"client_too": True}
    yield agent_killed, ("started", "after"), {"client_too": False, "pattern": "[p]yz (daemon|supervise)"}
    yield agent_killed, ("started", "after"), {"client_too": True, "pattern": "[p]yz (daemon|supervise)"}
    yield from ((killed_at_a_write, (kind, when), {}) for kind in writes for when in ("before", "after"))
    for number in range(1, len(requests) + 1):
        yield from ((killed_at_a_request, (number, when), {}) for when in ("before", "after"))


@pytest.mark.timeout(900)
def test_kill_everywhere(battle: Field, record_property: Callable[[str, object], None]) -> None:
    import boto3

    began = time.monotonic()
    owner = boto3.Session("AKIAOWNER", "secret", region_name="us-east-1")
    owner.client("s3", endpoint_url=battle.cloud.url).create_bucket(Bucket="costgpu-kills")
    foreign = foreigners(owner.client("ec2", endpoint_url=battle.cloud.url))
    requests, writes = points_of_a_journey(battle)
    assert set(writes) <= set(EventKind)
    cron = Cron(battle, "shared")
    troubles: list[str] = []

    def run(case: tuple[Callable[..., None], tuple[Any, ...], dict[str, Any]]) -> None:
        function, arguments, options = case
        try:
            function(battle, *arguments, **options)
        except (AssertionError, NoGuest, OSError) as trouble:
            troubles.append(f"{function.__name__}{arguments}{options}: {trouble}")

    todo = list(cases(requests, writes))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(run, todo))
    cron.close()
    killing = time.monotonic() - began
    assert troubles == [], "\n\n".join(troubles)
    assert cron.failures == []
    homes = after_the_lease(battle)
    alive = [each for each in battle.cloud.alive() if each["id"] != foreign["instance"]]
    assert alive == []
    assert leftovers(battle.cloud) == []
    assert foreigners_now(owner.client("ec2", endpoint_url=battle.cloud.url), foreign) == "running"
    runs = Counter(each["tags"].get("costgpu-run") for each in battle.cloud.instances() if each["id"] != foreign["instance"])
    assert max(runs.values()) == 1
    line = (
        f"{len(todo)} runs, of which {len(runs)} had a machine: {sum(battle.kills.values())} kills"
        f" ({', '.join(f'{what}: {count}' for what, count in sorted(battle.kills.items()))}) around {len(requests)} API"
        f" requests and {len(writes)} ledger writes; cron came {cron.runs} times. No machine left, outputs of {homes}"
        f" finished jobs home. {killing:.0f} s, {time.monotonic() - began:.0f} s in all"
    )
    record_property("said", line)
    print(line)


def after_the_lease(field: Field) -> int:
    """Time passes for everybody, and reap comes once more to each computer; the outputs that are home in the end."""
    field.cloud.advance(LEASE_SECONDS)
    for instance_id in guests.running():
        InGuest(instance_id).shift_clock(LEASE_SECONDS)
    clock = field.folder / "late-clock"
    clock.write_text(f"{LEASE_SECONDS}")
    computers = sorted(path.name for path in (field.folder / "computers").iterdir())

    def reap(computer: str) -> None:
        user = field.person(f"late-{computer}", computer)
        where = () if computer == "alone" else ("--infra", "aws/us-east-1")  # one of them asks all regions
        reaped = user.do("reap", "--yes", *where, command=(*MORTAL, "--clock", str(clock), "--"))
        left = [(row["name"], row["state"]) for row in json.loads(user.do("jobs", "--json").out)["runs"]]
        assert left == [], f"{computer}: {left}\n{reaped}"

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(reap, computers))
    homes = 0
    for path in sorted(field.folder.glob("*/work")):
        name = path.parent.name
        if field.witness.heard[f"/done/{name}"] and not name.startswith("tags-"):
            assert (path / "model.bin").read_text() == f"weights of {name}", name
            homes += 1
    return homes


def foreigners(ec2: Any) -> dict[str, str]:
    """A machine and a group of somebody else's, with names and tags close to ours."""
    image = ec2.describe_images(Owners=["amazon"], Filters=[{"Name": "architecture", "Values": ["x86_64"]}])["Images"][0]
    group = ec2.create_security_group(GroupName="costgpu", Description="somebody else's")["GroupId"]
    tags = [{"Key": "Name", "Value": "costgpu-train"}, {"Key": "costgpu", "Value": "yes"}]
    answer = ec2.run_instances(
        ImageId=image["ImageId"], InstanceType="t3.micro", MinCount=1, MaxCount=1, SecurityGroupIds=[group],
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )  # fmt: skip
    return {"instance": answer["Instances"][0]["InstanceId"], "group": group}


def foreigners_now(ec2: Any, foreign: dict[str, str]) -> str:
    groups = [group["GroupId"] for group in ec2.describe_security_groups()["SecurityGroups"]]
    assert foreign["group"] in groups
    found = ec2.describe_instances(InstanceIds=[foreign["instance"]])["Reservations"][0]["Instances"][0]
    return str(found["State"]["Name"])

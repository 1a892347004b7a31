"""Ray clusters of two machines of the emulated AWS, from the command line: real hosts, real Ray between them.

A cluster that loses the process of its head is in tests/agent/test_launch_ray; a job that loses a machine
is the same with every launcher: `test_groups`.
"""

import re
from collections.abc import Iterator

import pytest

from tests import examples
from tests.emulated.journeys.conftest import Begin
from tests.emulated.journeys.journey import Client, Journeys, Person
from tests.emulators.ec2.client import RunningEc2
from tests.emulators.fixtures import packages_in_guests

pytest.importorskip("ray")
pytestmark = [pytest.mark.emulator, pytest.mark.frameworks]
journeys = Journeys()
KIND, CAP = "c7i.large", "0.20"
RAY = ("--launcher", "ray", "--nodes", "2")
WAITS = """
import signal, sys, threading
import ray
def save(*_):
    open("checkpoint", "w").write(str(ray.get(add.remote(1))))
    sys.exit(0)
@ray.remote
def add(x):
    return x + 1
ray.init()
signal.signal(signal.SIGTERM, save)
there = {each["NodeManagerAddress"] for each in ray.nodes() if each["Alive"]}
print(f"begun on {len(there)} machines", flush=True)
while True:
    threading.Event().wait(0.1)
"""
"""A driver that waits for its end, and needs the cluster to save its work."""
OURS = "for each in /proc/[0-9]*/comm; do cat $each; done 2>/dev/null | grep -E 'raylet|gcs_server|^ray::'"


@pytest.fixture(scope="module", autouse=True)
def all_at_once(begin: Begin, guest_cloud_process: RunningEc2) -> Iterator[None]:
    with packages_in_guests(KIND):
        yield from begin(guest_cloud_process)


def an_example(person: Person, name: str, arguments: str, said: str, made: str) -> None:
    """One of the project's examples from the command line to the receipt, and nothing is left."""
    person.write(examples.source(name))
    client = person.launch(*RAY, kind=KIND, cap=CAP, script=f"train.py {arguments}")
    assert client.wait(240) == 0, str(client)
    assert re.search(said, client.out.decode()), str(client)
    assert client.says("Ray runs on 2 machines; the script is its driver."), str(client)
    assert (person.work / made).stat().st_size > 0
    person.ended(instances=2)


@journeys
def ray_data(person: Person) -> None:
    an_example(person, "ray_data.py", "--rows 20000 --blocks 8", "20000 rows from 2 machines", "statistics.txt")
    assert person.do("reap", "--infra", "aws/us-east-1").out == b""


@journeys
def ray_train(person: Person) -> None:
    an_example(person, "ray_train.py", "--epochs 2 --steps 8", r"\d workers: loss 0\.\d+", "model.pt")


def begun(person: Person) -> Client:
    """A job that waits, which has begun on a cluster of both machines."""
    person.write(WAITS)
    client = person.launch(*RAY, kind=KIND, cap=CAP)
    client.until(lambda: b"begun on 2 machines" in client.out, 180, "the cluster is complete")
    return client


@journeys
def the_end_is_asked_for(person: Person) -> None:
    """The script saves its work with the help of the cluster, and no process of Ray's is left."""
    client = begun(person)
    for run_id in person.run_ids():
        assert "raylet" in person.guest(run_id=run_id).run("sh", "-c", OURS).stdout
    person.do("cancel", person.run_ids()[1])
    assert client.wait(120) != 0, str(client)
    assert person.holds("checkpoint", "2")
    person.ended(instances=2)


@pytest.mark.parametrize("name", journeys.names)
def test_journey(name: str) -> None:
    journeys.wait(name)

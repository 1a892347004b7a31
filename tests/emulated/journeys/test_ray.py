"""Ray clusters of two machines of the emulated AWS, from the command line: real hosts, real Ray between them."""

from collections.abc import Iterator

import boto3
import pytest

from tests.emulated.journeys import ray_clusters
from tests.emulated.journeys.conftest import Begin
from tests.emulated.journeys.journey import Journeys, Person
from tests.emulators.ec2.client import RunningEc2
from tests.emulators.fixtures import packages_in_guests

pytest.importorskip("ray")
pytestmark = [pytest.mark.emulator, pytest.mark.frameworks]
journeys = Journeys()
KIND, CAP = "c7i.large", "0.20"


@pytest.fixture(scope="module", autouse=True)
def all_at_once(begin: Begin, guest_cloud_process: RunningEc2) -> Iterator[None]:
    with packages_in_guests(KIND):
        yield from begin(guest_cloud_process)


@journeys
def ray_data(person: Person) -> None:
    said = "20000 rows from 2 machines"
    ray_clusters.an_example(
        person, "ray_data.py", *ray_clusters.DATA, kind=KIND, cap=CAP, said=said, made="statistics.txt"
    )
    assert person.do("reap", "--infra", "aws/us-east-1").out == b""


@journeys
def ray_train(person: Person) -> None:
    said = r"\d workers: loss 0\.\d+"
    ray_clusters.an_example(person, "ray_train.py", *ray_clusters.TRAIN, kind=KIND, cap=CAP, said=said, made="model.pt")


@journeys
def a_head_alone(person: Person) -> None:
    person.write("import ray, sys; ray.init(); print(len(ray.nodes()), 'node'); sys.exit(3)")
    client = person.ran("--launcher", "ray", kind=KIND, cap=CAP, code=3)
    assert client.out == b"1 node\n", str(client)
    person.ended()


@journeys
def the_end_is_asked_for(person: Person) -> None:
    client = ray_clusters.begun(person, kind=KIND, cap=CAP)
    ray_clusters.cancelled(person, client)


@journeys
def the_head_is_killed(person: Person) -> None:
    ray_clusters.head_is_killed(person, ray_clusters.begun(person, kind=KIND, cap=CAP))


@journeys
def the_machine_of_the_head_is_gone(person: Person) -> None:
    client = ray_clusters.begun(person, kind=KIND, cap=CAP)
    ec2 = boto3.Session("AKIASOMEBODY", "secret").client("ec2", endpoint_url=person.cloud.url, region_name="us-east-1")
    ec2.terminate_instances(InstanceIds=[person.machine_of(person.run_ids()[0])["id"]])
    ray_clusters.head_is_gone(person, client)


@pytest.mark.parametrize("name", journeys.names)
def test_journey(name: str) -> None:
    journeys.wait(name)

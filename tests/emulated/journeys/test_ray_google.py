"""Ray clusters of two machines of the emulated Google Cloud, from the command line: real hosts, real Ray between them."""

from collections.abc import Iterator

import pytest

from tests.emulated.journeys import ray_clusters
from tests.emulated.journeys.conftest import Begin
from tests.emulated.journeys.journey import Journeys, Person
from tests.emulators.compute_engine.client import RunningComputeEngine
from tests.emulators.fixtures import packages_in_guests

pytest.importorskip("ray")
pytestmark = [pytest.mark.emulator, pytest.mark.frameworks]
journeys = Journeys()
KIND, CAP = "n2-standard-2", "0.25"


@pytest.fixture(scope="module", autouse=True)
def all_at_once(begin: Begin, guest_gce_process: RunningComputeEngine) -> Iterator[None]:
    with packages_in_guests(KIND):
        yield from begin(guest_gce_process)


@journeys
def ray_data(person: Person) -> None:
    said = "20000 rows from 2 machines"
    ray_clusters.an_example(
        person, "ray_data.py", *ray_clusters.DATA, kind=KIND, cap=CAP, said=said, made="statistics.txt"
    )
    assert person.do("reap", "--infra", "gcp/us-central1").out == b""


@journeys
def ray_train(person: Person) -> None:
    said = r"\d workers: loss 0\.\d+"
    ray_clusters.an_example(person, "ray_train.py", *ray_clusters.TRAIN, kind=KIND, cap=CAP, said=said, made="model.pt")


@journeys
def a_spot_machine_is_taken(person: Person) -> None:
    client = ray_clusters.begun(person, "--spot", kind=KIND, cap=CAP)
    person.cloud.preempt(person.machine_of(person.run_ids()[1])["id"])
    ray_clusters.worker_is_gone(person, client)


@pytest.mark.parametrize("name", journeys.names)
def test_journey(name: str) -> None:
    journeys.wait(name)

"""Jobs on two machines of the emulated Google Cloud, from the command line: real hosts, real torch between them."""

from collections.abc import Iterator

import pytest

from tests.emulated.journeys import groups
from tests.emulated.journeys.conftest import Begin
from tests.emulated.journeys.journey import Journeys, Person
from tests.emulators.compute_engine.client import RunningComputeEngine
from tests.emulators.fixtures import packages_in_guests

pytestmark = pytest.mark.emulator
journeys = Journeys()
TORCH, CAP = "n2-standard-2", "0.25"


@pytest.fixture(scope="module", autouse=True)
def all_at_once(begin: Begin, guest_gce_process: RunningComputeEngine) -> Iterator[None]:
    with packages_in_guests(TORCH):
        yield from begin(guest_gce_process)


@journeys
def a_whole_run(person: Person) -> None:
    groups.whole_run(person, TORCH, CAP)
    assert person.do("reap", "--infra", "gcp/us-central1").out == b""


@journeys
def a_sharded_model(person: Person) -> None:
    groups.sharded_model(person, TORCH, CAP)


@journeys
def no_room_for_the_second(person: Person) -> None:
    """The zone that had room for one is left, and that one is ended before the next zone is asked."""
    words = "The zone does not have enough resources available to fulfill the request."
    person.fault("instances.insert", skip=1, code="ZONE_RESOURCE_POOL_EXHAUSTED", message=words, status=503)
    person.write("import os; open('rank', 'w').write(os.environ['RANK'])")
    client = person.ran(*groups.BARE, cap="0.08")
    assert client.says("could not be had"), str(client)
    assert len({each["zone"] for each in person.instances()}) == 2
    assert person.holds("rank", "0")
    person.ended(instances=3)


@journeys
def a_spot_machine_is_taken(person: Person) -> None:
    client = groups.both_begun(person, "--spot", cap="0.08")
    person.cloud.preempt(person.machine_of(person.run_ids()[1])["id"])
    groups.one_is_lost(person, client)


@journeys
def cancelled_by_tag(person: Person) -> None:
    groups.cancelled_by_tag(person, cap="0.08")


@pytest.mark.parametrize("name", journeys.names)
def test_journey(name: str) -> None:
    journeys.wait(name)

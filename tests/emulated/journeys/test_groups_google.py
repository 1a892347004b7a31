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
TORCH, CAP = "n2-standard-2", "1.00"
NOTICE_SECONDS = 120.0


@pytest.fixture(scope="module", autouse=True)
def all_at_once(begin: Begin, guest_gce_process: RunningComputeEngine) -> Iterator[None]:
    with packages_in_guests(TORCH):
        yield from begin(guest_gce_process)


@journeys
def machine_1_is_taken_back(person: Person) -> None:
    """The client is there, and outputs of both machines are wanted."""
    person.write(groups.source_with_gates())
    options = (*groups.TWO, *groups.GOES_ON, "--outputs-from", "all")
    client = person.launch(*options, kind=TORCH, cap=CAP, script=groups.script(20))
    groups.waits_at(client, 10)
    person.cloud.preempt(groups.machine(person, 1), NOTICE_SECONDS)
    assert client.wait(180) == 0, str(client)
    assert client.says("Attempt 2 of 3: the job goes on from its newest checkpoint."), str(client)
    assert client.says("together 4 machines after 1 interruption"), str(client)
    assert {path.parent.name for path in person.work.glob("**/model.pt")} == {"rank-0", "rank-1"}
    groups.went_on(person, attempts=2)
    assert person.do("reap", "--infra", "gcp/us-central1").out == b""


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


@pytest.mark.parametrize("name", journeys.names)
def test_journey(name: str) -> None:
    journeys.wait(name)

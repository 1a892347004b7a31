"""Spot machines that are taken back on the emulated Compute Engine, from the command line: real hosts and real torch."""

import json
from collections.abc import Iterator

import pytest

from tests.emulated.journeys import recovery
from tests.emulated.journeys.conftest import Begin
from tests.emulated.journeys.journey import Journeys, Person
from tests.emulators.compute_engine.client import RunningComputeEngine
from tests.emulators.fixtures import packages_in_guests

pytestmark = pytest.mark.emulator
journeys = Journeys()
KIND, CAP = "e2-standard-2", "0.50"
NOTICE_SECONDS = 120.0


@pytest.fixture(scope="module", autouse=True)
def all_at_once(begin: Begin, guest_gce_process: RunningComputeEngine) -> Iterator[None]:
    with packages_in_guests(KIND):
        yield from begin(guest_gce_process)


@journeys
def a_job_is_interrupted_three_times(person: Person) -> None:
    """The weights are those of an undisturbed run, and the receipt tells what it took."""
    person.write(recovery.source_with_gates())
    client = person.launch("--spot", *recovery.GOES_ON, kind=KIND, cap=CAP, script=recovery.STEPS)
    for attempt in (1, 2, 3):
        recovery.waits_at(client, 10 * attempt)
        person.cloud.preempt(person.machine_of(person.run_ids()[-1])["id"], NOTICE_SECONDS)
    assert client.wait(180) == 0, str(client)
    assert client.says("Attempt 4 of 6: the job goes on from its newest checkpoint."), str(client)
    assert client.says("together 4 machines after 3 interruptions"), str(client)
    assert b"going on from step 30" in client.out, str(client)
    assert recovery.same_weights(person)
    listed = json.loads(person.do("jobs", "-a", "--json").out)["runs"]
    ends = [(each["attempt"]["number"], each["reason"]) for each in reversed(listed)]
    assert ends == [(1, "interrupted"), (2, "interrupted"), (3, "interrupted"), (4, "succeeded")]
    person.ended(instances=4)


@pytest.mark.parametrize("name", journeys.names)
def test_journey(name: str) -> None:
    journeys.wait(name)

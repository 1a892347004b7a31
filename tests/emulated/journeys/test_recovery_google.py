"""Spot machines that are taken back on the emulated Compute Engine, from the command line: real hosts and real torch."""

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
    recovery.interrupted_three_times(person, lambda machine: person.cloud.preempt(machine, NOTICE_SECONDS), KIND, CAP)


@pytest.mark.parametrize("name", journeys.names)
def test_journey(name: str) -> None:
    journeys.wait(name)

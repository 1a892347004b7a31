"""Jobs on two machines of the emulated Google Cloud, from the command line: real hosts, real torch between them."""

from collections.abc import Iterator

import pytest

from tests import examples
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
def a_sharded_model(person: Person) -> None:
    """FSDP under torchrun, and outputs of both machines are wanted."""
    person.write(examples.source_for_gloo("train_fsdp.py"))
    small = "train.py --steps 3 --layers 2 --width 32 --length 16"
    client = person.ran(*groups.TWO, "--outputs-from", "all", kind=TORCH, cap=CAP, script=small)
    assert b"step 0: loss" in client.out, str(client)
    assert (person.work / "rank-0" / "model.pt").exists(), str(client)
    person.ended(instances=2)
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


@journeys
def a_spot_machine_is_taken(person: Person) -> None:
    """What machine 0 has written comes home."""
    client = groups.both_begun(person, "--spot", cap="0.08")
    lost = person.machine_of(person.run_ids()[1])["id"]
    person.cloud.preempt(lost)
    assert client.wait(120) != 0, str(client)
    for words in ("Machine 1 (", f"{lost})", "the others are ended, too"):
        assert client.says(words), str(client)
    assert person.holds("checkpoint", "saved")
    person.ended(instances=2)


@pytest.mark.parametrize("name", journeys.names)
def test_journey(name: str) -> None:
    journeys.wait(name)

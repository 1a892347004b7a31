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


@pytest.mark.parametrize("name", journeys.names)
def test_journey(name: str) -> None:
    journeys.wait(name)

"""Spot machines that are taken back on the emulated AWS, from the command line: real hosts, real torch on them.

Three notices in a row are in `test_recovery_google`, where they are given later.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.emulated.journeys import recovery
from tests.emulated.journeys.conftest import Begin
from tests.emulated.journeys.journey import Journeys, Person, bucket, until
from tests.emulators.ec2.client import RunningEc2
from tests.emulators.fixtures import packages_in_guests
from tests.emulators.guests import guest_control
from tests.emulators.guests.disk_seed import Traits

pytestmark = pytest.mark.emulator
journeys = Journeys()
KIND, CAP = "c6i.large", "0.30"


@pytest.fixture(scope="module", autouse=True)
def all_at_once(begin: Begin, guest_cloud_process: RunningEc2) -> Iterator[None]:
    guest_control.set_traits(Traits(agent="COSTGPU_AGENT_CHECKPOINT_SECONDS=0.2"), KIND)
    with packages_in_guests(KIND):
        yield from begin(guest_cloud_process)
    guest_control.set_traits(None, KIND)


@journeys
def without_a_notice_and_without_a_client(person: Person) -> None:
    """What the machine has brought into the bucket by itself is enough for whoever comes next."""
    store = bucket(person, "costgpu-checkpoints")
    person.write(recovery.source_with_gates())
    client = person.launch(
        "--spot",
        "-d",
        "--bucket",
        "s3://costgpu-checkpoints/team",
        *recovery.GOES_ON,
        kind=KIND,
        cap=CAP,
        script=recovery.STEPS,
    )
    assert client.wait() == 0, str(client)
    run_id = person.run_id()
    until(lambda: _is_there(store, f"team/{run_id}/checkpoint.tar.gz"), 120, "a checkpoint is in the bucket")
    person.cloud.interrupt(person.machine_of(run_id)["id"], notice_seconds=0)
    person.until_state("terminated", 60)
    attached = person.start("attach", run_id)
    recovery.waits_at(attached, 20)
    person.cloud.interrupt(person.machine_of(person.run_ids()[-1])["id"], notice_seconds=100)
    recovery.waits_at(attached, 30)
    person.cloud.interrupt(person.machine_of(person.run_ids()[-1])["id"], notice_seconds=100)
    assert attached.wait(180) == 0, str(attached)
    assert recovery.same_weights(person)
    person.ended(instances=4)


def _is_there(s3: Any, name: str) -> bool:
    return bool(s3.list_objects_v2(Bucket="costgpu-checkpoints", Prefix=name).get("KeyCount"))


@pytest.mark.parametrize("name", journeys.names)
def test_journey(name: str) -> None:
    journeys.wait(name)

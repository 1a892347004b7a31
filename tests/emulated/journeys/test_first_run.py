"""`costgpu doctor --live --max-cost` on both emulated clouds: small machines, measured, ended and reported."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.emulated.journeys.conftest import Begin
from tests.emulated.journeys.journey import Journeys, Person
from tests.emulators.compute_engine.client import RunningComputeEngine
from tests.emulators.compute_engine.project import PROJECT, USER
from tests.emulators.ec2.account import ACCOUNT
from tests.emulators.ec2.client import RunningEc2

pytestmark = pytest.mark.emulator
journeys = Journeys()
PLACES = ("--infra", "aws/us-east-1", "--infra", "gcp/us-central1")
SECONDS = 240.0  # two machines, one after the other
LIVE = ("doctor", "--live", "--yes")
aws: list[RunningEc2] = []


@pytest.fixture(scope="module", autouse=True)
def all_at_once(
    begin: Begin, guest_gce_process: RunningComputeEngine, guest_cloud_process: RunningEc2
) -> Iterator[None]:
    guest_cloud_process.reset()
    aws[:] = [guest_cloud_process]
    yield from begin(guest_gce_process)
    guest_cloud_process.reset()


def report(person: Person) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((person.work / "costgpu-first-run.json").read_text())
    return found


def calls(person: Person) -> list[str]:
    return [row["action"] for row in person.requests()]


def private(person: Person) -> list[str]:
    """What must not be in a report: all that the emulated clouds know of accounts, machines and addresses."""
    rows = [*person.instances(), *aws[0].instances()]
    found = [PROJECT, ACCOUNT, USER, person.key, *person.run_ids("first-run"), str(person.home)]
    found.append(person.environment()["COSTGPU_CALLER_ADDRESS"].partition("/")[0])
    return found + [str(row[key]) for row in rows for key in ("id", "public_ip", "private_ip") if row.get(key)]


@journeys
def first_run(person: Person) -> None:
    """One machine in each cloud, which powers itself off: what each provider says of that is told."""
    person.extra = aws[0].environment(access_key="AKIAFIRSTRUN0001")
    client = person.start(*LIVE, *PLACES, "--max-cost", "0.20")
    assert client.wait(SECONDS) == 0, str(client)
    assert client.says("2 machines"), str(client)
    assert all(run[-1] == "closed" for run in (person.events(run_id) for run_id in person.run_ids("first-run")))
    assert len(person.run_ids("first-run")) == 2
    assert person.left() == []
    assert not [row for row in aws[0].instances() if row["state"] != "terminated"]
    text = (person.work / "costgpu-first-run.json").read_text()
    assert [value for value in private(person) if value in text] == []
    document = report(person)
    assert (document["schema"], document["max_cost_usd"]) == ("costgpu.first_run", "0.20")
    on_aws, on_google = document["trials"]
    assert (on_aws["provider"], on_aws["instance_type"]) == ("aws", "t3.micro")
    assert (on_google["provider"], on_google["region"]) == ("gcp", "us-central1")
    for trial in document["trials"]:
        kinds = [phase["kind"] for phase in trial["phases"]]
        assert kinds[0] == "intended"
        assert {"created", "reached", "started", "confirmed", "closed"} <= set(kinds)
        assert 0 < trial["first_answer_seconds"] <= trial["our_key_seconds"] < trial["power_off_seconds"]
        assert trial["console_boot_seconds"] is not None
        assert trial["confirmed_state"] == "terminated"
        assert trial["sightings"][0]["state"] == "running"
        assert float(trial["cost_usd"]) <= float(trial["worst_cost_usd"]) <= 0.20
        assert trial["said"].startswith("python 3")
    assert sum(float(trial["worst_cost_usd"]) for trial in document["trials"]) <= 0.20
    assert on_aws["maintenance"] is None
    assert on_google["maintenance"]["events"][-1] == "compute.instances.migrateOnHostMaintenance"
    assert on_google["maintenance"]["time_limit_after"]
    assert any(each["by_guest"] for each in on_google["sightings"]), on_google["sightings"]
    again = person.do(*LIVE, *PLACES, code=2)
    assert again.says("costgpu-first-run.json exists already")


@journeys
def maintained(person: Person) -> None:
    """A machine that cannot be moved is ended by the maintenance of its host: the run says so, and is closed."""
    client = person.start(*LIVE, "--infra", "gcp/us-central1", "-t", "g2-standard-4", "--max-cost", "0.70")
    assert client.wait(SECONDS) == 0, str(client)
    (trial,) = report(person)["trials"]
    assert "compute.instances.terminateOnHostMaintenance" in trial["maintenance"]["events"]
    assert (trial["maintenance"]["time_limit_before"], trial["maintenance"]["time_limit_after"]) == (True, False)
    assert trial["reason"] == "preempted"
    assert "L4" in trial["said"]
    (run_id,) = person.run_ids("first-run")
    assert person.events(run_id)[-1] == "closed"


@pytest.mark.parametrize("name", journeys.names)
def test_journey(name: str) -> None:
    journeys.wait(name)

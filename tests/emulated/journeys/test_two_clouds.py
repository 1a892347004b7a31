"""One run, two clouds: where AWS has no machine, Google has one, and the run is the same to the end."""

import json
import signal
from collections.abc import Iterator

import pytest

from tests.emulated.journeys.conftest import Begin
from tests.emulated.journeys.journey import Client, Journeys, Person
from tests.emulators.compute_engine.client import RunningComputeEngine
from tests.emulators.ec2.client import RunningEc2

pytestmark = pytest.mark.emulator
journeys = Journeys()
PLACES = ("--infra", "aws/us-east-1", "--infra", "gcp/us-central1")
aws: list[RunningEc2] = []


@pytest.fixture(scope="module", autouse=True)
def all_at_once(
    begin: Begin, guest_gce_process: RunningComputeEngine, guest_cloud_process: RunningEc2
) -> Iterator[None]:
    guest_cloud_process.reset()
    guest_cloud_process.shortage("g4dn.xlarge")
    aws[:] = [guest_cloud_process]
    yield from begin(guest_gce_process)
    guest_cloud_process.reset()


def launched(person: Person, *options: str) -> Client:
    """With credentials for both; the cheapest T4 is on AWS, the next one on Google."""
    person.extra = {**aws[0].environment(access_key=f"AKIA{person.key.replace('.', '')}"), **person.extra}
    what = ("--gpus", "T4:1", "--max-cost", "0.60", "-y", "--no-estimate", "--setup", "", "-n", person.name)
    return person.start("run", *PLACES, *what, *options, "train.py")


def ended(person: Person) -> None:
    person.ended()
    assert aws[0].instances_of(person.name) == []


@journeys
def from_aws_to_google(person: Person) -> None:
    person.write("open('model', 'w').write('weights')")
    client = launched(person)
    assert client.wait() == 0, str(client)
    assert person.holds("model", "weights")
    assert client.says("sufficient g4dn.xlarge capacity")
    assert client.says("n1-standard-4")
    kinds = person.events()
    assert kinds.count("refused") >= 2, "several zones of AWS were asked"
    assert person.facts("attempted")["account"] == "costgpu-emulated"
    ended(person)
    (row,) = json.loads(person.do("ledger", "export", "--format", "json").out)["runs"]
    assert (row["provider"], row["account"], row["instance_type"]) == ("gcp", "costgpu-emulated", "n1-standard-4+T4:1")
    assert person.do("reap", "--infra", "gcp/us-central1", "--infra", "aws/us-east-1").out == b""


@journeys
def killed_after_the_failover(person: Person) -> None:
    person.write("import time\nprint('begun', flush=True)\ntime.sleep(3)\nopen('model', 'w').write('weights')")
    client = launched(person)
    client.until(lambda: b"begun" in client.out, what="the job runs")
    client.process.send_signal(signal.SIGKILL)
    client.wait()
    mine, person.extra = person.extra, {**person.extra, "GOOGLE_CLOUD_PROJECT": "somebody-elses"}
    refused = person.start("attach", person.run_id())
    assert refused.wait() == 41, str(refused)
    assert refused.says("belongs to gcp account costgpu-emulated")
    person.extra = mine
    person.do("attach", person.run_id())
    assert person.holds("model", "weights")
    ended(person)


@journeys
def only_one_has_credentials(person: Person) -> None:
    person.write("pass")
    person.extra = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_EC2_METADATA_DISABLED": "true"}
    plan = launched(person, "--dry-run")
    assert plan.wait() == 0, str(plan)
    assert b"Not considered: aws (no credentials here)" in plan.out
    assert b"n1-standard-4" in plan.out


@pytest.mark.parametrize("name", journeys.names)
def test_journey(name: str) -> None:
    journeys.wait(name)

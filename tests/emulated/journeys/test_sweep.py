"""Sweeps on two machines of the emulated AWS, from the command line: real hosts, a real Ray between them."""

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulated.journeys.conftest import Begin
from tests.emulated.journeys.journey import Journeys, Person
from tests.emulators.ec2.client import RunningEc2
from tests.emulators.fixtures import packages_in_guests

pytest.importorskip("ray")
pytestmark = [pytest.mark.emulator, pytest.mark.frameworks]
journeys = Journeys()
KIND, CAP = "c7i.large", "0.20"
TUNED = (Path(__file__).parents[2] / "scripts" / "cli" / "tuned.py").read_text()


@pytest.fixture(scope="module", autouse=True)
def all_at_once(begin: Begin, guest_cloud_process: RunningEc2) -> Iterator[None]:
    with packages_in_guests(KIND):
        yield from begin(guest_cloud_process)


@journeys
def twelve_trials_with_asha(person: Person) -> None:
    grid = ("--grid", "lr=0.001,0.01,0.1,0.5", "--grid", "seed=1,2,3")
    person.write(TUNED)
    machines = ("--infra", person.account.infra, "-t", KIND, "--nodes", "2", "--max-cost", CAP, "--setup", "")
    metric = ("--metric", "val_loss=([0-9.]+)", "--asha", "--asha-factor", "2", "--concurrent", "4")
    client = person.start("sweep", *machines, "-y", "--no-estimate", "-n", person.name, *metric, *grid, "train.py")
    assert client.wait(300) == 0, str(client)
    assert b"12 trials: " in client.out, str(client)
    assert b"Best: lr=0.01 seed=1, val_loss 0.1677 at report 6." in client.out, str(client)
    (folder,) = (person.work / "costgpu-runs").iterdir()
    rows = list(csv.DictReader((folder / "trials.csv").read_text().splitlines()))
    assert {row["status"] for row in rows} == {"succeeded", "stopped"}, str(client)
    assert len({row["host"] for row in rows}) == 2, "both machines have worked"
    for row in rows:
        assert (folder / row["trial"] / "checkpoints/model.pt").read_text() == f"{float(row['lr']):g}"
        assert "val_loss=" in (folder / row["trial"] / "log.txt").read_text()
    assert "<svg" in (folder / "sweep.html").read_text()
    person.ended(instances=2)
    assert person.do("reap", "--infra", "aws/us-east-1").out == b""


@pytest.mark.parametrize("name", journeys.names)
def test_journey(name: str) -> None:
    journeys.wait(name)

"""Clients, agents and networks are lost on real hosts: afterwards only time passes, and somebody runs `costgpu reap --yes`.

One case of every kind, on AWS; what is different on Google Cloud is in `test_compute_engine`. Clients of thousands of drawn
jobs, of groups and of those that go on, too, die at any call in tests/simulation.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulated.journeys.accounts import account_of
from tests.emulated.journeys.conftest import Begin
from tests.emulated.journeys.journey import KILLABLE, LEASE_SECONDS, UNSEEN_SECONDS, Journeys, Person, leftovers, until
from tests.emulators.ec2.client import RunningEc2
from tests.emulators.guests.guest_control import InGuest

pytestmark = pytest.mark.emulator
journeys = Journeys()


@pytest.fixture(scope="module", autouse=True)
def all_at_once(begin: Begin, guest_cloud_process: RunningEc2) -> Iterator[None]:
    yield from begin(guest_cloud_process)


def done(guest: InGuest) -> None:
    """The job that waits goes on to its end, whether or not anybody hears of it."""
    guest.run("touch", "/opt/costgpu/work/go")
    until(lambda: guest.run("test", "-e", "/opt/costgpu/exit.json", check=False).returncode == 0, 60, "it is over")


@journeys
def the_client_before_it_hears_of_its_machine(person: Person) -> None:
    person.write("pass")
    person.fault("RunInstances", when="after", held=True)
    client = person.launch()
    client.until(
        lambda: "ec2:RunInstances" in [row["name"] for row in person.requests()], what="a machine is asked for"
    )
    client.kill()
    person.release()
    until(person.instances, 30, "the machine is there")
    assert person.events()[-1] == "attempted"
    person.reap(UNSEEN_SECONDS)
    person.ended()


@journeys
def the_client_before_the_job(person: Person) -> None:
    person.write("pass")
    client = person.launch(command=(*KILLABLE, "--stop", "created", "--"))
    client.until_stopped(120)
    client.kill()
    person.reap(UNSEEN_SECONDS)
    assert person.receipt()["reason"] == "unclaimed"
    person.ended()


@journeys
def client_and_network_while_the_job_runs(person: Person) -> None:
    client = person.begun()
    guest = person.guest()
    guest.cut_network()
    client.kill()
    done(guest)
    guest.restore_network()
    person.reap()
    assert person.holds("model.bin", "weights")
    person.ended()


@journeys
def the_network_for_a_while(person: Person) -> None:
    client = person.begun()
    guest = person.guest()
    guest.cut_network()
    done(guest)
    guest.restore_network()
    assert client.wait(120) == 0, str(client)
    assert client.out == b"begun\ndone\n"
    assert person.holds("model.bin", "weights")
    person.ended()


@journeys
def the_agent(person: Person) -> None:
    client = person.begun()
    assert person.guest().kill("[p]yz daemon") > 0
    person.go()
    assert client.wait(120) == 0, str(client)
    assert person.holds("model.bin", "weights")
    person.ended()


@journeys
def the_agent_and_what_supervises_the_job(person: Person) -> None:
    client = person.begun()
    assert person.guest().kill("[p]yz (daemon|supervise)") > 1
    assert client.wait(120) == 137, str(client)
    person.ended()


@journeys
def everybody_until_its_lease_is_over(person: Person) -> None:
    """The machine ends itself, and the run is closed by whoever comes then."""
    client = person.begun()
    guest = person.guest()
    guest.cut_network()
    client.kill()
    guest.shift_clock(LEASE_SECONDS)
    person.until_state("terminated")
    assert person.events()[-1] == "started", "somebody has come by"
    person.reap()
    person.ended()


@pytest.mark.parametrize("name", journeys.names)
def test_journey(name: str) -> None:
    journeys.wait(name)


def test_nothing_but_tags(guest_cloud_process: RunningEc2, tmp_path: Path) -> None:
    """Watchdog, agent and client are dead, and the ledger is lost: the reaper is the last layer."""
    person = Person(guest_cloud_process, tmp_path / "tags", account_of(guest_cloud_process).key(99))
    client = person.begun()
    guest = person.guest()
    client.kill()
    guest.run("systemctl", "mask", "--now", "--runtime", "costgpu-deadline", "costgpu-agent", check=False)
    guest.kill("[w]atchdog.sh")
    for each in person.data.glob("ledger.sqlite*"):
        each.unlink()
    guest.shift_clock(LEASE_SECONDS)
    guest_cloud_process.advance(LEASE_SECONDS)
    assert person.states() == ["running"]
    person.reap(LEASE_SECONDS)
    assert person.states() == ["terminated"]
    assert leftovers(guest_cloud_process) == []

"""What people do with costgpu on Google Cloud, with the real command line against the emulated project and its hosts."""

import json
from collections.abc import Iterator

import pytest

from costgpu.errors import Preempted
from tests.emulated.journeys.conftest import Begin
from tests.emulated.journeys.journey import UNSEEN_SECONDS, WAITS, Journeys, Person, hurry, until
from tests.emulators.compute_engine.client import RunningComputeEngine
from tests.emulators.guests import guest_control

pytestmark = pytest.mark.emulator
journeys = Journeys()
QUICK = """
print("begun", flush=True)
open("model.bin", "w").write("weights")
"""


@pytest.fixture(scope="module", autouse=True)
def all_at_once(begin: Begin, guest_gce_process: RunningComputeEngine) -> Iterator[None]:
    yield from begin(guest_gce_process)


def machine(person: Person) -> str:
    return str(person.instances()[-1]["id"])


@journeys
def a_whole_run(person: Person) -> None:
    person.write("""
import os
open("model.bin", "wb").write(bytes(range(256)) * 4096)
open("data.csv", "a").write("more")
print("done")
""")
    person.write("a,b\n", "data.csv")
    client = person.ran()
    assert client.out == b"done\n"
    assert (person.work / "model.bin").read_bytes() == bytes(range(256)) * 4096
    assert person.holds("data.csv", "a,b\nmore")
    for words in ("Receipt", "ended by this client", "confirmed terminated at", "terminationTime"):
        assert client.says(words), f"{words}\n{client}"
    person.ended()
    row = person.instances()[0]["row"]
    assert row["labels"]["costgpu-run"] == person.run_id()
    assert row["scheduling"]["instanceTerminationAction"] == "DELETE"
    assert not row.get("serviceAccounts")
    listed = json.loads(person.do("jobs", "-a", "--json").out)["runs"]
    assert [(each["state"], each["reason"], each["outputs_home"]) for each in listed] == [("closed", "succeeded", True)]
    assert person.do("reap", "--infra", "gcp/us-central1").out == b""
    rules = [row["params"]["body"] for row in person.requests() if row["action"] == "firewalls.insert"]
    allowed = [rule["sourceRanges"] for rule in rules if rule.get("allowed")]
    assert allowed == [["198.18.0.1/32"]]
    assert [rule["sourceRanges"] for rule in rules if rule.get("denied")] == [["0.0.0.0/0"]]


@journeys
def the_startup_script_comes_late(person: Person) -> None:
    """The same script again, when the job runs already, as on Ubuntu: nothing ends and nothing begins anew."""
    client = person.begun()
    guest = person.guest()
    script = ("systemctl", "show", "--property=ActiveState", "--value", "google-startup-scripts")
    assert guest.run(*script).stdout == "inactive\n", "user data have done its work until now"

    def shown() -> str:
        services = ("costgpu-agent", "costgpu-deadline", "ssh")
        return (
            guest.run("systemctl", "show", "--property=Id,MainPID,NRestarts", *services).stdout
            + guest.run("cat", "/opt/costgpu/deadline", "/opt/costgpu/limits", "/opt/costgpu/identity").stdout
            + guest.run("sh", "-c", "/usr/sbin/sshd -T | grep -i -e hostkey -e authorized -e permitroot").stdout
        )

    before = shown()
    guest.seed_snaps()
    guest_control.until(lambda: guest.run(*script).stdout == "active\n", 30, "the startup script")
    assert guest.run("pgrep", "--count", "--full", "watchdog.sh").stdout == "1\n"
    assert shown() == before
    person.go()
    assert client.wait() == 0, str(client)
    assert person.holds("model.bin", "weights")
    person.ended()


@journeys
def its_client_is_killed_as_it_is_made(person: Person) -> None:
    """The machine is made, and nobody was told so: it is found by the name in its labels."""
    person.write(QUICK)
    person.fault("instances.insert", when="after", held=True)
    client = person.launch()
    client.until(lambda: "instances.insert" in [row["action"] for row in person.requests()], what="it is asked for")
    client.kill()
    person.release()
    until(person.instances, 30, "it is there")
    person.reap(UNSEEN_SECONDS)
    person.ended()


@journeys
def the_machine_stops_itself(person: Person) -> None:
    """On Google a guest's power-off leaves the machine and its disk; the client is gone, and `reap` deletes both."""
    person.write(QUICK)
    person.ran("-d")
    hurry(person.guest())
    person.guest().run("systemctl", "poweroff", check=False)
    person.until_state("stopped", 60)
    assert f"disks/{machine(person)}" in person.left()
    person.reap()
    person.until_state("terminated", 30)
    assert person.left() == []
    person.ended()


@journeys
def the_watchdog_stops_it(person: Person) -> None:
    """A client that is still there deletes what the watchdog could only stop."""
    client = person.begun()
    person.guest().shift_clock(3600.0)
    assert client.wait() != 0, str(client)
    person.ended()


@journeys
def nobody_is_left_but_the_time_limit(person: Person) -> None:
    """Client, agent and watchdog are dead: Google deletes the machine and its disk."""
    client = person.begun()
    guest = person.guest()
    client.kill()
    guest.run("systemctl", "mask", "--now", "--runtime", "costgpu-deadline", "costgpu-agent", check=False)
    guest.kill("[w]atchdog.sh")
    row = person.instances()[0]["row"]
    assert row["resourceStatus"]["scheduling"]["terminationTimestamp"]
    person.cloud.expire(machine(person))
    person.until_state("terminated", 30)
    assert f"disks/{machine(person)}" not in person.left()
    person.reap()
    person.ended()


@journeys
def a_spot_machine_is_taken_without_a_word(person: Person) -> None:
    """As Google does it: the notice and the power button at the same time, and then it is deleted."""
    client = person.begun("--spot")
    person.cloud.preempt(machine(person))
    assert client.wait() == Preempted.exit_code, str(client)
    person.ended()


@journeys
def a_spot_machine_is_taken_from_nobody(person: Person) -> None:
    """Without a notice, and the client is gone: what there is to know is in Google's list of operations."""
    person.write(WAITS)
    person.ran("-d", "--spot")
    person.cloud.preempt(machine(person), 0.0)
    person.until_state("terminated", 60)
    attached = person.start("attach", person.run_id())
    assert attached.wait() == Preempted.exit_code, str(attached)
    assert attached.says(f"{machine(person)} back: Instance was preempted"), str(attached)
    person.ended()


@journeys
def its_host_fails(person: Person) -> None:
    """Google leaves the disk, and forgets the time limit: both are deleted, also if the client is gone meanwhile."""
    client = person.begun()
    person.cloud.fail_host(machine(person))
    assert client.wait() == Preempted.exit_code, str(client)
    assert client.says("its host failed (hostError)"), str(client)
    assert (person.receipt()["reason"], person.receipt()["ended_by"]) == ("preempted", "provider")
    person.ended()


@pytest.mark.parametrize("name", journeys.names)
def test_journey(name: str) -> None:
    journeys.wait(name)

"""What goes wrong on AWS: each a clear error with its exit code, and no machine left."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.emulated.journeys.conftest import Begin
from tests.emulated.journeys.journey import KILLABLE, WAITS, Client, Journeys, Person, until
from tests.emulators.ec2.client import RunningEc2
from tests.emulators.guests import guest_control
from tests.emulators.guests.disk_seed import Traits
from tests.emulators.guests.shims import ASKED

pytestmark = pytest.mark.emulator
journeys = Journeys()

DEFECTS = {
    "c6a.large": Traits(image="no-python"),
    "c5.large": Traits(image="no-sshd"),
    "m5.large": Traits(image="kernel-panic"),
    "m6i.large": Traits(image="no-user-data"),
    "g4dn.xlarge": Traits(image="no-driver"),
}


@pytest.fixture(scope="module", autouse=True)
def all_at_once(begin: Begin, guest_cloud_process: RunningEc2) -> Iterator[None]:
    for kind, traits in DEFECTS.items():
        guest_control.set_traits(traits, kind)
    yield from begin(guest_cloud_process)
    for kind in DEFECTS:
        guest_control.set_traits(None, kind)


def moved(person: Person) -> tuple[tuple[str, ...], Path]:
    """A command line whose clock goes ahead by the seconds in a file."""
    file = person.folder / "clock"
    return (*KILLABLE, "--clock", str(file), "--"), file


def no_answer(person: Person, kind: str, on_console: str) -> Client:
    """A machine that never lets anybody in."""
    person.write("pass")
    command, clock = moved(person)
    client = person.launch(kind=kind, cap="0.10", command=command)
    guest = person.guest()
    until(lambda: on_console in guest_control.consoles()[guest.instance_id], 60)
    client.until(lambda: "created" in person.events(), what="it is recorded")
    clock.write_text("601")
    assert client.wait() == 52, str(client)
    person.ended()
    return client


@journeys
def sshd_never_comes_up(person: Person) -> None:
    client = no_answer(person, "c5.large", "multi-user")
    assert client.says("did not answer within 10 min")
    assert client.says("Its console said last:")


@journeys
def the_kernel_panics(person: Person) -> None:
    assert no_answer(person, "m5.large", "Kernel panic").says("Kernel panic - not syncing")


@journeys
def the_gpu_does_not_answer(person: Person) -> None:
    """It is asked for again and again, before anything is sent, and then the machine is ended."""
    person.write("pass")
    command, clock = moved(person)
    client = person.launch(kind="g4dn.xlarge", cap="0.50", command=command)
    guest = person.guest()
    client.until(lambda: guest.run("test", "-e", ASKED, check=False).returncode == 0, what="the driver is asked")
    sent = guest.run("ls", "-A", "/opt/costgpu/work").stdout
    clock.write_text("91")
    assert client.wait() == 67, str(client)
    assert client.says(f"The GPUs of {guest.instance_id} did not answer within 90 s. nvidia-smi failed (9)"), str(
        client
    )
    assert client.says("couldn't communicate with the NVIDIA driver."), str(client)
    assert client.says("not started, the GPU or its driver did not answer"), str(client)
    assert sent == ""
    assert "synced" not in person.events()
    person.ended()


@journeys
def another_host_answers(person: Person) -> None:
    """The machine shows the key of its image, not the one that was put into its user data."""
    person.write("pass")
    command, clock = moved(person)
    client = person.launch(kind="m6i.large", cap="0.10", command=command)
    guest = person.guest()
    until(lambda: "Secure Shell" in guest_control.consoles()[guest.instance_id], 60)
    guest.run("sh", "-c", "until ss -ltn | grep -q :22; do sleep 0.1; done")
    seen = len(person.requests())
    client.until(lambda: len(person.requests()) > seen + 3, what="it has tried to connect")
    clock.write_text("60")  # more than what a slow boot script is given
    assert client.wait() == 54, str(client)
    assert guest.instance_id in client.err.decode()
    person.ended()


@journeys
def another_host_answers_later(person: Person) -> None:
    """Whoever takes the machine's place while the job runs is not believed."""
    client = person.begun(cap="0.10")
    guest = person.guest()
    guest.run(
        "sh",
        "-c",
        "rm /etc/costgpu/ssh_host_ed25519_key*; ssh-keygen -q -t ed25519 -N '' -f /etc/costgpu/ssh_host_ed25519_key",
    )
    guest.run("sh", "-c", "systemctl restart ssh; pkill -KILL -f 'sshd: root'", check=False)
    assert client.wait() == 54, str(client)
    assert client.says(guest.instance_id) or client.says(person.run_id())
    assert person.do("cancel", "-y", person.name).says("Receipt")
    person.ended()


@journeys
def it_ends_while_it_is_launched(person: Person) -> None:
    """RunInstances succeeds, and there is no capacity after all; then the account's key cannot be used."""
    kind = "c7a.medium"
    person.cloud.fail_launch(kind, "Server.InsufficientInstanceCapacity", "There was not enough capacity.")
    person.write("open('model', 'w').write('x')")
    assert person.launch(kind=kind, cap="0.10").wait() == 0
    assert person.events().count("refused") == 1
    assert (person.work / "model").exists()
    person.ended(instances=2)
    person.cloud.fail_launch(kind, "Client.InternalError", "Client error on launch")
    client = person.launch(kind=kind, cap="0.10")
    assert client.wait() == 41, str(client)
    assert client.says("kms:CreateGrant")
    person.ended(instances=3)


def asked_for_machines(person: Person) -> list[dict[str, Any]]:
    return [row for row in person.requests() if row["name"] == "ec2:RunInstances"]


@journeys
def no_capacity_anywhere_and_later_some(person: Person) -> None:
    """Two regions are asked, zone by zone, and again after a minute: then the second one has room."""
    code, words = "InsufficientInstanceCapacity", "We currently do not have sufficient c7g.medium capacity."
    person.fault("RunInstances", region="us-east-1", times=-1, code=code, message=words)
    person.fault("RunInstances", region="us-west-2", times=6, code=code, message=words)
    person.write("open('model', 'w').write('x')")
    command, clock = moved(person)
    places = ("aws/us-east-1", "aws/us-west-2")
    client = person.launch("--retry-until-up", kind="c7g.medium", cap="0.10", infra=places, command=command)
    client.until(
        lambda: asked_for_machines(person) and any("searched" in person.events(each) for each in person.run_ids()),
        what="it waits to look again",
    )
    clock.write_text("61")
    assert client.wait() == 0, str(client)
    assert [each["region"] for each in person.instances()] == ["us-west-2"]
    rows = asked_for_machines(person)
    asked = [row["params"].get("NetworkInterface.1.SubnetId") for row in rows if row["region"] == "us-east-1"]
    assert asked[0] is None
    assert len(set(asked)) > 3
    assert Counter(asked) == dict.fromkeys(asked, 2), "each zone in both searches"
    (run_id,) = person.run_ids()
    assert person.facts("closed", run_id)["receipt"]["reason"] == "succeeded"
    events = person.events(run_id)
    assert events.count("searched") == 1
    assert events.count("refused") == len(asked) + 6 == len(rows) - 1
    assert person.holds("model", "x")
    person.ended()


@journeys
def terminate_is_refused(person: Person) -> None:
    words = "You are not authorized to perform this operation."
    person.fault("TerminateInstances", times=-1, code="UnauthorizedOperation", message=words, status=403)
    person.write("open('model', 'w').write('x')")
    client = person.ran(code=47)
    machine = person.instances()[0]["id"]
    assert client.says(f"{machine} in us-east-1 could not be ended and may be billing")
    assert client.says(f"aws ec2 terminate-instances --region us-east-1 --instance-ids {machine}")
    assert (person.work / "model").exists()
    assert machine.encode() in person.do("jobs").out
    person.key += "ALLOWED"
    attached = person.do("attach", person.name)
    assert attached.says("Receipt")
    person.ended()


@journeys
def credentials_expire(person: Person) -> None:
    client = person.begun(cap="0.10")
    guest = person.guest()
    person.cloud.expire(person.key)
    person.go()
    assert client.wait() == 47, str(client)
    assert client.says(f"--instance-ids {guest.instance_id}")
    assert (person.work / "model.bin").exists()
    person.key += "RENEWED"
    person.do("attach", person.name)
    person.ended()


@journeys
def a_wrong_clock(person: Person) -> None:
    """Six hours slow: the lease still counts, by the seconds that were lived."""
    person.write(WAITS)
    client = person.launch("-d")
    guest = person.guest()
    guest.shift_clock(-6 * 3600)
    assert client.wait() == 0, str(client)
    assert int(guest.run("python3", "-c", "import time; print(int(time.time()))").stdout) < time.time() - 5 * 3600
    lived, lifetime = (guest.run("cat", f"/opt/costgpu/{name}").stdout.split() for name in ("life", "limits"))
    assert int(lived[0]) < 120
    assert 900 < int(lifetime[1]) < 1800
    person.go()
    assert b"done" in person.do("attach", person.name).out
    person.ended()


@journeys
def a_reboot(person: Person) -> None:
    client = person.begun(cap="0.10")
    guest = person.guest()
    before = guest.leader
    guest.run("systemctl", "reboot", check=False)
    until(lambda: guest.leader != before, 30)
    assert client.wait() in (50, 137, 143), str(client)  # what the machine's shutdown leaves the job time for
    assert client.says("restarted")
    assert client.out == b"begun\n"
    assert person.holds("partial", "half")
    assert person.facts("finished")["reason"] == "job_failed"
    assert "restarted" in person.facts("finished")["detail"]
    person.ended()


@journeys
def no_python(person: Person) -> None:
    person.write("pass")
    client = person.ran(kind="c6a.large", cap="0.10", code=55)
    assert client.says("no Python 3.8 or newer")
    person.ended()


@pytest.mark.parametrize("name", journeys.names)
def test_trouble(name: str) -> None:
    journeys.wait(name)

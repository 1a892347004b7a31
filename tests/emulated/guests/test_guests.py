"""What guests have in common with instances, where no test of costgpu itself would see the difference."""

import socket
import threading
import time
from pathlib import Path

import pytest

from tests.emulators.compute_engine.client import RunningComputeEngine
from tests.emulators.compute_engine.metadata_server import Metadata, etag
from tests.emulators.guests import guest_control
from tests.emulators.guests.disk_seed import Traits
from tests.emulators.guests.guest_control import InGuest
from tests.emulators.guests.login import OneRunKeys, boot, spec, wait_for_banner
from tests.emulators.guests.nspawn import NspawnMachines

pytestmark = pytest.mark.emulator


@pytest.fixture
def keys(tmp_path: Path) -> OneRunKeys:
    return OneRunKeys.make(tmp_path)


def test_real_cloud_init_runs_the_boothook_before_sshd(machines: NspawnMachines, keys: OneRunKeys) -> None:
    guest_control.set_traits(Traits(image="cloud-init"))
    hook = keys.boothook("date +%s%N >/root/hook-ran; sleep 1; pgrep -x sshd >/root/sshd-was-there")
    booted = boot(machines, spec(1, hook))
    answers: list[str] = []
    while True:
        done = keys.ssh(booted.spec.public_ip, "cat /root/sshd-was-there; cloud-init query cloud_name; ls /etc/ssh", 60)
        if done.returncode == 0:
            break
        answers.append(done.stderr)
        assert "HOST IDENTIFICATION" not in done.stderr, "another host key than the injected one was shown first"
        assert time.monotonic() - booted.started < 60, (answers, guest_control.consoles())
    assert done.stdout.split()[0] == "aws", done.stdout  # and no sshd had a process before the hook was through
    shown = keys.ssh(booted.spec.public_ip, "sshd -T | grep -i ^hostkey' '").stdout
    assert shown == "hostkey /etc/one-run/key\n"


def test_googles_ubuntu_runs_user_data_before_sshd_and_the_startup_script_long_after(
    guest_gce: RunningComputeEngine,
) -> None:
    hook = "#cloud-boothook\n#!/bin/sh\necho hook >>/root/boots; pgrep -x sshd && echo late >>/root/boots\n"
    script = "#!/bin/sh\npgrep -x sshd && echo script >>/root/boots\n"
    items = [{"key": "user-data", "value": hook}, {"key": "startup-script", "value": script}]
    row = guest_gce.make(metadata={"items": items})
    inside = InGuest(row["guest"])

    def boots() -> str:
        return inside.run("cat", "/root/boots", check=False).stdout

    guest_control.until(lambda: knock(row["public_ip"]), 30)
    assert boots() == "hook\n", "the first boot is not over before the snaps are there"
    inside.seed_snaps()
    guest_control.until(lambda: boots() == "hook\nscript\n", 30)
    inside.run("systemctl", "reboot")
    guest_control.until(lambda: boots() == "hook\nscript\nhook\nscript\n", 30)
    assert [each["state"] for each in guest_gce.instances()] == ["RUNNING"], "a reboot from within is no stop"


def test_firewall_rules_decide_who_reaches_port_22(guest_gce: RunningComputeEngine) -> None:
    vm = guest_gce.make(tags={"items": ["run"]})["public_ip"]
    other = guest_gce.make("other")["public_ip"]
    stranger = ("169.254.169.254", 0)  # another address of this side
    guest_control.until(lambda: knock(vm) and knock(other), 60)
    assert knock(vm, stranger), "the default network lets everybody in"
    ours = {
        "name": "ours",
        "sourceRanges": ["198.18.0.1/32"],
        "priority": 900,
        "targetTags": ["run"],
        "allowed": [{"IPProtocol": "tcp", "ports": ["22"]}],
    }
    others = {**ours, "name": "others", "sourceRanges": ["0.0.0.0/0"], "priority": 901, "denied": ours["allowed"]}
    del others["allowed"]
    for rule in (others, ours):
        guest_gce.ask("global/firewalls", rule)
    guest_control.until(lambda: not knock(vm, stranger))
    assert knock(vm)
    assert knock(other, stranger), "rules with a tag are for those who have it"
    guest_gce.ask("global/firewalls/ours", method="DELETE")
    guest_control.until(lambda: not knock(vm))


def knock(address: str, source: tuple[str, int] | None = None) -> bool:
    """Whether somebody answers on the port of SSH."""
    try:
        with socket.create_connection((address, 22), 5, source_address=source) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def test_who_waits_for_a_change_does_not_keep_it_from_being_told() -> None:
    """The cloud tells of a change under its own lock, which whoever waits needs to look."""
    metadata, lock, looking = Metadata(), threading.Lock(), threading.Event()

    def find(_: str) -> None:
        looking.set()
        with lock:
            return

    metadata.find = find
    waiting = threading.Thread(target=metadata.wait, args=("10.0.0.1", "instance", etag(None), 1.0), daemon=True)
    telling = threading.Thread(target=metadata.changed, daemon=True)
    with lock:
        waiting.start()
        assert looking.wait(10)
        telling.start()
        telling.join(10)
        assert not telling.is_alive()
    waiting.join(10)
    assert not waiting.is_alive()


def test_a_command_that_the_end_of_its_guest_has_stopped_goes_on() -> None:
    done = guest_control.carry_out(["sh", "-c", "kill -STOP $$; cat"], "said")
    assert (done.returncode, done.stdout) == (0, "said")


def test_nothing_reaches_the_network_and_guests_reach_the_gateway(machines: NspawnMachines, keys: OneRunKeys) -> None:
    booted = wait_for_banner(boot(machines, spec(1, keys.boothook())))
    with pytest.raises(OSError, match="unreachable"):
        socket.create_connection(("192.0.2.1", 80), 3)
    outside = booted.inside.run("curl", "-s", "--max-time", "3", "http://192.0.2.1/", check=False)
    assert outside.returncode in {7, 28}
    with socket.create_server(("198.18.0.1", 0)) as server:
        reply: list[bytes] = []

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                reply.append(connection.recv(100))
                connection.sendall(b"HTTP/1.0 200 OK\r\n\r\nhello")

        threading.Thread(target=answer, daemon=True).start()
        url = f"http://198.18.0.1:{server.getsockname()[1]}/"
        assert booted.inside.run("curl", "-s", "--max-time", "3", url).stdout == "hello"


def test_gpus_are_those_of_the_instance_type(machines: NspawnMachines, keys: OneRunKeys) -> None:
    with_gpus = boot(machines, spec(1, keys.boothook(), instance_type="g5.12xlarge"))
    plain = boot(machines, spec(2, keys.boothook()))
    query = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")
    wait_for_banner(with_gpus)
    assert with_gpus.inside.run("nvidia-smi", "-L").stdout.count("NVIDIA A10G") == 4
    assert with_gpus.inside.run(*query).stdout.split() == ["0"] * 4
    wait_for_banner(plain)
    assert plain.inside.run("sh", "-c", "command -v nvidia-smi", check=False).returncode == 127

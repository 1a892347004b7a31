"""What the guests of the emulated cloud have in common with instances: boot, user data, power, keys, time, trouble."""

import socket
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.emulators.guests import cgroups, guest_control
from tests.emulators.guests.disk_seed import Traits
from tests.emulators.guests.guest_control import NoGuest
from tests.emulators.guests.login import Booted, OneRunKeys, boot, spec, wait_for_banner
from tests.emulators.guests.nspawn import NspawnMachines

pytestmark = pytest.mark.emulator
TOKEN = 'curl -sX PUT -H "X-aws-ec2-metadata-token-ttl-seconds: 60" http://169.254.169.254/latest/api/token'


@pytest.fixture
def keys(tmp_path: Path) -> OneRunKeys:
    return OneRunKeys.make(tmp_path)


def started(machines: NspawnMachines, keys: OneRunKeys, number: int = 1, extra: str = "true") -> Booted:
    return wait_for_banner(boot(machines, spec(number, keys.boothook(extra), instance_type="g5.12xlarge")))


def test_the_first_connection_that_is_accepted_shows_the_injected_key(
    machines: NspawnMachines, keys: OneRunKeys
) -> None:
    booted = boot(machines, spec(1, keys.boothook("sleep 1")))
    answers: list[str] = []
    while not answers or "refused" in answers[-1] or "timed out" in answers[-1] or "No route" in answers[-1]:
        done = keys.ssh(booted.spec.public_ip, "id -u; hostname; cat /proc/1/comm")
        answers.append(done.stderr)
    assert done.stdout.split() == ["0", "ip-172-31-0-1", "systemd"], done.stderr
    assert not any("HOST IDENTIFICATION" in each for each in answers)


def test_every_guest_has_host_keys_of_its_own(machines: NspawnMachines, keys: OneRunKeys) -> None:
    guest_control.set_traits(Traits(image="no-user-data"))
    one, two = (started(machines, keys, number) for number in (1, 2))
    shown = {(each.inside.root / "etc/ssh/ssh_host_ed25519_key.pub").read_text() for each in (one, two)}
    assert len(shown) == 2
    assert [each.inside.run("ls", "/sys/class/net").stdout.split() for each in (one, two)] == [["eth0", "lo"]] * 2
    refused = keys.ssh(one.spec.public_ip, "true")  # nobody has told this machine which key to show
    assert (refused.returncode, "Host key verification failed" in refused.stderr) == (255, True)


def test_a_boothook_runs_at_every_boot_and_a_reboot_is_no_exit(machines: NspawnMachines, keys: OneRunKeys) -> None:
    booted = started(machines, keys, extra="echo boot >>/root/boots; cat /proc/sys/kernel/random/boot_id >>/root/ids")
    keys.ssh(booted.spec.public_ip, "touch /root/kept; systemctl reboot")
    guest_control.until(lambda: booted.inside.run("cat", "/root/boots", check=False).stdout == "boot\nboot\n")
    booted.seconds = 0.0
    wait_for_banner(booted)
    assert keys.ssh(booted.spec.public_ip, "ls /root/kept; sort -u /root/ids | wc -l").stdout == "/root/kept\n2\n"
    assert booted.exits == []


def test_a_command_that_the_end_of_its_guest_has_stopped_goes_on() -> None:
    done = guest_control.carry_out(["sh", "-c", "kill -STOP $$; cat"], "said")
    assert (done.returncode, done.stdout) == (0, "said")


def test_a_script_runs_at_the_first_boot_only(machines: NspawnMachines) -> None:
    script = b"#!/bin/sh\necho said by the script\necho once >>/root/runs\n"
    booted = boot(machines, spec(1, script))
    guest_control.until(lambda: booted.inside.run("cat", "/root/runs", check=False).stdout == "once\n")
    before = booted.inside.leader
    booted.inside.run("systemctl", "reboot")
    guest_control.until(lambda: booted.inside.leader != before)
    guest_control.until(
        lambda: booted.inside.run("systemctl", "is-active", "multi-user.target", check=False).stdout == "active\n"
    )
    assert booted.inside.run("cat", "/root/runs").stdout == "once\n"
    assert machines.console(booted.spec.instance_id).count(b"said by the script") == 1


@pytest.mark.parametrize("command", ["systemctl poweroff", "poweroff -f", "systemctl poweroff --force"])
def test_its_own_power_off_is_reported(machines: NspawnMachines, keys: OneRunKeys, command: str) -> None:
    booted = started(machines, keys)
    booted.inside.run("sh", "-c", f"{command} &")
    assert booted.gone.wait(10)
    assert booted.exits == [False]
    assert guest_control.running() == []
    with pytest.raises(NoGuest):
        booted.inside.run("true")


def test_a_halted_machine_stays_on_until_it_is_ended(machines: NspawnMachines, keys: OneRunKeys) -> None:
    booted = started(machines, keys)
    booted.inside.run("systemctl", "halt")
    guest_control.until(lambda: "Starting systemd-halt.service" in guest_control.consoles()[booted.spec.instance_id])
    assert not booted.gone.wait(2)
    machines.stop(booted.spec.instance_id)
    assert booted.exits == [True]


def test_stop_ends_a_guest_in_any_state(machines: NspawnMachines, keys: OneRunKeys) -> None:
    just_now = boot(machines, spec(1))
    machines.stop(just_now.spec.instance_id)
    booted = started(machines, keys, 2)
    machines.stop(booted.spec.instance_id)
    hangs = started(machines, keys, 3)
    hangs.inside.freeze()
    machines.stop(hangs.spec.instance_id)
    assert [each.exits for each in (just_now, booted, hangs)] == [[True]] * 3
    machines.stop(booted.spec.instance_id)
    machines.stop("i-00000000000000000")
    assert (booted.exits, guest_control.running()) == ([True], [])
    assert b"Reached target" in machines.console(booted.spec.instance_id)


def test_a_guest_that_cannot_be_started_is_an_exit(machines: NspawnMachines) -> None:
    booted = boot(machines, spec(1, b"#cloud-config\nruncmd: [ls]\n"))
    assert booted.gone.wait(10)
    assert booted.exits == [False]
    assert b"needs the cloud-init image" in machines.console(booted.spec.instance_id)


def test_metadata_needs_a_token_of_the_guest_itself(machines: NspawnMachines, keys: OneRunKeys) -> None:
    one, two = started(machines, keys, 1), started(machines, keys, 2)
    root = "http://169.254.169.254/latest"

    def ask(booted: Booted, path: str, token: str) -> str:
        return booted.inside.run(
            "curl", "-s", "-w", " %{http_code}", "-H", f"X-aws-ec2-metadata-token: {token}", f"{root}/{path}"
        ).stdout

    token = one.inside.run("sh", "-c", TOKEN).stdout
    assert ask(one, "meta-data/instance-id", token) == f"{one.spec.instance_id} 200"
    assert ask(two, "meta-data/instance-id", token) == " 401"
    assert ask(one, "meta-data/instance-id", "") == " 401"
    assert ask(one, "meta-data/spot/instance-action", token) == " 404"
    machines.interrupt(one.spec.instance_id, datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC))
    notice = '{"action": "terminate", "time": "2026-05-04T03:02:01Z"} 200'
    assert ask(one, "meta-data/spot/instance-action", token) == notice
    assert "spot/" not in ask(two, "meta-data/", two.inside.run("sh", "-c", TOKEN).stdout)


def test_nothing_reaches_the_network_and_guests_reach_the_gateway(machines: NspawnMachines, keys: OneRunKeys) -> None:
    booted = started(machines, keys)
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
    booted = started(machines, keys)
    query = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")
    assert booted.inside.run("nvidia-smi", "-L").stdout.count("NVIDIA A10G") == 4
    assert booted.inside.run(*query).stdout.split() == ["0"] * 4
    booted.inside.use_gpus(87.5)
    assert booted.inside.run(*query).stdout.split() == ["87.5"] * 4
    plain = wait_for_banner(boot(machines, spec(2, keys.boothook())))
    assert plain.inside.run("sh", "-c", "command -v nvidia-smi", check=False).returncode == 127


def test_processes_are_killed_in_one_guest_only(machines: NspawnMachines, keys: OneRunKeys) -> None:
    one, two = started(machines, keys, 1), started(machines, keys, 2)
    for each in (one, two):
        keys.ssh(each.spec.public_ip, "setsid sleep 4242 </dev/null >/dev/null 2>&1 &")
    guest_control.until(lambda: two.inside.run("pgrep", "-f", "sleep 4242", check=False).stdout)
    assert one.inside.kill("^sleep 4242$") == 1
    assert one.inside.kill("^sleep 4242$") == 0
    assert two.inside.run("pgrep", "-f", "^sleep 4242$").stdout
    one.inside.run("systemctl", "stop", "ssh")  # they do not share control groups
    assert keys.ssh(two.spec.public_ip, "systemctl is-active ssh").stdout == "active\n"


def test_eight_guests_at_once(machines: NspawnMachines, keys: OneRunKeys) -> None:
    all_of_them = [boot(machines, spec(number, keys.boothook())) for number in range(1, 9)]
    for each in all_of_them:
        wait_for_banner(each, 30)
    names = [keys.ssh(each.spec.public_ip, "hostname").stdout.strip() for each in all_of_them]
    assert names == [f"ip-172-31-0-{number}" for number in range(1, 9)]
    machines.close()
    assert [each.exits for each in all_of_them] == [[True]] * 8
    assert guest_control.running() == []
    assert [list(each.glob("i-*")) for each in cgroups.families()] == [[]] * len(cgroups.families())


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

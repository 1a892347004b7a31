"""Compute Engine's API and the guests together, through Google's own client: what a machine does is what the API says."""

from __future__ import annotations

import json
import socket
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.compute_engine.client import PROJECT, RunningGce
from tests.emulators.compute_engine.google_client import ZONE, Google, done
from tests.emulators.compute_engine.metadata_server import Metadata, etag
from tests.emulators.ec2.client import RunningCloud
from tests.emulators.guests import guest_control
from tests.emulators.guests.guest_control import InGuest
from tests.emulators.guests.login import OneRunKeys

pytestmark = pytest.mark.emulator
META = "http://metadata.google.internal/computeMetadata/v1"
HEADER = "-H 'Metadata-Flavor: Google'"


@pytest.fixture
def keys(tmp_path: Path) -> OneRunKeys:
    return OneRunKeys.make(tmp_path)


@pytest.fixture
def google(guest_gce: RunningGce) -> Google:
    return Google(guest_gce)


def script(keys: OneRunKeys, extra: str = "true") -> str:
    """What AWS's guests get as user data, for a sshd that runs already and lets no root in by itself."""
    text = keys.boothook(extra).decode().removeprefix("#cloud-boothook\n")
    text = text.replace(
        "echo 'HostKey", "echo 'PermitRootLogin prohibit-password' >/etc/ssh/sshd_config.d/09-root.conf\necho 'HostKey"
    )
    return f"{text}systemctl reload ssh\n"


def address_of(google: Google, keys: OneRunKeys, name: str = "vm") -> str:
    found = str(google.get(name).network_interfaces[0].access_configs[0].nat_i_p)
    guest_control.until(lambda: keys.ssh(found, "true").returncode == 0, 30, f"{name} lets the user in")
    return found


def guest(gce: RunningGce, name: str = "vm") -> InGuest:
    return InGuest(next(row["guest"] for row in gce.instances() if row["id"] == name))


def console(google: Google, name: str = "vm") -> str:
    return str(google.instances.get_serial_port_output(project=PROJECT, zone=ZONE, instance=name).contents)


def test_a_machine_from_insert_to_gone(guest_gce: RunningGce, google: Google, keys: OneRunKeys) -> None:
    started = time.monotonic()
    google.made(script=script(keys))
    address = address_of(google, keys)
    print(f"insert to ssh: {time.monotonic() - started:.1f} s")
    assert keys.ssh(address, "id -un; hostname").stdout.startswith("root\n")
    guest_control.until(lambda: "Finished running startup scripts" in console(google), 10)
    keys.ssh(address, "systemctl poweroff")
    guest_control.until(lambda: google.get().status == "TERMINATED", 30)
    assert guest_control.running() == []
    assert guest_gce.leftovers() == ["disks/vm"]
    kinds = [each.operation_type for each in google.zone_operations.list(project=PROJECT, zone=ZONE)]
    assert kinds == ["compute.instances.guestTerminate", "insert"]
    done(google.delete())
    assert (google.names(), guest_gce.leftovers()) == ([], [])


def test_the_startup_script_runs_at_every_boot(guest_gce: RunningGce, google: Google, keys: OneRunKeys) -> None:
    google.made(script=script(keys, "echo boot >>/root/boots"))
    address = address_of(google, keys)
    inside = guest(guest_gce)
    keys.ssh(address, "systemctl reboot")
    boots = inside.root / "root/boots"
    guest_control.until(lambda: boots.read_text() == "boot\nboot\n", 30, "it has booted again")
    address_of(google, keys)
    assert google.get().status == "RUNNING", "a reboot from within is no stop"
    done(google.wait(google.instances.stop_unary(project=PROJECT, zone=ZONE, instance="vm")))
    assert guest_control.running() == []
    done(google.wait(google.instances.start_unary(project=PROJECT, zone=ZONE, instance="vm")))
    address = address_of(google, keys)
    guest_control.until(lambda: keys.ssh(address, "cat /root/boots").stdout.count("boot") == 3, 30)


def test_a_deleted_machine_is_off(guest_gce: RunningGce, google: Google, keys: OneRunKeys) -> None:
    google.made(script=script(keys))
    address_of(google, keys)
    done(google.delete())
    assert (guest_control.running(), google.names(), guest_gce.leftovers()) == ([], [], [])


def test_the_time_limit_ends_a_machine_that_hangs(guest_gce: RunningGce, google: Google, keys: OneRunKeys) -> None:
    guest_gce.settings(soft_off_seconds=0.5)
    google.made(script=script(keys), lives=60)
    address_of(google, keys)
    guest(guest_gce).freeze()
    guest_gce.advance(61)
    guest_control.until(lambda: google.names() == [] and guest_control.running() == [], 20)
    assert guest_gce.leftovers() == []


def test_a_spot_machine_is_told_and_taken(guest_gce: RunningGce, google: Google, keys: OneRunKeys) -> None:
    google.made(script=script(keys), spot=True)
    address = address_of(google, keys)
    ask = f"curl -s {HEADER} {META}/instance/preempted"
    assert keys.ssh(address, ask).stdout == "FALSE"
    inside = guest(guest_gce)
    change = f"wait_for_change=true&timeout_sec=60&last_etag={etag('FALSE')}"
    wait = f"curl -s -o /root/told {HEADER} '{META}/instance/preempted?{change}'"
    assert keys.ssh(address, f'systemd-run -q sh -c "{wait}"').returncode == 0
    told = inside.root / "root/told"
    guest_gce.preempt("vm", notice_seconds=600)
    guest_control.until(lambda: told.exists() and told.read_text() == "TRUE", what="it is told")
    told_at = datetime.fromtimestamp(told.stat().st_mtime, UTC)
    guest_gce.preempt("vm", notice_seconds=0)
    guest_control.until(lambda: google.names() == [] and guest_control.running() == [], 20)
    assert guest_gce.leftovers() == []
    (row,) = google.zone_operations.list(
        request={"project": PROJECT, "zone": ZONE, "filter": 'operationType = "compute.instances.preempted"'}
    )
    assert row.target_link.rpartition("/")[2] == "vm"
    assert told_at < datetime.fromisoformat(row.insert_time)


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


def test_a_preempted_guest_has_its_seconds_to_save_something(
    guest_gce: RunningGce, google: Google, keys: OneRunKeys
) -> None:
    guest_gce.settings(soft_off_seconds=30)
    stop = {"provisioning_model": "SPOT", "instance_termination_action": "STOP", "on_host_maintenance": "TERMINATE"}
    google.made(
        script=script(keys),
        scheduling={**stop, "automatic_restart": False},
        metadata={
            "items": [
                {"key": "startup-script", "value": script(keys)},
                {"key": "shutdown-script", "value": "#!/bin/sh\nsleep 1\necho saved >/root/saved\n"},
            ]
        },
    )
    address_of(google, keys)
    inside = guest(guest_gce)
    guest_control.until(
        lambda: inside.run("systemctl", "is-active", "google-shutdown-scripts", check=False).returncode == 0
    )
    guest_gce.preempt("vm")
    guest_control.until(lambda: google.get().status == "TERMINATED", 30)
    done(google.wait(google.instances.start_unary(project=PROJECT, zone=ZONE, instance="vm")))
    assert keys.ssh(address_of(google, keys), "cat /root/saved").stdout == "saved\n"


def test_firewall_rules_decide_who_reaches_port_22(guest_gce: RunningGce, google: Google, keys: OneRunKeys) -> None:
    google.made(script=script(keys), tags={"items": ["run"]})
    address = address_of(google, keys)
    stranger = ("169.254.169.254", 0)  # another address of this side
    assert knock(address)
    assert knock(address, stranger), "the default network lets everybody in"
    ours: dict[str, Any] = {
        "name": "ours",
        "source_ranges": ["198.18.0.1/32"],
        "priority": 900,
        "target_tags": ["run"],
        "allowed": [{"I_p_protocol": "tcp", "ports": ["22"]}],
    }
    others = {**ours, "name": "others", "source_ranges": ["0.0.0.0/0"], "priority": 901, "denied": ours["allowed"]}
    del others["allowed"]
    for rule in (others, ours):
        done(google.wait(google.firewalls.insert_unary(project=PROJECT, firewall_resource=rule)))
    assert knock(address)
    assert not knock(address, stranger)
    google.made(name="other", script=script(keys))
    assert knock(address_of(google, keys, "other"), stranger), "rules with a tag are for those who have it"
    assert not knock(address, port=8080)
    done(google.wait(google.firewalls.delete_unary(project=PROJECT, firewall="ours")))
    assert not knock(address)
    done(google.wait(google.firewalls.delete_unary(project=PROJECT, firewall="others")))
    assert knock(address, stranger)


def knock(address: str, source: tuple[str, int] | None = None, port: int = 22) -> bool:
    try:
        with socket.create_connection((address, port), 5, source_address=source) as connection:
            return connection.recv(4) == b"SSH-"
    except TimeoutError:
        return False


def test_the_metadata_server(guest_gce: RunningGce, google: Google, keys: OneRunKeys) -> None:
    items = [
        {"key": "startup-script", "value": script(keys)},
        {"key": "costgpu-tags", "value": '{"a": "ä"}'},
        {"key": "enable-guest-attributes", "value": "TRUE"},
    ]
    google.made(metadata={"items": items}, kind="n1-standard-4", gpu="nvidia-tesla-t4", gpus=2)
    address = address_of(google, keys)

    def ask(path: str, *options: str) -> str:
        return keys.ssh(address, f"curl -s {' '.join(options)} '{META}/{path}'").stdout

    assert "Metadata-Flavor" in ask("instance/id")
    assert ask("instance/id", "-o", "/dev/null", "-w", "'%{http_code}'") == "403"
    assert ask("instance/id", HEADER) == str(google.get().id)
    assert ask("instance/nothing", HEADER, "-o", "/dev/null", "-w", "'%{http_code}'") == "404"
    assert ask("instance/zone", HEADER).endswith(f"/zones/{ZONE}")
    assert ask("instance/attributes/", HEADER).split() == ["startup-script", "costgpu-tags", "enable-guest-attributes"]
    assert json.loads(ask("instance/attributes/costgpu-tags", HEADER)) == {"a": "ä"}
    assert ask("instance/maintenance-event", HEADER) == "NONE"
    assert ask("project/project-id", HEADER) == PROJECT
    found = json.loads(ask("instance/?recursive=true", HEADER))
    assert found["networkInterfaces"]["0"]["accessConfigs"]["0"]["externalIp"] == address
    assert found["machineType"].endswith("machineTypes/n1-standard-4")
    assert found["serviceAccounts"] == {}
    assert ask("instance/guest-attributes/costgpu/state", HEADER, "-X", "PUT", "--data", "done") == ""
    value = google.instances.get_guest_attributes(project=PROJECT, zone=ZONE, instance="vm").query_value
    assert [(each.namespace, each.key, each.value) for each in value.items] == [("costgpu", "state", "done")]
    assert keys.ssh(address, "nvidia-smi -L").stdout.count("Tesla T4") == 2


def test_both_clouds_side_by_side(
    guest_gce: RunningGce, guest_cloud: RunningCloud, google: Google, keys: OneRunKeys
) -> None:
    """Each guest asks its own cloud, at the same address."""
    import boto3

    google.made(script=script(keys))
    ec2 = boto3.client("ec2")
    image = ec2.describe_images(Owners=["amazon"], Filters=[{"Name": "architecture", "Values": ["x86_64"]}])["Images"][
        0
    ]
    ec2.run_instances(
        ImageId=image["ImageId"], InstanceType="t3.micro", MinCount=1, MaxCount=1, UserData=keys.boothook().decode()
    )
    there = address_of(google, keys)
    guest_cloud.until(lambda: guest_cloud.instances("running") != [])
    here = guest_cloud.instances("running")[0]["public_ip"]
    guest_control.until(lambda: keys.ssh(here, "true").returncode == 0, 30)
    assert keys.ssh(there, f"curl -s {HEADER} http://169.254.169.254/computeMetadata/v1/instance/name").stdout == "vm"
    code = "curl -s -o /dev/null -w '%{http_code}' http://169.254.169.254/latest/meta-data/instance-id"
    assert keys.ssh(here, code).stdout == "401", "AWS wants a token"
    assert keys.ssh(there, code).stdout == "403", "Google wants a header"
    assert len(guest_control.running()) == 2


def test_a_new_project_has_no_guests(guest_gce: RunningGce, google: Google) -> None:
    google.made()
    guest_control.until(lambda: guest(guest_gce).leader)
    guest_gce.reset()
    assert (guest_control.running(), guest_control.consoles()) == ([], {})

"""Compute Engine's API and the guests together, through Google's own client: what a machine does is what the API says."""

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.compute_engine.client import PROJECT, RunningComputeEngine
from tests.emulators.compute_engine.google_client import ZONE, Google, done
from tests.emulators.compute_engine.metadata_server import Metadata, etag
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
def google(guest_gce: RunningComputeEngine) -> Google:
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


def guest(gce: RunningComputeEngine, name: str = "vm") -> InGuest:
    return InGuest(next(row["guest"] for row in gce.instances() if row["id"] == name))


def console(google: Google, name: str = "vm") -> str:
    return str(google.instances.get_serial_port_output(project=PROJECT, zone=ZONE, instance=name).contents)


def test_the_startup_script_runs_at_every_boot(
    guest_gce: RunningComputeEngine, google: Google, keys: OneRunKeys
) -> None:
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


def test_the_time_limit_ends_a_machine_that_hangs(
    guest_gce: RunningComputeEngine, google: Google, keys: OneRunKeys
) -> None:
    guest_gce.settings(soft_off_seconds=0.5)
    google.made(script=script(keys), lives=60)
    address_of(google, keys)
    guest(guest_gce).freeze()
    guest_gce.advance(61)
    guest_control.until(lambda: google.names() == [] and guest_control.running() == [], 20)
    assert guest_gce.leftovers() == []


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
    guest_gce: RunningComputeEngine, google: Google, keys: OneRunKeys
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


def test_firewall_rules_decide_who_reaches_port_22(
    guest_gce: RunningComputeEngine, google: Google, keys: OneRunKeys
) -> None:
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


def test_the_metadata_server(guest_gce: RunningComputeEngine, google: Google, keys: OneRunKeys) -> None:
    items = [
        {"key": "startup-script", "value": script(keys)},
        {"key": "costgpu-tags", "value": '{"a": "ä"}'},
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
    assert ask("instance/machine-type", HEADER).endswith("machineTypes/n1-standard-4")
    assert json.loads(ask("instance/attributes/costgpu-tags", HEADER)) == {"a": "ä"}
    assert ask("project/project-id", HEADER) == PROJECT
    assert keys.ssh(address, "nvidia-smi -L").stdout.count("Tesla T4") == 2

"""Keys, user data and ssh for tests that look at guests themselves, without the product."""

from __future__ import annotations

import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.emulators.guests.guest_control import InGuest
from tests.emulators.guests.nspawn import NspawnMachines
from tests.emulators.machines import GuestSpec


@dataclass(frozen=True, slots=True)
class OneRunKeys:
    """A user's key and a machine's key."""

    folder: Path  # where user and host are, with their public halves

    @classmethod
    def make(cls, folder: Path) -> OneRunKeys:
        for name in ("user", "host"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(folder / name)], check=True
            )
        return cls(folder)

    def text(self, name: str) -> str:
        """``user``, ``user.pub``, ``host`` or ``host.pub``."""
        return (self.folder / name).read_text()

    def boothook(self, extra: str = "true") -> bytes:
        """User data that lets the user in, makes the machine show its key, and then does something more."""
        return f"""#cloud-boothook
#!/bin/sh
mkdir -p /root/.ssh /etc/ssh/sshd_config.d /etc/one-run
umask 077
cat >/etc/one-run/key <<'KEY'
{self.text("host")}KEY
cat >/root/.ssh/authorized_keys <<'KEY'
{self.text("user.pub")}KEY
echo 'HostKey /etc/one-run/key' >/etc/ssh/sshd_config.d/10-one-run.conf
{extra}
""".encode()

    def ssh(self, address: str, command: str, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Runs a command as root there; 255 if it cannot be reached or shows another key."""
        known = self.folder / f"known-{address}"
        known.write_text(f"{address} {self.text('host.pub')}")
        options = {
            "UserKnownHostsFile": known,
            "StrictHostKeyChecking": "yes",
            "BatchMode": "yes",
            "ConnectTimeout": 20,
            "HostKeyAlgorithms": "ssh-ed25519",
        }
        flags = [f"-o{name}={value}" for name, value in options.items()]
        command_line = ["ssh", "-F", "/dev/null", "-i", str(self.folder / "user"), *flags, f"root@{address}", command]
        return subprocess.run(
            command_line, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=seconds
        )


@dataclass(slots=True)
class Booted:
    """A guest that a test has booted."""

    spec: GuestSpec
    inside: InGuest  # a test's hands in it
    exits: list[bool] = field(default_factory=list)  # what `on_exit` was called with
    gone: threading.Event = field(default_factory=threading.Event)
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0  # from `boot` until its sshd answered


def spec(number: int, user_data: bytes = b"", *, instance_type: str = "t3.micro", spot: bool = False) -> GuestSpec:
    return GuestSpec(
        instance_id=f"i-{number:017x}",
        private_ip=f"172.31.0.{number}",
        public_ip=f"54.0.0.{number}",
        user_data=user_data,
        instance_type=instance_type,
        region="us-east-1",
        zone="us-east-1a",
        spot=spot,
    )


def boot(machines: NspawnMachines, guest: GuestSpec) -> Booted:
    booted = Booted(guest, InGuest(guest.instance_id))

    def on_exit(by_us: bool) -> None:
        booted.exits.append(by_us)
        booted.gone.set()

    machines.boot(guest, on_exit)
    return booted


def wait_for_banner(booted: Booted, seconds: float = 20.0) -> Booted:
    import socket

    end = time.monotonic() + seconds  # from now on: after a reboot the machine is older than that
    while not booted.seconds:
        try:
            with socket.create_connection((booted.spec.public_ip, 22), 0.5) as connection:
                if connection.recv(4) == b"SSH-":
                    booted.seconds = time.monotonic() - booted.started
        except OSError:
            if booted.exits or time.monotonic() > end:
                raise AssertionError(f"no sshd within {seconds} s; exits: {booted.exits}") from None
            time.sleep(0.02)
    return booted

"""What makes a guest one of Google's: its metadata server, and a little stand-in for Google's guest agent.

The agent's script runner asks for ``startup-script`` at EVERY boot and runs it when the network is up: sshd is there
before it, unlike on AWS. Source: github.com/GoogleCloudPlatform/guest-agent, README, "Metadata Scripts" (2026-11).
"""

from pathlib import Path

from tests.emulators.compute_engine.metadata_server import Metadata
from tests.emulators.guests import network
from tests.emulators.guests.disk_seed import guest_file, link
from tests.emulators.guests.nspawn import GuestEnvironment, NspawnMachines
from tests.emulators.guests.shims import write
from tests.emulators.machines import GuestSpec


def install(root: Path, spec: GuestSpec) -> None:
    with (root / "etc/hosts").open("a") as hosts:
        hosts.write(f"{network.METADATA} metadata.google.internal metadata # Added by Google\n")
    with (root / "etc/ssh/sshd_config").open("a") as config:
        config.write("\nPermitRootLogin no\n")  # as in Google's images: what comes first counts, and this is last
    write(root, "usr/bin/google_metadata_script_runner", guest_file("google-script-runner.sh"), 0o755)
    unit = "google-startup-scripts.service"
    write(root, f"etc/systemd/system/{unit}", guest_file(unit))
    link(root, f"multi-user.target.wants/{unit}", f"../{unit}")


def make(name: str, metadata: Metadata) -> NspawnMachines:
    """By the name on the command line of `tests.emulators.compute_engine.server`."""
    if name != "nspawn":
        raise ValueError(f"no machines called {name}")
    return NspawnMachines(GuestEnvironment(network.GCE_BRIDGE, metadata, install))

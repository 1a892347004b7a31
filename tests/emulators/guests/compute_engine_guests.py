"""What makes a guest one of Google's Ubuntu images: its metadata server, and a little stand-in for Google's guest agent.

The agent's script runner asks for ``startup-script`` at EVERY boot. On Ubuntu it does so long after sshd is there: when
cloud-init is through, and at the first boot when snapd has unpacked the image's snaps, which takes as long as the test
wants (`InGuest.seed_snaps`). What is in ``user-data`` runs before sshd, as on AWS: these images have cloud-init, too.
Sources: github.com/GoogleCloudPlatform/guest-agent, README, "Metadata Scripts", and issue 84; cloud-init, "GCE" (2026-11).
"""

from pathlib import Path

from tests.emulators.compute_engine.metadata_server import Metadata
from tests.emulators.guests import network
from tests.emulators.guests.disk_seed import guest_file, link, user_data
from tests.emulators.guests.nspawn import GuestEnvironment, NspawnMachines
from tests.emulators.guests.shims import write
from tests.emulators.machines import GuestSpec

QUIET = "[Manager]\nShowStatus=no\n"
"""Says nothing on the console about a job that runs for long: at Google that is over in a minute or two."""


def install(root: Path, spec: GuestSpec) -> None:
    with (root / "etc/hosts").open("a") as hosts:
        hosts.write(f"{network.METADATA} metadata.google.internal metadata # Added by Google\n")
    with (root / "etc/ssh/sshd_config").open("a") as config:
        config.write("\nPermitRootLogin no\n")  # as in Google's images: what comes first counts, and this is last
    write(root, "usr/bin/google_metadata_script_runner", guest_file("google-script-runner.sh"), 0o755)
    for unit in ("google-startup-scripts.service", "snapd.seeded.service"):
        write(root, f"etc/systemd/system/{unit}", guest_file(unit))
        link(root, f"multi-user.target.wants/{unit}", f"../{unit}")
    write(root, "etc/systemd/system.conf.d/quiet.conf", QUIET)
    user_data(root, spec)


def make(name: str, metadata: Metadata) -> NspawnMachines:
    """By the name on the command line of `tests.emulators.compute_engine.server`."""
    if name != "nspawn":
        raise ValueError(f"no machines called {name}")
    return NspawnMachines(GuestEnvironment(network.GCE_BRIDGE, metadata, install))

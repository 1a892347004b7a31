"""What makes a guest one of Google's: its metadata server, and a little stand-in for Google's guest agent.

The agent's script runner asks for ``startup-script`` at EVERY boot and runs it when the network is up: sshd is there
before it, unlike on AWS. Source: github.com/GoogleCloudPlatform/guest-agent, README, "Metadata Scripts" (2026-11).
"""

from __future__ import annotations

from pathlib import Path

from tests.emulators.compute_engine.metadata_server import Metadata
from tests.emulators.guests import network
from tests.emulators.guests.disk_seed import link
from tests.emulators.guests.nspawn import House, NspawnMachines
from tests.emulators.guests.shims import write
from tests.emulators.machines import GuestSpec

RUNNER = """#!/bin/sh
# google_metadata_script_runner startup|shutdown: what the metadata name so, as root.
key=$1-script
url=http://metadata.google.internal/computeMetadata/v1/instance/attributes/$key
folder=$(mktemp -d /tmp/metadata-scripts.XXXXXX) || exit 1
tries=0
until code=$(curl -s -o "$folder/$key" -w '%{http_code}' -H 'Metadata-Flavor: Google' "$url") && [ "$code" != 000 ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 50 ] || exit 1
    sleep 0.1
done
if [ "$code" = 200 ] && [ -s "$folder/$key" ]; then
    echo "Found $key in metadata."
    chmod 700 "$folder/$key"
    "$folder/$key" 2>&1 | sed -u "s/^/$key: /"
    echo "Finished running $1 scripts."
else
    echo "No $1 scripts to run."
fi
rm -rf "$folder"
"""
STARTUP = """[Unit]
Description=Google Compute Engine Startup Scripts
Wants=network-online.target
After=network-online.target ssh.service
[Service]
Type=oneshot
ExecStart=/usr/bin/google_metadata_script_runner startup
KillMode=process
RemainAfterExit=yes
TimeoutSec=0
StandardOutput=journal+console
[Install]
WantedBy=multi-user.target
"""
SHUTDOWN = """[Unit]
Description=Google Compute Engine Shutdown Scripts
After=network-online.target
[Service]
Type=oneshot
ExecStart=/bin/true
ExecStop=/usr/bin/google_metadata_script_runner shutdown
RemainAfterExit=yes
TimeoutStopSec=0
KillMode=process
StandardOutput=journal+console
[Install]
WantedBy=multi-user.target
"""


def install(root: Path, spec: GuestSpec) -> None:
    with (root / "etc/hosts").open("a") as hosts:
        hosts.write(f"{network.METADATA} metadata.google.internal metadata # Added by Google\n")
    with (root / "etc/ssh/sshd_config").open("a") as config:
        config.write("\nPermitRootLogin no\n")  # as in Google's images: what comes first counts, and this is last
    write(root, "usr/bin/google_metadata_script_runner", RUNNER, 0o755)
    for name, text in (("google-startup-scripts", STARTUP), ("google-shutdown-scripts", SHUTDOWN)):
        write(root, f"etc/systemd/system/{name}.service", text)
        link(root, f"multi-user.target.wants/{name}.service", f"../{name}.service")


def make(name: str, metadata: Metadata) -> NspawnMachines:
    """By the name on the command line of `tests.emulators.compute_engine.server`."""
    if name != "nspawn":
        raise ValueError(f"no machines called {name}")
    return NspawnMachines(House(network.GCE_BRIDGE, metadata, install))

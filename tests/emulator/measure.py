"""How fast the guests are. Prints; asserts nothing.

python -m tests.emulator.namespace -- python -m tests.emulator.measure
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from tests.emulator.hypervisor import NspawnMachines
from tests.emulator.login import OneRunKeys, boot, spec, wait_for_banner


def main() -> None:
    """One guest at a time, then eight at once."""
    machines = NspawnMachines()
    with tempfile.TemporaryDirectory() as folder:
        keys = OneRunKeys.make(Path(folder))
        ready, offs, stops = [], [], []
        for number in range(1, 6):
            booted = wait_for_banner(boot(machines, spec(number, keys.boothook())))
            ready.append(booted.seconds)
            booted.inside.run("systemctl", "poweroff")
            since = time.monotonic()
            booted.gone.wait(30)
            offs.append(time.monotonic() - since)
            booted = wait_for_banner(boot(machines, spec(number, keys.boothook())))
            since = time.monotonic()
            machines.stop(booted.spec.instance_id)
            stops.append(time.monotonic() - since)
        for name, seconds in (("boot to sshd", ready), ("power-off to exit", offs), ("stop to exit", stops)):
            print(f"{name:20} median {statistics.median(seconds):5.2f} s, slowest {max(seconds):5.2f} s")
        eight = [boot(machines, spec(number, keys.boothook())) for number in range(11, 19)]
        for each in eight:
            wait_for_banner(each, 60)
        print(
            f"{'eight at once':20} median {statistics.median(e.seconds for e in eight):5.2f} s, "
            f"slowest {max(e.seconds for e in eight):5.2f} s"
        )
        print(f"{'memory of a guest':20} {statistics.mean(e.inside.memory_mib() for e in eight):5.1f} MiB")
        since = time.monotonic()
        machines.close()
        print(f"{'end of all eight':20} {time.monotonic() - since:5.2f} s")


if __name__ == "__main__":
    main()

"""Nothing of a testbed stays behind."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.emulators.emulator_client import ROOT
from tests.emulators.guests import packages, rootfs

OBSTACLE = packages.obstacle()
needs_testbed = pytest.mark.skipif(bool(OBSTACLE), reason=f"emulator: {OBSTACLE}")
CACHE = {"TESTBED_CACHE": str(rootfs.CACHE)}


@needs_testbed
def test_a_testbed_ends_with_the_process_that_has_started_it(tmp_path: Path) -> None:
    """Even if that is killed: its guests, and everything that it had mounted, are gone."""
    script = f"""
import time
from tests.emulators.guests.nspawn import NspawnMachines
from tests.emulators.guests.login import boot, spec, wait_for_banner
wait_for_banner(boot(NspawnMachines(), spec(1)))
open("{tmp_path}/ready", "w").close()
time.sleep(600)
"""
    starter = f"""
import subprocess, sys
from tests.emulators.guests import namespace
subprocess.run(namespace.command_line([sys.executable, "-c", {script!r}]))
"""
    process = subprocess.Popen([sys.executable, "-c", starter], cwd=ROOT, env={**os.environ, **CACHE})
    try:
        while not (tmp_path / "ready").exists():
            assert process.poll() is None
            time.sleep(0.05)
        inside = _descendants(process.pid)
        assert any("systemd-nspawn" in command for command in inside.values())
    finally:
        process.kill()
        process.wait()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and any(Path(f"/proc/{pid}").exists() for pid in inside):
        time.sleep(0.05)
    assert {pid: command for pid, command in inside.items() if Path(f"/proc/{pid}").exists()} == {}
    assert "testbed" not in Path("/proc/mounts").read_text()


def _descendants(pid: int) -> dict[int, str]:
    found = {}
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            for child in task.read_text().split():
                command = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                found[int(child)] = command
                found.update(_descendants(int(child)))
    return found
